"""Who is in which slot, and what each pass reads: by hand, without a model."""

import asyncio
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from longloop.engines.kv_cache import KVCache
from longloop.engines.pages import PAGE, Pages
from longloop.engines.scheduler import Request, Scheduler, Step
from longloop.engines.slots import UNKNOWN, Slots
from longloop.types import SamplingParams
from tests.support.families import engine_of, plain_logprobs, plain_module, prompt, sample

ROOT = Path(__file__).resolve().parents[2]


def request(session: str, ids: Sequence[int], max_tokens: int = 2) -> Request:
    future: Any = asyncio.new_event_loop().create_future()
    return Request(session, np.array(ids), SamplingParams(max_tokens=max_tokens), future)


def scheduler_of(slots: int, step_tokens: int = 1000, limit: int | None = None) -> tuple[Scheduler, Slots, Pages]:
    table, pages = Slots(slots), Pages(slots, limit, lambda pages, wait: True)
    return Scheduler(table, pages, step_tokens), table, pages


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
    scheduler, *_ = scheduler_of(2, step_tokens=4)
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


def test_an_opening_is_read_once_and_shared() -> None:
    """The second request waits for the first, which reads the same; then it has its two full pages, and a copy of the
    begun one: all but the token it draws after."""
    scheduler, _, pages = scheduler_of(3)
    opening = range(2 * PAGE + 20)
    for session in "ab":
        scheduler.add(request(session, opening))
    step, spans = planned(scheduler)
    assert spans == [(0, 0, 148, True)] and step.copies == []
    passed(scheduler, step, 9)
    step, spans = planned(scheduler)
    assert spans == [(0, 148, 1, True), (1, 147, 1, True)]
    one, other = pages.table_SW[:2, :3].tolist()
    assert one[:2] == other[:2] and one[2] != other[2] and step.copies == [(one[2], other[2])]
    assert pages.used == 4
    assert step.row.page_RW.tolist() == [one, other]


def test_a_cancelled_request_leaves_and_its_token_is_dropped() -> None:
    scheduler, *_ = scheduler_of(1)
    gone = request("a", range(5))
    scheduler.add(gone)
    step, _ = planned(scheduler)
    gone.future.cancel()
    assert passed(scheduler, step, 9) == []
    scheduler.add(request("b", range(30, 33)))
    assert planned(scheduler)[1] == [(0, 0, 3, True)]


def test_prompts_are_read_in_pieces_beside_single_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many that the pass has 30 tokens in all; without anybody who decodes, a pass reads more at once."""
    monkeypatch.setattr("longloop.engines.scheduler._BESIDE", 30)
    scheduler, *_ = scheduler_of(3)
    scheduler.add(request("a", range(5), max_tokens=50))
    scheduler.add(request("b", range(100, 170), max_tokens=50))
    step, spans = planned(scheduler)
    assert spans == [(0, 0, 5, True), (1, 0, 70, True)]
    passed(scheduler, step, 1, 2)
    scheduler.add(request("c", range(200, 240), max_tokens=50))
    for expected in ([(0, 5, 1, True), (1, 70, 1, True), (2, 0, 28, False)], [(2, 28, 12, True)]):
        step, spans = planned(scheduler)
        assert spans[-len(expected) :] == expected
        passed(scheduler, step, *[7] * len(spans))


def test_the_youngest_waits_when_pages_run_out() -> None:
    """Three pages. The second session's request gives its page to the first, whose third page that is; it keeps its
    token, and is read again once the first is forgotten. A third session takes nobody's pages."""
    scheduler, slots, pages = scheduler_of(3, limit=3)
    first, second = request("a", range(2 * PAGE - 1), max_tokens=9), request("b", range(1000, 1030), max_tokens=9)
    scheduler.add(first)
    passed(scheduler, planned(scheduler)[0], 7)
    assert pages.used == 2
    scheduler.add(second)
    assert planned(scheduler)[1] == [(0, 127, 1, True)], "a page stays free for the first"
    scheduler._running[0].future.cancel()
    step, spans = planned(scheduler)
    assert spans == [(1, 0, 30, True)]
    passed(scheduler, step, 8)
    again = request("a", [*range(2 * PAGE - 1), 7, *range(50)], max_tokens=9)
    scheduler.add(again)
    scheduler.add(request("c", range(2000, 2010)))
    step, spans = planned(scheduler)
    assert spans == [(0, 127, 51, True)] and pages.count_S.tolist() == [3, 0, 0]
    passed(scheduler, step, 9)
    scheduler.finish(again, 179)
    scheduler.forget("a")
    step, spans = planned(scheduler)
    assert [span for span in spans if span[0] == 1] == [(1, 0, 31, True)], "30 of its prompt and the token it had"
    assert slots.ids[1, 30] == 8
    assert passed(scheduler, step, *[5] * len(spans))[0] == ("b", 5, 32)


