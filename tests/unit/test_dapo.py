"""DAPO collects until enough groups have something to teach."""

import asyncio

import pytest

from longloop.algos.dapo import Dapo
from longloop.types import Start
from tests.support.samples import NOW, TASK, group


class Script:
    """Rollouts whose groups have scripted rewards and that note how they were asked; also the stream of tasks."""

    def __init__(self, rewards):
        self.rewards, self.asked, self.taken = list(rewards), [], 0

    def take(self, n):
        self.taken += n
        return [TASK] * n

    async def play(self, starts, k, seed, max_turns):
        assert max_turns == 0
        assert all(start == Start(TASK) for start in starts)
        self.asked.append((len(starts), k, seed))
        return [group(*self.rewards.pop(0)) for _ in starts]


EQUAL, DIFFERENT = (1.0, 1.0), (1.0, 0.0)


@pytest.mark.parametrize(
    ("stream", "rounds", "trained"),
    [
        ([DIFFERENT] * 4, [2], [0, 1]),
        ([DIFFERENT, EQUAL, DIFFERENT, DIFFERENT], [2, 1], [0, 2]),  # the fourth is never sampled
        ([EQUAL, EQUAL, DIFFERENT, DIFFERENT, DIFFERENT], [2, 2], [2, 3]),
        ([EQUAL, EQUAL, EQUAL, DIFFERENT, EQUAL, DIFFERENT], [2, 2, 1], [3]),  # three rounds, and no fourth
    ],
)
def test_dapo_refills(stream, rounds, trained):
    """The first n groups whose rewards differ, in the order of the tasks and no more, in at most `tries` rounds."""
    script = Script(stream)
    algo = Dapo(k=2, tries=3)
    groups = asyncio.run(algo.collect(script, script, 2, NOW))
    seeds = [sum(rounds[:number]) for number in range(len(rounds))]
    assert script.asked == [(n, 2, seed) for n, seed in zip(rounds, seeds, strict=True)], "each round has its own seed"
    assert [tuple(t.reward for t in g.scored) for g in groups] == stream[: sum(rounds)], "equal groups are kept"
    assert sorted({sample.source[0] for sample in algo.credit(groups, None, NOW)}) == trained


def test_dapo_asks_as_often_as_the_authors_code():
    script = Script([EQUAL] * 20)
    assert len(asyncio.run(Dapo(k=2).collect(script, script, 2, NOW))) == 20 and len(script.asked) == 10
