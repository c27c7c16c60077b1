"""DAPO collects until enough groups have something to teach."""

import asyncio

import pytest

from longloop.algos.dapo import Dapo
from tests.samples import TASK, group


class Script:
    """Rollouts that return scripted rewards and note how they were asked; also the stream of tasks."""

    def __init__(self, *rounds):
        self.rounds, self.asked, self.taken = list(rounds), [], 0

    def take(self, n):
        self.taken += n
        return [TASK] * n

    async def groups(self, tasks, k, seed):
        self.asked.append((len(tasks), k, seed))
        return [group(*rewards) for rewards in self.rounds.pop(0)]


EQUAL, DIFFERENT = (1.0, 1.0), (1.0, 0.0)


@pytest.mark.parametrize(
    ("rounds", "used"),
    [
        ([[DIFFERENT, DIFFERENT], [DIFFERENT, DIFFERENT]], 1),
        ([[DIFFERENT, EQUAL], [EQUAL, DIFFERENT], [DIFFERENT, DIFFERENT]], 2),
        ([[EQUAL, EQUAL], [EQUAL, DIFFERENT], [EQUAL, EQUAL], [DIFFERENT, DIFFERENT]], 3),
    ],
)
def test_dapo_refills(rounds, used):
    """New tasks until n groups have rewards that differ, at most `tries` times; only those are trained on."""
    script = Script(*rounds)
    algo = Dapo(k=2, tries=3)
    groups = asyncio.run(algo.collect(script, script, 2))
    assert script.asked == [(2, 2, 2 * round) for round in range(used)]  # each round has its own seed
    flat = [rewards for round in rounds[:used] for rewards in round]
    assert [g.scored[0].reward == g.scored[1].reward for g in groups] == [rewards == EQUAL for rewards in flat]
    places = {sample.trajectory[0] for sample in algo.credit(groups, None)}
    assert places == {place for place, rewards in enumerate(flat) if rewards == DIFFERENT}
