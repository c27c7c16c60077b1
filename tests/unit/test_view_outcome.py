"""What the viewer says came of a run: no change is claimed that chance could have made, and no collapse is missed."""

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from longloop.analysis.report import report
from longloop.analysis.run import analyze
from longloop.cli.run_summary import changes
from longloop.evaluation import summarize
from longloop.store.run import Run
from longloop.store.run_reader import load_run
from longloop.types import Group, StopReason, Task
from longloop.viewer.library import Library
from longloop.viewer.pages import Pages
from tests.support import recorded


def words(html: str) -> str:
    return " ".join(unescape(re.sub("<[^>]*>", " ", html)).split())


def evaluation(run: Run, step: int, successes: Sequence[bool | None]) -> dict[str, Any]:
    """One attempt at each task (None: spoiled by the environment), stored and summed up as training does it."""
    tasks = [Task(f"dev/{number}", "dev") for number in range(len(successes))]
    stops = [StopReason.ENV_ERROR if done is None else StopReason.FINISHED for done in successes]
    made = zip(tasks, successes, stops, strict=True)
    tried = [Group(task, (recorded.attempt(task, 0, bool(done), stop),)) for task, done, stop in made]
    run.evaluations.write(step, tried)
    return {"eval": summarize(tried, 1, (0.0, 0.0)).to_json()}


def evaluated(folder: Path, before: Sequence[bool | None], after: Sequence[bool | None]) -> Pages:
    with Run.create(recorded.settings(folder, steps=3), {}) as run:
        run.metrics.write({"step": 0} | evaluation(run, 0, before))
        run.metrics.write(recorded.metrics(3, 0.5, 12, 3) | evaluation(run, 3, after))
    return Pages(Library([folder]))


def trained(folder: Path, success: Sequence[float], entropy: Sequence[float] = (), **more: Any) -> str:
    """The worries about a run of so many steps, each with 10 groups of 8."""
    with Run.create(recorded.settings(folder), {}) as run:
        for step, share in enumerate(success, 1):
            line = recorded.metrics(step, share, 80, 10) | {"updates": 4} | more
            line["update"] = line["update"] | {"entropy": entropy[step - 1] if entropy else 1.0}
            run.metrics.write(line)
    html = Pages(Library([folder])).html(f"/run/{folder.name}")
    return " ".join(words(found) for found in re.findall('<p class="worry">(.*?)</p>', html))


def test_a_change_within_noise_is_none(tmp_path: Path) -> None:
    before = [number < 12 for number in range(20)]
    after = [number % 2 == 0 for number in range(20)]
    pages = evaluated(tmp_path / "run", before, after)
    said = words(pages.html("/run/run"))
    assert "No clear change in held-out success: 60%" in said and "50%" in said and "-10.0 points [" in said
    assert "fell" not in said
    assert "<b>50%</b>" not in pages.html("/")


@pytest.mark.parametrize(("share", "verb"), [(0.1, "fell from 50%"), (1.0, "rose from 50%")])
def test_a_clear_change_is_said_and_bold(tmp_path: Path, share: float, verb: str) -> None:
    pages = evaluated(tmp_path / "run", [n % 2 == 0 for n in range(20)], [n < 20 * share for n in range(20)])
    assert f"Held-out success {verb}" in words(pages.html("/run/run"))
    assert f"<b>{100 * share:.0f}%</b>" in pages.html("/")


def test_one_task_proves_nothing(tmp_path: Path) -> None:
    pages = evaluated(tmp_path / "run", [False], [True])
    listed = pages.html("/")
    assert "<b>100%</b>" not in listed and "20.7% to 100%, 1 task" in words(listed)
    assert "No clear change" in pages.html("/run/run") and "1 task" in words(pages.html("/run/run"))


def test_every_task_that_was_failed_and_is_done_is_a_rise(tmp_path: Path) -> None:
    """All draws of a bootstrap are the same here, and say nothing."""
    pages = evaluated(tmp_path / "run", [False] * 8, [True] * 8)
    assert "Held-out success rose from 0%" in words(pages.html("/run/run"))


