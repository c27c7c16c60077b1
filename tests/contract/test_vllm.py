"""The real vLLM, its build for CPUs, in a process and a virtualenv of its own."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from longloop.config import ModelConfig
from longloop.engines import vllm
from longloop.engines.vllm import VllmEngine
from longloop.learners.local import LocalLearner
from longloop.model import tiny
from longloop.model.policy import Policy, load
from longloop.tokens.chat import Chat
from longloop.types import Message, RankLost, SamplingParams, UserError
from tests.support.helpers import train

PYTHON = Path(__file__).parents[2] / ".venv-agents" / "vllm" / "bin" / "python"
PATIENCE = 600.0
"""Seconds that a server may take to start."""

pytestmark = pytest.mark.timeout(1200)


@dataclass
class Server:
    url: str
    model: Path
    process: "subprocess.Popen[bytes]"

    def kill(self) -> None:
        """With its workers."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a small random model, whose heads are as wide as vLLM's attention wants them on a CPU."""
    if not PYTHON.exists():
        pytest.skip("needs vLLM's build for CPUs, in .venv-agents/vllm (make test-all)")
    folder = tmp_path_factory.mktemp("vllm")
    tokenizer = tiny.tokenizer()
    tokenizer.save_pretrained(folder / "model")
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    ends = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id}
    shape = LlamaConfig(vocab_size=len(tokenizer), **sizes, **ends, initializer_range=64**-0.5)
    LlamaForCausalLM(shape).save_pretrained(folder / "model")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ["--model", folder / "model", "--host", "127.0.0.1", "--port", port, "--dtype", "float32"]
    arguments += ["--max-model-len", 256, "--enforce-eager", "--logprobs-mode", "processed_logprobs"]
    arguments += ["--enable-lora", "--max-lora-rank", 16]
    variables = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1"}
    variables |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    variables |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}  # no worker beside the engine: each process imports vLLM
    command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", *arguments]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(word) for word in command], env=os.environ | variables, stdout=log, stderr=log, start_new_session=True
        )
    made = Server(f"http://127.0.0.1:{port}", folder / "model", process)
    try:
        deadline = time.monotonic() + PATIENCE
        while not _healthy(made.url):
            said = (folder / "log").read_text(errors="replace")[-2000:]
            assert process.poll() is None and time.monotonic() < deadline, f"the server does not start: {said}"
            time.sleep(0.5)
        yield made
    finally:
        if process.poll() is None:
            made.kill()


def _healthy(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/health").status_code == 200
    except httpx2.HTTPError:
        return False


def engine_of(server: Server, rank: int = 16) -> tuple[VllmEngine, Policy, Chat]:
    policy = load(ModelConfig(path=str(server.model), lora_rank=rank), 0)
    chat = Chat(policy.tokenizer, policy.end_ids)
    return VllmEngine(policy, chat, server.url, context=96), policy, chat


def moved(policy: Policy) -> None:
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter.add_(torch.randn_like(parameter) * 0.02)
    policy.version += 1


def overrides(server: Server) -> list[str]:
    """LOOP on the guessing game with adapters, by a model that knows nothing."""
    game = ["tasks_per_step=6", "algo.k=8", "algo.minibatch=24", "algo.lr=1e-2", "steps=25"]
    return [*game, f"model.path={server.model}", "model.lora_rank=16", "engine.name=vllm", f"engine.url={server.url}"]


def test_loop_learns_the_guessing_game(server: Server, tmp_path: Path) -> None:
    """From under a tenth of all attempts to three in ten, over three steps in a row, with equal log-probs in every
    step."""
    _, _, steps = train(
        tmp_path,
        *overrides(server),
        seen=lambda steps: all(step["success"] > 0.3 for step in steps[-3:]) and len(steps) > 3,
    )
    assert steps[0]["success"] < 0.15
    assert np.mean([step["success"] for step in steps[-3:]]) > 0.3, [step["success"] for step in steps]
    assert max(step["update"]["ratio_gap"] for step in steps if step["update"]) < 1e-4


@pytest.mark.parametrize("rank", [16, 0])
def test_what_is_sampled_is_the_policys_after_every_update(server: Server, rank: int) -> None:
    """With adapters, and with all weights; then the server gets its own back."""
    engine, policy, chat = engine_of(server, rank)
    opening = chat.encode(chat.render([Message("user", "guess 1-7")]))
    for temperature in (1.0, 0.6, 0.0):
        params = SamplingParams(temperature, max_tokens=20, seed=3)
        sampled = asyncio.run(engine.sample(opening, params, session="s"))
        ids = torch.tensor([[*opening, *sampled.ids]])
        learned = engine._policy_says(ids[0].tolist(), temperature or 1.0)[len(opening) - 1 :]
        assert np.abs(learned - sampled.logprobs).max() < 1e-5
        assert asyncio.run(engine.sample(opening, params, session="t")).ids.tolist() == sampled.ids.tolist()
        moved(policy)
    if not rank:
        policy.module.load_state_dict(LlamaForCausalLM.from_pretrained(server.model).state_dict())
        policy.version += 1
        asyncio.run(engine.sample(opening, params, session="s"))


def test_a_stop_string_ends_with_the_token_that_completes_it(server: Server) -> None:
    engine, _, chat = engine_of(server)
    opening = chat.encode(chat.render([Message("user", "guess 1-7")]))
    whole = asyncio.run(engine.sample(opening, SamplingParams(max_tokens=30, seed=1), session="s"))
    text = chat.decode(whole.ids.tolist())
    stop = text[5:7]
    cut = asyncio.run(engine.sample(opening, SamplingParams(max_tokens=30, seed=1, stop=(stop,)), session="s"))
    assert cut.finish == "stop" and chat.decode(cut.ids.tolist()) == text[: text.index(stop) + 2]
    assert whole.ids.tolist()[: len(cut.ids)] == cut.ids.tolist()


def test_the_same_name_twice_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, policy, _ = engine_of(server)
    (name,) = engine._used
    moved(policy)
    monkeypatch.setattr(vllm, "_new_name", lambda: name)
    with pytest.raises(UserError, match=r"under the name 'longloop-.*', which had others before"):
        asyncio.run(engine.sample([1, 2], SamplingParams(), session="s"))


def test_a_stale_sync_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The server gets the weights of before in place of the new ones."""
    engine, policy, _ = engine_of(server)
    vllm.save_weights(tmp_path / "old", policy)
    monkeypatch.setattr(vllm, "save_weights", lambda folder, policy: shutil.copytree(tmp_path / "old", folder))
    moved(policy)
    with pytest.raises(UserError, match=r"is stale.*log-probs are those of before, and the policy's have moved by 0"):
        asyncio.run(engine.sample([1, 2], SamplingParams(max_tokens=2), session="s"))


def test_a_server_that_dies_is_told_and_the_steps_before_are_kept(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last test: it kills the server, in the middle of a step."""
    update = LocalLearner.update

    def killed(learner: LocalLearner, *arguments: object) -> object:
        if server.process.poll() is None and list((tmp_path / "runs" / "test" / "checkpoints").glob("000001")):
            server.kill()
        return update(learner, *arguments)

    monkeypatch.setattr(LocalLearner, "update", killed)
    with pytest.raises(RankLost, match=f"The vLLM server {server.url} does not answer .*Connect"):
        train(tmp_path, *overrides(server), "engine.patience=1.0")
    assert (tmp_path / "runs" / "test" / "checkpoints" / "000001").is_dir()
