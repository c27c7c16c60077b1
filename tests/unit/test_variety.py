"""The doctor warns of equal attempts when most groups will be equal, and not because of a single easy task."""

import asyncio
import math
from typing import Any

import pytest

from longloop.config import RolloutConfig
from longloop.diagnose import sampling
from longloop.diagnose.finding import Finding
from longloop.envs.base import Environment
from longloop.rollout.episode import RolloutContext
from longloop.rollout.groups import GroupRollouts
from longloop.types import Message, Outcome, Sampled, SamplingParams, Step, Task
from tests.support.worlds import CHAT


class Env(Environment):
    """Opens with the name of the task, and goes on for `turns` turns."""

    def __init__(self, turns: int) -> None:
        self._left = turns

    async def start(self, task: Task) -> list[Message]:
        return [Message("user", task.id)]

    async def step(self, action: Message) -> Step:
        self._left -= 1
        return Step([Message("user", "on")], done=self._left == 0)

    async def finish(self) -> Outcome:
        return Outcome(0.0, False)


class Speaker:
    """Says `a` with this log-prob at tasks that open with an `e`, and elsewhere says one of two things."""

    def __init__(self, logprob: float) -> None:
        self._logprob = logprob

    async def sample(self, ids: Any, params: SamplingParams, *, session: str) -> Sampled:
        easy = CHAT.tokenizer.decode(ids[1:2]) == "e"
        said = (*CHAT.encode("a" if easy or params.seed % 3 else "b"), CHAT.end_id)
        return Sampled(said, (self._logprob if easy else math.log(0.5), 0.0), "stop")

    def forget(self, session: str) -> None: ...

    def release(self) -> None: ...


def found(ids: list[str], of: int = 100, logprob: float = -1e-3, turns: int = 1, max_turns: int = 40) -> Finding:
    tasks = [Task(name, "train") for name in ids]
    limits = RolloutConfig(context=1000, max_turns=max_turns)
    rollouts = GroupRollouts(
        RolloutContext(lambda: Env(turns), CHAT, Speaker(logprob), limits, SamplingParams()), "test"
    )

    async def look() -> Finding:
        first = await sampling.collect(rollouts, tasks[:1], 4, max_turns=2)
        return await sampling.variety(first, rollouts, tasks, of, 8, max_turns=2)

    return asyncio.run(look())


EASY = [f"e{n}" for n in range(8)]
HARD = [f"h{n}" for n in range(8)]


def test_one_easy_task_is_no_alarm() -> None:
    seen = found([*EASY[:1], *HARD[:7]])
    assert (seen.verdict, seen.numbers["tasks"], seen.numbers["sure"]) == ("pass", 8, 1)
    assert found(HARD).verdict == "pass" and "tasks" not in found(HARD).numbers, "no second look without need"


def test_a_model_that_is_sure_at_most_tasks_is_warned_of() -> None:
    seen = found(EASY)
    assert seen.verdict == "warning" and "8 of 8 tasks" in str(seen)
    assert found([*EASY[:7], HARD[0]]).verdict == "warning"


@pytest.mark.parametrize(
    ("tasks", "of", "verdict"),
    [
        (EASY[:4], 100, "pass"),
        (EASY[:5], 100, "warning"),
        (EASY[:4], 4, "warning"),
        ([*EASY[:6], *HARD[:2]], 100, "pass"),
    ],
)
def test_few_tasks_say_little_unless_they_are_all_there_are(tasks: list[str], of: int, verdict: str) -> None:
    assert found(tasks, of).verdict == verdict


def test_two_turns_are_not_a_whole_attempt() -> None:
    """Of 40 turns two were looked at. The chance of eight equal ones is 87% for two turns, and 6% for forty."""
    assert found(EASY, logprob=-0.01, turns=2).verdict == "warning"
    assert found(EASY, logprob=-0.01, turns=40).verdict == "pass"
    assert found(EASY, logprob=-1e-4, turns=40).verdict == "warning"
