"""Samples with the learner's own module: there is no second copy of the weights, and nothing to synchronize.

The way of a token: `sample` adds a request. The scheduler (scheduler.py) admits it to a slot, finds pages for it
(pages.py) and plans the next pass, a row of tokens to read. The pass (passes.py, or cuda_graphs.py on a GPU) runs the
model over the row. Its attention (reading.py, or triton_kernels.py) writes the keys and values of the row's tokens into
their pages (kv_cache.py) and reads those of their sequences. The sampler (sampler.py) draws a token where a sequence
has been read to its end. The token goes into its slot (slots.py), to be read by the next pass, until a stop token, a
stop string or the limit ends the request.

Requests join and leave at every pass. A session's next turn reads only what is new, and a group's opening is read once.
Each request has its own random numbers: what else is being sampled has no influence on its tokens.

A GPU gets its next pass while it works on the last one, so a request may be found to have ended one pass late; the
extra token is dropped.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from importlib.util import find_spec

import numpy as np
import torch

from longloop.engines import sampler
from longloop.engines.kv_cache import KVCache, Probe
from longloop.engines.orders import Order
from longloop.engines.pages import Pages, count, most_pages
from longloop.engines.passes import Drawn, Eager, Model, Pass
from longloop.engines.scheduler import Request, Scheduler, Step
from longloop.engines.slots import Slots
from longloop.tokens.chat import Chat
from longloop.types import Finish, Sampled, SamplingParams, UserError, Watch

_ROUNDS = 4
"""Rounds of the event loop between two passes. An episode needs one from its turn's end to its next, and so many a call
that comes over HTTP; where there were fewer, each would cost a pass."""


class NativeEngine:
    """Continuous batching with a KV cache in pages, of which sequences that begin alike share the first.

    slots: how many sessions keep their keys and values; with more sessions, some are read again. In a run,
        rollout.concurrency unless it is set.
    context: the most tokens a session is expected to have; no memory is taken for more. In a run, rollout.context
        unless it is set.
    tokens: the most tokens whose keys and values are held at once, shared ones counted once; 0 for slots x context.
        When they run out, the youngest sessions wait or are read again.
    step_tokens: at most this many prompt tokens are read in one forward pass; longer prompts are read in pieces.
    graphs: record passes as CUDA graphs and replay them; by default, on a CUDA device where Triton is installed. With a
        model in shards, its ranks must be connected by NCCL.
    compile: fuse recorded passes with torch.compile, which takes half a minute when a run starts for the first time;
        what was compiled is kept on disk. Other passes ignore it.
    batch_invariant: on a GPU too, let what a token gets depend, to the last bit, on its own conversation alone, and
        take deterministic kernels for updates: runs with equal seeds are then equal. Slower; without `compile`. On a
        CPU it is always so.
    """

    def __init__(
        self,
        policy: Model,
        chat: Chat,
        slots: int = 64,
        context: int = 1_048_576,
        tokens: int = 0,
        step_tokens: int = 4096,
        graphs: bool | None = None,
        compile: bool = False,
        batch_invariant: bool = False,
    ) -> None:
        self.model = policy
        self.forwarded = 0
        """Tokens that went through the model since the engine was made."""
        self._decode = chat.decode
        self._may_end: dict[tuple[tuple[str, ...], int], bool] = {}
        """Whether a token can complete one of these stop strings."""
        recordable = policy.device.type == "cuda" and (policy.shards is None or policy.shards.recordable)
        if graphs is None:
            graphs = recordable and find_spec("triton") is not None
        if graphs and not recordable:
            raise UserError(
                "engine.graphs=true needs a CUDA device and, with a model in shards, ranks that are connected by NCCL: "
                "leave it out."
            )
        if batch_invariant and policy.device.type != "cpu" and (compile or not graphs or policy.shards is not None):
            raise UserError(
                "engine.batch_invariant=true needs recorded passes that are not compiled: a CUDA device, Triton "
                "(pip install triton), one rank for each copy of the model, engine.graphs left out and "
                "engine.compile=false."
            )
        probe = self._probed()
        self.cache = KVCache(probe.like_KD, policy.layers, most_pages(slots, context, tokens), moves=not graphs)
        self.pages = Pages(slots, count(tokens) if tokens else None, self.cache.grow)
        self.slots = Slots(slots)
        self._scheduler = Scheduler(self.slots, self.pages, step_tokens)
        self._pass: Pass = Eager(policy, self.cache, slots)
        if graphs:
            from longloop.engines.cuda_graphs import Graphs

            self._pass = Graphs(policy, self.cache, slots, probe.group, compile=compile, invariant=batch_invariant)
        self._version = policy.version
        self.tell: Callable[[Order | None], object] = _nobody
        """Told of every pass before it begins, and None when memory is given back: other ranks may take part."""
        self._loop: asyncio.Task[None] | None = None

    async def sample(
        self, ids: Sequence[int], params: SamplingParams, *, session: str, watch: Watch | None = None
    ) -> Sampled:
        request = Request(session, np.array(ids), params, asyncio.get_running_loop().create_future(), watch)
        self._scheduler.add(request)
        if self._loop is None or self._loop.done():
            self._loop = asyncio.create_task(self._run())
        return await request.future

    def forget(self, session: str) -> None:
        self._scheduler.forget(session)

    def release(self) -> None:
        self._scheduler.clear()
        self.tell(None)
        self.obey(None)

    def close(self) -> None:
        """Give up recorded passes: they hold on to the connection between ranks, which cannot end before them."""
        self._pass.close()

    @torch.inference_mode()
    def obey(self, order: Order | None) -> Drawn | None:
        """Begin a pass that was planned here or, with a model in shards, on another rank; None gives memory back."""
        if order is None:
            self.cache.clear()
            self._pass.release()
            return None
        self.cache.grow(order.pages, wait=True)
        for copy in order.copies:
            self.cache.copy(*copy)
        return self._pass(order.row, order.numbers_PR)

    async def _run(self) -> None:
        """Pass after pass, until no request is left."""
        under_way: deque[tuple[Step, Drawn]] = deque()
        try:
            while self._scheduler.busy or under_way:
                if begun := self._begin():
                    under_way.append(begun)
                for _ in range(_ROUNDS):  # let the episodes whose turn has ended come back with the next one
                    await asyncio.sleep(0)
                if under_way and (len(under_way) > self._pass.ahead or not begun):
                    self._end(*under_way.popleft())
        except Exception as error:
            self.tell = _nobody  # others may be lost, or in the middle of the pass
            self._scheduler.fail(error)

    @torch.inference_mode()
    def _begin(self) -> tuple[Step, Drawn] | None:
        """Begin the next pass, if there is anything to read."""
        if self._version != self.model.version:
            self._version = self.model.version
            self._scheduler.discard_cache()
        step = self._scheduler.schedule()
        if step is None:
            return None
        spans = list(zip(step.requests, step.draws_R.tolist(), strict=True))
        uniform = [request.rng.random() if draws else 0.0 for request, draws in spans]
        numbers_PR = sampler.numbers([request.params for request, _ in spans], uniform)
        order = Order(self.pages.made, step.copies, step.row, numbers_PR)
        self.tell(order)
        drawn = self.obey(order)
        assert drawn is not None
        self.forwarded += len(step.row.ids_T)
        self._scheduler.advance(step)
        return step, drawn

    def _end(self, step: Step, drawn: Drawn) -> None:
        """Take the tokens of a pass, and end the requests that they complete."""
        for request, token, known in self._scheduler.record(step, *drawn.wait()):
            if request.watch is not None:
                request.watch(token)
            if reason := self._finish_reason(request, token, known):
                request.future.set_result(Sampled(*self._scheduler.finish(request, known), reason))

    def _finish_reason(self, request: Request, token: int, known: int) -> Finish | None:
        params = request.params
        if token in params.stop_ids or (params.stop and self._has_stop_string(request, token, known)):
            return "stop"
        return "length" if known == request.limit else None

    def _has_stop_string(self, request: Request, token: int, known: int) -> bool:
        key = request.params.stop, token
        if key not in self._may_end:
            text = self._decode([token, token])  # twice: some tokenizers drop the space that a text begins with
            self._may_end[key] = "\ufffd" in text or any(stop[-1] in text for stop in request.params.stop)
        if not self._may_end[key]:
            return False
        # A character is at most four bytes and a token at least one, so a stop string that ends here lies within these.
        begin = max(len(request.ids), known - 4 * max(map(len, request.params.stop)) - 4)
        # Where that begins within a character, some tokenizers cannot decode what follows it either: look further on.
        for first in range(begin, min(begin + 4, known)):
            tail = self._decode(self.slots.ids[request.slot, first:known].tolist())
            if any(stop in tail for stop in request.params.stop):
                return True
            if not tail.startswith("\ufffd"):
                break
        return False

    @torch.inference_mode()
    def _probed(self) -> Probe:
        """What keys are like, seen in a pass over one token."""
        probe, one = Probe(), torch.zeros(1, dtype=torch.long, device=self.model.device)
        self.model.hidden(one, one, probe)
        return probe


def _nobody(order: Order | None) -> None:
    """Nobody takes part in the passes."""
