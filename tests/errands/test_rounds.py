"""Rounds and relays: two drills in one errand. `longloop check errands` plays all of them; here are some."""

import asyncio
import string
from dataclasses import replace

import pytest

from errands.apps import make_world
from errands.audit import audit
from errands.catalog import by_name, setting
from errands.env import Errands
from errands.practice.drill import Act, Ask, Find, drills
from errands.practice.kinds import RELAYS, ROUNDS
from errands.practice.pairs import Relay, relays, rounds
from longloop.envs.play import play
from longloop.types import Task

SOME = [kind.name() for kind in [*ROUNDS, *RELAYS][::5]]

NOTE = Find("note", ("my note '{title}'",), 'found = notes.search(query="{title}")', lambda w: ({"title": "Attic"}, []))
DELETE = Act("notes.delete", "delete {it}")
SUBJECT = Ask("subject", asked="What is in {it}?")
LIST = Find("list", ("my list '{title}'",), "found = todo.list_lists()", lambda w: ({"title": "Home"}, [{"id": 2}]))
ADD = Act("todo.add", "put '{text}' on {it}", args={"text": ["milk"]})


def test_a_round_is_one_drill_and_then_another() -> None:
    (one,) = rounds([*drills([NOTE], [SUBJECT]), *drills([LIST], [ADD])], 5, [])
    assert one.name() == "add-list-then-subject-note" and one.apis == ("todo.list_lists", "todo.add", "notes.search")
    assert one.phrasings[:2] == (
        "Put '{text}' on my list '{title}'. What is in my note '{then_title}'?",
        "Please put '{text}' on my list '{title}'. One more thing: What is the subject of my note '{then_title}'?",
    )
    turns = list(one().turns(text="milk", title="Home", then_title="Attic"))
    assert [code.splitlines()[-1].partition("(")[0] for _, code in turns] == ["print"] * 3 + [
        "apis.owner.complete_task"
    ]
    assert 'text="milk"' in turns[1][1] and 'query="Attic"' in turns[2][1] and "answer=" in turns[3][1]


def test_who_asks_comes_last_and_no_app_comes_twice() -> None:
    assert rounds(drills([NOTE], [SUBJECT, DELETE]), 5, []) == []
    assert all(not any(isinstance(wish, Ask) for wish in kind.first.wishes) for kind in ROUNDS)
    assert all(not {*kind.first.apps()} & {*kind.second.apps()} for kind in ROUNDS)
    assert len(ROUNDS) == len({kind.second for kind in ROUNDS}) == 40


def test_what_is_withheld_is_in_no_round() -> None:
    parts = [*drills([NOTE], [SUBJECT]), *drills([LIST], [ADD])]
    assert rounds(parts, 5, [frozenset(("todo.add", "notes.search"))]) == []
    assert len(rounds(parts, 5, [frozenset(("todo.add", "notes.delete"))])) == 1


def test_both_are_wished_for_each_with_its_own_words() -> None:
    w = make_world("tests/rounds")
    note = w.add("notes", owner=w.owner.id, title="Attic", body="red", created=w.ago(1))
    attic = replace(NOTE, put=lambda w: ({"title": "Attic"}, [{"id": note, "subject": "red"}]))
    (one,) = rounds([*drills([attic], [(SUBJECT, DELETE)]), *drills([LIST], [ADD])], 5, [])
    goal = one().prepare(w)
    assert goal.slots == {"title": "Home", "text": "milk", "then_title": "Attic"} and goal.answer == "red"
    assert goal.steps == [("todo.add", {"list_id": 2, "text": "milk"}), ("notes.delete", {"note_id": note})]


def test_a_relay_does_with_what_it_was_told_elsewhere() -> None:
    (one,) = relays([*drills([NOTE], [SUBJECT, DELETE]), *drills([LIST], [ADD])], [])
    assert one.name() == "add-list-by-subject-note" and one.apis == ("notes.search", "todo.list_lists", "todo.add")
    assert one.phrasings[0] == "Put the subject of my note '{title}' on my list '{then_title}'."
    (_, look), (_, other), (thought, act), (_, last) = one().turns(title="Attic", then_title="Home", then_text="red")
    assert look.endswith('print(there)\nanswer = there[0]["subject"]') and "there" not in other
    assert "text=answer" in act and "red" not in act and last == "apis.owner.complete_task()"
    assert (
        thought == "I use todo.add: `list_id` is the id of what I found; `text` as the task says (`text`: the subject)."
    )
    assert relays([*drills([NOTE], [SUBJECT]), *drills([LIST], [ADD])], [frozenset(("todo.add", "notes.search"))]) == []


def test_what_a_relay_tells_is_what_is_to_be_done() -> None:
    attic = replace(NOTE, put=lambda w: ({"title": "Attic"}, [{"id": 3, "subject": "red"}]))
    (one,) = relays([*drills([attic], [SUBJECT]), *drills([LIST], [ADD])], [])
    goal = one().prepare(make_world("tests/rounds"))
    assert goal.steps == [("todo.add", {"list_id": 2, "text": "red"})] and goal.answer is None
    assert goal.slots == {"title": "Attic", "then_title": "Home", "then_text": "red"}


@pytest.mark.parametrize("name", SOME)
def test_a_round_is_sound(name: str) -> None:
    kind = by_name()[name]
    for seed in range(2):
        env = Errands(Errands.Options(thorough=True, example=False))
        task = Task(f"{name}/{seed}", "tests", {"scenario": name, "world": f"tests/{seed}"}, name)
        attempt = asyncio.run(play(env, task, env.expert(task)))
        observed = [message.content for message in attempt.messages[attempt.opening - 1 :] if message.role == "user"]
        assert attempt.outcome.success, (attempt.outcome.info, observed)
        assert not any("Traceback" in text or "characters more were cut" in text for text in observed)
        assert len(attempt.outcome.info["tests"]) >= 2
    slots = {*setting(name, "tests/0").goal.slots} - ({f"then_{kind.slot}"} if issubclass(kind, Relay) else set())
    assert len(set(kind.phrasings)) == len(kind.phrasings) >= 3
    for wording in kind.phrasings:
        assert {field for _, field, _, _ in string.Formatter().parse(wording) if field is not None} == slots
    found = asyncio.run(audit(lambda: Errands(Errands.Options()), kind, [0]))
    assert found.faults == [] and found.variants >= 1