def test_tasks_that_dropped_out_are_no_rise(tmp_path: Path) -> None:
    """The same five tasks are done; the five that failed were spoiled afterwards."""
    pages = evaluated(tmp_path / "run", [True] * 5 + [False] * 5, [True] * 5 + [None] * 5)
    said = words(pages.html("/run/run"))
    assert "No clear change in held-out success: 50%" in said and "<b>100%</b>" not in pages.html("/")
    assert "+0.0 points over the 5 tasks that were scored both times" in said
    seen = words(pages.html("/run/run/analysis"))
    assert "after step 3: +0.0 points over the 5 tasks that were scored both times." in seen
    assert "5 tasks paired" in seen


def test_a_rise_is_what_the_end_of_training_calls_one(tmp_path: Path) -> None:
    """Three of six tasks rise and none falls: chance in one of four cases, though few bootstrap draws have none."""
    pages = evaluated(tmp_path / "run", [False] * 6, [True] * 3 + [False] * 3)
    assert "No clear change in held-out success: 0%" in words(pages.html("/run/run"))
    both = (load_run(tmp_path / "run").evaluation_trajectories(step) for step in (0, 3))
    said = changes(*({group.task.id: group for group in side} for side in both))
    assert "no clear change (p = 0.25)" in said["success [95%]"]
    pages = evaluated(tmp_path / "six", [False] * 6, [True] * 6)
    assert "Held-out success rose from 0%" in words(pages.html("/run/six"))


def test_a_collapse_is_a_worry(tmp_path: Path) -> None:
    good = [0.1 + 0.02 * step for step in range(30)]
    said = trained(tmp_path / "collapsed", [*good, *[0.05] * 10])
    assert "Success in training collapsed: 6" in said and "5% in the last 3" in said
    assert "collapsed" not in trained(tmp_path / "well", good)
    rng = random.Random(0)
    noisy = [sum(rng.random() < 0.2 for _ in range(10)) / 10 for _ in range(60)]
    assert "collapsed" not in trained(tmp_path / "noisy", noisy), "chance has good and bad stretches"


def test_a_held_out_collapse_is_a_worry(tmp_path: Path) -> None:
    pages = evaluated(tmp_path / "run", [True] * 18 + [False] * 2, [False] * 18 + [True] * 2)
    assert "Held-out success collapsed: 90%" in words(pages.html("/run/run"))


def test_steps_without_a_score_are_no_failures(tmp_path: Path) -> None:
    """Where nothing was scored, 0 is stored for a success that nobody knows."""
    nothing = {"success": 0.0, "reward": 0.0, "turns": 0.0}
    lost = {"stops": {"env_error": 60, "set_aside": 20}} | nothing
    own = {"stops": {"env_error": 80, "finished": 10}} | nothing  # an expert's attempts were scored
    with Run.create(recorded.settings(tmp_path / "run"), {}) as run:
        for step in range(1, 41):
            line = recorded.metrics(step, 0.6, 80, 10) | {"updates": 4}
            run.metrics.write(line | (own if step == 40 else lost if step > 30 else {}))
    pages = Pages(Library([tmp_path / "run"]))
    html = pages.html("/run/run")
    said = words(html)
    assert "No clear change in training success: 60% to 60%" in said and "training collapsed" not in said
    assert "180 attempts were not made, because the environment had failed at their tasks too often." in said
    assert "success, training 60%" in said and "60%" in words(pages.html("/"))
    charts = {figure.partition("</b>")[0]: figure for figure in html.split("<figure><figcaption><b>")[1:]}
    for name in ("Success", "Reward", "Turns"):
        ((_, _, points),) = json.loads(unescape(re.findall('data-chart="([^"]*)"', charts[name])[0]))["lines"]
        assert [step for step, _ in points] == list(range(1, 31)), name
    ((_, _, points),) = json.loads(unescape(re.findall('data-chart="([^"]*)"', charts["Abandoned or spoiled"])[0]))[
        "lines"
    ]
    assert points[35] == [36, 1.0]


def test_evaluations_of_other_tasks_are_not_compared(tmp_path: Path) -> None:
    """The split was changed when the run was resumed: what is harder is not a collapse."""
    with Run.create(recorded.settings(tmp_path / "run", steps=9), {}) as run:
        run.metrics.write({"step": 0} | evaluation(run, 0, [number < 18 for number in range(20)]))
    with Run.reopen(tmp_path / "run", {"eval.split": ["dev", "test"]}) as run:
        pages = Pages(Library([run.folder]))
        assert "Held-out success: 90.0%" in words(pages.html("/run/run/analysis")), "the last there is, alone"
        for step, some in ((3, 6), (6, 7)):
            run.metrics.write({"step": step} | evaluation(run, step, [number < some for number in range(20)]))
    assert "collapsed" not in words(pages.html("/run/run"))
    seen = words(pages.html("/run/run/analysis"))
    assert "Held-out success: 30.0% [14.5%, 51.9%] after step 3, 35.0%" in seen and "after step 6: +5.0 points" in seen
    assert "What evaluations measure was changed at step 1: earlier ones are drawn, and not compared." in seen
    assert words(report(analyze(run.folder)).headline) in seen, "and so says the command"


