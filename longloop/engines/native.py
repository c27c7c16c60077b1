"""Samples with the learner's own module: no second copy of the weights, nothing to synchronise.

Every step runs one forward pass over whatever the live requests need next: one token for those that are decoding, the
unread part of the prompt for those that just joined. So requests join and leave at every step, an episode's next turn
reads only what is new, and a group's opening is read once.

Each request has its own stream of random numbers, and a token is the point where that number falls in the
distribution; what else is being sampled has no part in it.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from longloop.engines.attention import Plan
from longloop.engines.cache import Decode, Slots, Span
from longloop.tokens.chat import Chat
from longloop.types import Sampled

# A request waits for another that is reading the same opening when that saves at least this many tokens.
_WORTH_WAITING = 16


class Model(Protocol):
    """The part of a policy that sampling needs."""

    version: int
    """Changes with the weights; what was read with other weights is forgotten."""

    @property
    def device(self) -> torch.device: ...

    def hidden(self, ids_T: Tensor, position_T: Tensor, plan: Plan) -> Tensor: ...

    def logits(self, hidden_ND: Tensor) -> Tensor: ...


@dataclass(eq=False)
class _Request:
    session: str
    ids: list[int]
    """Everything to be read: the prompt, then what was sampled."""
    prompt: int
    max_tokens: int
    temperature: float
    stop_ids: frozenset[int]
    stop: Sequence[str]
    random: random.Random
    future: asyncio.Future[Sampled]
    slot: int = -1
    logprobs: list[float] = field(default_factory=list)


class NativeEngine:
    """Continuous batching over a slotted KV cache.

    slots: how many sessions keep their keys and values; more sessions work too, and re-read their past.
    step_tokens: at most this many tokens are read in one forward pass; longer prompts are read in pieces.
    """

    def __init__(self, policy: Model, chat: Chat, slots: int = 64, step_tokens: int = 4096) -> None:
        self.model = policy
        self.slots = Slots(slots)
        self.forwarded = 0
        """Tokens that went through the model since the engine was made."""
        self._decode = chat.decode
        self._step_tokens = step_tokens
        self._version = policy.version
        self._owner: dict[str, int] = {}
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
        request = _Request(
            session, list(ids), len(ids), max_tokens, temperature, stop_ids, stop, random.Random(seed), future
        )
        self._waiting.append(request)
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._run())
        return await future

    def forget(self, session: str) -> None:
        self._owner.pop(session, None)

    def release(self) -> None:
        self.slots.clear()
        self._owner.clear()

    async def _run(self) -> None:
        try:
            while self._waiting or self._running:
                self._step()
                await asyncio.sleep(0)  # let the episodes whose turn just ended come back with the next one
        except Exception as error:
            for request in self._waiting + self._running:
                if not request.future.done():
                    request.future.set_exception(error)
            self._waiting, self._running = [], []

    @torch.inference_mode()
    def _step(self) -> None:
        if self._version != self.model.version:
            self.release()
            self._version = self.model.version
            self._waiting, self._running = self._running + self._waiting, []
        for queue in (self._waiting, self._running):
            queue[:] = [request for request in queue if not request.future.done()]
        self._admit()
        singles, spans = self._next_tokens()
        if not singles and not spans:
            return
        requests = singles + spans
        row = [(request, Span(request.slot, int(start), count)) for request, start, count in requests]
        plan = Decode(
            self.slots,
            [span for _, span in row[: len(singles)]],
            [span for _, span in row[len(singles) :]],
            self.model.device,
        )
        ids = [id for request, span in row for id in request.ids[span.start : span.start + span.count]]
        positions = [span.start + i for _, span in row for i in range(span.count)]
        device = self.model.device
        hidden_TD = self.model.hidden(torch.tensor(ids, device=device), torch.tensor(positions, device=device), plan)
        self.forwarded += len(ids)
        for request, span in row:
            self.slots.append(span.slot, request.ids[span.start : span.start + span.count])
        ends = np.cumsum([span.count for _, span in row]) - 1
        ready = [(request, int(end)) for (request, _), end in zip(row, ends, strict=True) if self._unread(request) == 0]
        if ready:
            logits = self.model.logits(hidden_TD[[end for _, end in ready]])
            self._draw([request for request, _ in ready], logits)

    def _unread(self, request: _Request) -> int:
        return len(request.ids) - int(self.slots.length[request.slot])

    def _admit(self) -> None:
        """Give waiting requests a slot that already holds as much of their prompt as can be found."""
        busy = {request.slot for request in self._running}
        reading = [np.array(request.ids) for request in self._running if self._unread(request) > 1]
        for request in list(self._waiting):
            own = self._owner.get(request.session, -1)
            slot = own if own >= 0 and own not in busy else self._free_slot(busy)
            if slot < 0:
                continue
            ids = np.array(request.ids)
            self.slots.reserve(request.prompt + request.max_tokens)
            shared = self.slots.shared(ids)
            donor = own if own >= 0 and shared[own] == shared.max() else int(shared.argmax())
            reuse = min(int(shared[donor]), len(ids) - 1)
            if any(_common(ids, other) >= reuse + _WORTH_WAITING for other in reading):
                continue
            self.slots.copy(donor, slot, reuse)
            reading.append(ids)
            busy.add(slot)
            for session in [s for s, owned in self._owner.items() if owned == slot]:
                del self._owner[session]
            self._owner[request.session] = request.slot = slot
            self._waiting.remove(request)
            self._running.append(request)

    def _free_slot(self, busy: set[int]) -> int:
        """A slot of no session, else one of the session that has waited longest, else -1."""
        owned = set(self._owner.values())
        for slot in range(self.slots.count):
            if slot not in busy and slot not in owned:
                return slot
        return next((slot for slot in self._owner.values() if slot not in busy), -1)

    def _next_tokens(self) -> tuple[list[tuple[_Request, int, int]], list[tuple[_Request, int, int]]]:
        """What to read now, as (request, start, count): the single tokens first, then spans within the budget."""
        self._running.sort(key=lambda request: request.slot)
        singles, spans = [], []
        budget = self._step_tokens
        for request in self._running:
            unread = self._unread(request)
            start = len(request.ids) - unread
            if unread == 1:
                singles.append((request, start, 1))
            elif budget > 0:
                spans.append((request, start, min(unread, budget)))
                budget -= unread
        return singles, spans

    def _draw(self, requests: list[_Request], logits_RV: Tensor) -> None:
        """One token for each request, from its own random stream."""
        temperature = torch.tensor([r.temperature or 1.0 for r in requests], device=logits_RV.device)
        logp_RV = (logits_RV / temperature[:, None]).log_softmax(-1)
        cumulative = logp_RV.double().exp_().cumsum_(-1)  # in place: fresh memory costs more than the arithmetic
        uniform = torch.tensor([r.random.random() for r in requests], dtype=torch.float64, device=logits_RV.device)
        drawn = torch.searchsorted(cumulative, (uniform * cumulative[:, -1])[:, None], right=True)[:, 0]
        token_R = drawn.clamp(max=logits_RV.shape[1] - 1)
        greedy = [r.temperature == 0 for r in requests]
        if any(greedy):
            token_R = torch.where(torch.tensor(greedy, device=token_R.device), logits_RV.argmax(-1), token_R)
        logp_R = logp_RV.gather(1, token_R[:, None])[:, 0]
        for request, token, logp in zip(requests, token_R.tolist(), logp_R.tolist(), strict=True):
            request.ids.append(token)
            request.logprobs.append(logp)
            self._maybe_finish(request, token)

    def _maybe_finish(self, request: _Request, token: int) -> None:
        sampled = request.ids[request.prompt :]
        stopped = token in request.stop_ids or self._hit_stop_string(request, sampled)
        if stopped or len(sampled) >= request.max_tokens:
            result = Sampled(tuple(sampled), tuple(request.logprobs), "stop" if stopped else "length")
            self._running.remove(request)
            if not request.future.done():
                request.future.set_result(result)

    def _hit_stop_string(self, request: _Request, sampled: list[int]) -> bool:
        if not request.stop:
            return False
        # A character is at most four bytes and a token at least one, so the stop string lies within these tokens.
        tail = self._decode(sampled[-4 * max(map(len, request.stop)) - 4 :])
        return any(stop in tail for stop in request.stop)


def _common(a: np.ndarray, b: np.ndarray) -> int:
    """The length of the common beginning."""
    width = min(len(a), len(b))
    different = np.flatnonzero(a[:width] != b[:width])
    return int(different[0]) if len(different) else width
