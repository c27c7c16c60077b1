"""vLLM servers as an engine: what is sampled is the policy's, and what is wrong with a server ends in a sentence."""

import asyncio
import gc
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from longloop import api, build, config
from longloop.engines import vllm
from longloop.engines.vllm import VllmEngine
from longloop.memory import forecast
from longloop.model.policy import Policy, load
from longloop.store.run_reader import RunReader, load_run
from longloop.tokens.chat import Chat
from longloop.types import Message, RankLost, Sampled, SamplingParams, UserError
from tests.support.helpers import load_config, train
from tests.support.vllm import FakeVllm, serving

LORA = config.ModelConfig(path="tiny", lora_rank=4, threads=1)
PARAMS = SamplingParams(0.7, max_tokens=6, seed=2**63 + 5)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm, "_SHORTEST", 0.01)
    monkeypatch.setattr(vllm, "_LONGEST", 0.02)
    monkeypatch.delenv("VLLM_API_KEY", raising=False)


@pytest.fixture
def server() -> Iterator[FakeVllm]:
    with serving() as fake:
        yield fake


def policy_of(model: config.ModelConfig = LORA) -> tuple[Policy, Chat]:
    policy = load(model, 0)
    return policy, Chat(policy.tokenizer, policy.end_ids)


def engine_of(server: FakeVllm, model: config.ModelConfig = LORA, **options: Any) -> tuple[VllmEngine, Policy, Chat]:
    policy, chat = policy_of(model)
    return VllmEngine(policy, chat, server.url, **options), policy, chat


def moved(policy: Policy, by: float = 0.05) -> None:
    """An update, of sorts."""
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter.add_(torch.randn_like(parameter) * by)
    policy.version += 1


def sample(engine: VllmEngine, chat: Chat, params: SamplingParams = PARAMS, session: str = "s") -> tuple[list, Sampled]:
    ids = chat.encode(chat.render([Message("user", "guess 1-7")]))
    return list(ids), asyncio.run(engine.sample(ids, params, session=session))


@torch.no_grad()
def from_transformers(policy: Policy, prompt: list[int], sampled: Sampled, temperature: float) -> np.ndarray:
    """The log-probs of what was sampled, by the module's own forward pass."""
    ids = torch.tensor([[*prompt, *sampled.ids.tolist()]])
    from longloop.model.attention import VarlenPlan

    position, plan = torch.arange(ids.shape[1])[None], VarlenPlan([ids.shape[1]])
    logits = policy.module(input_ids=ids, position_ids=position, use_cache=False, plan=plan).logits[0]
    logp = (logits / temperature).log_softmax(-1)
    return np.array([logp[len(prompt) - 1 + i, id] for i, id in enumerate(sampled.ids)])


@pytest.mark.parametrize("rank", [4, 0])
def test_tokens_come_from_the_policy_as_it_is_now(server: FakeVllm, rank: int) -> None:
    """Before and after updates, with adapters and with all weights."""
    engine, policy, chat = engine_of(server, LORA.model_copy(update={"lora_rank": rank}))
    seen = []
    for _ in range(3):
        prompt, sampled = sample(engine, chat)
        assert np.abs(sampled.logprobs - from_transformers(policy, prompt, sampled, 0.7)).max() < 1e-5
        seen.append(tuple(sampled.logprobs))
        moved(policy)
    assert len(set(seen)) == 3


def test_the_request_leaves_nothing_to_the_servers_or_the_models_defaults(server: FakeVllm) -> None:
    engine, _, chat = engine_of(server)
    params = SamplingParams(0.7, 1.0, 6, 2**63 + 2**40 + 5, frozenset({7, 3}), ("</s>",))
    prompt, _ = sample(engine, chat, params)
    (name,) = set(server.models) - {"base"}
    assert server.asked[-1] == (
        "/v1/completions",
        {
            "model": name,
            "prompt": prompt,
            "temperature": 0.7,
            "max_tokens": 6,
            "seed": 2**40 + 5,
            "stop": ["</s>"],
            "stop_token_ids": [3, 7],
            "ignore_eos": True,
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "logprobs": 0,
            "return_token_ids": True,
            "cache_salt": name,
        },
    )


