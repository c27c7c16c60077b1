"""Rewards of turns: what the environment paid, and what follows from how a turn went."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from longloop.algos.parts.part import Paid
from longloop.algos.parts.rewards import Rewards
from longloop.protocols import Learner
from longloop.types import Group, Ids, Now, Sample, Task, Trajectory, Turn, UserError


class TurnRewards(Rewards):
    """`weight` times what the environment paid for a turn, plus `failed` where it says that the action failed."""

    weight: float = 1.0
    failed: float = 0.0

    def of_group(self, group: Group) -> Paid:
        def paid(turn: Turn) -> float:
            return self.weight * turn.reward + (self.failed if turn.info.get("failed") else 0.0)

        return Paid([[paid(turn) for turn in t.turns] for t in group.scored], [t.reward for t in group.scored])


class Gains(Rewards):
    """IGPO's: a turn is paid `weight` times by how much likelier it made the right answer, after the `prefix` that an
    agent says before one. The last turn is not, and what the environment paid for turns is not counted."""

    prefix: str = ""
    weight: float = 1.0
    hooks = frozenset({"answers"})

    def pay(self, groups: Sequence[Group], learner: Learner, now: Now) -> list[Paid]:
        prefix = learner.encode(self.prefix)
        samples = [
            _answering(context, prefix, answer)
            for group in groups
            for answer in [learner.encode(answer_of(group.task))]
            for trajectory in group.scored
            for context in _contexts(trajectory)
        ]
        read = learner.read(samples, "logprobs") if samples else []
        likely = iter([float(np.exp(s.columns["logprobs"][s.mask].mean())) for s in read])
        return [self._paid(group, likely) for group in groups]

    def _paid(self, group: Group, likely: Iterator[float]) -> Paid:
        turns = []
        for trajectory in group.scored:
            p_U = [next(likely) for _ in trajectory.turns]
            turns.append([*(self.weight * (after - before) for before, after in pairwise(p_U)), 0.0])
        return Paid(turns, [t.reward for t in group.scored])


def answer_of(task: Task) -> str:
    """The first of the right answers in a task's data."""
    answers = task.data.get("answers")
    if not answers:
        raise UserError(
            f"Task {task.id!r} has no answers in its data. IGPO pays turns for what they tell about the right answer: "
            'the environment must put it into the task, as in Task(..., data={"answers": ["Paris"]}).'
        )
    return str(answers[0])


def _contexts(trajectory: Trajectory) -> Iterator[Ids]:
    """What the policy had read before each of its actions."""
    ids: list[Ids] = []
    for turn in trajectory.turns:
        if turn.restarts_context:
            ids.clear()
        ids.append(turn.context_ids)
        yield np.concatenate(ids)
        ids.append(turn.action_ids)


def _answering(context: Ids, prefix: Sequence[int], answer: Sequence[int]) -> Sample:
    """A sample whose mask is on the answer alone."""
    ids = np.concatenate([context, np.array([*prefix, *answer], dtype=np.int64)])
    nothing, turns = np.zeros(len(ids)), np.zeros(len(ids), np.int64)
    mask = np.arange(len(ids)) >= len(ids) - len(answer)
    return Sample(ids=ids, mask=mask, logprobs=nothing, turns=turns, advantages=nothing, weights=nothing)
