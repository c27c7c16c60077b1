"""An expert who makes mistakes and mends them: what goes wrong shows, and nothing is left of it in the end."""

import asyncio
import random
from typing import Any

import pytest

from errands.catalog import by_name, expert, setting
from errands.env import Errands
from errands.experts.mistaken import mistaken
from errands.practice.kinds import RELAYS, ROUNDS
from longloop.envs.play import play
from longloop.types import Task

KINDS = [
    "pin-notes-by-title",
    "send-draft-drafts-top",
    "text-someone",
    "drop-dear-wishes",
    "pay-small-decline-large",
    ROUNDS[7].name(),
    RELAYS[7].name(),
]


def task(name: str, number: int) -> Task:
    return Task(f"{name}/{number}", "tests", {"scenario": name, "world": f"tests/{number}"}, name)


def turns(name: str, rate: float, seed: int = 0, seen: Any = lambda code: "") -> list[tuple[str, str]]:
    """What it says when it is told `seen`."""
    made = setting(name, "tests/0")
    told = mistaken(
        expert(name, made.goal.slots, made), by_name()[name].apis, made, rate, random.Random(f"tests/{seed}")
    )
    said = [next(told)]
    try:
        while True:
            said.append(told.send(seen(said[-1][1])))
    except StopIteration:
        return said


@pytest.mark.parametrize("name", KINDS)
def test_without_mistakes_it_is_the_expert(name: str) -> None:
    made = setting(name, "tests/0")
    assert turns(name, 0.0) == list(expert(name, made.goal.slots, made))


@pytest.mark.parametrize("name", KINDS)
def test_whatever_goes_wrong_the_errand_is_done(name: str) -> None:
    longest = 0
    for number in range(8):
        env = Errands(Errands.Options(thorough=True, mistakes=0.5))
        played = asyncio.run(play(env, task(name, number), env.expert(task(name, number))))
        assert played.outcome.success, [message.content for message in played.messages]
        longest = max(longest, played.turns)
    right = Errands(Errands.Options(thorough=True))
    assert longest > asyncio.run(play(right, task(name, 0), right.expert(task(name, 0)))).turns


def test_an_api_that_shows_the_wrong_things_is_tried_and_another_picked() -> None:
    """Every turn that can have a mistake has one: the wishes are looked for elsewhere, with an error."""
    failed = "Traceback (most recent call last): ..."
    said = turns("drop-dear-wishes", 1.0, seen=lambda code: "" if "docs." in code else failed)
    first, read, tried, again, used = said[:5]
    assert "list_apis" in first[1]
    wrong = read[1].split('"')[1]
    assert (
        wrong.startswith("shop.") and wrong not in by_name()["drop-dear-wishes"].apis and f"I need {wrong} (" in read[0]
    )
    assert f"apis.{wrong}(" in tried[1] and "shop.login" in tried[1]
    assert again[0].startswith("That did not work. My task: ") and again[1].count("shop.list_wishlist") == 1
    assert used[0] == tried[0] and "apis.shop.list_wishlist(" in used[1] and "login" not in used[1]


def test_an_api_that_would_change_something_is_read_about_and_not_used() -> None:
    said = turns("drop-dear-wishes", 1.0)
    place = next(n for n, (thought, _) in enumerate(said) if thought.startswith("That does something else."))
    wrong = said[place - 1][1].split('"')[1]
    assert not any(f"apis.{wrong}(" in code for _, code in said)
    assert "shop.remove_from_wishlist" in said[place][1]


def test_a_parameter_gets_a_name_that_it_has_not() -> None:
    said = turns("pin-notes-by-title", 1.0, seen=lambda code: "Traceback" if "notes.pin(id=" in code else "")
    wrong = next(n for n, (_, code) in enumerate(said) if "notes.pin(id=" in code)
    assert said[wrong + 1][0] == f"That did not work. {said[wrong][0]}"
    assert "notes.pin(note_id=" in said[wrong + 1][1]


def test_what_went_well_by_chance_is_not_done_twice() -> None:
    """In a disguise the wrong name may be the right one."""
    said = turns("pin-notes-by-title", 1.0)
    assert sum("apis.notes.pin(" in code for _, code in said) == 1


def test_a_search_for_the_wrong_thing_finds_nothing() -> None:
    def seen(code: str) -> str:
        return "[]" if 'query="notes"' in code else ""

    everything = [turns("pin-notes-by-title", 0.5, seed, seen) for seed in range(40)]
    asked = [said for said in everything if any('query="notes"' in code for _, code in said)]
    assert 0 < len(asked) < 20
    for said in asked:
        place = next(n for n, (_, code) in enumerate(said) if 'query="notes"' in code)
        assert said[place + 1][0].startswith("Nothing was found. ") and 'query="notes"' not in said[place + 1][1]


def test_what_was_forgotten_is_done_when_it_is_missed() -> None:
    """Only the first look can be: later the code would find something of the same name."""

    def seen(code: str) -> str:
        return "Traceback" if "note_id=found" in code and "search" not in code else ""

    everything = [turns("pin-notes-by-title", 0.5, seed, seen) for seed in range(60)]
    forgot = [
        said for said in everything if any(thought.startswith("That did not work. I look") for thought, _ in said)
    ]
    assert 0 < len(forgot) < 30
    for said in forgot:
        place = next(n for n, (thought, _) in enumerate(said) if thought.startswith("That did not work. I look"))
        assert "apis.notes.pin(" in said[place - 1][1] and "apis.notes.search(" in said[place][1]
        assert said[place + 1] == said[place - 1]
        assert not any("apis.notes.search(" in code for _, code in said[:place])


def test_the_same_task_has_the_same_mistakes() -> None:
    attempts = []
    for _ in range(2):
        env = Errands(Errands.Options(thorough=True, mistakes=0.5))
        attempts.append(
            asyncio.run(play(env, task("pin-notes-by-title", 3), env.expert(task("pin-notes-by-title", 3)))).messages
        )
    assert attempts[0] == attempts[1]
