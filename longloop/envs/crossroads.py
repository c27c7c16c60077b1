"""A walk through a few forks in the road, each left or right: so small that every path can be listed.

With all paths and their rewards at hand, the exact gradient of the expected reward can be computed and compared with
what an algorithm estimates from samples. Paths differ in length, so that a method's treatment of length shows.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from longloop.envs.base import Environment
from longloop.types import Message, Outcome, Step, Task

# What lies left and right of each fork: the name of another fork, or a reward at the end of the road.
ROADS: dict[str, tuple[str | float, str | float]] = {
    "oak": ("elm", "ash"),
    "elm": (0.2, "fir"),
    "ash": (0.0, 1.0),
    "fir": (0.6, 0.0),
}
FIRST = "oak"


class Crossroads(Environment):
    reward_range = (0.0, 1.0)

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._at: str | float = FIRST

    @classmethod
    def tasks(cls, split: str, options: Any) -> Sequence[Task]:
        return [Task("crossroads", split)] if split in cls.splits else []

    @staticmethod
    def paths() -> Iterator[tuple[tuple[str, ...], tuple[str, ...], float]]:
        """Yield every path, as (the forks passed, the turns taken, the reward)."""

        def walk(at: str | float, forks: tuple[str, ...], turns: tuple[str, ...]) -> Iterator[tuple]:
            if not isinstance(at, str):
                yield forks, turns, at
                return
            for turn, following in zip("lr", ROADS[at], strict=True):
                yield from walk(following, (*forks, at), (*turns, turn))

        yield from walk(FIRST, (), ())

    async def start(self, task: Task) -> Sequence[Message]:
        return [Message("user", FIRST)]

    async def step(self, action: Message) -> Step:
        """An action that begins with r goes right; any other goes left."""
        assert isinstance(self._at, str)
        right = action.content.strip().lower().startswith("r")
        self._at = ROADS[self._at][right]
        if isinstance(self._at, str):
            return Step([Message("user", self._at)], info={"state": self._at})
        return Step(done=True)

    async def finish(self) -> Outcome:
        reward = self._at if isinstance(self._at, float) else 0.0
        return Outcome(reward, success=reward == 1.0)
