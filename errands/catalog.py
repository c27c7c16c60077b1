"""The catalog: every scenario by its name and split, and any task of it made ready."""

import functools
import random
import threading
from collections.abc import Iterator
from typing import Any

from errands.apps import make_world
from errands.disguise import Disguise
from errands.experts.thorough import read_first, step_by_step
from errands.practice.kinds import DRILLS, RELAYS, ROUNDS
from errands.scenario import Scenario, Setting, Turns
from errands.scenarios import SCENARIOS
from errands.world import World

_DISGUISED = 0.5
"""The share of practice in which APIs have other names. In the rest they are called as everywhere else, so that what is
learnt there serves there too."""

PLAIN = "/plain"
"""At the end of a world's seed: no other names."""

_RENAMED = 0.5
"""The share of the other tasks in which what they are about has a foreign name, of those in which it may."""


@functools.cache
def by_name() -> dict[str, type[Scenario]]:
    """All scenarios."""
    kinds: list[type[Scenario]] = [*SCENARIOS, *DRILLS, *ROUNDS, *RELAYS]
    return {kind.name(): kind for kind in kinds}


def of_split(split: str) -> Iterator[type[Scenario]]:
    """The scenarios of a split; `unseen_worlds` has those of train, in worlds that train does not have."""
    wanted = "train" if split == "unseen_worlds" else split
    return (kind for kind in by_name().values() if kind.split == wanted)


_MAKING = threading.Lock()


def setting(scenario: str, seed: str) -> Setting:
    """The world, instruction and goal of one task. Scenarios with the same seed happen in the same world.

    One at a time: the attempts at a task start together, and the first makes it for all.
    """
    with _MAKING:
        return _setting(scenario, seed)


@functools.lru_cache(maxsize=64)
def _setting(scenario: str, seed: str) -> Setting:
    kind = by_name()[scenario]
    world = _world(seed).begin()
    strange = kind.split == "practice" and not seed.endswith(PLAIN)
    disguise = None
    if strange and random.Random(f"{seed}/{scenario}/plain").random() >= 1 - _DISGUISED:
        noun = kind.noun() if random.Random(f"{seed}/{scenario}/noun").random() < _RENAMED else ""
        disguise = world.disguise = Disguise(f"{seed}/{scenario}", kind.known(), noun, frozenset(kind.apis))
    world.rng = random.Random(f"{seed}/{scenario}")
    goal = kind().prepare(world)
    wording = world.rng.choice(kind.wordings(disguise))
    goal.rest()
    return Setting(wording.format(**goal.slots), goal, disguise)


@functools.lru_cache(maxsize=64)
def _world(seed: str) -> World:
    return make_world(seed)


def expert(scenario: str, slots: dict[str, Any], thorough: Setting | None = None) -> Turns:
    """All turns of the expert: the documentation of what it needs, then the errand. A thorough one, who is given the
    setting, goes step by step and picks what it needs from what the apps can do."""
    kind = by_name()[scenario]()
    kind.setting = thorough
    if thorough:
        return step_by_step(kind.turns(**slots), kind.apis, thorough)
    return read_first(kind.turns(**slots), kind.apis)
