"""What an evaluation comes to, by hand: attempts that the environment spoiled count for nothing, nowhere."""

import pytest

from longloop.evaluation import summarize
from longloop.types import Group, StopReason, Task
from tests.support import recorded


def group(name: str, *done: bool | None, scenario: str = "") -> Group:
    """Attempts at a task; None is one that was spoiled."""
    task = Task(name, "dev", scenario=scenario)
    stops = [StopReason.ENV_ERROR if one is None else StopReason.FINISHED for one in done]
    return Group(task, tuple(recorded.attempt(task, n, bool(done[n]), stop) for n, stop in enumerate(stops)))


def test_tasks_are_those_that_were_scored() -> None:
    found = summarize([group("a", True), *(group(str(n), None) for n in range(9))], 1, (0.0, 0.0))
    assert (found.tasks, found.unscored, found.success) == (1, 9, 1.0)
    assert found.success_interval == pytest.approx((0.2065, 1.0), abs=1e-4), "Wilson, 1 of 1"
    assert found.cells()["tasks"] == "1 x 1 attempts, 9 spoiled by the environment"


def test_every_pass_at_k_is_over_the_same_tasks() -> None:
    """Of a task that succeeds only 1 of 4 attempts was scored: pass@4 would be below pass@1."""
    tried = [group("a", True, None, None, None), group("b", False, False, False, False)]
    assert summarize(tried, 4, (0.0, 0.0)).pass_at == {"1": 0.0, "2": 0.0, "4": 0.0}
    both = summarize([*tried, group("c", True, False, False, False)], 4, (0.0, 0.0))
    assert both.pass_at == {"1": 0.125, "2": 0.25, "4": 0.5} and both.success == pytest.approx(1.25 / 3)
    assert summarize(tried[:1], 4, (0.0, 0.0)).pass_at == {}


def test_a_spoiled_task_fails_no_scenario() -> None:
    tried = [group("a/1", True, scenario="a"), group("a/2", None, scenario="a"), group("b/1", None, scenario="b")]
    assert summarize(tried, 1, (0.0, 0.0)).scenarios == 1.0
    assert summarize([*tried, group("c/1", False, scenario="c")], 1, (0.0, 0.0)).scenarios == 0.5
    assert summarize(tried[1:], 1, (0.0, 0.0)).scenarios is None
