"""Keys of states: equal states of a task have equal keys, in copies and repetitions too, and `check` finds a key that
changes from attempt to attempt."""

import asyncio
from typing import Any

import pytest

from errands.env import Errands
from longloop.diagnose.trial import difference, sharing
from longloop.envs.base import Environment
from longloop.envs.crossroads import Crossroads
from longloop.envs.guess import Guess
from longloop.envs.play import Played, Script, answered, play
from longloop.envs.react import react
from longloop.isolation.guard import Watched
from longloop.types import Message, Step, Task


def made(kind: type[Environment]) -> Any:
    return kind(kind.Options())


def played(kind: type[Environment], *lines: str, task: int = 0) -> Played:
    return asyncio.run(play(made(kind), kind.tasks("train", kind.Options())[task], Script(lines)))


def test_a_key_says_whether_two_states_are_equal() -> None:
    assert (
        Environment.state_key({"a": 1, "b": 2}, "x")
        == Environment.state_key({"b": 2, "a": 1}, "x")
        != Environment.state_key({"a": 1, "b": 2}, "y")
    )


def test_crossroads_and_guess_say_where_an_attempt_is() -> None:
    assert played(Crossroads, "l", "r", "r").states == ("elm", "fir", "")
    # the hidden number is 4: other guesses that leave the same range possible lead to the same state
    assert played(Guess, "2", "6", task=3).states == ("3-7, 2 left", "3-5, 1 left")
    assert played(Guess, "6", "2", task=3).states == ("1-5, 2 left", "3-5, 1 left")
    assert played(Guess, "2", "1", task=3).states == ("3-7, 2 left", "3-7, 1 left")


def errand(*code: str) -> tuple[str, ...]:
    return played(Errands, *(react("?", line) for line in code)).states


def test_errands_looks_at_the_data_and_the_last_answer() -> None:
    look, other = "print(1)", "print(2)"
    first, again, else_ = errand(look, look, other)
    assert again != first, "the answer says that the code was run before"
    assert errand("x = 3\nprint(1)", "print(1)") == (first, first), "variables are not part of a key"
    assert len({first, again, else_}) == 3
    apps = sorted(Errands.tasks("train", Errands.Options())[0].data["apps"])
    login = f"t = apis.{apps[-1]}.login(**apis.owner.show_account(app={apps[-1]!r}))"
    assert errand(login, look)[1] != errand("t = 1", look)[1], "being logged in is"
    assert errand(login, look) == errand(login, look)


def test_undone_changes_leave_the_key_as_it_was() -> None:
    """A table that was written to but is as it was at the start counts as untouched."""
    env = made(Errands)
    env.start(Errands.tasks("train", Errands.Options())[0])
    look = Message("assistant", react("?", "print(1)"))
    name = "people"
    before = env.step(look).info["state"]
    moved = env._world.value(f"SELECT address FROM {name} WHERE id = 2")
    env._world.change(name, 2, address="elsewhere")
    env._results.clear()
    changed = env.step(look).info["state"]
    env._world.change(name, 2, address=moved)
    env._results.clear()
    assert name in env._world.written
    assert env.step(look).info["state"] == before != changed


@pytest.mark.parametrize("kind", [Guess, Errands])
def test_a_copy_gives_the_keys_of_its_original(kind: type[Environment]) -> None:
    async def keys() -> None:
        env, task = made(kind), kind.tasks("train", kind.Options())[2]
        expert = env.expert(task)
        messages = await answered(env.start(task))
        for _ in range(2):
            other = await answered(env.fork())
            action = Message("assistant", await answered(expert.act(messages)))
            steps = [await answered(place.step(action)) for place in (env, other)]
            assert steps[0].info == steps[1].info
            messages = steps[0].messages
            if steps[0].done:
                break
            assert steps[0].info["state"]

    asyncio.run(keys())


class Moody(Crossroads):
    """Counts attempts, and gives keys that tell them apart."""

    count = [0]

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.count[0] += 1
        self._number = self.count[0]

    async def step(self, action: Message) -> Step:
        step = await super().step(action)
        return Step(step.messages, done=step.done, info={"state": f"{self._number}"})


def test_a_key_that_changes_is_found() -> None:
    task = Task("crossroads", "train", {"say": "l"})
    assert not asyncio.run(difference(lambda: made(Crossroads), task))
    assert "info['state'] after action 1" in asyncio.run(difference(lambda: made(Moody), task))
    watched = lambda: Watched(lambda: made(Moody), 10.0)  # noqa: E731
    assert "info['state']" in asyncio.run(sharing(watched, [task]))[0]
