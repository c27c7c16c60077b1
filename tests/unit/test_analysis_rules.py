"""Patterns: those of every run, those an environment declares, those of a file; and what is wrong with them."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from longloop.analysis.behaviors import behaviors, count
from longloop.analysis.rules import declared, rules
from longloop.analysis.run import analyze
from longloop.envs.react import act
from longloop.registry import ENVS
from longloop.store.run_reader import RunReader
from longloop.store.trajectories import StoredTrajectory, StoredTurn
from longloop.types import Message, Task, UserError
from tests.support import recorded


def played(*turns: tuple[str, str]) -> StoredTrajectory:
    heard = ["The task.", *(back for _, back in turns)]
    made = [
        StoredTurn((Message("user", before),), said, action_tokens=3)
        for before, (said, _) in zip(heard, turns, strict=False)
    ]
    return StoredTrajectory(0, Task("t", "train"), 0, turns=tuple(made))


def file(tmp_path, text: str) -> Path:
    path = tmp_path / "patterns.toml"
    path.write_text(text)
    return path


def test_patterns_of_three_places(tmp_path):
    declared = {"patterns": {"failure": {"heard": "^no"}, "searches": {"said": r"search\["}}, "by": ["topic"]}
    given = file(
        tmp_path,
        """
        [patterns.searches]
        said = '(?i)search\\['
        [patterns.yes]
        heard = "yes"
        per = "turn"
        title = "turns that were right"
        [patterns.lookups]
        called = 'wiki\\.\\w+'
        """,
    )
    found = rules(declared, given)
    assert found.by == ("topic",)
    turns = [("Search[a] search[b]", "no\nnot"), ("```python\napis.wiki.page(); apis.docs.show()\n```", "yes yes")]
    turns += [("Search[a] search[b]", "yes no"), ("bye", "")]
    sums = count(played(*turns), found)
    # "no" and "not" at the start of a line are one failed turn; the last turn's answer was never stored.
    assert (sums["searches"], sums["failure"], sums["yes"], sums["lookups"]) == (4, 1, 2, 1)
    assert (sums["repeated"], sums["turns"], sums["heard"], sums["tokens"]) == (1, 4, 3, 12)
    rates = {rate.counted: (rate.title, rate.of(sums)) for rate in behaviors(found)}
    assert rates["yes"] == ("turns that were right", pytest.approx(2 / 3))
    assert rates["searches"] == ("searches / attempt", 4) and rates["failure"][1] == pytest.approx(1 / 3)
    assert list(rates)[:5] == ["lookups", "crowded", "assumptions", "placeholders", "given_up"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[patterns.x]\nsaid = '('", "pattern 'x': said is not a regular expression"),
        ("[patterns.x]\nsaid = 3", "pattern 'x': said is not a regular expression"),
        ("[patterns.x]\nsaid = 'a*'", "matches nothing at all"),
        ("[patterns.x]\nsaid = 'a'\nheard = 'b'", "exactly one of said, heard and called"),
        ("[patterns.x]\ntitle = 'a'", "exactly one of said, heard and called"),
        ("[patterns.x]\nsaid = 'a'\nwhere = 'b'", "and nothing else"),
        ("[patterns.x]\nsaid = 'a'\nper = 'step'", 'must be "attempt" or "turn"'),
        ("[patterns.failure]\nsaid = 'a'", "must have `heard`"),
        ("[patterns.turns]\nsaid = 'a'", "Give it another"),
        ("[patterns.heard]\nsaid = 'a'", "Give it another"),
        ("[patterns.'tested/x']\nsaid = 'a'", "Give it another"),
        ("patterns = 3", "patterns are tables"),
        ("by = 'topic'", "must be a list of names"),
        ("paterns = {}", "only `by` and tables"),
        ("[patterns", "is not TOML"),
    ],
)
def test_a_bad_file_is_a_sentence(tmp_path, text, said):
    with pytest.raises(UserError) as error:
        rules(None, file(tmp_path, text))
    assert said in str(error.value) and str(tmp_path / "patterns.toml") in str(error.value)
    assert "\n" not in str(error.value).strip()


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.toml: cannot be read \(No such file"):
        rules(None, tmp_path / "nowhere.toml")
    (tmp_path / "odd.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="is not TOML"):
        rules(None, tmp_path / "odd.toml")


def test_what_a_run_has_stored_is_used_and_nothing_is_imported(tmp_path):
    run = recorded.small(tmp_path / "run", steps=1, env={"name": "somewhere_else:World"})
    assert declared(RunReader(run)) == {}, "an environment of the user's is not imported to read a run"
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(facts | {"analysis": {"patterns": {"newest": {"said": "newest order"}}}}))
    assert analyze(run).changes["newest"].last == 1
    (run / "run.json").write_text(json.dumps(facts | {"analysis": {"patterns": {"newest": {"said": "("}}}}))
    with pytest.raises(UserError, match=r"run\.json, analysis: pattern 'newest'"):
        analyze(run)


def test_an_older_run_gets_what_its_environment_ships(tmp_path):
    run = recorded.small(tmp_path / "run", steps=1, env={"name": "webshop"})
    assert "searches" in analyze(run).rules.patterns


@pytest.mark.parametrize("name", ENVS)
def test_what_environments_declare_is_sound(name):
    module, _, attribute = ENVS[name].partition(":")
    environment = getattr(importlib.import_module(module), attribute)
    shipped = getattr(environment, "analysis", {})
    assert json.loads(json.dumps(shipped)) == shipped, "it crosses into run.json"
    rules(shipped)


@pytest.mark.parametrize(
    ("name", "turns", "sums"),
    [
        (
            "textworld_express",
            [(act("", "look around"), "You are in the kitchen."), (act("", "dance"), "Unknown action: I'm not sure.")],
            {"looks": 1, "failure": 1},
        ),
        (
            "scienceworld",
            [("Action: focus on x", "You focus."), ("Action: dance", "No known action matches that input.")],
            {"focus": 1, "failure": 1, "waits": 0},
        ),
        ("alfworld", [(act("I go.", "go to fridge 1"), "Nothing happens.")], {"places": 1, "failure": 1}),
        (
            "webshop",
            [
                (act("I could use search[x].", "search[mug]"), "[back to search]\nPage 1 of 3"),
                (act("", "Search[mug]"), "This page has no button [x]. Its buttons: [y]"),
                (act("", "click[Buy Now]"), ""),
            ],
            {"searches": 2, "failure": 1, "purchases": 1},
        ),
        (
            "multihop_qa",
            [("Action: Search[x]", "No page has the title x; the nearest is y"), ("hm", "That is no action. Write")],
            {"searches": 1, "missed": 1, "failure": 1},
        ),
    ],
)
def test_patterns_of_environments_without_code(name, turns, sums):
    module, _, attribute = ENVS[name].partition(":")
    found = count(played(*turns, ("end", "")), rules(getattr(importlib.import_module(module), attribute).analysis))
    assert {key: found[key] for key in sums} == sums and found["coded"] == 0


def test_reading_a_run_loads_no_torch(tmp_path):
    run = recorded.small(tmp_path / "run", steps=1)
    code = (
        "import sys, pathlib, longloop.cli.analysis; from longloop.analysis.run import analyze\n"
        f"analyze(pathlib.Path({str(run)!r})); print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
