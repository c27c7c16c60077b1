"""A scenario: a kind of errand, from which any number of tasks can be made, each with its world, goal and expert."""

import functools
import random
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from errands.apps import BY_NAME, find
from errands.disguise import Disguise
from errands.judge import Goal
from errands.world import World

Turns = Generator[tuple[str, str], str, None]
"""An expert's turns: it yields a thought and code, and is sent what came back."""

LOG_IN = re.compile(r'^(\w+) = apis\.\1\.login\(.*\)\["access_token"\]\n?', re.MULTILINE)
_CALLED = re.compile(r"\bapis\.([a-z]+\.[a-z_]+)\(")

_AT_ONCE = 5
"""APIs whose documentation is read in one turn: more would be cut."""

_DISGUISED = 0.5
"""The share of practice in which APIs have other names. In the rest they are called as everywhere else, so that what is
learnt there serves there too."""

PLAIN = "/plain"
"""At the end of a world's seed: no other names."""

_RENAMED = 0.5
"""The share of the other tasks in which what they are about has a foreign name, of those in which it may."""


class Scenario(ABC):
    """Subclass it, and list the subclass in its module's SCENARIOS."""

    split: ClassVar[str]
    """train, practice, dev, test_normal or test_challenge."""
    difficulty: ClassVar[int]
    """1: one or two apps, few calls. 2: more apps or a search over pages. 3: four or more apps, or loops with
    conditions over pages of data."""
    apis: ClassVar[tuple[str, ...]]
    """The APIs its expert uses, as app.api; the expert reads their documentation first. Those that the system prompt
    explains (login, owner.show_account, owner.complete_task) are left out."""
    phrasings: ClassVar[tuple[str, ...]]
    """The instruction in several wordings, with the goal's slots in braces."""
    setting: "Setting | None" = None
    """For an expert who speaks its words."""

    @classmethod
    def name(cls) -> str:
        return re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()

    @classmethod
    def apps(cls) -> list[str]:
        """The apps it needs, without those that every task needs."""
        return sorted({api.partition(".")[0] for api in cls.apis} - {"owner", "docs"})

    @abstractmethod
    def prepare(self, w: World) -> Goal:
        """Put into the world what the task is about, and say what should come of it."""

    @classmethod
    def known(cls) -> frozenset[str]:
        """APIs for which the instruction has the usual words."""
        return frozenset(cls.apis)

    @classmethod
    def noun(cls) -> str:
        """What it is about, if a foreign word can stand for that everywhere."""
        return ""

    @classmethod
    def wordings(cls, disguise: Disguise | None) -> Sequence[str]:
        """The phrasings that make sense in a disguise."""
        return cls.phrasings

    solve: Callable[..., Turns]
    """Do the task as a careful person would, knowing the slots (they stand in the instruction) and what comes back, and
    nothing else. Reading the documentation comes before it; completing the task is part of it."""


@dataclass(frozen=True)
class Setting:
    """A task ready to be done, kept as bytes so that many attempts can start from it."""

    instruction: str
    goal: Goal
    image: bytes

    def world(self) -> World:
        return World.load(self.image, self.goal.start)


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
    world = _world(seed).fork()
    strange = kind.split == "practice" and not seed.endswith(PLAIN)
    if strange and random.Random(f"{seed}/{scenario}/plain").random() >= 1 - _DISGUISED:
        noun = kind.noun() if random.Random(f"{seed}/{scenario}/noun").random() < _RENAMED else ""
        world.disguise = Disguise(f"{seed}/{scenario}", kind.known(), noun, frozenset(kind.apis))
    world.rng = random.Random(f"{seed}/{scenario}")
    goal = kind().prepare(world)
    wording = world.rng.choice(kind.wordings(world.disguise))
    return Setting(wording.format(**goal.slots), goal, world.db.serialize())


@functools.lru_cache(maxsize=64)
def _world(seed: str) -> World:
    return World.make(seed)


