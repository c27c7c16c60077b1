"""Samples with the learner's own module: no second copy of the weights, nothing to synchronise.

Every step runs one forward pass over whatever the live requests need next: one token for those that are decoding, the
unread part of the prompt for those that just joined. So requests join and leave at every step, an episode's next turn
reads only what is new, and a group's opening is read once. While a GPU works on a step, the episodes whose turn has
ended go on.

Each request has its own stream of random numbers; what else is being sampled has no part in what it gets.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch

from longloop.engines.cache import Row, Slots
from longloop.engines.passes import Drawn, Eager, Model, Pass
from longloop.tokens.chat import Chat
from longloop.types import Sampled, UserError

# A request waits for another that is reading the same opening when that saves at least this many tokens.
_WORTH_WAITING = 16


@dataclass(eq=False)
class _Request:
    session: str
    ids: np.ndarray
    """The prompt. What is sampled is kept in the slot."""
    max_tokens: int
    temperature: float
    stop_ids: frozenset[int]
    stop: Sequence[str]
    random: random.Random
    future: asyncio.Future[Sampled]
    slot: int = -1


class NativeEngine:
    """Continuous batching over a slotted KV cache.

    slots: how many sessions keep their keys and values; more sessions work too, and re-read their past.
    context: the most tokens a session is expected to have; no memory is taken for more.
    step_tokens: at most this many tokens are read in one forward pass; longer prompts are read in pieces.
    graphs: record the pass and replay it (graphs.py); when not said, on a CUDA device where Triton is installed.
    compile: let torch.compile fuse the recorded pass; takes a minute when a run starts.
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
        if compile and not graphs:
            raise UserError("engine.compile=true compiles the recorded pass: set engine.graphs=true as well.")
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
        request = _Request(session, np.array(ids), max_tokens, temperature, stop_ids, stop, random.Random(seed), future)
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
        try:
            while self._waiting or self._running:
                await self._step()
        except Exception as error:
            for request in self._waiting + self._running:
                if not request.future.done():
                    request.future.set_exception(error)
            self._waiting, self._running = [], []

    async def _step(self) -> None:
        for queue in (self._waiting, self._running):
            queue[:] = [request for request in queue if not request.future.done()]
        begun = self._begin()
        await asyncio.sleep(0)  # let the episodes whose turn has ended come back with the next one
        if begun is None:
            return
        requests, row, ends_R, drawn = begun
        token_R, logp_R = drawn.wait()
        slots = self.slots
        slots.length[row.slot_R] += row.count_R
        said_R, at_R = row.slot_R[ends_R], slots.known[row.slot_R[ends_R]]
        slots.ids[said_R, at_R], slots.logp[said_R, at_R] = token_R[ends_R], logp_R[ends_R]
        slots.known[said_R] += 1
        for request, ends, token in zip(requests, ends_R, token_R.tolist(), strict=True):
            if ends:
                self._maybe_finish(request, token)

    @torch.inference_mode()
    def _begin(self) -> tuple[list[_Request], Row, np.ndarray, Drawn] | None:
        """Begin a pass over what is to be read next; a span that ends its request's prompt gets a token."""
        if self._version != self.model.version:  # what was read was read with other weights
            self._version = self.model.version
            self.slots.length[:] = 0
        self._admit()
        if not self._running:
            return None
        requests, row = self._next_row()
        ends_R = row.start_R + row.count_R == self.slots.known[row.slot_R]
        temperature_R = np.array([request.temperature for request in requests])
        uniform_R = np.array([r.random.random() if ends else 0.0 for r, ends in zip(requests, ends_R, strict=True)])
        self.forwarded += int(row.count_R.sum())
        return requests, row, ends_R, self._pass(row, temperature_R, uniform_R)

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
            slots.reserve(len(ids) + request.max_tokens)
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
        """What to read now: the single tokens first, then spans within the budget."""
        slot_R = np.array([request.slot for request in self._running])
        start_R = self.slots.length[slot_R]
        unread_R = self.slots.known[slot_R] - start_R
        order = np.lexsort((slot_R, unread_R > 1))
        slot_R, start_R, unread_R = slot_R[order], start_R[order], unread_R[order]
        span_R = np.where(unread_R > 1, unread_R, 0)
        room_R = self._step_tokens - (np.cumsum(span_R) - span_R)
        count_R = np.where(unread_R > 1, np.clip(room_R, 0, unread_R), 1)
        now = count_R > 0
        requests = [self._running[n] for n in order[now]]
        return requests, Row(slot_R[now], start_R[now], count_R[now], singles=int((unread_R == 1).sum()))

    def _maybe_finish(self, request: _Request, token: int) -> None:
        prompt, known = len(request.ids), int(self.slots.known[request.slot])
        stopped = token in request.stop_ids or (bool(request.stop) and self._hit_stop_string(request, known))
        if not stopped and known - prompt < request.max_tokens:
            return
        self._running.remove(request)
        if not request.future.done():
            ids, logp = (x[request.slot, prompt:known].tolist() for x in (self.slots.ids, self.slots.logp))
            request.future.set_result(Sampled(tuple(ids), tuple(logp), "stop" if stopped else "length"))

    def _hit_stop_string(self, request: _Request, known: int) -> bool:
        # A character is at most four bytes and a token at least one, so the stop string lies within these tokens.
        begin = max(len(request.ids), known - 4 * max(map(len, request.stop)) - 4)
        tail = self._decode(self.slots.ids[request.slot, begin:known].tolist())
        return any(stop in tail for stop in request.stop)

    def _recorded(self, compile: bool) -> Pass:
        from longloop.engines.graphs import Graphs

        if self.model.device.type != "cuda":
            raise UserError("engine.graphs=true needs a CUDA device; without one, leave it out.")
        return Graphs(self.model, self.slots, compile=compile)
