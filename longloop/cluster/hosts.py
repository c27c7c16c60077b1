"""Environment hosts: machines of the Ray cluster that run environments for the ranks.

A machine that joins the cluster with the Ray resource `env_workers` is a host. Each rank has an actor there, which
starts workers as a pool does on a machine of its own, and passes frames on between them and the rank
(isolation/worker.py). To an attempt, such a worker is a worker like any other.

Hosts come and go. Ray notices when one is gone; whoever has a worker there gets a `HostLost`, and the rollouts play the
attempt again in another worker (rollout/replica.py). New machines are looked for when someone waits for a worker.
"""

import asyncio
import contextlib
import os
import socket
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from longloop.cluster.placement import WORKERS, connected, inventory, last_words
from longloop.config import RanksConfig
from longloop.envs.base import Environment
from longloop.isolation import confinement
from longloop.isolation.lending import Lender, Worker, WorkerLost
from longloop.isolation.pool import LocalWorker, Pool
from longloop.types import HostLost, RankLost, UserError

_LOOKS = 0.5
"""Seconds between two looks at the machines of the cluster."""
_ENDING = 5.0
"""Seconds for hosts to end their workers when the run is over."""


def offered(ray: Any, players: int) -> dict[str, tuple[str, int]]:
    """The machines that offer workers: by node, the machine's name and how many each rank that plays may have there."""
    return {
        node["NodeID"]: (f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})", share)
        for node in ray.nodes()
        if node["Alive"] and (share := int(node["Resources"].get(WORKERS, 0)) // players)
    }


def wanted(players: int) -> str:
    """What `env.hosts` asks for, in words."""
    many = f", at least {players} (one for each rank that plays)" if players > 1 else ""
    return f"env.hosts asks for machines of a Ray cluster that offer {WORKERS}{many}"


HOW = f"Start one with `ray start --address=HOST:PORT --resources='{{\"{WORKERS}\": 16}}'`"
"""What to do where there is none."""


@dataclass(frozen=True)
class Built:
    """What a host says of itself."""

    where: str
    load: Mapping[str, Any]
    """What workers are told first."""
    unprotected: str
    """What its kernel would let a hostile environment do; empty if nothing."""


class Host:
    """On the host's machine: workers by number, as a rank asks for them."""

    def __init__(self) -> None:
        self._workers: dict[int, LocalWorker] = {}
        self._asking: dict[int, asyncio.Future[bytes]] = {}
        self._killed: set[int] = set()

    async def build(self, make: Callable[[], Pool]) -> Built:
        self._pool = make()
        where = f"{socket.gethostname()} (process {os.getpid()})"
        return Built(where, self._pool.load, confinement.unprotected())

    async def exchange(self, number: int, frame: bytes, begins: bool) -> tuple[bytes, int]:
        """Pass a frame on to a worker, which is started if there is none with this number. Return what its answer
        holds, and its bytes of memory."""
        if number in self._killed:  # the kill came first
            raise WorkerLost("the worker was killed")
        if number not in self._workers:
            self._workers[number] = self._pool.spawned()
        worker = self._workers[number]
        if begins:
            worker.begin()
        self._asking[number] = asking = asyncio.ensure_future(worker.exchange(frame))
        try:
            return await asking, worker.size()
        except asyncio.CancelledError:
            raise WorkerLost("the worker was killed") from None
        except WorkerLost:
            self._workers.pop(number, None)
            raise
        finally:
            del self._asking[number]

    async def kill(self, number: int, why: str) -> None:
        self._killed.add(number)
        if asking := self._asking.get(number):
            asking.cancel()
            await asyncio.wait([asking])  # its pipe must not be closed under it
        if worker := self._workers.pop(number, None):
            worker.kill(why)

    async def close(self) -> None:
        self._pool.close()


@dataclass(eq=False)
class Site:
    """A host as a rank knows it."""

    name: str
    """The machine."""
    size: int
    """The number of workers that the rank may have there."""
    actor: Any
    starting: Any
    """The future of what it says of itself."""
    built: Built | None = None
    """None while it starts."""
    lost: str = ""
    """Why it is gone; empty while it lives."""
    workers: "list[HostedWorker]" = field(default_factory=list)

    @property
    def ready(self) -> bool:
        return self.built is not None and not self.lost

    @property
    def room(self) -> int:
        self.workers = [worker for worker in self.workers if not worker.lost]
        return self.size - len(self.workers)


class HostedWorker(Worker):
    """A worker on a host."""

    def __init__(self, site: Site, number: int) -> None:
        super().__init__()
        assert site.built is not None
        self.site, self._number = site, number
        self.load = site.built.load
        self._begins = False
        self._bytes = 0

    async def exchange(self, frame: bytes) -> bytes:
        from ray.exceptions import ActorUnavailableError, RayError, RayTaskError

        begins, self._begins = self._begins, False
        told = self.site.actor.exchange.remote(self._number, frame, begins)
        try:
            answer, self._bytes = await asyncio.wrap_future(told.future())
        except RayTaskError as error:
            if isinstance(error.cause, WorkerLost):
                self.lost = str(error.cause)
            raise error.cause from None
        except RayError as error:
            away = isinstance(error, ActorUnavailableError)  # its machine is gone, but Ray is not sure of it yet
            self.site.lost = self.site.lost or ("it cannot be reached" if away else last_words(error))
            raise HostLost(f"Lost the environment host {self.site.name}: {self.site.lost}.") from None
        return bytes(answer)

    def begin(self) -> None:
        self._begins = True

    def size(self) -> int:
        """Return its bytes of memory at its last answer."""
        return self._bytes

    def kill(self, why: str) -> None:
        if not self.lost:
            self.lost = why or "the worker has died"
            if not self.site.lost:
                self.site.actor.kill.remote(self._number, why)


