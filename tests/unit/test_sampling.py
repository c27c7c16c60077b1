"""What the engine draws, and what ends a turn."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from longloop.engines.engine import NativeEngine
from longloop.tokens.chat import Chat
from longloop.types import Sampled
from tests.support.families import (
    ask,
    engine_of,
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
    """4000 seeds on one prompt; the same draws do not fit the distribution at another temperature."""
    module = plain_module("llama", seed=3)
    engine = engine_of(module)
    ids = prompt(5, 12)

    async def draw() -> list[Sampled]:
        asked = (ask(engine, ids, str(n), seed=n, max_tokens=1, temperature=temperature) for n in range(4000))
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
    assert one.ids.tolist() == again.ids.tolist() != other.ids.tolist()


def test_end_ids_and_the_token_limit_end_a_turn() -> None:
    """The end token is the last of the ids; the limit is exact; both leave what came before as it was."""
    engine = engine_of(plain_module("llama"))
    free = sample(engine, prompt(0, 10), max_tokens=30)
    assert free.finish == "length" and len(free.ids) == len(free.logprobs) == 30
    ids = free.ids.tolist()
    end = ids[7]
    first = ids.index(end)
    stopped = sample(engine, prompt(0, 10), max_tokens=30, stop_ids=frozenset({end}))
    assert stopped.finish == "stop" and stopped.ids.tolist() == ids[: first + 1]
    at_limit = sample(engine, prompt(0, 10), max_tokens=first + 1, stop_ids=frozenset({end}))
    assert at_limit.finish == "stop" and at_limit.ids.tolist() == stopped.ids.tolist()


class Parrot:
    """A model that says a given sequence of ids."""

    version = 0
    layers = 1
    device = torch.device("cpu")

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = ids

    def hidden(self, ids_T: Tensor, position_T: Tensor, plan: Any) -> Tensor:
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
    said = sample(engine, [7, 7], max_tokens=len(ids), stop=["never", stop])
    assert said.finish == "stop"
    assert chat.decode(said.ids) == text[: text.index(stop) + len(stop)]
    assert sample(engine, [7, 7], max_tokens=len(ids), stop=["never"]).finish == "length"