def expert(scenario: str, slots: dict[str, Any], thorough: Setting | None = None) -> Turns:
    """All turns of the expert: the documentation of what it needs, then the errand. A thorough one, who is given the
    setting, goes step by step and picks what it needs from what the apps can do."""
    kind = by_name()[scenario]()
    kind.setting = thorough
    if thorough:
        return _step_by_step(kind.solve(**slots), kind.apis, thorough)
    return _read_first(kind.solve(**slots), kind.apis)


def _read_first(turns: Turns, apis: Sequence[str]) -> Turns:
    for start in range(0, len(apis), _AT_ONCE):
        some = apis[start : start + _AT_ONCE]
        yield f"I read the {'rest' if start else 'documentation'} of what I need.", shows(some)
    yield from turns


def _step_by_step(turns: Turns, apis: Sequence[str], setting: Setting) -> Turns:
    """The same turns. Before each comes what it needs and the expert has not seen yet: what an app can do, and how to
    use an API, picked by its sentence for what is asked; and it logs in where it has not been yet."""
    met: set[str] = set()  # apps and APIs
    found = None
    with suppress(StopIteration):
        while True:
            thought, code = next(turns) if found is None else turns.send(found)
            code = LOG_IN.sub("", code)
            new = [api for api in dict.fromkeys(_CALLED.findall(code)) if api in apis and api not in met]
            apps = [app for app in dict.fromkeys(api.partition(".")[0] for api in new) if app not in met]
            for app in apps:
                yield f"I see what the app {app} can do.", f'print(apis.docs.list_apis(app="{app}"))'
            for start in range(0, len(new), _AT_ONCE):
                some = new[start : start + _AT_ONCE]
                yield _picked(some, setting, first=met.isdisjoint(apis)), shows(some)
                met.update(some)
            met.update(apps)
            enter = log_in(*(app for app in apps if BY_NAME[app].login))
            found = (yield thought, f"{enter}\n{code}".strip()) if code.strip() else ""


def shows(apis: Sequence[str]) -> str:
    return "\n".join(f'print(apis.docs.show(api="{api}"))' for api in apis)


def _picked(apis: Sequence[str], setting: Setting, first: bool) -> str:
    """The thought of someone who picks APIs from the lists: each with its sentence there."""
    place = "For a start" if first else "Next"
    said = " and ".join(named(api, setting) for api in apis)
    return f"I am asked: {setting.instruction} {place} there is {said}. I read how to use this."


def named(api: str, setting: Setting) -> str:
    """An API with its sentence in the list."""
    disguise = setting.goal.start.disguise
    sentence = disguise.sentence(api) if disguise else find(api).summary
    return f"{api} ('{sentence.rstrip('.')}')"


def log_in(*apps: str) -> str:
    """Code that logs in: the token of each app in a variable named after it."""
    return "\n".join(
        f'{app} = apis.{app}.login(**apis.owner.show_account(app="{app}"))["access_token"]' for app in apps
    )


def every(rows: str, call: str) -> str:
    """Code that puts the rows of all pages of a call into a variable."""
    start = call[:-1] if call.endswith("()") else f"{call[:-1]}, "
    return f"{rows}, page = [], 0\nwhile part := {start}page=page, page_size=20):\n    {rows} += part\n    page += 1"


@functools.cache
def by_name() -> dict[str, type[Scenario]]:
    from errands.drills import DRILLS, RELAYS, ROUNDS
    from errands.scenarios import SCENARIOS

    kinds: list[type[Scenario]] = [*SCENARIOS, *DRILLS, *ROUNDS, *RELAYS]
    return {kind.name(): kind for kind in kinds}


def of_split(split: str) -> Iterator[type[Scenario]]:
    """The scenarios of a split; `fresh` has those of train, in worlds that train has not."""
    wanted = "train" if split == "fresh" else split
    return (kind for kind in by_name().values() if kind.split == wanted)