def test_one_sequence_may_have_more_than_the_limit() -> None:
    scheduler, _, pages = scheduler_of(2, limit=1)
    long = request("a", range(3 * PAGE))
    scheduler.add(long)
    scheduler.add(request("b", range(1000, 1005)))
    step, spans = planned(scheduler)
    assert spans == [(0, 0, 192, True)] and pages.used == 3
    passed(scheduler, step, 1)
    long.future.cancel()
    step, spans = planned(scheduler)
    assert spans == [(1, 0, 5, True)], "the idle session's pages are taken, as nobody runs"


def test_pages_by_hand() -> None:
    """A fork shares full pages; who goes back into a shared one gets a copy; a page is free when nobody has it."""
    pages = Pages(3, None, lambda pages, wait: True)
    assert pages.extend(0, 3 * PAGE) and pages.table_SW[0].tolist() == [1, 2, 3]
    assert pages.fork(0, 1, 2 * PAGE) == [] and pages.table_SW[1, :2].tolist() == [1, 2]
    assert pages.fork(0, 0, PAGE + 5) == [(2, 3)], "its third page became free and is taken for the copy"
    assert pages.table_SW.tolist() == [[1, 3, 0], [1, 2, 0], [0, 0, 0]] and pages.used == 3
    assert pages.fork(0, 0, PAGE + 3) == [], "a page of its own is written again"
    pages.shrink(1, 0)
    assert pages.free == 1 and pages.used == 2
    assert pages.extend(2, 1) and pages.table_SW[2, 0] == 2


def test_a_full_device_is_a_limit() -> None:
    asked: list[tuple[int, bool]] = []

    def grow(pages: int, wait: bool) -> bool:
        asked.append((pages, wait))
        return pages <= 3 or wait

    pages = Pages(2, None, grow)
    assert pages.extend(0, 2 * PAGE) and not pages.limited
    assert not pages.extend(1, PAGE) and pages.limited and pages.count_S.tolist() == [2, 0]
    assert not pages.supply(1) and pages.supply(1, anyway=True)
    assert asked == [(3, False), (4, False), (4, True)], "it is asked once, and then only to wait"


@pytest.mark.parametrize("name", ["errands", "long", "tools"])
def test_memory_follows_what_is_live_under_an_agents_load(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loads of benchmarks/agent_load.py, at a third of their lengths, without a model. The most pages that a cache
    on a card has had hold at most 1.15 times the most tokens that sessions had at once, shared ones counted once."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    load = importlib.import_module("agent_load").LOADS[name]
    conversations = load.drawn(vocab=50_000, scale=0.33)
    slots, cache = Slots(96), KVCache(torch.empty(1, 1), layers=1, most=10**6, moves=False)
    pages = Pages(96, None, cache.grow)
    scheduler, most_live = Scheduler(slots, pages, 8192), 0
    said = np.random.default_rng(0)
    so_far: dict[str, list[int]] = {}
    turns = {str(number): iter(turns) for number, turns in enumerate(conversations)}

    def ask(session: str) -> None:
        """The session's next turn, or its end."""
        if (turn := next(turns[session], None)) is None:
            return scheduler.forget(session)
        so_far.setdefault(session, []).extend(turn.observed)
        scheduler.add(request(session, so_far[session], turn.new))

    for session in turns:
        ask(session)
    while scheduler.busy:
        step, spans = planned(scheduler)
        scheduler.advance(step)
        for asked, _, known in scheduler.record(step, said.integers(16, 50_000, len(spans)), np.zeros(len(spans))):
            if known == asked.limit:
                so_far[asked.session] += scheduler.finish(asked, known)[0].tolist()
                asked.future.cancel()
                ask(asked.session)
        most_live = max(most_live, live(slots, pages, scheduler))
    assert most_live < (len(cache.address_P) - 1) * PAGE <= 1.15 * most_live


def live(slots: Slots, pages: Pages, scheduler: Scheduler) -> int:
    """The tokens of all sessions that are not forgotten. A page that several share counts once."""
    tokens_P = np.zeros(pages.made, dtype=np.int64)
    for slot in scheduler._slot_of.values():
        page_W = pages.table_SW[slot, : pages.count_S[slot]]
        tokens_P[page_W] = np.clip(slots.known[slot] - PAGE * np.arange(len(page_W)), 0, PAGE)
    return int(tokens_P.sum())


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


def test_the_session_that_was_used_longest_ago_gives_its_slot() -> None:
    """`a` came first and has been used since; `b` has not."""
    scheduler, slots, _ = scheduler_of(2)

    def turn(session: str, ids: Sequence[int]) -> None:
        one = request(session, ids, max_tokens=1)
        scheduler.add(one)
        step, _ = planned(scheduler)
        passed(scheduler, step, 7)
        scheduler.finish(one, len(ids) + 1)

    turn("a", [1] * 9)
    turn("b", [2] * 9)
    turn("a", [1] * 9 + [7, 3])
    turn("c", [3] * 9)
    assert sorted(slots.ids[:, 0].tolist()) == [1, 3]
