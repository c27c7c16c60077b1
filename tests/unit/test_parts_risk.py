"""RiskPO's credit by hand: the numbers of its specification, papers across tasks, and quantiles that are followed."""

from collections.abc import Sequence
from typing import Any

import pytest

from longloop.algos.parts.credit import Risk, at_risk, tracked
from longloop.algos.parts.rewards import TurnRewards
from longloop.algos.riskpo import RiskPO
from longloop.types import Group, Now, Task, UserError
from tests.support.samples import attempt

NOBODY: Any = None


def test_risk_by_hand() -> None:
    found = [at_risk(score, 1.0, 3.0, 0.2, 0.8, 1.5) for score in range(5)]
    assert found == pytest.approx([-4.3333, -1.3333, -0.6667, 0.0, 0.0], abs=1e-4)
    assert [at_risk(score, 0.0, 4.0, 0.0, 1.0, 0.0) for score in range(5)] == [-4.0, -3.0, -2.0, -1.0, 0.0]
    assert tracked([1.0] * 19, [0.5, 2.0], 0.1)[3] == pytest.approx(0.97), "of level 0.2"


def credited(part: Risk, now: Now, *rewards: Sequence[float], ids: Sequence[int] = (), turned: bool = False) -> Any:
    """The advantages of each attempt at each task, with attempts that finished in the opposite order if turned."""
    groups = [
        Group(Task(f"task {n}", "train"), tuple(attempt(r, (1,), k) for k, r in enumerate(some)))
        for n, some in zip(ids or range(len(rewards)), rewards, strict=True)
    ]
    if turned:
        groups = [Group(group.task, group.trajectories[::-1]) for group in groups]
    found = part.credit(groups, TurnRewards().pay(groups, NOBODY, now), NOBODY, now)
    return [[turns[0] for turns in one or []] for one in found]


def test_papers_are_made_across_the_tasks_of_a_bundle() -> None:
    """Scores 2, 1, 0 of three papers; the fourth attempt at the second task belongs to none. With d = 0 and u = 1,
    A_S = S - 2, centered over the six attempts in papers: the left one gets nothing."""
    part = Risk(bundle=2, low=0.0, high=1.0, weight=0.0, normalize=False)
    assert credited(part, Now(1, 1), (1, 1, 0), (1, 0, 0, 1)) == [[1.0, 0.0, -1.0], [1.0, 0.0, -1.0, 0.0]]
    assert credited(part, Now(1, 1), (1, 1, 0), (1, 0, 0, 1), turned=True) == [[-1.0, 0.0, 1.0], [0.0, -1.0, 0.0, 1.0]]
    # divided by the std of scores, 1, and of rewards: 0.5774 for both tasks
    scaled = credited(Risk(bundle=2, low=0.0, high=1.0, weight=0.0), Now(1, 1), (1, 1, 0), (1, 0, 0, 1))
    assert scaled[0] == pytest.approx([3**0.5, 0.0, -(3**0.5)], abs=1e-4)


def test_bundles_have_different_tasks() -> None:
    """Each of two tasks twice: every bundle has both, so that the first paper of one has 1 + 1 and of the other 1 + 0.
    Were the same tasks bundled, papers would have scores of 2 and 0."""
    part = Risk(bundle=2, low=0.0, high=1.0, weight=0.0, normalize=False)
    for step in range(1, 6):
        found = credited(part, Now(step, 9), (1, 0), (1, 0), (0, 0), (0, 0), ids=(3, 3, 4, 4))
        assert found == [[0.5, -0.5]] * 4, step


def test_an_attempt_above_the_upper_quantile_is_worth_no_more_and_the_tail_counts_more() -> None:
    part = Risk(bundle=1, low=0.2, high=0.8, weight=1.5, normalize=False)
    quantiles = [1.0] * 10 + [3.0] * 9  # of the levels 0.05 to 0.5, and from there on
    (found,) = credited(part, Now(2, 9, {"Risk": {"quantiles": quantiles}}), (0.0, 1.0, 2.0, 3.0, 4.0))
    mean = (-4.3333 - 1.3333 - 0.6667) / 5
    assert found == pytest.approx([a - mean for a in (-4.3333, -1.3333, -0.6667, 0.0, 0.0)], abs=1e-3)
    assert sum(found) == pytest.approx(0.0, abs=1e-9) and max(found) > 0


def test_quantiles_are_those_of_the_steps_before() -> None:
    part, memory = Risk(bundle=1, low=0.5, high=1.0, weight=0.0, normalize=False), dict[str, Any]()
    credited(part, Now(1, 2, memory), (0.0, 1.0, 2.0))
    kept = list(memory["Risk"]["quantiles"])
    assert kept[9] == pytest.approx(1.0 + 0.1 * (0.5 - 1 / 3)), "begins at the median of the first step, then moves"
    credited(part, Now(2, 2, memory), (5.0, 6.0))
    assert memory["Risk"]["quantiles"][9] == pytest.approx(kept[9] + 0.1 * 0.5)
    # a step is judged by the quantiles before it: below the median of old all scores are the same
    (found,) = credited(part, Now(3, 3, {"Risk": {"quantiles": [3.0] * 19}}), (0.0, 2.0, 4.0))
    assert found == pytest.approx([-2 / 3, -2 / 3, 4 / 3])


def test_risk_at_its_edges() -> None:
    assert at_risk(1.0, 0.0, 4.0, 0.0, 1.0, 1.5) == pytest.approx(-1.2)  # no tail below the smallest score
    part = Risk(bundle=1, low=0.0, high=1.0, weight=0.0)
    assert credited(part, Now(1, 1), (1,)) == [[]]
    # scores 2 and 0: (S - 2) over the deviation of scores and over that of rewards, both the square root of 2
    assert credited(part, Now(1, 1), (2, 0))[0] == pytest.approx([0.5, -0.5], abs=1e-5)
    assert part._scale([0.0, 0.002]) == pytest.approx(0.002 / 2**0.5 + 1e-6, rel=1e-9)
    assert part._scale([0.0, 0.001]) == 1.0


@pytest.mark.parametrize("step", range(1, 7))
def test_a_task_that_comes_twice_is_not_bundled_with_itself(step: int) -> None:
    """Three groups make two bundles: the other task is with one of the two, and its papers have different scores."""
    part = Risk(bundle=2, low=0.0, high=1.0, weight=0.0, normalize=False)
    *_, (first, second) = credited(part, Now(step, 9), (1, 0), (1, 0), (0, 0), ids=(3, 3, 4))
    assert first > second


def test_levels_that_are_not_followed_are_refused() -> None:
    for options in ({"low": 0.22}, {"low": 0.9, "high": 0.2}, {"high": 1.2}):
        with pytest.raises(UserError, match=r"multiples of 0\.05"):
            RiskPO(**options)  # type: ignore[arg-type]
