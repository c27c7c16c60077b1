"""Asks Ray for the places of the ranks: a card each, or a core where there are none.

The first rank is the user's process, which Ray does not start. Where there are cards it takes a *seat*: an actor that
does nothing on this machine but to hold a card for it.

Every wait has a deadline. Ray itself waits for ever for a place that no machine has.
"""

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from longloop.config import RanksConfig
from longloop.types import UserError

WORKERS = "env_workers"
"""The Ray resource by which a machine offers to run environments."""
_CONNECTING = 10.0
"""Seconds in which a cluster must answer."""


def import_ray() -> Any:
    try:
        import ray
        import ray.util.placement_group
    except ImportError as error:
        raise UserError(
            "ranks.count > 1 and env.hosts need Ray, which is not installed: pip install 'longloop[cluster]', or set "
            "ranks.count=1 and env.hosts=false."
        ) from error
    return ray


def last_words(error: Exception) -> str:
    """What Ray knows about the end of a process, in a sentence."""
    _, found, detail = str(error).partition("Worker exit detail: ")
    return detail.split(". ")[0].strip() if found else first_line(error)


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


@contextlib.contextmanager
def connected(config: RanksConfig) -> Iterator[Any]:
    """Ray, connected to the config's cluster: one that runs, or one on this machine that ends with this block. Where
    the script has connected already, that connection is used."""
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    common = {"log_to_driver": False, "logging_level": "ERROR"}
    with _sigterm_unchanged():
        if config.address:
            _check_address(config.address)
            try:
                ray.init(address=config.address, **common)
            except ConnectionError as error:
                raise _no_cluster(config.address, error) from error
        else:
            cores = max(os.cpu_count() or 1, config.count)
            os.environ.setdefault("RAY_worker_niceness", "0")  # by default ranks would wait for whatever else runs here
            ray.init(address="local", num_cpus=cores, include_dashboard=False, **common)
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Refuse an address at which nobody listens. Ray would try it for minutes."""
    named = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    if not named:
        return  # Ray looks for a cluster on this machine
    host, _, port = named.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECTING).close()
    except (OSError, ValueError) as error:
        raise _no_cluster(address, error) from error


def _no_cluster(address: str, error: Exception) -> UserError:
    return UserError(
        f"No Ray cluster answers at ranks.address={address!r} ({first_line(error)}). Start one with "
        "`ray start --head` and name it as HOST:PORT, or as auto on one of its machines; an empty address starts one "
        "on this machine for the run."
    )


@contextlib.contextmanager
def _sigterm_unchanged() -> Iterator[None]:
    """Keep Ray from handling a polite kill: the run does, and can be resumed."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)


@dataclass(frozen=True)
class Asked:
    """What a rank needs of its machine."""

    cards: int
    """0 or 1."""

    @property
    def bundle(self) -> dict[str, float]:
        return {"CPU": 1, "GPU": self.cards} if self.cards else {"CPU": 1}

    def words(self, count: int) -> str:
        return f"{count} ranks with a {'card and a ' * self.cards}core each"

    def fits(self, ray: Any) -> tuple[int, str]:
        """How many such ranks the machines of the cluster hold when nothing else runs, and that in words. None if this
        machine, where the first must be, holds none."""
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        each = [min(int(has.get(name, 0) // n) for name, n in self.bundle.items()) for has in machines]
        fits, here = sum(each), ray.util.get_node_ip_address()
        if fits and not any(n and has.get(f"node:{here}") for n, has in zip(each, machines, strict=True)):
            return 0, f"no room on this machine ({here}), where the first rank has to be"
        return fits, f"room for {fits}"


def asked(ray: Any, device: str) -> Asked:
    """What each rank of a run on a device asks for; empty is a card where the cluster has any."""
    if device not in ("", "cpu", "cuda"):
        raise UserError(
            f"model.device={device!r} names one card, and every rank takes its own: with ranks.count > 1 leave "
            "model.device empty, or set it to cpu or cuda."
        )
    cards = device == "cuda" or (device == "" and ray.cluster_resources().get("GPU", 0) > 0)
    return Asked(int(cards))


def inventory(ray: Any) -> str:
    """What the machines of the cluster have, and what of it all is free, in words."""

    def words(has: dict[str, float]) -> str:
        nouns = {"GPU": "cards", "CPU": "cores", WORKERS: "environment workers"}
        return " and ".join(f"{has[name]:g} {noun}" for name, noun in nouns.items() if has.get(name)) or "nothing"

    machines = (
        f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']}) has {words(node['Resources'])}"
        for node in ray.nodes()
        if node["Alive"]
    )
    return f"{'; '.join(machines)}; {words(ray.available_resources())} of all that are free"


@contextlib.contextmanager
def placed(ray: Any, config: RanksConfig, one: Asked, tell: Callable[[str], None]) -> Iterator[Any]:
    """A placement group with a bundle for each rank, the first on this machine; given back with the block."""
    here = {f"node:{ray.util.get_node_ip_address()}": 0.001}
    bundles = [one.bundle | here] + [one.bundle] * (config.count - 1)
    missing = f"ranks.count={config.count} asks for {one.words(config.count)}, the first on this machine"
    fits, room = one.fits(ray)
    if fits < config.count:
        short = f"{missing}, and the cluster has {room}: {inventory(ray)}."
        if not config.address:
            raise UserError(f"{short} Lower ranks.count, or name a larger cluster with ranks.address.")
        tell(f"{short} Waiting {config.timeout:g} s for more.")
    group = ray.util.placement_group(bundles, strategy="PACK")
    try:
        if not group.wait(config.timeout):
            raise UserError(
                f"{missing}, and after {config.timeout:g} s (ranks.timeout) there was no room for them: "
                f"{inventory(ray)}. Lower ranks.count, wait until others have finished, or add machines."
            )
        yield group
    finally:
        ray.util.remove_placement_group(group)
