"""Samples with the learner's own module: no second copy of the weights, nothing to synchronise.

Every step runs one forward pass over whatever the live requests need next: one token for those that are decoding, the
unread part of the prompt for those that just joined. So requests join and leave at every step, an episode's next turn
reads only what is new, and a group's opening is read once.

A GPU is given the next step while it works on the last: what that one draws stays on the device, and is looked at here
when the next has begun. So a turn may be over one token before this is known; that token is forgotten.

Each request has its own stream of random numbers; what else is being sampled has no part in what it gets.
"""

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch

from longloop.engines.kv_cache import UNKNOWN, Row, Slots
from longloop.engines.passes import Drawn, Eager, Model, Pass
from longloop.tokens.chat import Chat
from longloop.types import Finish, Sampled, UserError

# A request waits for another that is reading the same opening when that saves at least this many tokens.
_WORTH_WAITING = 16


@dataclass(eq=False)
class _Request:
    session: str
    ids: np.ndarray
    """The prompt. What is sampled is kept in the slot."""
    limit: int
    """The most tokens that prompt and answer may have."""
    temperature: float
    stop_ids: frozenset[int]
    stop: Sequence[str]
    random: random.Random
    future: asyncio.Future[Sampled]
    slot: int = -1


@dataclass(frozen=True)
class _Begun:
    """A pass under way: the requests that get a token of it, which of its spans these are, and where it belongs."""

    requests: list[_Request]
    ends_R: np.ndarray
    at_E: np.ndarray
    drawn: Drawn


