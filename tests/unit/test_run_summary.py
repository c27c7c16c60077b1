"""What `train` ends with: the change between two evaluations with its verdict, and a task that is typical of it."""

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from longloop.cli import run_summary
from longloop.evaluation import summarize
from longloop.store.metrics import Evaluation
from longloop.store.run import Run
from longloop.types import Group, Message, StopReason, Task
from tests.support.recorded import attempt, evaluation, settings, small


def groups(rewards: Sequence[Sequence[float]]) -> list[Group]:
    """For each task a row of rewards, one for each attempt; 1 is a success."""
    tasks = [Task(f"task-{number:02}", "dev") for number in range(len(rewards))]
    return [
        Group(task, tuple(attempt(task, number, reward == 1, reward=reward) for number, reward in enumerate(row)))
        for task, row in zip(tasks, rewards, strict=True)
    ]


def ending(folder: Path, before: list[Group], after: list[Group]) -> str:
    """What a run with these two evaluations ends with."""
    with Run.create(settings(folder / "run"), {}) as run:
        for step, made in ((0, before), (3, after)):
            run.evaluations.write(step, made)
            run.metrics.write({"step": step, "eval": summarize(made, 1, (0.0, 0.0)).to_json()})
    printed = io.StringIO()
    run_summary.show(run, Console(file=printed, width=200))
    return printed.getvalue()


def test_the_table_has_the_change_and_its_verdict(tmp_path: Path) -> None:
    """Five of ten tasks rise: see test_stats.py."""
    printed = ending(tmp_path, groups([[0.0]] * 10), groups([[1.0]] * 5 + [[0.0]] * 5))
    assert "+50.0 points [+20.0, +80.0]: no clear change (p = 0.062)" in printed
    assert "+0.500 [+0.200, +0.800]: no clear change" in printed
    assert "over the tasks that were scored both times (10)" in printed


@pytest.mark.parametrize(("after", "verdict"), [([[1.0]] * 8 + [[0.0]] * 2, "better"), ([[0.0]] * 10, "worse")])
def test_the_verdict_has_a_direction(after: list[list[float]], verdict: str, tmp_path: Path) -> None:
    before = [[0.0]] * 10 if verdict == "better" else [[1.0]] * 7 + [[0.0]] * 3
    assert f": {verdict} (p = " in ending(tmp_path, groups(before), groups(after))


def test_the_task_shown_is_typical(tmp_path: Path) -> None:
    """Changes of -0.5, 0, 0, +0.25 and +1: the median is 0, and of the two tasks that have it the later one is third
    in line. What was lifted from failure to success is not shown."""
    before, after = [[0.0], [0.5], [0.25], [0.5], [0.25]], [[1.0], [0.0], [0.25], [0.75], [0.25]]
    printed = ending(tmp_path, groups(before), groups(after))
    assert "A typical task, before and after: task-04." in printed
    assert "Of 5 tasks it has the median change in reward (+0.00)." in printed
    assert printed.count("reward 0.25, not done") == 2


def test_the_attempts_shown_are_typical(tmp_path: Path) -> None:
    """Of each side's attempts at the task, the one with the median reward."""
    printed = ending(tmp_path, groups([[1.0, 0.0, 0.25]]), groups([[0.5, 1.0, 0.75]]))
    assert "before: reward 0.25" in printed and "after: reward 0.75" in printed
    assert "and these attempts at it the median reward" in printed


def test_tasks_that_were_not_scored_both_times_are_left_out(tmp_path: Path) -> None:
    after = groups([[1.0], [0.0], [1.0]])
    spoiled = Group(after[0].task, (attempt(after[0].task, 0, False, StopReason.ENV_ERROR),))
    printed = ending(tmp_path, [spoiled, *after[1:]], after)
    assert "scored both times (2)" in printed and "before and after: task-01. Of 2 tasks" in printed
    assert "+0.0 points: no clear change" in printed, "though success rose from 50% to 67%"


def test_a_run_without_a_comparable_evaluation_ends_too(tmp_path: Path) -> None:
    with Run.create(settings(tmp_path / "run"), {}) as run:
        run.metrics.write({"step": 1, "success": 0.5, "trained_tokens": 3, "attempts": 2, "stops": {}})
    printed = io.StringIO()
    run_summary.show(run, Console(file=printed, width=200))
    assert "The learning curve is in" in printed.getvalue() and (run.folder / "curve.png").stat().st_size > 0


def test_a_run_whose_attempts_are_gone_ends_too(tmp_path: Path) -> None:
    """As one that was carried without them."""
    ending(tmp_path, groups([[0.0]]), groups([[1.0]]))
    (run,) = tmp_path.iterdir()
    for damaged, said in (
        ("evaluations/000000.safetensors", "No such file"),
        ("evaluations/000000.jsonl", "of step 0"),
    ):
        (run / damaged).unlink()
        printed = io.StringIO()
        run_summary.show(Run(run), Console(file=printed, width=200))
        assert "before training" in printed.getvalue() and "change " not in printed.getvalue()
        assert "How it changed is not known: " in printed.getvalue() and said in printed.getvalue()
        assert "The learning curve is in" in printed.getvalue()


def test_what_was_said_cannot_act_on_the_terminal(tmp_path: Path) -> None:
    """A lone surrogate ends nothing, and an escape sequence does nothing."""
    made = groups([[0.0]])
    (one,) = made[0].trajectories
    hostile = Message("assistant", "one\r\n\ud800 \x1b[2J")
    turns = (replace(one.turns[0], action=hostile), *one.turns[1:])
    made = [Group(made[0].task, (replace(one, turns=turns),))]
    printed = ending(tmp_path, made, made)
    assert "one " in printed and "\\ud800 \\x1b[2J" in printed and "\x1b" not in printed and "\\r" not in printed


def test_the_curve_has_what_compares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = small(tmp_path / "run")
    with Run.reopen(folder) as run:
        run.save(3, 1, lambda _: None, {})
    with Run.reopen(folder, {"eval.split": ["dev", "test"]}) as run:
        run.metrics.write({"step": 5, "eval": evaluation(0.5)})
    drawn: list[int] = []
    monkeypatch.setattr(run_summary, "draw", lambda lines, measured, picture: drawn.extend(measured))
    run_summary.show(run, Console(file=io.StringIO()))
    assert drawn == [5]


def test_rows_that_only_one_side_has_are_shown() -> None:
    """Several attempts have pass@2, and the number of tasks stands last."""
    sides = [Evaluation.from_json(evaluation(0.5)), Evaluation.from_json(evaluation(0.5) | {"pass_at": {"2": 0.75}})]
    shown = list(run_summary.table(sides, ["a", "b"]).columns[0].cells)
    assert "pass@2" in shown and shown[-1] == "tasks" and len(shown) == 5