def test_a_stop_token_ends_the_sample_and_belongs_to_it(server: FakeVllm) -> None:
    engine, _, chat = engine_of(server)
    _, long = sample(engine, chat)
    stop = int(long.ids[2])
    _, short = sample(engine, chat, SamplingParams(0.7, max_tokens=6, seed=PARAMS.seed, stop_ids=frozenset({stop})))
    end = long.ids.tolist().index(stop) + 1
    assert (long.finish, short.finish) == ("length", "stop") and short.ids.tolist() == long.ids.tolist()[:end]


def test_every_update_is_a_new_name_and_the_old_one_goes(
    server: FakeVllm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path.parent)
    engine, policy, chat = engine_of(server, folder=tmp_path.name)
    names = []
    for _ in range(4):
        sample(engine, chat)
        (name,) = set(server.models) - {"base"}
        (own,) = tmp_path.iterdir()
        assert [one.name for one in own.iterdir()] == [name]
        names.append(name)
        moved(policy)
    assert len(set(names)) == 4
    assert all(server.salts[name] == name for name in names), "keys and values of two weights could be mixed"
    paths = [Path(body["lora_path"]) for path, body in server.asked if path == "/v1/load_lora_adapter"]
    assert len(paths) == 4 and all(path.is_absolute() for path in paths)


def test_nothing_is_loaded_while_the_policy_stays_the_same(server: FakeVllm) -> None:
    engine, _, chat = engine_of(server)
    for number in range(3):
        sample(engine, chat, session=str(number))
    assert server.paths().count("/v1/load_lora_adapter") == 1


def test_an_engine_that_is_gone_leaves_nothing_behind(server: FakeVllm, tmp_path: Path) -> None:
    engine, policy, chat = engine_of(server, folder=str(tmp_path))
    moved(policy)
    sample(engine, chat)
    del engine
    gc.collect()
    assert set(server.models) == {"base"} and list(tmp_path.iterdir()) == []