class NativeEngine:
    """Continuous batching over a slotted KV cache.

    slots: how many sessions keep their keys and values; more sessions work too, and re-read their past. In a run,
        rollout.concurrency unless it is set.
    context: the most tokens a session is expected to have; no memory is taken for more. In a run, rollout.context
        unless it is set.
    step_tokens: at most this many tokens are read in one forward pass; longer prompts are read in pieces.
    graphs: record the pass and replay it (graphs.py); when not said, on a CUDA device where Triton is installed.
    compile: let torch.compile fuse recorded passes, which takes half a minute when a run starts; others are left alone.
    """

    def __init__(
        self,
        policy: Model,
        chat: Chat,
        slots: int = 64,
        context: int = 2**20,
        step_tokens: int = 4096,
        graphs: bool | None = None,
        compile: bool = False,
    ) -> None:
        self.model = policy
        self.slots = Slots(slots, policy.layers, context)
        self.forwarded = 0
        """Tokens that went through the model since the engine was made."""
        self._decode = chat.decode
        if graphs is None:
            graphs = policy.device.type == "cuda" and find_spec("triton") is not None
        self._pass = self._recorded(compile) if graphs else Eager(policy, self.slots)
        self._step_tokens = step_tokens
        self._version = policy.version
        self._owner: dict[str, int] = {}
        self._holder: dict[int, str] = {}
        """The slot of each session, and the session of each slot."""
        self._waiting: list[_Request] = []
        self._running: list[_Request] = []
        self._pump: asyncio.Task[None] | None = None

    async def sample(
        self,
        ids: Sequence[int],
        *,
        session: str,
        seed: int,
        max_tokens: int,
        temperature: float,
        stop_ids: frozenset[int],
        stop: Sequence[str] = (),
    ) -> Sampled:
        future: asyncio.Future[Sampled] = asyncio.get_running_loop().create_future()
        limit = len(ids) + max(1, max_tokens)
        request = _Request(session, np.array(ids), limit, temperature, stop_ids, stop, random.Random(seed), future)
        self._waiting.append(request)
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._run())
        return await future

    def forget(self, session: str) -> None:
        self._holder.pop(self._owner.pop(session, -1), None)

    def release(self) -> None:
        self.slots.clear()
        self._pass.release()
        self._owner.clear()
        self._holder.clear()

    async def _run(self) -> None:
        begun: deque[_Begun] = deque()
        try:
            while self._waiting or self._running or begun:
                if one := self._begin():
                    begun.append(one)
                await asyncio.sleep(0)  # let the episodes whose turn has ended come back with the next one
                if begun and (len(begun) > self._pass.ahead or not one):
                    self._end(begun.popleft())
        except Exception as error:
            for request in self._waiting + self._running:
                if not request.future.done():
                    request.future.set_exception(error)
            self._waiting, self._running = [], []

    @torch.inference_mode()
    def _begin(self) -> "_Begun | None":
        """Begin a pass over what is to be read next; a span that ends its request's prompt gets a token."""
        slots = self.slots
        for queue in (self._waiting, self._running):
            queue[:] = [request for request in queue if not request.future.done()]
        if self._version != self.model.version:  # what was read was read with other weights
            self._version = self.model.version
            slots.length[:] = 0
        self._admit()
        requests, row = self._next_row()
        if not requests:
            return None
        ends_R = row.start_R + row.count_R == slots.known[row.slot_R]
        temperature_R = np.array([request.temperature for request in requests])
        uniform_R = np.array([r.random.random() if ends else 0.0 for r, ends in zip(requests, ends_R, strict=True)])
        drawn = self._pass(row, temperature_R, uniform_R)
        self.forwarded += int(row.count_R.sum())
        slots.length[row.slot_R] += row.count_R
        slot_E = row.slot_R[ends_R]
        at_E = slots.known[slot_E]
        slots.ids[slot_E, at_E] = UNKNOWN
        slots.known[slot_E] += 1
        return _Begun([request for request, ends in zip(requests, ends_R, strict=True) if ends], ends_R, at_E, drawn)

    def _end(self, begun: "_Begun") -> None:
        """Take down what a pass has drawn. Who stopped before, while it was already under way, gets no more."""
        drawn = begun.drawn.wait()
        token_E, logp_E = (x[begun.ends_R] for x in drawn)
        live = [n for n, request in enumerate(begun.requests) if not request.future.done()]
        slot_L, at_L = np.array([begun.requests[n].slot for n in live], dtype=int), begun.at_E[live]
        self.slots.ids[slot_L, at_L], self.slots.logp[slot_L, at_L] = token_E[live], logp_E[live]
        for n, token, at in zip(live, token_E[live].tolist(), at_L.tolist(), strict=True):
            request = begun.requests[n]
            if token in request.stop_ids or (request.stop and self._hit_stop_string(request, at + 1)):
                self._finish(request, at + 1, "stop")
            elif at + 1 == request.limit:
                self._finish(request, at + 1, "length")

    def _admit(self) -> None:
        """Give waiting requests a slot that already holds as much of their prompt as can be found."""
        slots = self.slots
        busy_S = np.zeros(slots.count, dtype=bool)
        busy_S[[request.slot for request in self._running]] = True
        for request in list(self._waiting):
            ids, own = request.ids, self._owner.get(request.session, -1)
            slot = own if own >= 0 and not busy_S[own] else self._free_slot(busy_S)
            if slot < 0:
                continue
            slots.reserve(request.limit)
            if slot == own and slots.begins(own, ids):  # the next turn of a conversation, as nearly always
                donor, reuse = own, int(slots.length[own])
            else:
                common_S = slots.common(ids)
                read_S = np.minimum(common_S, slots.length)
                donor = own if own >= 0 and read_S[own] == read_S.max() else int(read_S.argmax())
                reuse = min(int(read_S[donor]), len(ids) - 1)
                if (common_S[busy_S] >= reuse + _WORTH_WAITING).any():
                    continue  # someone is reading more of it just now
            slots.begin(slot, ids, donor, reuse)
            busy_S[slot] = True
            if slot != own:
                self.forget(self._holder.get(slot, ""))
                self._owner[request.session], self._holder[slot] = slot, request.session
            request.slot = slot
            self._waiting.remove(request)
            self._running.append(request)

    def _free_slot(self, busy_S: np.ndarray) -> int:
        """A slot of no session, else one of the session that has waited longest, else -1."""
        for slot in np.flatnonzero(~busy_S).tolist():
            if slot not in self._holder:
                return slot
        return next((slot for slot in self._owner.values() if not busy_S[slot]), -1)

    def _next_row(self) -> tuple[list[_Request], Row]:
        """What to read now: single tokens first, then spans within the budget. Who has all its tokens is left out."""
        slot_A, limit_A = np.array([(r.slot, r.limit) for r in self._running], dtype=int).reshape(-1, 2).T
        reading = np.flatnonzero(self.slots.known[slot_A] < limit_A)
        slot_R = slot_A[reading]
        start_R = self.slots.length[slot_R]
        unread_R = self.slots.known[slot_R] - start_R
        order = np.lexsort((slot_R, unread_R > 1))
        slot_R, start_R, unread_R = slot_R[order], start_R[order], unread_R[order]
        span_R = np.where(unread_R > 1, unread_R, 0)
        room_R = self._step_tokens - (np.cumsum(span_R) - span_R)
        count_R = np.where(unread_R > 1, np.clip(room_R, 0, unread_R), 1)
        now = count_R > 0
        requests = [self._running[n] for n in reading[order[now]]]
        return requests, Row(slot_R[now], start_R[now], count_R[now], singles=int((unread_R == 1).sum()))

    def _finish(self, request: _Request, known: int, why: Finish) -> None:
        """`known` tokens of its conversation are known now; more may have been begun, and are forgotten."""
        prompt = len(request.ids)
        self._running.remove(request)
        slots, slot = self.slots, request.slot
        slots.known[slot] = known
        slots.length[slot] = min(slots.length[slot], known)
        ids, logp = (x[slot, prompt:known].tolist() for x in (slots.ids, slots.logp))
        request.future.set_result(Sampled(np.array(ids, np.int64), np.array(logp), why))

    def _hit_stop_string(self, request: _Request, known: int) -> bool:
        # A character is at most four bytes and a token at least one, so the stop string lies within these tokens.
        begin = max(len(request.ids), known - 4 * max(map(len, request.stop)) - 4)
        tail = self._decode(self.slots.ids[request.slot, begin:known].tolist())
        return any(stop in tail for stop in request.stop)

    def _recorded(self, compile: bool) -> Pass:
        from longloop.engines.cuda_graphs import Graphs

        if self.model.device.type != "cuda":
            raise UserError("engine.graphs=true needs a CUDA device; without one, leave it out.")
        return Graphs(self.model, self.slots, compile=compile)
