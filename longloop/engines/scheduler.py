"""Decides who is in which slot, who has which pages, and what the next forward pass reads. Knows neither tensors nor
the model.

A request waits until it is admitted to a slot and to the pages for its prompt. Then each pass reads some of its prompt
or, once that is read, the token that was drawn last; a pass that reads the last known token draws the next one.
Admission prefers the slot that already holds most of the prompt, and shares the pages of another that does.
`Step.copies` is all that the scheduler ever asks of the cache.

When pages run out, those of forgotten sequences go first. Then the oldest session is served first, and takes them from
the youngest: that one's request waits with the tokens it has, to be read again when there is room. The oldest request
always gets what it needs, so no request ever fails for want of pages.

Shapes: S slots, R spans in a row, A admitted requests.
"""

import asyncio
import random
from dataclasses import dataclass, field

import numpy as np

from longloop.engines.pages import PAGE, Pages, count
from longloop.engines.slots import UNKNOWN, Row, Slots
from longloop.types import Sampled, SamplingParams, Watch

# A request waits for another that is reading the same opening when that saves at least this many tokens.
_WORTH_WAITING = 16

_BESIDE = 1024
"""The most tokens of a pass in which prompts are read beside single tokens. More would hold up those who wait for a
single one, and gain nothing: from some hundreds on, a pass takes as long as its tokens are many."""

_FORGOTTEN = 2**60
"""Forgotten sequences count as younger than all sessions, the first to be forgotten as the youngest."""


@dataclass(eq=False)
class Request:
    session: str
    ids: np.ndarray
    """The prompt. Sampled tokens are in the slot, behind it."""
    params: SamplingParams
    future: asyncio.Future[Sampled]
    """Done when the request has finished, failed or been cancelled."""
    watch: Watch | None = None
    slot: int = -1
    limit: int = field(init=False)
    """The most tokens that prompt and answer may have together."""
    rng: random.Random = field(init=False)
    """The request's own stream of random numbers, one for each token."""

    def __post_init__(self) -> None:
        self.limit = len(self.ids) + max(1, self.params.max_tokens)
        self.rng = random.Random(self.params.seed)


@dataclass(frozen=True)
class Step:
    """One forward pass: what it reads, and for whom."""

    row: Row
    requests: list[Request]
    """The request of each span."""
    draws_R: np.ndarray
    """Which spans end with the last known token of their sequence, so that the next one is drawn."""
    copies: list[tuple[int, int]]
    """What to do in the cache first, in this order: (from page, to page)."""


