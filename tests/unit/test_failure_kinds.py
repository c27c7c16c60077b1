"""How failures are told apart, and which of them are the same; success by what tasks have in common."""

import re
import tracemalloc

import pytest

from longloop.analysis.failures import alike, last_error
from longloop.analysis.report import AttemptIds, report
from longloop.analysis.rules import FAILURE, rules
from longloop.analysis.run import analyze
from longloop.analysis.tally import merged, tally
from longloop.store.run import Run
from longloop.store.trajectories import StoredTrajectory, StoredTurn
from longloop.types import Group, Message, StopReason, Task
from tests.support import recorded

PATTERN = re.compile(FAILURE, re.MULTILINE)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("404 There is no message 3.", "404 There is no message 71."),
        ("contacts 9 changed: address='364 castle hill'", 'contacts 12 changed: address="1 Main St."'),
        ("No user a.b@mail.com", "No user someone+else@example.org"),
        ("token 9f86d081 expired", "token a3c1b2f4e expired"),
        ("at 2026-08-20 08:10", "at 2025-01-01 23:59"),
        ("it costs 1,204.50", "it costs 3"),
        ("the answer is 401", "the answer is 402"),
        ("two\n  lines", "two lines"),
    ],
)
def test_what_differs_from_task_to_task_is_left_out(one, other):
    assert alike(one) == alike(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("404 There is no message 3.", "404 There is no contact 3."),
        ("KeyError: 'x'", "IndexError: 'x'"),
        ("401 It is wrong.", "409 It is wrong."),
        ("Response status code is 401:", "Response status code is 422:"),
        ("I'm not sure what you mean", "I'm not sure what that is, isn't it"),  # an apostrophe quotes nothing
        ("message_id", "user_id"),
    ],
)
def test_what_was_asked_is_kept(one, other):
    assert alike(one) != alike(other)


def test_long_and_odd_text_is_cut():
    assert len(alike("x " * 10_000)) == 160 and alike("") == ""
    assert alike("a" * 100_000)[-1] == "…"
    assert "\n" not in alike("\n\ta\r\nb\u2028c")


def heard(*texts: str) -> StoredTrajectory:
    turns = [StoredTurn((Message("user", text),), "x") for text in ("The task.", *texts)]
    return StoredTrajectory(0, Task("t", "train"), 0, turns=tuple(turns))


def test_the_last_error_is_the_last_line_of_the_last_failure():
    traceback = 'Traceback (most recent call last):\n  File "x"\nLookupError: 404 There is no message 3.\n'
    assert last_error(heard(traceback, "fine", "404 No such thing 5.\nok"), PATTERN) == "404 No such thing #."
    assert (
        last_error(heard("404 No such thing 5.", traceback, "fine"), PATTERN)
        == "LookupError: 404 There is no message #."
    )
    assert last_error(heard("fine"), PATTERN) == "" == last_error(StoredTrajectory(0, Task("t", "train"), 0), PATTERN)
    assert last_error(StoredTrajectory.from_json({"turns": [{"context": [{"content": "Error: here"}]}]}), PATTERN) == ""


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (
            "json.decoder.JSONDecodeError: Expecting value: line 1 column 1",
            "json.decoder.JSONDecodeError: Expecting value: line # column #",
        ),
        ("AssertionError", "AssertionError"),
        ("requests.exceptions.ConnectionError", "requests.exceptions.ConnectionError"),
        ("KeyboardInterrupt", "KeyboardInterrupt"),
        ("StopIteration: 3", "StopIteration: #"),
        ("subprocess.TimeoutExpired: Command timed out", "subprocess.TimeoutExpired: Command timed out"),
        ("  x\nmine.Trouble: here", "mine.Trouble: here"),
    ],
)
def test_the_last_error_of_a_traceback_is_its_exception(line, kind):
    text = f'404 No such thing 5.\nTraceback (most recent call last):\n  File "x", line 1, in <module>\n{line}\n'
    assert last_error(heard(text), PATTERN) == kind


def test_an_exception_without_words_is_one():
    assert last_error(heard("fine\nAssertionError\n"), PATTERN) == "AssertionError"


@pytest.mark.parametrize("line", ["Error", "Exit: north", "Exit", "Exits: north", "no error.", "An Exception"])
def test_words_of_places_and_buttons_are_no_exceptions(line):
    assert last_error(heard(f"You see:\n{line}\n"), PATTERN) == ""


def attempts(task: Task, *verdicts: tuple[bool, list[tuple[str, bool]]], stop: str = "finished") -> Group:
    tried = []
    for number, (success, tests) in enumerate(verdicts):
        info = {"tests": [{"name": name, "passed": passed} for name, passed in tests]}
        tried.append(recorded.attempt(task, number, success, StopReason(stop), info=info))
    return Group(task, tuple(tried))


