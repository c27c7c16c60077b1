"""What the engine draws, and what ends a turn."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from longloop import api
from longloop.config import resolve
from longloop.engines import sampler
from longloop.engines.engine import NativeEngine
from longloop.tokens.chat import Chat
from longloop.types import Sampled, SamplingParams, UserError
from tests.support.families import (
    ask,
    engine_of,
    plain_logprobs,
    plain_module,
    prompt,
    sample,
)
from tests.support.templates import tokenizer


def chi_square(drawn: Sequence[int], p_V: np.ndarray) -> tuple[float, float]:
    """The statistic, and a bound on it: its mean plus five of its standard deviations (about one in a million)."""
    rare = p_V * len(drawn) < 5  # too few to be nearly normal: counted as one
    counts = np.bincount(drawn, minlength=len(p_V))
    seen, wanted = np.append(counts[~rare], counts[rare].sum()), np.append(p_V[~rare], p_V[rare].sum()) * len(drawn)
    freedom = len(seen) - 1
    return float(((seen - wanted) ** 2 / wanted).sum()), freedom + 5 * (2 * freedom) ** 0.5


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_tokens_are_drawn_from_the_tempered_softmax(temperature: float) -> None:
    """2000 seeds on one prompt; the same draws do not fit the distribution at another temperature."""
    module = plain_module("llama", seed=3)
    engine = engine_of(module)
    ids = prompt(5, 12)

    async def draw() -> list[Sampled]:
        asked = (ask(engine, ids, str(n), seed=n, max_tokens=1, temperature=temperature) for n in range(2000))
        return await asyncio.gather(*asked)

    drawn = [said.ids[0] for said in asyncio.run(draw())]
    with torch.no_grad():
        logits_V = module(torch.tensor([ids])).logits[0, -1].double()
    statistic, bound = chi_square(drawn, (logits_V / temperature).softmax(-1).numpy())
    assert statistic < bound
    statistic, bound = chi_square(drawn, (logits_V / (1.7 - temperature)).softmax(-1).numpy())
    assert statistic > 2 * bound


def test_at_temperature_zero_the_likeliest_token_is_taken() -> None:
    module = plain_module("qwen2")
    ids = prompt(0, 10)
    one, other = (sample(engine_of(module), ids, seed=seed, temperature=0.0, max_tokens=15) for seed in (1, 2))
    assert one == other
    with torch.no_grad():
        logits = module(torch.tensor([[*ids, *one.ids]])).logits[0, len(ids) - 1 : -1]
    assert one.ids.tolist() == logits.argmax(-1).tolist()


def test_a_seed_decides() -> None:
    engine = engine_of(plain_module("llama"))
    one, again, other = (sample(engine, prompt(0, 10), seed=seed) for seed in (1, 1, 2))
    assert one == again != other


def test_end_ids_and_the_token_limit_end_a_turn() -> None:
    """The end token is the last of the ids; the limit is exact; both leave what came before as it was."""
    engine = engine_of(plain_module("llama"))
    free = sample(engine, prompt(0, 10), max_tokens=30)
    assert free.finish == "length" and len(free.ids) == len(free.logprobs) == 30
    end = free.ids[7]
    first = free.ids.tolist().index(end)
    stopped = sample(engine, prompt(0, 10), max_tokens=30, stop_ids=frozenset({end}))
    assert stopped.finish == "stop" and stopped.ids.tolist() == free.ids[: first + 1].tolist()
    at_limit = sample(engine, prompt(0, 10), max_tokens=first + 1, stop_ids=frozenset({end}))
    assert at_limit == stopped


PROBABILITIES = [0.05, 0.5, 0.15, 0.3]


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(0.01, {1}), (0.49, {1}), (0.51, {1, 3}), (0.79, {1, 3}), (0.81, {1, 2, 3}), (1.0, {0, 1, 2, 3})],
)
def test_the_nucleus_by_hand(top_p: float, kept: set[int]) -> None:
    """Each kept token has its share of the random numbers; its log-prob is that of the whole distribution."""
    points = np.linspace(0.0005, 0.9995, 1000)
    logits = torch.tensor(PROBABILITIES).log().expand(len(points), -1)
    numbers = torch.from_numpy(sampler.numbers([SamplingParams(top_p=top_p)] * len(points), points.tolist()))
    token, logp = sampler.draw(logits, *numbers, truncate=True)
    shares = np.bincount(token, minlength=4) / len(points)
    mass = sum(PROBABILITIES[id] for id in kept)
    assert shares == pytest.approx([p / mass if id in kept else 0 for id, p in enumerate(PROBABILITIES)], abs=2e-3)
    assert logp.numpy() == pytest.approx(np.log(PROBABILITIES)[token], abs=1e-5)


def test_equally_likely_tokens_are_kept_together() -> None:
    numbers = torch.from_numpy(sampler.numbers([SamplingParams(top_p=0.3)] * 100, np.linspace(0, 0.999, 100).tolist()))
    token, _ = sampler.draw(torch.tensor([0.0, 0.0, 0.0, -9.0]).expand(100, -1), *numbers, truncate=True)
    assert set(token.tolist()) == {0, 1, 2}


def test_the_nucleus_of_a_vocabulary_of_many_blocks() -> None:
    """Against a plain loop over the tokens, likeliest first."""
    torch.manual_seed(0)
    logits = 3 * torch.randn(4, 1000)
    numbers = torch.from_numpy(sampler.numbers([SamplingParams(top_p=p) for p in (0.3, 0.9, 0.99, 1.0)], [0.5] * 4))
    kept = sampler._nucleus(pad(logits, (0, 24), value=-torch.inf), numbers[1][:, None])[:, :1000].isfinite()
    for row, top_p, mine in zip(logits.double().softmax(-1), numbers[1], kept, strict=True):
        wanted, mass = set(), 0.0
        for token in row.argsort(descending=True).tolist():
            if mass < top_p:
                wanted.add(token)
            mass += float(row[token])
        assert set(mine.nonzero()[:, 0].tolist()) == wanted


def test_a_truncated_request_changes_nothing_for_others() -> None:
    """They get the same tokens and log-probs to the last bit; the truncated one gets likelier tokens."""
    module = plain_module("llama", seed=3)

    async def talks(top_p: float) -> list[Sampled]:
        engine = engine_of(module)
        asked = (ask(engine, prompt(n, 12), str(n), seed=n, top_p=1.0 if n else top_p) for n in range(4))
        return await asyncio.gather(*asked)

    plain, beside = asyncio.run(talks(1.0)), asyncio.run(talks(0.2))
    assert beside[1:] == plain[1:]
    assert beside[0].logprobs.mean() > plain[0].logprobs.mean()
    sequence = [*prompt(0, 12), *beside[0].ids]
    assert beside[0].logprobs == pytest.approx(plain_logprobs(module, sequence, 10), abs=1e-4)


def test_evaluations_may_be_truncated_and_training_may_not() -> None:
    tree = {"env": {"name": "guess"}, "eval": {"temperature": 0.7, "top_p": 0.9}}
    config = resolve(dict(tree), "a file")
    assert config.eval.sampling == SamplingParams(temperature=0.7, top_p=0.9)
    parts = api.prepared(resolve(dict(tree), "a file", ["model.device=cpu"]))
    assert parts.evaluation.context.sampling == config.eval.sampling
    assert parts.rollouts.context.sampling == SamplingParams(temperature=1.0, top_p=1.0)
    with pytest.raises(UserError, match=r"'rollout.top_p' .* the learner cannot compute .* there is eval.top_p"):
        resolve(dict(tree), "a file", ["rollout.top_p=0.9"])


class Parrot:
    """A model that says a given sequence of ids. It attends, as all models do, and takes no notice of it."""

    version = 0
    layers = 1
    device = torch.device("cpu")
    shards = None

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = ids

    def hidden(self, ids_T: Tensor, position_T: Tensor, plan: Any) -> Tensor:
        nothing_HTD = torch.zeros(1, len(ids_T), 1)
        plan.attend(0, nothing_HTD, nothing_HTD, nothing_HTD, 1.0, 0)
        return position_T[:, None]

    def logits(self, hidden_ND: Tensor) -> Tensor:
        next_N = torch.tensor([self.ids[at] for at in hidden_ND[:, 0]])
        return 50.0 * torch.nn.functional.one_hot(next_N, 1000).float()


@pytest.mark.parametrize("stop", ["fox", "🦊🦊", "é\n", "x y z fox 🦊🦊 né", "\n\n"])
def test_stop_strings_end_a_turn(stop: str) -> None:
    """At the token that completes one, though it be spread over many tokens, of which some are parts of a letter."""
    chat = Chat(tokenizer("chatml"))
    text = "quick x y z fox 🦊🦊 né\n\nend of it"
    ids = [id for letter in text for id in chat.encode(letter)]
    assert len(ids) > len(text)
    engine = NativeEngine(Parrot([0, *ids, 1, 1]), chat)
    said = sample(engine, [7, 7], max_tokens=len(ids), stop=("never", stop))
    assert said.finish == "stop"
    assert chat.decode(said.ids) == text[: text.index(stop) + len(stop)]
    assert sample(engine, [7, 7], max_tokens=len(ids), stop=("never",)).finish == "length"