class HostPool(Lender):
    """Workers for one environment on the hosts of a cluster: as many as they offer, at most `most` (0: all)."""

    def __init__(
        self,
        environment: type[Environment],
        config: RanksConfig,
        make: Callable[[], Pool],
        *,
        most: int,
        memory: int,
        episodes: int,
    ) -> None:
        """`make` makes a pool on the host."""
        super().__init__(environment, memory, episodes)
        self._config, self._make, self._most = config, make, most
        self._sites: dict[str, Site] = {}
        """By node."""
        self._refused: dict[str, str] = {}
        """By node, what keeps a host from being used."""
        self._had = False
        """Whether there has ever been a host."""
        self._spawnings = 0
        self._looked = -_LOOKS
        connection = contextlib.ExitStack()
        self._ray = connection.enter_context(connected(config))
        self.close = weakref.finalize(self, _end, self._ray, self._sites, connection)
        if not offered(self._ray, config.players):
            none = f"{wanted(config.players)}, and there is none: {inventory(self._ray)}. {HOW}"
            if not config.address:
                self.close()
                raise UserError(f"{none}, and name the cluster with ranks.address; or set env.hosts=false.")
            self.tell(f"{none}. Waiting {config.timeout:g} s for one.")

    @property
    def size(self) -> int:
        total = sum(site.size for site in self._sites.values() if site.ready)
        return min(total, self._most) if self._most else total

    def spawned(self) -> HostedWorker:
        sites = [site for site in self._sites.values() if site.ready]
        if not sites:
            raise HostLost("The last environment host was lost before a worker could be started.")
        site = max(sites, key=lambda one: one.room)
        self._spawnings += 1
        worker = HostedWorker(site, self._spawnings)
        site.workers.append(worker)
        return worker

    async def wait(self, turn: asyncio.Future[None], task: asyncio.Task[Any]) -> None:
        since = time.monotonic()
        while True:
            self._look()
            self._gate(task).look()
            if turn.done():
                return
            await asyncio.wait([turn], timeout=_LOOKS)
            if any(site.ready for site in self._sites.values()):
                since = time.monotonic()
            elif time.monotonic() - since > self._config.timeout:
                raise self._none()

    def _none(self) -> UserError:
        """What to say when there has been no host for too long."""
        there = f"for {self._config.timeout:g} s (ranks.timeout) none was there, or free: {inventory(self._ray)}"
        told = f"{wanted(self._config.players)}, and {there}. {HOW}."
        return RankLost(f"All environment hosts are lost. {told}") if self._had else UserError(told)

    def _look(self) -> None:
        """Part from the hosts that are lost, and take in those that have come."""
        now = time.monotonic()
        if now - self._looked < _LOOKS and not any(site.lost for site in self._sites.values()):
            return
        self._looked = now
        nodes = offered(self._ray, self._config.players)
        for node, site in list(self._sites.items()):
            if not site.lost and node not in nodes:
                site.lost = "its machine has left the cluster"
            if site.lost:
                self._part_from(node, site)
            elif site.built is None and site.starting.done():
                self._greet(node, site)
        for node in nodes.keys() - self._sites.keys() - self._refused.keys():
            self._sites[node] = self._begun(node, *nodes[node])
        if self._refused and not self._sites and not self._had:
            raise UserError(next(iter(self._refused.values())))

    def _begun(self, node: str, name: str, size: int) -> Site:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

        options = {"num_cpus": 0, "max_restarts": 0, "max_task_retries": 0, "max_concurrency": 10_000}
        kind = self._ray.remote(**options)(Host)
        actor = kind.options(resources={WORKERS: size}, scheduling_strategy=On(node, soft=False)).remote()
        return Site(name, size, actor, actor.build.remote(self._make).future())

    def _greet(self, node: str, site: Site) -> None:
        """A host has started, or failed to."""
        from ray.exceptions import RayError, RayTaskError

        try:
            built = site.starting.result()
        except RayError as error:
            cause = error.cause if isinstance(error, RayTaskError) else error
            said = str(cause) if isinstance(cause, UserError) else f"{type(cause).__name__}: {last_words(cause)}."
            self._refused[node] = f"The environment host {site.name} cannot be used: {said}"
            self.tell(self._refused[node])
            self._kill(self._sites.pop(node))
            return
        site.built = built
        self.tell(f"Environment host {built.where}: {site.size} workers; {self.size} in all.")
        if built.unprotected:
            self.tell(f"warning (workers on {built.where}): {built.unprotected}")
        self._had = True

    def _part_from(self, node: str, site: Site) -> None:
        del self._sites[node]
        self._kill(site)
        self._idle = [worker for worker in self._idle if isinstance(worker, HostedWorker) and worker.site is not site]
        if site.built is None:
            return  # it was never used
        left = f"{self.size} workers are left" if self.size else f"waiting {self._config.timeout:g} s for another"
        self.tell(f"Lost the environment host {site.name}: {site.lost}. What it played is played again; {left}.")

    def _kill(self, site: Site) -> None:
        with contextlib.suppress(Exception):
            self._ray.kill(site.actor)


def _end(ray: Any, sites: Mapping[str, Site], connection: contextlib.ExitStack) -> None:
    """End the hosts, those that do not answer too, and the connection to Ray if it was made for them."""
    there = ray.is_initialized()  # asked for anything else, Ray would start itself
    actors: Sequence[Any] = [site.actor for site in sites.values() if there and not site.lost]
    with contextlib.suppress(Exception):
        ray.wait([actor.close.remote() for actor in actors], num_returns=len(actors), timeout=_ENDING)
    for actor in actors:
        with contextlib.suppress(Exception):
            ray.kill(actor)
    connection.close()
