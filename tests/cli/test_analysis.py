"""`longloop analyze`, as a user types it, on runs that were really made."""

import json

import pytest

from tests.helpers import train, write_config

ERRANDS = """
name = "errands"
[env]
name = "errands"
difficulty = 1
per_scenario = 1
[model]
path = "novice"
threads = 1
[rollout]
max_turns = 8
context = 2048
"""


@pytest.fixture
def longloop(command):
    """How a command ended, and all that it printed."""

    def run(*arguments: object) -> tuple[int, str]:
        code, out, err = command(*arguments)
        return code, out + err

    return run


@pytest.fixture(scope="module")
def guessing(tmp_path_factory):
    """A trained run, evaluated before and after, whose agent writes no code."""
    return train(tmp_path_factory.mktemp("guess"), "eval.every=2", "eval.attempts=2")[1].folder


def test_both_ends_and_a_picture(longloop, guessing):
    status, printed = longloop("analyze", guessing)
    assert status == 0, printed
    for words in ("before", "after step 3", "change [95%]", "doc look-ups / attempt", "- of 0", "tasks paired"):
        assert words in printed
    assert f"No turn of {guessing} has Python in it" in printed
    assert (guessing / "behaviours.png").read_bytes().startswith(b"\x89PNG")


def test_json_has_every_step_and_draws_nothing(longloop, guessing):
    (guessing / "behaviours.png").unlink(missing_ok=True)
    status, printed = longloop("analyze", guessing, "--json")
    (run,) = json.loads(printed)
    assert status == 0 and run["run"] == str(guessing) and run["code"] is False and run["compared"] == "evaluations"
    assert (run["first"]["steps"], run["last"]["steps"]) == ([0], [3])
    assert run["first"]["tasks"] == 3 and run["first"]["counts"]["attempts"] == 6
    assert [line["step"] for line in run["training"]] == [1, 2, 3]
    assert [line["step"] for line in run["evaluations"]] == [0, 2, 3]
    assert run["changes"]["lookups"] == {"first": 0, "last": 0, "difference": 0, "interval": None}
    assert run["changes"]["given_up"]["first"] is None
    assert not (guessing / "behaviours.png").exists()


def test_several_runs_stand_side_by_side(longloop, guessing, tmp_path):
    """A run without evaluations, of an expert who looks up everything, beside the one that guesses."""
    status, printed = longloop("demos", write_config(tmp_path, ERRANDS), f"folder={tmp_path}")
    assert status == 0, printed
    expert = tmp_path / "errands"
    status, printed = longloop("analyze", guessing, expert, "--json")
    _, found = json.loads(printed)
    assert found["code"] and found["last"] is None, "all demonstrations are one step"
    assert found["first"]["counts"]["attempts"] == 17 and found["changes"]["lookups"]["first"] > 1
    assert found["first"]["counts"]["crowded"] == found["first"]["counts"]["failed"] == 0

    status, printed = longloop("analyze", guessing, expert)
    names, headings, lookups, *_ = printed.splitlines()
    assert status == 0 and names.split() == [str(guessing), str(expert)]
    assert headings.split() == ["before", "after", "step", "3", "change", "[95%]", "step", "0"]
    assert lookups.split()[-1] == f"{found['changes']['lookups']['first']:.2f}"
    assert (expert / "behaviours.png").exists()


def test_what_is_not_a_run_is_refused(longloop, guessing, tmp_path):
    status, printed = longloop("analyze", guessing, tmp_path)
    assert status == 2 and printed.startswith(f"longloop: {tmp_path} is not a run folder. Name one")
    assert longloop("analyze")[0] == 2


def test_a_picture_that_cannot_be_written(longloop, guessing):
    picture = guessing / "behaviours.png"
    picture.unlink(missing_ok=True)
    picture.mkdir()
    status, printed = longloop("analyze", guessing)
    picture.rmdir()
    assert status == 2 and f"longloop: Cannot write {picture}" in printed and "--json" in printed


def test_help(longloop):
    status, printed = longloop("analyze", "--help")
    assert status == 0 and "--json" in printed
