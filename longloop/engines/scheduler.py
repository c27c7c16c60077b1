"""Decides who is in which slot, and what the next forward pass reads. Knows neither tensors nor the model.

A request waits until it is admitted to a slot. Then each pass reads some of its prompt or, once that is read, the token
that was drawn last; a pass that reads the last known token draws the next one. Admission prefers the slot that already
holds most of the prompt. What lies in another slot is copied: `Step.copies` tells the cache so, and is all that the
scheduler ever asks of it.

Shapes: S slots, R spans in a row, A admitted requests.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from longloop.engines.slots import UNKNOWN, Row, Slots
from longloop.types import Sampled, SamplingParams

# A request waits for another that is reading the same opening when that saves at least this many tokens.
_WORTH_WAITING = 16


@dataclass(eq=False)
class Request:
    session: str
    ids: np.ndarray
    """The prompt. Sampled tokens are in the slot, behind it."""
    params: SamplingParams
    future: asyncio.Future[Sampled]
    """Done when the request has finished, failed or been cancelled."""
    watch: Callable[[int], None] | None = None
    """Called with each token."""
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
    copies: list[tuple[int, int, int]]
    """What to do in the cache first, in this order: (from slot, to slot, number of tokens)."""


class Scheduler:
    """Requests from their arrival to their end. `step_tokens` is the most prompt tokens that one pass reads."""

    def __init__(self, slots: Slots, step_tokens: int) -> None:
        self._slots, self._step_tokens = slots, step_tokens
        self._waiting: list[Request] = []
        self._running: list[Request] = []
        self._slot_of: dict[str, int] = {}
        self._session_in: dict[int, str] = {}

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._running)

    def add(self, request: Request) -> None:
        self._waiting.append(request)

    def forget(self, session: str) -> None:
        """Let others have the session's slot. Its content stays until then and may still be reused."""
        self._session_in.pop(self._slot_of.pop(session, -1), None)

    def clear(self) -> None:
        """Forget all sequences."""
        self._slots.clear()
        self._slot_of.clear()
        self._session_in.clear()

    def discard_cache(self) -> None:
        """Read everything again: the cache holds keys and values of other weights, or of an interrupted step."""
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
        self._running.remove(request)
        slots.known[slot] = known
        slots.length[slot] = min(slots.length[slot], known)
        sampled = slice(len(request.ids), known)
        return slots.ids[slot, sampled].copy(), slots.logp[slot, sampled].copy()

    def _admit(self) -> list[tuple[int, int, int]]:
        """Give waiting requests a slot, and as much of their prompt as some slot holds. Returns what to copy for it."""
        slots, copies = self._slots, []
        busy_S = np.zeros(slots.count, dtype=bool)
        busy_S[[request.slot for request in self._running]] = True
        for request in list(self._waiting):
            ids, own = request.ids, self._slot_of.get(request.session, -1)
            slot = own if own >= 0 and not busy_S[own] else self._free_slot(busy_S)
            if slot < 0:
                continue
            slots.reserve(request.limit)
            if slot == own and slots.extends(own, ids):  # the next turn of a conversation, as nearly always
                donor, reuse = own, int(slots.length[own])
            else:
                common_S = slots.common(ids)
                read_S = np.minimum(common_S, slots.length)
                donor = own if own >= 0 and read_S[own] == read_S.max() else int(read_S.argmax())
                reuse = min(int(read_S[donor]), len(ids) - 1)
                if (common_S[busy_S] >= reuse + _WORTH_WAITING).any():
                    continue  # another request is reading more of it just now
            if donor != slot and reuse:
                copies.append((donor, slot, reuse))
            slots.assign(slot, ids, reuse)
            busy_S[slot] = True
            if slot != own:
                self.forget(self._session_in.get(slot, ""))
                self._slot_of[request.session], self._session_in[slot] = slot, request.session
            request.slot = slot
            self._waiting.remove(request)
            self._running.append(request)
        return copies

    def _free_slot(self, busy_S: np.ndarray) -> int:
        """A slot of no session, else that of the session that has been idle longest, else -1."""
        for slot in np.flatnonzero(~busy_S).tolist():
            if slot not in self._session_in:
                return slot
        return next((slot for slot in self._slot_of.values() if not busy_S[slot]), -1)

    def _next_row(self) -> tuple[list[Request], Row]:
        """Single tokens first, then longer spans within the budget. A request that has all its tokens reads nothing."""
        slots = self._slots
        slot_A, limit_A = np.array([(r.slot, r.limit) for r in self._running], dtype=int).reshape(-1, 2).T
        reading = np.flatnonzero(slots.known[slot_A] < limit_A)
        slot_R = slot_A[reading]
        unread_R = slots.known[slot_R] - slots.length[slot_R]
        order = np.lexsort((slot_R, unread_R > 1))
        slot_R, unread_R = slot_R[order], unread_R[order]
        span_R = np.where(unread_R > 1, unread_R, 0)
        room_R = self._step_tokens - (np.cumsum(span_R) - span_R)
        count_R = np.where(unread_R > 1, np.clip(room_R, 0, unread_R), 1)
        now = count_R > 0
        requests = [self._running[n] for n in reading[order[now]]]
        return requests, slots.row(slot_R[now], count_R[now], singles=int((unread_R == 1).sum()))
