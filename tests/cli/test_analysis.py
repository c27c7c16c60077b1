"""`longloop analyze`, as a user types it, on runs that were really made."""

import json
import re
import sys

import pytest
from rich.console import Console

from longloop.cli import analysis
from tests.support.helpers import train, write_config

ERRANDS = """
name = "errands"
[env]
name = "errands"
example = false
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


def test_a_summary_and_a_report_with_pictures(longloop, guessing):
    status, printed = longloop("analyze", guessing)
    assert status == 0, printed
    assert printed.startswith(f"{guessing}: Held-out success: ") and "before training" in printed.splitlines()[0]
    for words in (
        "after step 3",
        "change [95%]",
        "assumptions / attempt",
        "tasks paired",
        "Stop reasons",
        "last error",
    ):
        assert words in printed
    assert "No turn has Python in it" in printed and "doc look-ups" not in printed
    assert f"All of it is in {guessing}/analysis.md." in printed
    text = (guessing / "analysis.md").read_text()
    assert text.startswith("# Analysis of test\n\nloop on guess with tiny, seed 0; finished, started ")
    for heading in ("Success", "Behaviors", "Stop reasons", "Failures", "Reward without success"):
        assert f"\n## {heading}\n" in text
    assert "Every attempt that failed was paid nothing" in text
    pictures = re.findall(r"!\[[^]]*\]\((.*?)\)", text)
    assert pictures == ["outcomes.png", "behaviors.png"]
    assert all((guessing / picture).read_bytes().startswith(b"\x89PNG") for picture in pictures)


def test_nothing_is_cut_in_a_narrow_terminal(longloop, guessing, monkeypatch):
    monkeypatch.setattr(analysis, "console", Console(highlight=False, markup=False, width=40))
    status, printed = longloop("analyze", guessing)
    assert status == 0 and "Stop reasons" in printed and "…" not in printed


def test_the_attempts_that_are_named_can_be_shown(longloop, guessing):
    longloop("analyze", guessing)
    places = set(re.findall("`([^ `]*/[^ `]*)`", (guessing / "analysis.md").read_text()))
    assert places
    for place in places:
        status, printed = longloop("show", guessing, place)
        assert status == 0 and "failure" in printed.splitlines()[0]


def test_json_has_every_step_and_writes_nothing(longloop, guessing):
    for name in ("behaviors.png", "outcomes.png", "analysis.md"):
        (guessing / name).unlink(missing_ok=True)
    status, printed = longloop("analyze", guessing, "--json")
    (run,) = json.loads(printed)
    assert status == 0 and run["run"] == str(guessing) and run["code"] is False and run["compared"] == "evaluations"
    assert (run["first"]["steps"], run["last"]["steps"]) == ([0], [3])
    assert run["first"]["tasks"] == 3 and run["first"]["counts"]["attempts"] == 6
    assert [line["step"] for line in run["training"]] == [1, 2, 3]
    assert [line["step"] for line in run["evaluations"]] == [0, 2, 3]
    assert run["changes"]["lookups"] == {"first": 0, "last": 0, "difference": 0, "interval": None, "tasks": None}
    assert run["changes"]["given_up"]["first"] is None
    stored = [json.loads(line) for line in (guessing / "evaluations/000003.jsonl").read_text().splitlines()]
    failed = [line for line in stored if not line["success"]]
    assert run["last"]["success"]["success"] == pytest.approx(1 - len(failed) / 6)
    assert sum(kind["count"] for kind in run["last"]["failures"]["errors"]) == len(failed)
    assert run["last"]["stops"] == {"finished": 6} and run["reward_without_success"] == [] and run["by"] == {}
    assert not [name for name in ("behaviors.png", "outcomes.png", "analysis.md") if (guessing / name).exists()]


def test_several_runs_stand_side_by_side(longloop, guessing, tmp_path, monkeypatch):
    """A run without evaluations, of an expert who looks up everything, beside the one that guesses."""
    status, printed = longloop("demos", write_config(tmp_path, ERRANDS), f"folder={tmp_path}")
    assert status == 0, printed
    expert = tmp_path / "errands"
    status, printed = longloop("analyze", guessing, expert, "--json")
    _, found = json.loads(printed)
    assert found["code"] and found["last"] is None, "all demonstrations are one step"
    assert found["first"]["counts"]["attempts"] == 17 and found["changes"]["lookups"]["first"] > 1
    assert found["first"]["counts"]["crowded"] == found["first"]["counts"]["failed"] == 0
    assert {"difficulty", "apps"} & set(found["by"]) == {"apps"}, "all are of one difficulty"

    monkeypatch.setattr(analysis, "console", Console(highlight=False, markup=False, width=400))  # for any folder's name
    status, printed = longloop("analyze", guessing, expert)
    names, headings, *rows = printed.splitlines()
    assert status == 0 and names.split() == [str(guessing), str(expert)]
    assert headings.split("  ")[0] == "" and headings.split()[-3:] == ["in", "step", "0"]
    (lookups,) = [row.split() for row in rows if row.startswith("doc look-ups / attempt")]
    assert lookups[4:] == [f"{found['changes']['lookups']['first']:.2f}"], "the run that guesses has no such row"
    assert "These are the attempts of an expert, not of the agent." in printed
    assert (expert / "behaviors.png").exists() and (expert / "analysis.md").exists()


def test_patterns_of_the_user(longloop, guessing, tmp_path):
    patterns = tmp_path / "mine.toml"
    patterns.write_text("[patterns.threes]\nsaid = '3'\nper = 'turn'\n")
    status, printed = longloop("analyze", guessing, "--patterns", patterns)
    assert status == 0 and "turns with threes" in printed
    patterns.write_text("[patterns.threes]\nsaid = '('\n")
    status, printed = longloop("analyze", guessing, "--patterns", patterns)
    assert status == 2 and printed.startswith(
        f"longloop: --patterns {patterns}: pattern 'threes': said is not a regular"
    )
    assert len(printed.strip().splitlines()) == 1


def test_what_an_environment_declares_is_stored_with_the_run(longloop, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "worlds_of_mine.py").write_text(
        "from longloop.envs.guess import Guess\n"
        "class Mine(Guess):\n    analysis = {'patterns': {'threes': {'said': '3'}}}\n"
        "class Bad(Guess):\n    analysis = {'patterns': {'threes': {'said': '('}}}\n"
    )
    run = ["train", write_config(tmp_path), f"folder={tmp_path}", "steps=1", "doctor=false"]
    status, printed = longloop(*run, "env.name=worlds_of_mine:Bad")
    assert status == 2 and printed.startswith("longloop: Bad.analysis: pattern 'threes'"), printed
    status, printed = longloop(*run, "env.name=worlds_of_mine:Mine")
    assert status == 0, printed
    assert json.loads((tmp_path / "test/run.json").read_text())["analysis"]["patterns"] == {"threes": {"said": "3"}}
    last = json.loads((tmp_path / "test/metrics.jsonl").read_text().splitlines()[-1])
    assert 10**7 < last["memory"]["process"] < 10**11, "bytes"
    (tmp_path / "worlds_of_mine.py").unlink()
    del sys.modules["worlds_of_mine"]
    status, printed = longloop("analyze", tmp_path / "test")
    assert status == 0 and "threes / attempt" in printed, "without the environment"


def test_what_is_not_a_run_is_refused(longloop, guessing, tmp_path):
    none = tmp_path / "none"  # beside it there are no runs, which would be named: beside tmp_path other tests' may be
    none.mkdir()
    status, printed = longloop("analyze", guessing, none)
    assert status == 2 and printed.startswith(f"longloop: {none} is not a run folder. Name one")
    assert longloop("analyze")[0] == 2


def test_a_report_that_cannot_be_written(longloop, guessing):
    for name in ("analysis.md", "outcomes.png"):
        path = guessing / name
        path.unlink(missing_ok=True)
        path.mkdir()
        status, printed = longloop("analyze", guessing)
        path.rmdir()
        assert status == 2 and f"longloop: Cannot write {path}" in printed and "--json" in printed


def test_help(longloop):
    status, printed = longloop("analyze", "--help")
    assert status == 0 and "--json" in printed and "--patterns" in printed