@pytest.fixture
def run(tmp_path):
    """Two evaluations of four tasks of two kinds, counted by hand below."""
    with Run.create(recorded.settings(tmp_path / "run"), {}) as run:
        for step in (0, 20):
            tried = []
            for number, (kind, level, apps) in enumerate(
                [("pay", 1, ["wallet"]), ("pay", 1, ["wallet", "mail"]), ("send", 2, ["mail"]), ("send", 10, ["mail"])]
            ):
                data = {"scenario": kind, "world": number, "difficulty": level, "apps": apps}
                task = Task(f"{kind}/{number}", "dev", data, f"{kind}/{number // 3}")
                row, other = (f"row {number} changed", False), ("nothing else differs", True)
                right = (True, [(row[0], True), other])
                wrong = (False, [row, other])
                tried.append(attempts(task, right if step and kind == "pay" else wrong, wrong))
            spoiled = attempts(Task("lost", "dev", {"scenario": "pay"}), (False, []), stop="env_error")
            run.evaluations.write(step, [*tried, spoiled])
    return tmp_path / "run"


def test_failures_are_grouped_by_tests_and_by_error(run):
    found = analyze(run)
    assert {key: cases.count for key, cases in found.first.tally.tests.items()} == {("row # changed",): 8}
    last = found.last.tally
    assert {key: cases.count for key, cases in last.tests.items()} == {("row # changed",): 6}
    assert last.tests["row # changed",].attempts == ["eval/20/0/1", "eval/20/1/1", "eval/20/2/0"]
    assert {key: cases.count for key, cases in last.errors.items()} == {("",): 6} and last.failures == 6
    (section,) = [section for section in report(found).sections if section.title == "Failures"]
    tests, errors = section.tables
    assert tests.rows == (
        ("row # changed", "6", "100.0%", "8", AttemptIds(("eval/20/0/1", "eval/20/1/1", "eval/20/2/0"))),
    )
    assert errors.rows[0][0] == "(none)"


def test_success_by_what_tasks_have_in_common(run):
    by = analyze(run).by
    assert list(by) == ["scenario", "difficulty", "apps"], "one split tells nothing apart, and a world is none of them"
    found = {line.value: (line.first.success, line.last.success, line.last.tasks) for line in by["apps"]}
    assert found == {"wallet": (0, 0.5, 2), "mail": (0, pytest.approx(1 / 6), 3)}, "a task counts for all its apps"
    assert [line.value for line in by["difficulty"]] == ["1", "2", "10"]
    pay = by["scenario"][0]
    assert (pay.value, pay.last.attempts, pay.last.tasks) == ("pay", 4, 2), (
        "data has the kind, the scenario a part of it"
    )
    assert pay.last.interval == pytest.approx((0.0945, 0.9055), abs=1e-3), "Wilson, 1 of 2"


def test_stop_reasons_count_what_was_not_scored(run):
    found = analyze(run)
    assert found.last.tally.stops == {"finished": 8, "env_error": 1} and found.last.success.attempts == 8


def test_an_expert_is_not_the_agent(tmp_path):
    task = Task("t", "train")
    own, shown = recorded.attempt(task, 0, False), recorded.attempt(task, 1, True, expert=True)
    with Run.create(recorded.settings(tmp_path / "run"), {}) as run:
        run.trajectories.write(1, [Group(task, (own, shown))])
        run.trajectories.write(2, [Group(task, (shown,))])
    found = analyze(tmp_path / "run")
    assert found.training[1].tasks["t"]["attempts"] == 1 and not found.training[1].expert
    assert found.training[2].expert, "where there is no other, it is shown and said to be one"
    assert found.first.success.success == 0


def test_what_is_kept_does_not_grow_with_what_was_said():
    """20 MB of text in 100 attempts at 5 tasks."""

    def lines():
        for number in range(100):
            said = "".join(chr(97 + (number * 7 + i) % 26) for i in range(1000)) * 200
            turns = (StoredTurn((Message("user", said),), f"{number}"),) * 2
            yield StoredTrajectory(number, Task(f"t{number % 5}", "train"), 0, turns=turns)

    tracemalloc.start()
    try:
        found = tally(lines(), "step", 1, rules())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.failures == 100 and len(found.tasks) == 5
    assert peak < 3_000_000


def test_steps_together_are_their_sum(run):
    found = analyze(run)
    both = merged([found.first.tally, found.last.tally])
    assert both.tests["row # changed",].count == 14 and len(both.tests["row # changed",].attempts) == 3
    assert both.tasks["pay/0"]["attempts"] == 4 and both.tasks["pay/0"]["success"] == 1
    assert found.first.tally.tests["row # changed",].count == 8, "and stay as they are"
