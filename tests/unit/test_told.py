"""What a run tells of itself: unanswered messages, an algorithm's own metrics, abandoned attempts, changed settings."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from longloop.progress import Progress
from longloop.store.run import Run
from longloop.store.run_reader import RunReader
from longloop.types import Message, Step, StopReason
from longloop.viewer import curves
from longloop.viewer.library import Library
from longloop.viewer.pages import Pages
from longloop.viewer.terminal import show
from tests.support.helpers import load_config
from tests.support.worlds import Env, Log, collect, rollouts


class Flooding(Env):
    """Answers with more than fits."""

    async def step(self, action: Message) -> Step:
        return Step([Message("user", "x" * 30)])


@pytest.fixture
def overflowed(tmp_path: Path) -> Path:
    """A run with an attempt that an observation ended."""
    groups = collect(rollouts(lambda: Flooding(Log()), context=20), k=1)
    assert groups[0].trajectories[0].stop is StopReason.CONTEXT_FULL
    with Run.create(load_config(tmp_path, "rollout.context=20"), {}) as run:
        run.trajectories.write(1, groups)
        assert run.trajectories.read(1) == groups
    return run.folder


def test_an_observation_too_long_for_the_context_is_shown(overflowed: Path) -> None:
    said = StringIO()
    show(overflowed, "1/0/0", Console(file=said, width=200))
    assert "x" * 30 in said.getvalue()
    assert "did not fit: the conversation had 7 of the 20 tokens of rollout.context before it" in said.getvalue()
    page = Pages(Library([overflowed])).html(f"/run/{overflowed.name}/step/1/0/0")
    assert "did not fit: the conversation had 7 of the 20" in page and "x" * 30 in page


def test_what_came_last_is_kept_however_an_attempt_ended() -> None:
    one = collect(rollouts(lambda: Flooding(Log()), max_turns=1), k=1)[0].trajectories[0]
    assert one.stop is StopReason.MAX_TURNS and one.unread == (Message("user", "x" * 30),)
    done = collect(rollouts(lambda: Env(Log())), k=1)[0].trajectories[0]
    assert done.stop is StopReason.FINISHED and done.unread == (Message("user", "on"),)


def test_metrics_of_an_algorithm_of_ones_own_are_drawn(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        lines = [{"step": n, "success": 0.5, "update": {"loss": 1.0, "my_margin": 0.1 * n}} for n in (1, 2, 3)]
        (tmp_path / name / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    runs = [RunReader(tmp_path / name) for name in ("one", "other")]
    drawn = {chart.title: chart for chart in curves.of_run(runs[0])}
    assert drawn["My margin"].lines[0].points == [(1, 0.1), (2, 0.2), (3, pytest.approx(0.3))]
    assert sum(title == "Loss" for title in drawn) == 1
    together = {chart.title: chart for chart in curves.of_runs(runs)}
    assert len(together["My margin"].lines) == 2


def step(number: int, stops: dict[str, int]) -> dict:
    seconds = {"collect": 1.0, "update": 1.0}
    counts = {"attempts": sum(stops.values()), "action_tokens": 10, "trained_tokens": 10}
    return {"step": number, "success": 0.5, "reward": 0.5, "stops": stops, "guard": "", "time": seconds} | counts


def test_abandoned_attempts_are_said_in_the_steps_line_and_why_they_bias_once(tmp_path: Path) -> None:
    said = StringIO()
    with Progress(3, tmp_path / "logs" / "train.log", Console(file=said, width=300)) as progress:
        progress.step(step(1, {"finished": 64}))
        assert "abandoned" not in said.getvalue()
        progress.step(step(2, {"cancelled": 5, "finished": 59}))
        progress.step(step(3, {"cancelled": 1, "finished": 63}))
    lines = said.getvalue().splitlines()
    assert "abandoned 5 of 64" in lines[1] and "abandoned 1 of 64" in lines[3]
    assert (
        said.getvalue().count("failures take longer than successes") == 1 and "rollout.straggler_cutoff=1.0" in lines[2]
    )
    assert "docs/reliability.md" in lines[2]


def test_the_page_of_a_run_lists_what_was_changed(tmp_path: Path) -> None:
    with Run.create(load_config(tmp_path), {}) as run:
        pass
    with Run.reopen(run.folder, {"algo.lr": [1e-3, 1e-4]}):
        pass
    page = Pages(Library([run.folder])).html(f"/run/{run.folder.name}")
    assert "0.0001" in page and "was 0.001" in page and "from step 1" in page


def test_what_environments_say_is_no_markup(tmp_path: Path) -> None:
    said = StringIO()
    with Progress(1, tmp_path / "log", Console(file=said, width=200)) as report:
        report.note("Task 'a' is set aside: the server said [/INST] and [red]no")
    assert "the server said [/INST] and [red]no" in said.getvalue()


def test_a_step_that_took_no_time_has_a_rate(tmp_path: Path) -> None:
    said = StringIO()
    metrics = step(1, {}) | {"action_tokens": 0, "time": {"collect": 0.0, "credit": 0.0, "update": 0.0}}
    with Progress(1, tmp_path / "log", Console(file=said, width=200)) as report:
        report.step(metrics)
    assert "step 1/1" in said.getvalue() and "tokens/s 0" in said.getvalue()


def test_what_an_environment_said_ends_no_run(tmp_path: Path) -> None:
    """A lone surrogate can be written to no file, and an escape sequence would act on the terminal."""
    printed = StringIO()
    with Progress(1, tmp_path / "logs" / "train.log", Console(file=printed, width=200)) as report:
        report.note("it said \ud800 and \x1b[2J")
    assert printed.getvalue() == "it said \\ud800 and \\x1b[2J\n"
    assert (tmp_path / "logs" / "train.log").read_text() == printed.getvalue()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is always full")
def test_a_log_on_a_full_disk_hides_no_other_error(tmp_path: Path) -> None:
    """That of a file that is needed is the one to show. What a tracker says after the end is no error either."""
    printed = StringIO()
    with pytest.raises(ZeroDivisionError), Progress(1, Path("/dev/full"), Console(file=printed)) as report:
        report.note("first")
        raise ZeroDivisionError
    report.note("a tracker was left behind")
    assert printed.getvalue().splitlines() == ["first", "a tracker was left behind"]


def test_a_note_is_in_the_log_at_once(tmp_path: Path) -> None:
    with Progress(1, tmp_path / "logs" / "train.log", Console(file=StringIO())) as report:
        report.note("at once")
        assert (tmp_path / "logs" / "train.log").read_text() == "at once\n"
