"""`longloop export`: transformers makes of the folder what the sampler was, and the card says how it was made."""

import json
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard, RepoUrl
from safetensors.torch import load_file

from longloop.model import tiny
from longloop.store.files import read_lines
from tests.support.helpers import GUESS, write_config

SHORT = ("algo.name=sft", "algo.k=1", "steps=2", "eval.every=1", "eval.tasks=3", "save.keep=2")


@pytest.fixture(params=["model.lora_rank=0", "model.lora_rank=4"], ids=["all weights", "adapters"])
def run(request: Any, command: Any, tmp_path: Path) -> Path:
    config = write_config(tmp_path, GUESS.replace("lr = 1e-3", "lr = 1e-2"))
    code, _, error = command("train", config, f"folder={tmp_path}", request.param, *SHORT)
    assert code == 0, error
    return tmp_path / "test"


def logprobs(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Of each id after the first, as plain transformers has them."""
    with torch.no_grad():
        logits = model(ids[None].long()).logits[0].float()
    return logits[:-1].log_softmax(-1).gather(1, ids[1:, None].long())[:, 0]


def gaps(run: Path, step: int, exported: Any) -> list[float]:
    """Between the log-probs stored when attempts were sampled in an evaluation, and those of an exported model: a
    folder, or the model itself."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(exported) if isinstance(exported, Path) else exported
    columns = load_file(run / "evaluations" / f"{step:06d}.safetensors")
    found = []
    for attempt in read_lines(run / "evaluations" / f"{step:06d}.jsonl"):
        assert not any(turn["restarts_context"] for turn in attempt["turns"][1:])
        size = sum(turn["context_tokens"] + turn["action_tokens"] for turn in attempt["turns"])
        part = slice(attempt["first_token"], attempt["first_token"] + size)
        ids, mask, stored = (columns[name][part] for name in ("ids", "mask", "logprobs"))
        chosen = mask[1:].bool()
        found += (logprobs(model, ids)[chosen] - stored[1:][chosen]).abs().tolist()
    return found


def test_the_same_log_probs(run: Path, command: Any, tmp_path: Path) -> None:
    assert command("export", run, "--out", tmp_path / "whole", "--dtype", "float32")[0] == 0
    assert command("export", run, "--out", tmp_path / "half")[0] == 0
    assert command("export", run, "--out", tmp_path / "early", "--step", 1, "--dtype", "float32")[0] == 0
    exact, half = gaps(run, 2, tmp_path / "whole"), gaps(run, 2, tmp_path / "half")
    assert len(exact) >= 6 and max(exact) < 1e-4
    assert 1e-5 < max(half) < 0.1, "bfloat16 rounds"
    assert max(gaps(run, 1, tmp_path / "early")) < 1e-4
    assert max(gaps(run, 1, tmp_path / "whole")) > 1e-3, "otherwise the steps are too alike to tell"
    told = json.loads((tmp_path / "whole" / "config.json").read_text())
    assert told["use_cache"], "longloop turns it off for itself"
    assert not list((tmp_path / "whole").glob("adapter*")), "adapters are merged"


def test_the_card(run: Path, command: Any, tmp_path: Path) -> None:
    assert command("export", run, "--out", tmp_path / "model", "--step", 1)[0] == 0
    card = (tmp_path / "model" / "README.md").read_text()
    lines = {line["step"]: line for line in read_lines(run / "metrics.jsonl")}
    found = lines[1]["eval"]
    low, high = found["success_interval"]
    assert f"{found['success']:.1%} [{low:.1%}, {high:.1%}]" in card
    assert "| before training | after step 1 |" in card and "after step 2" not in card
    assert "`guess` (highest = 3, tries = 2)" in card and "`sft` (k = 1" in card
    assert f"{lines[1]['attempts']:,} attempts" in card and f"{lines[1]['trained_tokens']:,} tokens" in card
    facts = json.loads((run / "run.json").read_text())
    assert facts["command"] in card and facts["commit"] in card and facts["packages"]["torch"] in card
    assert ("merged" in card) == ("lora_rank = 4" in card)
    assert card.startswith("---\n") and "base_model" not in card, "`tiny` is no name on the hub"
    data = ModelCard(card).data
    assert (data.library_name, data.model_name) == ("transformers", "test")
    assert [one.metric_type for one in data.eval_results] == ["success", "reward"], "as the hub's own reader sees it"
    result = data.eval_results[0]
    assert (result.dataset_type, result.dataset_split, result.metric_type) == ("guess", "dev", "success")
    assert result.metric_value == round(found["success"], 4) and f"[{low:.3f}, {high:.3f}]" in result.metric_name


@pytest.mark.parametrize("run", ["model.lora_rank=0"], indirect=True)
def test_adapters_alone(run: Path, command: Any, tmp_path: Path) -> None:
    """peft finds the model that they were trained on, here that of a run, and has what was sampled from."""
    code, said, error = command("export", run, "--out", tmp_path / "adapter", "--adapter")
    assert code == 2 and "trained all weights" in error
    words = (f"folder={tmp_path}", f"model.path={run}", "model.lora_rank=4", "name=second", *SHORT)
    code, _, error = command("train", tmp_path / "config.toml", *words)
    assert code == 0, error
    code, said, error = command("export", tmp_path / "second", "--out", tmp_path / "adapter", "--adapter")
    assert code == 0 and "as trained" in said, error
    from peft import AutoPeftModelForCausalLM

    model = AutoPeftModelForCausalLM.from_pretrained(str(tmp_path / "adapter"))
    assert max(gaps(tmp_path / "second", 2, model)) < 1e-4
    told = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert told["base_model_name_or_path"] == str(run / "checkpoints" / "000002" / "model")
    data = ModelCard.load(tmp_path / "adapter" / "README.md").data
    assert data.library_name == "peft"
    assert "not merged" in (tmp_path / "adapter" / "README.md").read_text()


@pytest.mark.parametrize("run", ["model.lora_rank=4"], indirect=True)
def test_adapters_of_a_model_that_nobody_has(run: Path, command: Any, tmp_path: Path) -> None:
    code, _, error = command("export", run, "--out", tmp_path / "adapter", "--adapter")
    assert code == 2 and "were trained on `tiny`, whose random weights are in no file" in error
    assert not (tmp_path / "adapter").exists()


class Hub:
    """A hub that takes what it is given, or fails."""

    files: dict[str, bytes] = {}
    made: list[tuple[str, bool]] = []
    fails: Exception | None = None

    def create_repo(self, name: str, *, private: bool, exist_ok: bool) -> RepoUrl:
        if self.fails:
            raise self.fails
        if not any(name == known for known, _ in self.made):
            self.made.append((name, private))
        return RepoUrl(f"https://huggingface.co/{name}")

    def repo_info(self, repo_id: str) -> SimpleNamespace:
        return SimpleNamespace(private=dict(self.made)[repo_id])

    def upload_folder(
        self, *, repo_id: str, folder_path: Path, commit_message: str, delete_patterns: list[str]
    ) -> None:
        found = {path.name: path.read_bytes() for path in folder_path.iterdir()}
        for name in [name for name in self.files if any(fnmatch(name, f"{repo_id}/{p}") for p in delete_patterns)]:
            del self.files[name]
        self.files.update({f"{repo_id}/{name}": content for name, content in found.items()})


@pytest.mark.parametrize("run", ["model.lora_rank=0"], indirect=True)
def test_push(run: Path, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    monkeypatch.setattr(Hub, "files", {})
    monkeypatch.setattr(Hub, "made", [])
    code, said, error = command("export", run, "--push", "me/agent")
    assert code == 0 and "huggingface.co/me/agent" in said, error
    assert Hub.made == [("me/agent", True)], "private, unless it is said"
    names = {name.removeprefix("me/agent/") for name in Hub.files}
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= names
    assert b"model-index" in Hub.files["me/agent/README.md"]
    assert command("export", run, "--push", "me/open", "--public", "--out", tmp_path / "also")[0] == 0
    assert Hub.made[1] == ("me/open", False) and (tmp_path / "also" / "README.md").exists()
    Hub.files |= {f"me/agent/{name}": b"" for name in ("adapter_config.json", "model-2.safetensors", "notes.json")}
    for name, words, there in (
        ("agent", ["--public"], "private: leave out"),
        ("open", [], "public: leave --public in"),
    ):
        code, _, error = command("export", run, "--push", f"me/{name}", *words)
        assert code == 2 and f"me/{name} is on the hub already, and {there}" in error
    assert command("export", run, "--push", "me/agent")[0] == 0
    left = {name.removeprefix("me/agent/") for name in Hub.files if name.startswith("me/agent/")}
    assert left == {*names, "notes.json"}, "of a model that was there before nothing is left"
    code, _, error = command("export", run, "--public", "--out", tmp_path / "too")
    assert code == 2 and "name it with --push" in error
    monkeypatch.setattr(Hub, "fails", OSError("Token is required\nand more"))
    code, _, error = command("export", run, "--push", "me/agent")
    assert code == 2 and "Token is required. Log in with `hf auth login`" in error
    code, _, error = command("export", run)
    assert code == 2 and "--out" in error and "--push" in error


def test_the_card_is_that_of_the_step(command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that were changed later are not claimed, and evaluations that do not compare are not shown."""
    words = [write_config(tmp_path), f"folder={tmp_path}", "steps=1", "eval.every=1", "save.keep=9"]
    assert command("train", *words)[0] == 0
    code, _, error = command("train", "--resume", tmp_path / "test", "steps=2", "eval.split=test", "algo.lr=1e-4")
    assert code == 0, error
    cards = []
    for step in (1, 2):
        assert command("export", tmp_path / "test", "--out", tmp_path / f"{step}", "--step", step)[0] == 0
        cards.append((tmp_path / f"{step}" / "README.md").read_text())
    assert "| before training | after step 1 |" in cards[0] and "lr = 0.001" in cards[0] and 'split = "dev"' in cards[0]
    assert "1 of 1 steps" in cards[0] and "changed on the way" not in cards[0]
    assert "| | after step 2 |" in cards[1].replace("|  |", "| |") and "before training" not in cards[1]
    assert "from step 2: algo.lr = 0.0001 (was 0.001), eval.split = test (was dev), steps = 2 (was 1)" in cards[1]
    assert ModelCard(cards[1]).data.eval_results[0].dataset_split == "test"


def test_a_folder_is_not_claimed_to_be_on_the_hub(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen from elsewhere, `models/mine` looks like a name there."""
    monkeypatch.chdir(tmp_path)
    tiny.model(0).save_pretrained("models/mine")
    tiny.tokenizer().save_pretrained("models/mine")
    code, _, error = command("train", write_config(tmp_path), f"folder={tmp_path}", "model.path=models/mine", *SHORT)
    assert code == 0, error
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert command("export", tmp_path / "test", "--out", "one")[0] == 0
    assert ModelCard.load("one/README.md").data.base_model is None
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda name, file: f"/{name}/{file}")
    assert command("export", tmp_path / "test", "--out", "two")[0] == 0
    assert ModelCard.load("two/README.md").data.base_model == "models/mine"


def test_it_says_when_the_model_itself_was_not_evaluated(command: Any, tmp_path: Path) -> None:
    code, _, error = command("train", write_config(tmp_path), f"folder={tmp_path}", "steps=3", "eval.every=2")
    assert code == 0, error
    lines = read_lines(tmp_path / "test" / "metrics.jsonl")
    kept = [line for line in lines if not (line["step"] == 3 and "eval" in line)]  # as if killed before the last
    (tmp_path / "test" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    assert command("export", tmp_path / "test", "--out", tmp_path / "model")[0] == 0
    card = (tmp_path / "model" / "README.md").read_text()
    assert "after step 2" in card and "after step 3, was not evaluated" in card


def test_nothing_is_written_over(run: Path, command: Any, tmp_path: Path) -> None:
    code, _, error = command("export", run, "--out", tmp_path)
    assert code == 2 and "exists already" in error
    code, _, error = command("export", run, "--out", tmp_path / "new", "--step", 7)
    assert (
        code == 2 and "no checkpoint of step 7; it has those of steps 1, 2" in error and not (tmp_path / "new").exists()
    )


def test_what_an_interrupted_export_left_is_not_taken_over(run: Path, command: Any, tmp_path: Path) -> None:
    left = tmp_path / "model.partial"
    left.mkdir()
    (left / "adapter_config.json").write_text("{}")
    code, _, error = command("export", run, "--out", tmp_path / "model")
    assert code == 0, error
    assert not left.exists() and not (tmp_path / "model" / "adapter_config.json").exists()