class Scheduler:
    """Requests from their arrival to their end. `step_tokens` is the most prompt tokens that one pass reads."""

    def __init__(self, slots: Slots, pages: Pages, step_tokens: int) -> None:
        self._slots, self._pages, self._step_tokens = slots, pages, step_tokens
        self._waiting: list[Request] = []
        self._running: list[Request] = []
        self._slot_of: dict[str, int] = {}
        self._session_in: dict[int, str] = {}
        self._born_S = np.zeros(slots.count, dtype=np.int64)
        """When the session in each slot began, as a number that counts up."""
        self._now = 0

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._running)

    def add(self, request: Request) -> None:
        self._waiting.append(request)

    def forget(self, session: str) -> None:
        """Let others have the session's slot and pages. Their content stays until then and may still be reused."""
        slot = self._slot_of.pop(session, -1)
        if slot >= 0:
            self._session_in.pop(slot, None)
            self._now += 1
            self._born_S[slot] = 2 * _FORGOTTEN - self._now

    def clear(self) -> None:
        """Forget all sequences."""
        self._slots.clear()
        self._pages.clear()
        self._slot_of.clear()
        self._session_in.clear()

    def discard_cache(self) -> None:
        """Read everything again: the cache holds keys and values of other weights, or of an interrupted step."""
        for request in list(self._running):
            self._pause(request)
        for slot in range(self._slots.count):
            self._pages.shrink(slot, 0)
        self._slots.length[:] = 0

    def fail(self, error: Exception) -> None:
        """End all requests with an error."""
        for request in self._waiting + self._running:
            if not request.future.done():
                request.future.set_exception(error)
        self._waiting, self._running = [], []
        self.discard_cache()

    def schedule(self) -> Step | None:
        """Admit who can be, and plan the next pass. None if there is nothing to read."""
        for queue in (self._waiting, self._running):
            queue[:] = [request for request in queue if not request.future.done()]
        self._find_pages()
        copies = self._admit()
        requests, row = self._next_row()
        if not requests:
            return None
        return Step(row, requests, row.next_R == self._slots.known[row.slot_R], copies)

    def advance(self, step: Step) -> None:
        """The pass is under way: what comes after it may already be planned, with its tokens still unknown."""
        slots, row = self._slots, step.row
        slots.length[row.slot_R] += row.count_R
        slot_D = row.slot_R[step.draws_R]
        slots.ids[slot_D, slots.known[slot_D]] = UNKNOWN
        slots.known[slot_D] += 1

    def record(self, step: Step, token_R: np.ndarray, logp_R: np.ndarray) -> list[tuple[Request, int, int]]:
        """Write down what a pass has drawn. Returns each request that got a token, the token, and how many are known.

        A request that ended after the pass had begun gets none.
        """
        live = [n for n in np.flatnonzero(step.draws_R).tolist() if not step.requests[n].future.done()]
        slot_L, position_L = step.row.slot_R[live], step.row.next_R[live]
        self._slots.ids[slot_L, position_L], self._slots.logp[slot_L, position_L] = token_R[live], logp_R[live]
        requests = [step.requests[n] for n in live]
        return list(zip(requests, token_R[live].tolist(), (position_L + 1).tolist(), strict=True))

    def finish(self, request: Request, known: int) -> tuple[np.ndarray, np.ndarray]:
        """End a request whose sequence has `known` tokens. Returns the sampled ones and their log-probs.

        A further token that is being drawn is dropped.
        """
        slots, slot = self._slots, request.slot
        (self._running if request in self._running else self._waiting).remove(request)
        slots.known[slot] = known
        slots.length[slot] = min(slots.length[slot], known)
        sampled = slice(len(request.ids), known)
        return slots.ids[slot, sampled].copy(), slots.logp[slot, sampled].copy()

    def _find_pages(self) -> None:
        """Give each running request the pages for all tokens that it knows; who cannot have them is paused."""
        slots, pages = self._slots, self._pages
        slot_A = np.array([request.slot for request in self._running], dtype=int)
        short_A = slots.known[slot_A] > PAGE * pages.count_S[slot_A]
        if not short_A.any():
            return
        by_age = sorted((self._running[n] for n in np.flatnonzero(short_A)), key=lambda r: self._born_S[r.slot])
        oldest = min(self._running, key=lambda r: self._born_S[r.slot])
        for request in by_age:
            if request not in self._running:
                continue  # an older one has taken its pages
            slot, known = request.slot, int(slots.known[request.slot])
            if self._make_room(count(known) - int(pages.count_S[slot]), request, {slot}, anyway=request is oldest):
                pages.extend(slot, known)
            else:
                self._pause(request)

    def _admit(self) -> list[tuple[int, int]]:
        """Give waiting requests a slot, and as much of their prompt as some slot holds. Returns what to copy for it."""
        if not self._waiting:
            return []
        slots, pages, copies = self._slots, self._pages, list[tuple[int, int]]()
        reads_S, taken_S = np.zeros((2, slots.count), dtype=bool)
        reads_S[[request.slot for request in self._running]] = True
        taken_S[[request.slot for request in self._running + self._waiting if request.slot >= 0]] = True
        for request in sorted(self._waiting, key=self._born):
            own = self._slot_of.get(request.session, -1)
            paused = request.slot >= 0
            slot = request.slot if paused else own if own >= 0 and not taken_S[own] else self._free_slot(taken_S)
            if slot < 0:
                continue
            slots.reserve(request.limit)
            ids = slots.seen(slot) if paused else request.ids
            known = int(slots.known[slot]) if paused else len(ids)
            if slot == own and slots.extends(own, ids):  # the next turn of a conversation, as nearly always
                donor, reuse = own, int(slots.length[own])
            else:
                common_S = slots.common(ids)
                read_S = np.minimum(common_S, slots.length)
                donor = own if own >= 0 and read_S[own] == read_S.max() else int(read_S.argmax())
                reuse = min(int(read_S[donor]), known - 1)
                if (common_S[reads_S] >= reuse + _WORTH_WAITING).any():
                    continue  # another request is reading more of it just now
            needed = count(known) - pages.kept(donor, slot, reuse)
            if pages.limited:  # a page stays free for each older one: else the next token of one would pause this one
                needed += sum(self._born_S[other.slot] < self._born(request) for other in self._running)
            if not self._make_room(needed, request, {slot, donor}, anyway=False):
                if self._running:
                    break
                donor, reuse = slot, reuse if donor == slot else 0  # there may be no room beside the other
                self._make_room(count(known) - pages.kept(slot, slot, reuse), request, {slot}, anyway=True)
            copies += pages.fork(donor, slot, reuse)
            pages.extend(slot, known)
            slots.length[slot] = reuse
            if not paused:
                slots.assign(slot, ids, reuse)
            reads_S[slot] = taken_S[slot] = True
            if slot != own:
                self.forget(self._session_in.get(slot, ""))
                self._session_in[slot] = request.session
                self._now += 1
                self._born_S[slot] = self._now
            self._slot_of.pop(request.session, None)
            self._slot_of[request.session] = request.slot = slot  # the one that was used last stands last
            self._waiting.remove(request)
            self._running.append(request)
        return copies

    def _make_room(self, needed: int, request: Request, spared: set[int], anyway: bool) -> bool:
        """Have so many free pages: those of forgotten sequences first, then new ones, then those of younger sessions.

        anyway: if that is not enough, also those of older sessions that are idle, and more than the limit.
        """
        pages, born = self._pages, self._born(request)
        while pages.free < needed and self._take_pages(needed - pages.free, _FORGOTTEN, spared):
            pass
        while not pages.supply(needed):
            if not self._take_pages(1, born, spared):
                break
        else:
            return True
        while anyway and not pages.supply(needed):
            if not self._take_pages(1, -1, spared):
                return pages.supply(needed, anyway=True)
        return anyway

    def _born(self, request: Request) -> int:
        """When the request's session began: a new one comes after all others."""
        slot = request.slot if request.slot >= 0 else self._slot_of.get(request.session, -1)
        return int(self._born_S[slot]) if slot >= 0 else _FORGOTTEN

    def _take_pages(self, many: int, born: int, spared: set[int]) -> bool:
        """Take the last pages of the youngest sequence that began after `born`, and all of them if it runs.

        Returns False if there is none. Pages that others share do not become free.
        """
        born_S = np.where(self._pages.count_S > 0, self._born_S, -1)
        born_S[list(spared)] = -1
        slot = int(born_S.argmax())
        if born_S[slot] <= born:
            return False
        for request in self._running:
            if request.slot == slot:
                self._pause(request)
                return True
        left = max(0, int(self._pages.count_S[slot]) - many)
        self._pages.shrink(slot, left)
        self._slots.length[slot] = min(int(self._slots.length[slot]), left * PAGE)
        return True

    def _pause(self, request: Request) -> None:
        """Let a running request wait. It keeps its slot and its tokens, and loses its pages."""
        self._running.remove(request)
        self._waiting.append(request)
        self._pages.shrink(request.slot, 0)
        self._slots.length[request.slot] = 0

    def _free_slot(self, taken_S: np.ndarray) -> int:
        """A slot of no session, else that of the session that has been idle longest, else -1."""
        for slot in np.flatnonzero(~taken_S).tolist():
            if slot not in self._session_in:
                return slot
        return next((slot for slot in self._slot_of.values() if not taken_S[slot]), -1)

    def _next_row(self) -> tuple[list[Request], Row]:
        """Single tokens first, then longer spans within the budget, in the order of admission. A request that has all
        its tokens reads nothing."""
        slots = self._slots
        slot_A, limit_A = np.array([(r.slot, r.limit) for r in self._running], dtype=int).reshape(-1, 2).T
        reading = np.flatnonzero(slots.known[slot_A] < limit_A)
        slot_R = slot_A[reading]
        unread_R = slots.known[slot_R] - slots.length[slot_R]
        single_R = unread_R == 1
        order = np.lexsort((np.where(single_R, slot_R, reading), ~single_R))
        slot_R, unread_R, single_R = slot_R[order], unread_R[order], single_R[order]
        span_R = np.where(single_R, 0, unread_R)
        singles = int(single_R.sum())
        budget = min(max(_BESIDE - singles, _BESIDE // 4), self._step_tokens) if singles else self._step_tokens
        room_R = budget - (np.cumsum(span_R) - span_R)
        count_R = np.where(single_R, 1, np.clip(room_R, 0, unread_R))
        now = count_R > 0
        requests = [self._running[n] for n in reading[order[now]]]
        row = slots.row(slot_R[now], count_R[now], singles, self._pages.table_SW)
        return requests, row
