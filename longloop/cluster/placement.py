"""Asks Ray for the places of the ranks: a card each, or a core where there are none.

The first rank is the user's process, which Ray does not start. Where there are cards it takes a *seat*: an actor that
does nothing on this machine but to hold a card for it.

Every wait has a deadline. Ray itself waits for ever for a place that no machine has.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from longloop.config import RanksConfig
from longloop.types import UserError


def import_ray() -> Any:
    try:
        import ray
        import ray.util.placement_group
    except ImportError as error:
        raise UserError(
            "ranks.count > 1 needs Ray, which is not installed: pip install 'longloop[cluster]', or set ranks.count=1."
        ) from error
    return ray


@contextlib.contextmanager
def connected(config: RanksConfig) -> Iterator[Any]:
    """Ray, connected to the config's cluster: one that runs, or one on this machine that ends with this block. Where
    the script has connected already, that connection is used."""
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    common = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if config.address:
            ray.init(address=config.address, **common)
        else:
            cores = max(os.cpu_count() or 1, config.count)
            # On loopback: nobody else on the network may start programs here.
            ray.init(address="local", num_cpus=cores, include_dashboard=False, _node_ip_address="127.0.0.1", **common)
    except (ConnectionError, ValueError, RuntimeError) as error:
        said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"There is no Ray cluster at ranks.address={config.address!r} ({said}). Start one with `ray start --head`, "
            "or leave ranks.address empty to start one on this machine."
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


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

    def fits(self, ray: Any) -> int:
        """How many such ranks the machines of the cluster hold when nothing else runs."""
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        return sum(min(int(has.get(name, 0) // n) for name, n in self.bundle.items()) for has in machines)


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
    """The machines of the cluster with what they have and what of it is free, in words."""
    from ray._private.state import available_resources_per_node

    free = available_resources_per_node()

    def has(node: dict[str, Any]) -> str:
        parts = []
        for name, noun in (("GPU", "cards"), ("CPU", "cores")):
            total = node["Resources"].get(name, 0)
            if total:
                parts.append(f"{total:g} {noun}, {free.get(node['NodeID'], {}).get(name, 0):g} of them free")
        return f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']}) has {' and '.join(parts) or 'nothing'}"

    return "; ".join(has(node) for node in ray.nodes() if node["Alive"])


@contextlib.contextmanager
def placed(ray: Any, config: RanksConfig, one: Asked, tell: Callable[[str], None]) -> Iterator[Any]:
    """A placement group with a bundle for each rank, the first on this machine; given back with the block."""
    here = {f"node:{ray.util.get_node_ip_address()}": 0.001}
    bundles = [one.bundle | here] + [one.bundle] * (config.count - 1)
    missing = f"ranks.count={config.count} asks for {one.words(config.count)}, the first on this machine"
    fits = one.fits(ray)
    if fits < config.count:
        short = f"{missing}, and the cluster has room for {fits}: {inventory(ray)}."
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
