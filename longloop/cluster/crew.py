"""The ranks of a run as the first one sees them: it hands out attempts and shares of micro-batches, and waits.

To the rollouts each other rank is a `Replica` (rollout/replica.py), to the learner all together are its `Ranks`
(learners/shares.py). A rank that died is noticed at once, by Ray; one that hangs, within `ranks.timeout`: whoever waits
for an answer asks, from time to time, for a sign of life. Either way the run ends with a `RankLost` that says which
rank, where, and at what.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from longloop.cluster.exchange import Exchange, raised_by_connection
from longloop.cluster.placement import asked, connected, first_line, last_words, placed
from longloop.cluster.rank import Rank, RankParts, add_up, learned, sample_together, spread
from longloop.config import RanksConfig
from longloop.engines.orders import Order
from longloop.learners.batching import laid_out
from longloop.learners.local import LocalLearner
from longloop.learners.shares import NOTHING, Microbatch, deal, in_order
from longloop.model.shards import Shards
from longloop.rollout.episode import Record, RolloutContext
from longloop.rollout.replica import LocalReplica, Replica
from longloop.types import Group, Ids, RankFull, RankLost, Start, StopReason, Task, Trajectory, Turn, UserError

Make = Callable[[int, Exchange | None], RankParts]
R = TypeVar("R")

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_ENDING = 5.0
"""Seconds for ranks to end their environments when the run is over."""


@contextlib.contextmanager
def crew(config: RanksConfig, device: str, make: Make, tell: Callable[[str], None]) -> Iterator["Crew"]:
    """Start all ranks but the first, which begin to build their parts: `make` is called with a rank's number and, where
    the model is in shards, its connection to the others. They end with the block."""
    with _cards_shown_again(), connected(config) as ray:
        one = asked(ray, device)
        with placed(ray, config, one, tell) as group:
            made = Crew(ray, config, group, one.cards)
            try:
                if config.shard > 1:
                    made.connect("cuda:0" if one.cards else "cpu")
                made.build(make)
                yield made
            finally:
                made.close()


@dataclass(eq=False)
class Member:
    """Another rank, as the first knows it."""

    number: int
    actor: Any
    where: str = "on a machine that is not known yet"
    """The host and the process."""

    def __str__(self) -> str:
        return f"rank {self.number} {self.where}"


class Crew:
    """All ranks of a run. It is the `Ranks` of the first one's learner, once that has joined."""

    def __init__(self, ray: Any, config: RanksConfig, group: Any, cards: int) -> None:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Bundle

        self._ray, self._config = ray, config
        self._exchange: Exchange | None = None
        self._engine: Any = None
        """The first rank's, where the others take part in its passes."""
        options = {"num_cpus": 1, "num_gpus": cards, "max_restarts": 0, "max_task_retries": 0}
        many = {"max_concurrency": 10_000, "concurrency_groups": {"signs": 1}}
        kind = ray.remote(**options, **many)(Rank)
        self.others = [
            Member(number, kind.options(scheduling_strategy=Bundle(group, number)).remote(number))
            for number in range(1, config.count)
        ]
        leaders = [one for one in self.others if one.number % config.shard == 0]
        self.replicas: list[Replica] = [LocalReplica(), *(RemoteReplica(self, one) for one in leaders)]
        """Where attempts are played: on the first of the ranks that hold a copy of the weights between them."""
        self._learning, self._learned = 0.0, [0.0] * config.count
        """Seconds spent on passes of the learner: by all together, and by each rank."""
        self._built: dict[Any, Member] = {}
        self._told: dict[Any, Member] = {}
        """What the others were told last."""
        self._doing = "starting"
        if cards:
            self._seat = ray.remote(**options)(_Seat).options(scheduling_strategy=Bundle(group, 0)).remote()
            _take_card(self._get({self._seat.card.remote(): Member(0, self._seat)})[0])

    def build(self, make: Make) -> None:
        self._doing = "loading its model"
        threads = torch.get_num_threads()
        self._told = self._built = {one.actor.build.remote(make, threads): one for one in self.others}

    def join(self, learner: LocalLearner) -> None:
        """Connect the ranks, give all of them the first one's weights, and lead them with its learner."""
        for one, (host, pid) in zip(self.others, self._get(self._built), strict=True):
            one.where = f"on {host} (process {pid})"
        if self._exchange is None:
            self.connect(str(learner.policy.device))
        self._learner = learner
        # Sums that wait are small with adapters only (shares.py).
        self._shares = learner.shares if learner.policy.adapters is not None else self._config.count
        learner.ranks = self
        self.follow()

    def connect(self, device: str) -> None:
        """Connect the ranks."""
        self._doing = "connecting"
        host, timeout = self._ray.util.get_node_ip_address(), self._config.timeout / 2
        store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)
        count, shard = self._config.count, self._config.shard
        with self._together(self._tell("join", host, store.port, count, shard, device, timeout)):
            self._exchange = Exchange(store, 0, count, torch.device(device), timeout, shard)

    @property
    def shards(self) -> Shards | None:
        """The first rank's place among those that hold one copy of the weights, if there are several."""
        return None if self._exchange is None else self._exchange.shards

    def sample_together(self, engine: Any) -> None:
        """With a model in shards, let the others take part in the passes of the first rank's engine."""
        if self._exchange is None or self._exchange.shards is None:
            return
        sample_together(engine, self._exchange)
        self._engine, tell = engine, engine.tell

        def telling(order: Order | None) -> None:
            self._doing = _PLAYING
            tell(order)

        engine.tell = telling

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """With a model in shards any pass, here or elsewhere, may be the one in which a rank is lost: say which."""
        try:
            yield
        except RuntimeError as error:
            if self._config.shard == 1 or isinstance(error, RankLost | torch.OutOfMemoryError):
                raise
            self._raise_others()
            self._look()
            if not raised_by_connection(error):
                raise
            raise RankLost(f"The ranks lost each other while {self._doing} ({first_line(error)}).") from error

    def close(self) -> None:
        """End all ranks, those that do not answer too."""
        with contextlib.suppress(Exception):
            self._ray.wait(list(self._tell("close")), num_returns=len(self.others), timeout=_ENDING)
        for one in self.others:
            with contextlib.suppress(Exception):
                self._ray.kill(one.actor)
        if self._engine is not None:
            self._engine.close()
        if self._exchange is not None:
            with contextlib.suppress(Exception):
                self._exchange.close()

    # --- Ranks, for the learner.

    def map(self, work: Callable[..., list[R]], pieces: Sequence[Microbatch], *arguments: object) -> list[R]:
        self._doing = _DOING.get(work.__name__, work.__name__)
        dealt, size = deal([laid_out(piece) for piece in pieces], self._shares), self._shares // self._config.count
        blocks = [
            [[pieces[n] for n in share] for share in dealt[first : first + size]]
            for first in range(0, self._shares, size)
        ]
        passes = max(sum(map(len, block)) for block in blocks)
        began = time.perf_counter()
        learn = {one: (work.__name__, blocks[one.number], passes, *arguments) for one in self.others}
        self._told = told = {one.actor.learn.remote(*given): one for one, given in learn.items()}
        own = learned(self._learner, work.__name__, blocks[0], passes, *arguments)
        answers = [own, *self._get(told)]
        self._learning += time.perf_counter() - began
        self._learned = [
            all_of_them + seconds for all_of_them, (_, seconds) in zip(self._learned, answers, strict=True)
        ]
        return in_order(dealt, [result for found, _ in answers for result in found])

    def add_up(self) -> None:
        self._doing = "adding up gradients"
        assert self._exchange is not None
        with self._together(self._tell("add_up")):
            add_up(self._exchange, self._learner)

    def step(self, lr_scale: float | None) -> None:
        self._doing = "taking a step"
        self._get(self._tell("step", lr_scale))
        if lr_scale is not None and self._learner.owners:
            assert self._exchange is not None
            with self._together(self._tell("spread")):
                spread(self._exchange, self._learner)

    def follow(self, heads: bool = False, stored: Mapping[str, Tensor] = NOTHING) -> None:
        self._doing = "copying weights"
        assert self._exchange is not None
        moved = None if heads else self._learner.moved()
        with self._together(self._tell("follow", moved)):
            learner = self._learner
            self._exchange.copy(learner.head_tensors() if moved is None else learner.trained_tensors(moved))
        for one in self.others:
            owns = {name for name, owner in learner.owners.items() if owner == one.number}
            theirs = {name: value for name, value in stored.items() if name.partition("/")[2] in owns}
            if theirs:
                shapes = {name: tuple(value.shape) for name, value in theirs.items()}
                with self._together({one.actor.take.remote(shapes): one}):
                    for value in theirs.values():
                        self._exchange.send(value, one.number)

    def gather(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        if not self._learner.owners:
            return found
        self._doing = "gathering the optimizer's state"
        assert self._exchange is not None
        for one, shapes in zip(self.others, self._get(self._tell("held")), strict=True):
            with self._together({one.actor.give.remote(): one}):
                found |= {name: self._exchange.receive(shape, one.number).cpu() for name, shape in shapes.items()}
        return found

    def seconds(self) -> list[dict[str, float]]:
        played = [self.replicas[number // self._config.shard].busy for number in range(self._config.count)]
        spent = [
            {"collect": one, "update": learned, "wait": max(played) - one + self._learning - learned}
            for one, learned in zip(played, self._learned, strict=True)
        ]
        self._learning, self._learned = 0.0, [0.0] * len(spent)
        for replica in self.replicas:
            replica.busy = 0.0
        return [{name: round(value, 4) for name, value in one.items()} for one in spent]

    # --- Answers, and who fails to give them.

    async def answer(self, one: Member, told: Any, doing: str) -> Any:
        """The answer of a rank, awaited."""
        waiting, self._doing = asyncio.wrap_future(told.future()), doing
        try:
            while not waiting.done():
                await asyncio.wait([waiting], timeout=self._config.timeout / 2)
                if not waiting.done():
                    self._doing = doing
                    self._look()
        except asyncio.CancelledError:
            self._ray.cancel(told)
            waiting.cancel()  # nobody asks how it ended
            raise
        with self._unwrapped(one, doing):
            return waiting.result()

    def _tell(self, method: str, *arguments: object) -> dict[Any, Member]:
        self._told = {getattr(one.actor, method).remote(*arguments): one for one in self.others}
        return self._told

    def _raise_others(self) -> None:
        """Raise what a rank has raised, if that is not a lost connection, too."""
        ready, _ = self._ray.wait(list(self._told), num_returns=len(self._told), timeout=0)
        for one in ready:
            with contextlib.suppress(RuntimeError), self._unwrapped(self._told[one], self._doing):
                self._ray.get(one)

    def _get(self, told: dict[Any, Member]) -> list[Any]:
        """The answers to what was told."""
        waiting, found = list(told), {}
        while waiting:
            ready, waiting = self._ray.wait(waiting, num_returns=1, timeout=self._config.timeout / 2)
            for one in ready:
                with self._unwrapped(told[one], self._doing):
                    found[one] = self._ray.get(one)
            if not ready:
                self._look()
        return [found[one] for one in told]

    @contextlib.contextmanager
    def _together(self, told: dict[Any, Member]) -> Iterator[None]:
        """Do this rank's part of something that all ranks do at once."""
        try:
            yield
        except RuntimeError as error:  # the base of all that torch.distributed raises
            self._look()
            raise RankLost(f"The ranks lost each other while {self._doing} ({first_line(error)}).") from error
        self._get(told)

    @contextlib.contextmanager
    def _unwrapped(self, one: Member, doing: str) -> Iterator[None]:
        """Raise what a rank raised; where it is gone, say so."""
        from ray.exceptions import RayActorError, RayTaskError

        try:
            yield
        except RayTaskError as error:
            if isinstance(error.cause, torch.OutOfMemoryError):
                raise RankFull(f"The card of {one} ran out of memory while {doing}.", doing == _PLAYING) from None
            error.cause.add_note(f"(on {one}, {doing})")
            raise error.cause from None
        except RayActorError as error:
            left = self._exchange.last_words(one.number) if self._exchange is not None else ""
            raise RankLost(f"Lost {one}: it died while {doing} ({left or last_words(error)}).") from None

    def _look(self) -> None:
        """Raise RankLost if a rank is dead, or gives no sign of life."""
        signs = {one.actor.sign.options(concurrency_group="signs").remote(): one for one in self.others}
        _, silent = self._ray.wait(list(signs), num_returns=len(signs), timeout=self._config.timeout / 2)
        for sign, one in signs.items():
            if sign in silent:
                seconds = f"{self._config.timeout:g} s (ranks.timeout)"
                raise RankLost(f"Lost {one}: it has given no sign of life for {seconds} while {self._doing}.")
            with self._unwrapped(one, self._doing):
                self._ray.get(sign)


_PLAYING = "playing attempts"
_DOING = {
    "gradients": "computing gradients",
    "previews": "computing log-probs",
    "scores": "computing log-probs",
}
"""What a rank does when the learner's methods are called."""


class RemoteReplica:
    """Another rank's engine and environments."""

    busy = 0.0

    def __init__(self, crew: Crew, member: Member) -> None:
        self._crew, self._member = crew, member
        self._cutoff = float("inf")

    async def attempt(
        self, context: RolloutContext, start: Start, number: int, session: str, record: Record
    ) -> Trajectory:
        one = await self._play("attempt", context, start, number, session)
        record.abandoned = one.stop is StopReason.CANCELLED
        return one

    async def action(self, context: RolloutContext, instead_of: Turn, ids: Ids, session: str) -> Turn:
        return await self._play("action", context, instead_of, ids, session)

    async def tree(
        self, context: RolloutContext, task: Task, session: str, attempts: int, explore: float, puct: bool
    ) -> Group:
        return await self._play("tree", context, task, session, attempts, explore, puct)

    def abandon_beyond(self, cutoff: float) -> None:
        if cutoff != self._cutoff:
            self._cutoff = cutoff
            self._member.actor.abandon_beyond.remote(cutoff)

    def release(self) -> None:
        self._cutoff = float("inf")
        self._member.actor.release.remote()

    async def _play(self, what: str, context: RolloutContext, *arguments: Any) -> Any:
        told = getattr(self._member.actor, what).remote(context.limits, context.sampling, *arguments)
        return await self._crew.answer(self._member, told, _PLAYING)


class _Seat:
    """Holds a card for the first rank."""

    def card(self) -> str:
        import ray

        return str(ray.get_gpu_ids()[0])


_card = ""
"""The card that this process has taken."""


def _take_card(card: str) -> None:
    """Let this process see one card, as Ray does for the others. It cannot change to another once it has used one."""
    global _card
    if torch.cuda.is_initialized() and card != _card:
        raise UserError(f"This process has used a card already, and Ray gives it card {card}: start it anew.")
    _card = os.environ[_VISIBLE] = card


@contextlib.contextmanager
def _cards_shown_again() -> Iterator[None]:
    """Afterwards the cards that could be seen before can be seen again, by a Ray that is started next. torch keeps to
    the one that it has used."""
    shown = os.environ.get(_VISIBLE)
    try:
        yield
    finally:
        os.environ.pop(_VISIBLE, None)
        if shown is not None:
            os.environ[_VISIBLE] = shown