def test_the_same_name_twice_is_refused(server: FakeVllm, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, policy, chat = engine_of(server)
    (name,) = set(server.models) - {"base"}
    moved(policy)
    monkeypatch.setattr(vllm, "_new_name", lambda: name)
    with pytest.raises(UserError, match=f"under the name {name!r}, which had others before"):
        sample(engine, chat)
    assert server.paths().count("/v1/load_lora_adapter") == 1


@pytest.mark.parametrize("rank", [4, 0])
def test_a_stale_server_is_refused_at_the_first_sync(server: FakeVllm, rank: int) -> None:
    engine, policy, chat = engine_of(server, LORA.model_copy(update={"lora_rank": rank}))
    server.stale = True
    moved(policy)
    asked = len(server.asked)
    with pytest.raises(UserError, match=r"is stale.*does not sample from them \(its log-probs are those"):
        sample(engine, chat)
    assert not any("prompt_logprobs" not in body for path, body in server.asked[asked:] if "completions" in path)
    with pytest.raises(UserError, match="is stale"):  # and at the next attempt to sample
        sample(engine, chat)


def test_in_bfloat16_a_stale_server_shows_although_the_gap_is_within_bounds(
    server: FakeVllm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small update hides in rounding. But a server that has taken it says something else than before."""
    engine, policy, chat = engine_of(server)
    monkeypatch.setattr(policy, "bf16", True)
    monkeypatch.setattr(vllm, "_MOVED", 1e-4)
    moved(policy, 1e-2)
    sample(engine, chat)
    server.stale = True
    moved(policy, 1e-2)
    for _ in range(2):  # nor does it pass when it is asked again
        with pytest.raises(UserError, match=r"its log-probs are those of before, and the policy's have moved by"):
            sample(engine, chat)


def test_an_update_that_changed_nothing_is_not_mistaken_for_a_stale_server(server: FakeVllm) -> None:
    engine, policy, chat = engine_of(server)
    policy.version += 1
    sample(engine, chat)


def test_a_server_with_another_model_is_refused_before_the_run(server: FakeVllm) -> None:
    policy, chat = policy_of()
    with torch.no_grad():
        next(iter(policy.module.parameters())).add_(0.1)  # what the server has is not what is trained
    with pytest.raises(UserError, match=r"runs another model.*abs\(ratio - 1\) is 0\..*may be 0\.0001"):
        VllmEngine(policy, chat, server.url)


def raw(server: FakeVllm) -> None:
    server.raw = True


def no_lora(server: FakeVllm) -> None:
    server.lora = False


def no_dev(server: FakeVllm) -> None:
    server.dev = False


def short(server: FakeVllm) -> None:
    server.max_model_len = 40


def unlisted(server: FakeVllm) -> None:
    server.lists = False


def locked(server: FakeVllm) -> None:
    server.key = "secret"


START = "`VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve tiny --enable-lora --max-lora-rank 8 --dtype float32 --logp"


@pytest.mark.parametrize(
    ("wrong", "rank", "said"),
    [
        (raw, 4, f"log-probs without the temperature.*Start it with --logprobs-mode processed_logprobs: {START}"),
        (no_lora, 4, f"did not load the weights.*404 .*Not Found.*be started like this: {START}"),
        (no_dev, 0, "did not load the weights.*like this: `VLLM_SERVER_DEV_MODE=1 vllm serve tiny --dtype"),
        (short, 4, "takes 40 tokens, and rollout.context is 64: lower it, or start .* --max-model-len 64"),
        (unlisted, 4, "it says that it loaded longloop-.*, and does not list it"),
        (locked, 4, "wants a valid key in the environment variable VLLM_API_KEY"),
    ],
)
def test_a_server_that_was_started_otherwise_is_refused_with_the_line_to_start_it(
    server: FakeVllm, wrong: Callable[[FakeVllm], None], rank: int, said: str
) -> None:
    wrong(server)
    with pytest.raises(UserError, match=said):
        engine_of(server, LORA.model_copy(update={"lora_rank": rank}), context=64)


def test_the_key_is_sent_and_stored_nowhere(server: FakeVllm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "secret")
    server.key = "secret"
    engine, _, chat = engine_of(server, key_variable="MY_KEY")
    sample(engine, chat)
    assert set(server.keys) == {"Bearer secret"} and "secret" not in repr(vars(engine))


def test_without_an_address_or_a_server_there_is_a_sentence() -> None:
    policy, chat = policy_of()
    with pytest.raises(UserError, match=r"needs the address of a vLLM server, engine\.url"):
        VllmEngine(policy, chat)
    with serving() as fake:
        pass
    with pytest.raises(UserError, match=f"{fake.url} does not answer .*Connect.*Start one: {START}") as refused:
        VllmEngine(policy, chat, fake.url)
    assert refused.value.exit_status == 2
    policy.config = policy.config.model_copy(update={"quantize": "nf4"})
    with pytest.raises(UserError, match=r"samples with whole weights: leave model\.quantize out"):
        VllmEngine(policy, chat, fake.url)


def test_something_else_at_the_address_is_told(server: FakeVllm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "reply", lambda path, body: (200, "<html>Welcome"))
    with pytest.raises(UserError, match="is no vLLM server: 200 <html>Welcome"):
        engine_of(server)


def test_failures_that_pass_cost_nothing(server: FakeVllm) -> None:
    engine, _, chat = engine_of(server)
    _, once = sample(engine, chat)
    server.failing = 3
    _, again = sample(engine, chat)
    assert again == once and server.failing == 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [("failing", "fails: 500 EngineCore encountered an issue"), ("dead", "does not answer .*Remote|does not answer")],
)
def test_a_server_that_stays_down_is_lost(server: FakeVllm, wrong: str, said: str) -> None:
    engine, _, chat = engine_of(server, patience=1.0)
    before = server.paths().count("/v1/completions")
    setattr(server, wrong, 10**6)
    with pytest.raises(RankLost, match=said):
        sample(engine, chat)
    assert server.paths().count("/v1/completions") >= before + 2, "it asked again"


def test_a_server_that_was_started_anew_is_lost_at_once(server: FakeVllm) -> None:
    engine, _, chat = engine_of(server)
    server.models = {"base": server.models["base"]}
    asked = len(server.asked)
    with pytest.raises(RankLost, match="no longer has the policy's weights: it was started anew"):
        sample(engine, chat)
    assert len(server.asked) == asked + 1


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ({"token_ids": [1, 2, 3]}, "asked for up to 6 tokens, and sent 3 ids with 6 log-probs"),
        ({"token_ids": [], "logprobs": {"token_logprobs": []}}, "sent 0 ids with 0 log-probs"),
        ({"token_ids": [1] * 7, "logprobs": {"token_logprobs": [-1.0] * 7}}, "sent 7 ids with 7 log-probs"),
        ({"token_ids": [1, 2], "logprobs": {"token_logprobs": [-1.0, None]}}, "sent 2 ids with 1 log-probs"),
        ({"token_ids": [1, 2], "logprobs": {"token_logprobs": [-1.0, -9999.0]}}, "sent 2 ids with 1 log-probs"),
        ({"finish_reason": "abort"}, "as the reason for the end 'abort'"),
        ({"token_ids": None}, "sent no tokens with log-probs"),
        ({"logprobs": None}, "sent no tokens with log-probs"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(server: FakeVllm, spoil: dict[str, Any], said: str) -> None:
    engine, _, chat = engine_of(server)
    server.spoil = spoil
    with pytest.raises(UserError, match=said):
        sample(engine, chat)


def test_a_request_that_the_server_refuses_is_told(server: FakeVllm) -> None:
    engine, _, chat = engine_of(server)
    with pytest.raises(UserError, match="refused a request: 400 max_tokens cannot be greater"):
        sample(engine, chat, SamplingParams(max_tokens=2000))


def test_a_fleet_gets_all_weights_and_shares_the_sessions(tmp_path: Path) -> None:
    with serving() as one, serving() as other:
        policy, chat = policy_of()
        engine = VllmEngine(policy, chat, f"{one.url}/v1/, {other.url}")
        ids = chat.encode(chat.render([Message("user", "go")]))

        async def talk(session: str) -> None:
            for _ in range(2):
                await engine.sample(ids, PARAMS, session=session)

        async def all_of_them() -> None:
            await asyncio.gather(*(talk(str(number)) for number in range(4)))

        for _ in range(2):
            before = [len(server.asked) for server in (one, other)]
            asyncio.run(all_of_them())
            asked = [
                [body["model"] for path, body in server.asked[begin:] if path == "/v1/completions"]
                for server, begin in zip((one, other), before, strict=True)
            ]
            names = [set(server.models) - {"base"} for server in (one, other)]
            assert names[0] == names[1] and all(len(some) in (4, 5) for some in asked)  # 5: with the check of a sync
            engine.release()
            moved(policy)
        other.stale = True
        with pytest.raises(UserError, match=f"The vLLM server {other.url} is stale"):
            sample(engine, chat)


def test_a_cancelled_request_does_not_disturb_the_others(server: FakeVllm) -> None:
    engine, _, chat = engine_of(server)
    ids = chat.encode(chat.render([Message("user", "guess 1-7")]))

    async def talk() -> Sampled:
        first = asyncio.create_task(engine.sample(ids, PARAMS, session="a"))
        second = asyncio.create_task(engine.sample(ids, PARAMS, session="b"))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(talk()) == sample(engine, chat)[1]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("eval.top_p=0.9", r"leave out eval\.top_p"),
        ("rollout.temperature=0.005", "at a temperature of 0.01 where less"),
    ],
)
def test_ways_to_sample_that_vllm_has_not_are_refused_before_the_run(
    server: FakeVllm, tmp_path: Path, setting: str, said: str
) -> None:
    with pytest.raises(UserError, match=said):
        api.prepared(load_config(tmp_path, "engine.name=vllm", f"engine.url={server.url}", setting))
    assert server.asked == []


TRAIN = ("engine.name=vllm", "model.lora_rank=4", "doctor=false", "algo.lr=1e-2", "tasks_per_step=6", "algo.k=8")


@pytest.mark.parametrize(("rank", "algo"), [(4, "loop"), (0, "loop"), (4, "tis")])
def test_a_run_trains(server: FakeVllm, tmp_path: Path, rank: int, algo: str) -> None:
    """Through the one training loop: ratios begin at 1, step after step."""
    method = f"algo.name={algo}", f"model.lora_rank={rank}"
    _, _, steps = train(tmp_path, *TRAIN, f"engine.url={server.url}", *method)
    assert [step["step"] for step in steps] == [1, 2, 3]
    gaps = [step["update"]["ratio_gap"] for step in steps if step["update"]]
    assert len(gaps) > 1 and max(gaps) < 1e-4
    loads = "/v1/load_lora_adapter" if rank else "/collective_rpc"
    assert server.paths().count(loads) >= len(gaps) + 1


def test_a_run_whose_server_dies_is_resumed_as_if_nothing_had_been(tmp_path: Path) -> None:
    class Mortal(FakeVllm):
        """It dies in the step after the first update: weights have been replaced, and some have sampled with them."""

        def reply(self, path: str, body: dict[str, Any]) -> Any:
            loads = [number for number, (asked, _) in enumerate(self.asked) if asked == "/v1/load_lora_adapter"]
            self.dead = len(loads) > 1 and len(self.asked) > loads[1] + 6
            return super().reply(path, body)

    def said(run: RunReader) -> list[dict[str, Any]]:
        return [{k: v for k, v in step.items() if k not in ("time", "memory")} for step in run.metrics]

    settings = [*TRAIN, "engine.patience=0.05", "tasks_per_step=3", "algo.k=6"]
    with serving(Mortal()) as first, pytest.raises(RankLost) as lost:
        api.train(load_config(tmp_path, *settings, f"engine.url={first.url}"), progress=False)
    folder = tmp_path / "runs" / "test"
    assert "does not answer" in str(lost.value) and f"`longloop train --resume {folder}`" in str(lost.value)
    before = said(load_run(folder))
    with serving() as second:
        resumed = api.train(resume=folder, overrides=[f"engine.url={second.url}"], progress=False)
        whole = api.train(load_config(tmp_path, *settings, f"engine.url={second.url}", "name=whole"), progress=False)
    assert 0 < len(before) < 3 and said(resumed)[: len(before)] == before
    assert said(resumed) == said(whole)


def test_a_server_cannot_stand_in_for_serve(server: FakeVllm, tmp_path: Path) -> None:
    settings = load_config(tmp_path, "engine.name=vllm", f"engine.url={server.url}", "model.lora_rank=4")
    from longloop.store.lineage import lineage

    with pytest.raises(UserError, match=r"engine 'vllm' cannot serve; take engine\.name=native"):
        build.served(settings, lineage(settings), SamplingParams(), "")


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "[::]", "127.0.0.2", "Trainer-7", "10.1.2.3", "[fd00::2]", "[fd00:0::2]", "[fe80::1]"]
)
def test_all_names_and_addresses_of_this_machine_are_its_own(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cards = {"eth0": ["10.1.2.3", "fd00::2", "fe80::1%eth0", "02:fc:00:00:00:01"]}
    addresses = {name: [SimpleNamespace(address=one) for one in each] for name, each in cards.items()}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: addresses)
    monkeypatch.setattr(socket, "gethostname", lambda: "Trainer-7")
    assert vllm.is_here(f"http://{host}:8000/v1")
    assert not vllm.is_here("http://10.1.2.4:8000, http://trainer-8:8000, http://[fd00::3]:8000")


@pytest.mark.parametrize(
    ("url", "by"),
    [
        ("http://127.0.0.1:8000", "server here"),
        ("http://localhost:8000/v1", "server here"),
        ("http://[::1]:8000", "server here"),
        ("http://10.0.0.7:8000", "server elsewhere"),
        ("https://fleet.example.com", "server elsewhere"),
        ("http://10.0.0.7:8000, http://127.0.0.1:8001", "server here"),
        ("", "learner"),
    ],
)
def test_the_ledger_counts_a_second_copy_where_it_is(tmp_path: Path, url: str, by: str) -> None:
    table = {"name": "vllm", "url": url}
    assert forecast.sampled_by(table) == by
    book = api.forecast(load_config(tmp_path, f"engine.url={url!r}"))
    own = api.forecast(load_config(tmp_path))
    copy, kv = (own.weights if by == "server here" else 0), (own.kv if by == "learner" else 0)
    assert (book.second_copy, book.kv) == (copy, kv) and own.kv > 0 == own.second_copy
    assert (book.weights, book.activations) == (own.weights, own.activations)
    assert book.peak - book.to_come == book.weights + copy
