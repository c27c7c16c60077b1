"""Who is in which slot, and what each pass reads: by hand, without a model."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from longloop.engines.scheduler import Request, Scheduler, Step
from longloop.engines.slots import UNKNOWN, Slots
from longloop.types import SamplingParams
from tests.support.families import engine_of, plain_logprobs, plain_module, prompt, sample


def request(session: str, ids: Sequence[int], max_tokens: int = 2) -> Request:
    future: Any = asyncio.new_event_loop().create_future()
    return Request(session, np.array(ids), SamplingParams(max_tokens=max_tokens), future)


def planned(scheduler: Scheduler) -> tuple[Step, list[tuple[int, int, int, bool]]]:
    """The next step, and its spans: (slot, first position, tokens, whether a token is drawn)."""
    step = scheduler.schedule()
    assert step is not None
    columns = (step.row.slot_R, step.row.start_R, step.row.count_R, step.draws_R)
    return step, list(zip(*(x.tolist() for x in columns), strict=True))


def passed(scheduler: Scheduler, step: Step, *tokens: int) -> list[tuple[str, int, int]]:
    """Begin the pass and take its tokens: one for each span. Returns who got which, and how many are known then."""
    scheduler.advance(step)
    found = scheduler.record(step, np.array(tokens), np.zeros(len(tokens)))
    return [(request.session, token, known) for request, token, known in found]


def test_a_request_from_its_prompt_to_its_end() -> None:
    """Six tokens in pieces of four, then a token a pass; its next turn reads the last token and what is new."""
    slots = Slots(2, max_tokens=50)
    scheduler = Scheduler(slots, step_tokens=4)
    first = request("a", range(6))
    scheduler.add(first)
    step, spans = planned(scheduler)
    assert spans == [(0, 0, 4, False)]
    assert passed(scheduler, step, 99) == [], "a token that was drawn in the middle of a prompt counts for nothing"
    step, spans = planned(scheduler)
    assert spans == [(0, 4, 2, True)]
    scheduler.advance(step)
    following, spans = planned(scheduler)
    assert spans == [(0, 6, 1, True)] and following.row.ids_T.tolist() == [UNKNOWN], "before the token is known"
    scheduler.record(step, np.array([50]), np.array([-0.5]))
    assert passed(scheduler, following, 51) == [("a", 51, 8)] and scheduler.schedule() is None
    ids, logprobs = scheduler.finish(first, 8)
    assert ids.tolist() == [50, 51] and logprobs.tolist() == [-0.5, 0.0] and not scheduler.busy
    scheduler.add(request("a", [*range(6), 50, 51, 7]))
    assert planned(scheduler)[1] == [(0, 7, 2, True)]


def test_an_opening_is_read_once_and_copied() -> None:
    """The second request waits for the first, which reads the same; then it copies all but the token it draws after."""
    scheduler = Scheduler(Slots(3, max_tokens=50), step_tokens=100)
    for session in "ab":
        scheduler.add(request(session, range(20)))
    step, spans = planned(scheduler)
    assert spans == [(0, 0, 20, True)] and step.copies == []
    passed(scheduler, step, 9)
    step, spans = planned(scheduler)
    assert spans == [(0, 20, 1, True), (1, 19, 1, True)] and step.copies == [(0, 1, 19)]


def test_a_cancelled_request_leaves_and_its_token_is_dropped() -> None:
    scheduler = Scheduler(Slots(1, max_tokens=50), step_tokens=100)
    gone = request("a", range(5))
    scheduler.add(gone)
    step, _ = planned(scheduler)
    gone.future.cancel()
    assert passed(scheduler, step, 9) == []
    scheduler.add(request("b", range(30, 33)))
    assert planned(scheduler)[1] == [(0, 0, 3, True)]


def test_after_an_error_nothing_is_taken_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that was planned and did not happen is not relied on."""
    module = plain_module("llama")
    engine = engine_of(module)
    sample(engine, prompt(0, 20), "a")

    def full(*_: int) -> None:
        raise MemoryError("full")

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(engine.cache, "copy", full)
        sample(engine, prompt(0, 20), "b")
    said = sample(engine, prompt(0, 20), "b")
    assert said.logprobs == pytest.approx(plain_logprobs(module, [*prompt(0, 20), *said.ids], 10), abs=1e-4)
