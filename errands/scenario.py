"""A scenario: a kind of errand, from which any number of tasks can be made, each with its world, goal and expert."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from errands.disguise import Disguise
from errands.judge import Goal
from errands.world import World
from errands.written import turns_of

Turns = Generator[tuple[str, str], str, None]
"""An expert's turns: it yields a thought and code, and is sent what came back."""

LOG_IN = re.compile(r'^(\w+) = apis\.\1\.login\(.*\)\["access_token"\]\n?', re.MULTILINE)


class Scenario(ABC):
    """Subclass it in a module of `errands/scenarios`, whose scenarios are collected:

        class MoveEvent(Scenario, split="train", difficulty=1):

    Its wordings stand in the TOML file beside the module, under its name.
    """

    split: ClassVar[str]
    """train, practice, dev, validation, test_normal or test_challenge."""
    difficulty: ClassVar[int]
    """1: one or two apps, few calls. 2: more apps or a search over pages. 3: four or more apps, or loops with
    conditions over pages of data."""
    apis: ClassVar[tuple[str, ...]]
    """The APIs its expert uses, as app.api; the expert reads their documentation first, in this order. By default those
    that `solve` calls, in the order of its calls. Those that the system prompt explains (login, owner.show_account,
    owner.complete_task) are left out."""
    phrasings: ClassVar[tuple[str, ...]]
    """The instruction in several wordings, with the goal's slots in braces."""
    setting: "Setting | None" = None
    """For an expert who speaks its words."""

    def __init_subclass__(cls, split: str = "", difficulty: int = 0) -> None:
        if split:
            cls.split, cls.difficulty = split, difficulty

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

    solve: ClassVar[Callable[..., None]]
    """The expert, written as Python (written.py): does the task as a careful person would, knowing the slots (they
    stand in the instruction) and what comes back, and nothing else. Reading the documentation comes before it;
    completing the task is part of it."""

    def understood(self, slots: Mapping[str, Any]) -> dict[str, Any]:
        """What the words in the slots mean to the expert: more names that `solve` may use."""
        return {}

    def turns(self, **slots: Any) -> Turns:
        """The expert's turns."""
        return turns_of(type(self).solve, slots | self.understood(slots))


@dataclass(frozen=True)
class Setting:
    """A task ready to be done, any number of times."""

    instruction: str
    goal: Goal
    disguise: Disguise | None = None
    """The names that the APIs have in it, if not their own."""

    def world(self) -> World:
        return self.goal.start.begin()