def test_entropy_that_explodes_or_vanishes_is_a_worry(tmp_path: Path) -> None:
    success = [0.3 + 0.01 * step for step in range(12)]
    assert "Entropy exploded, from 0.4 to 3" in trained(tmp_path / "up", success, [0.4] * 6 + [3.0] * 6)
    assert "Entropy collapsed, from 0.8 to 0.004" in trained(tmp_path / "down", success, [0.8] * 6 + [0.004] * 6)
    assert "exploded" in trained(tmp_path / "twice", [0.3] * 12, [0.4] * 6 + [1.2] * 6)
    assert trained(tmp_path / "learning", success, [0.4] * 6 + [1.2] * 6) == "", "it explores, and learns"
    assert trained(tmp_path / "low", success, [0.001] * 6 + [0.009] * 6) == "", "it rises"
    assert trained(tmp_path / "steady", success, [0.8] * 6 + [0.5] * 6) == ""
    assert "Entropy" not in trained(tmp_path / "done", [1.0] * 12, [0.8] * 6 + [0.004] * 6), "nothing is left to try"


def test_a_run_that_learned_nothing_is_a_worry(tmp_path: Path) -> None:
    said = trained(tmp_path / "idle", [0.0] * 5, updates=0)
    assert "none of 5 steps made an update" in said and "The agent never succeeded." in said
    assert "After 30 steps success has not clearly changed (25% to 25% in training)" in trained(
        tmp_path / "same", [0.2, 0.3, 0.25, 0.2, 0.3] * 6
    )
    assert "not clearly changed" not in trained(tmp_path / "rose", [0.02 * step for step in range(30)])
    assert "not clearly changed" not in trained(tmp_path / "short", [0.2] * 5)
    assert "not clearly changed" not in trained(tmp_path / "mastered", [1.0] * 30)


def test_what_was_measured_once_did_not_change(tmp_path: Path) -> None:
    with Run.create(recorded.settings(tmp_path / "run"), {}) as run:
        pages = Pages(Library([run.folder]))
        recorded.step(run, 1, 0.5)
        said = words(pages.html("/run/run"))
        assert "Success in training was 50% in step 1." in said and "No clear change" not in said
        run.metrics.write({"step": 0} | evaluation(run, 0, [True, False]))
        assert "Held-out success was 50% [9.45%, 90.5%] before training (2 tasks" in words(pages.html("/run/run"))
        assert "Held-out success: 50.0% [9.5%, 90.5%] before training." in words(pages.html("/run/run/analysis"))


def test_the_success_of_demonstrations_is_not_the_agents(tmp_path: Path) -> None:
    with Run.create(recorded.settings(tmp_path / "sft", algo={"name": "sft"}), {}) as run:
        tasks = [Task(f"t{number}", "train") for number in range(3)]
        shown = [Group(task, (replace(recorded.attempt(task, 0, True), expert=True),)) for task in tasks]
        run.trajectories.write(1, shown)
        run.metrics.write(recorded.metrics(1, 1.0, 3, 3))
    recorded.small(tmp_path / "own")
    pages = Pages(Library([tmp_path]))
    listed = next(row for row in pages.html("/").split("<tr>") if "/run/sft" in row)
    assert "100%" not in listed and "imitates" in listed
    page = words(pages.html("/run/sft"))
    assert "success, training" not in page and "success, demonstrations 100%" in page
    assert "of the demonstrations that it imitates, 100% succeed" in page and "Success in training" not in page
    assert "success, demonstrations 100%" in words(pages.html("/run/sft/step/1"))
    chart = pages.html("/curves", {"run": ["sft", "own"]}).partition("<b>Success, training</b>")[2]
    assert "<b>Reward</b>" not in pages.html("/run/sft")
    assert '"sft"' not in unescape(chart.partition("</figure>")[0])
    assert "success, training" in words(pages.html("/run/own"))
