"""A walk through a few forks in the road, each left or right: so small that every path can be listed.

With all paths and their rewards at hand, the exact gradient of the expected reward can be computed and held against
what an algorithm estimates from samples. Paths differ in length, so that a method's treatment of length shows.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from longloop.types import Message, Outcome, Step, Task

# Each fork: what lies left and right of it. A name is another fork, a number the end of the road and its reward.
ROADS: dict[str, tuple[str | float, str | float]] = {
    "oak": ("elm", "ash"),
    "elm": (0.2, "fir"),
    "ash": (0.0, 1.0),
    "fir": (0.6, 0.0),
}
FIRST = "oak"


class Crossroads:
    reward_range: ClassVar = (0.0, 1.0)

    def __init__(self) -> None:
        self._place: str | float = FIRST

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        return [Task("crossroads", split)] if split in ("train", "dev", "test") else []

    @staticmethod
    def paths() -> Iterator[tuple[tuple[str, ...], tuple[str, ...], float]]:
        """Every path, as (the forks passed, the turns taken, the reward)."""

        def walk(place: str | float, forks: tuple[str, ...], turns: tuple[str, ...]) -> Iterator[tuple]:
            if not isinstance(place, str):
                yield forks, turns, place
                return
            for turn, following in zip("lr", ROADS[place], strict=True):
                yield from walk(following, (*forks, place), (*turns, turn))

        yield from walk(FIRST, (), ())

    async def start(self, task: Task) -> Sequence[Message]:
        return [Message("user", FIRST)]

    async def step(self, action: Message) -> Step:
        """An action that begins with r goes right; any other goes left."""
        assert isinstance(self._place, str)
        right = action.content.strip().lower().startswith("r")
        self._place = ROADS[self._place][right]
        if isinstance(self._place, str):
            return Step([Message("user", self._place)])
        return Step(done=True)

    async def finish(self) -> Outcome:
        reward = self._place if isinstance(self._place, float) else 0.0
        return Outcome(reward, success=reward == 1.0)
