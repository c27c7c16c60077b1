"""The practice split: drills are as sound as scenarios, and none of them is a rehearsal of a test."""

import asyncio
import dataclasses
import hashlib
import re
import string
from typing import Any

import pytest

from errands.api import Api
from errands.apps import BY_NAME, find, make_world
from errands.catalog import by_name, expert, setting
from errands.drill import Act, Ask, Drill, Find, day, drills, limit, pick
from errands.drills import DRILLS, PLAIN, RELAYS, ROUNDS, TOLD, TWICE
from errands.drills.twice import twice
from errands.env import Errands, Expert
from errands.scenario import Turns
from errands.scenarios import SCENARIOS
from errands.world import World
from longloop.envs.play import Played, play
from longloop.types import Task

SOME = [*PLAIN, *TOLD[::5], *TWICE[::5]]
"""Of those that are put together from others, some; `longloop check errands` looks at all."""
CHOOSING = [kind for kind in [*PLAIN, *TOLD[::5]] if kind.find.keep]
MEASURED = [kind for kind in SCENARIOS if kind.split != "train"]
TRAINED = {api for kind in SCENARIOS if kind.split == "train" for api in kind.apis}


def played(name: str, seed: int, thorough: bool = True) -> Played:
    env = Errands(Errands.Options(thorough=thorough))
    task = Task(f"{name}/{seed}", "tests", {"scenario": name, "world": f"tests/{seed}"}, name)
    return asyncio.run(play(env, task, env.expert(task)))


def test_there_are_many_and_each_has_a_name_of_its_own() -> None:
    assert len(DRILLS) >= 670 and len(TOLD) >= 80 and len(TWICE) >= 80
    kinds = [*DRILLS, *ROUNDS, *RELAYS, *SCENARIOS]
    assert len({kind.name() for kind in kinds}) == len(kinds) == len(by_name())
    assert {kind.split for kind in DRILLS} == {"practice"}
    assert {kind.difficulty for kind in DRILLS} == {1, 2}


def test_drills_stay_in_the_apps_of_train() -> None:
    trained = {app for kind in SCENARIOS if kind.split == "train" for app in kind.apps()}
    assert {app for kind in DRILLS for app in kind.apps()} <= trained


def test_no_drill_uses_all_that_an_errand_of_the_tests_needs() -> None:
    for kind in [*DRILLS, *ROUNDS, *RELAYS]:
        same = [other.name() for other in MEASURED if set(other.apis) <= set(kind.apis)]
        assert not same, kind.name()


def test_what_the_apps_of_train_can_do_is_practised() -> None:
    apps = {app for kind in SCENARIOS if kind.split == "train" for app in kind.apps()}
    able = {f"{app}.{api}" for app in apps for api in BY_NAME[app].apis if api not in ("login", "logout")}
    used = {api for kind in DRILLS for api in kind.apis} | TRAINED
    assert able <= used


def test_the_other_splits_are_as_they_were() -> None:
    """The shipped novice and published figures depend on them."""
    digests = {}
    for split in ("train", "fresh", "dev", "test_normal", "test_challenge"):
        tasks = Errands.tasks(split, Errands.Options())
        made_of = [{name: task.data[name] for name in ("scenario", "world")} for task in tasks]
        lines = (f"{task.id} {task.scenario} {data}" for task, data in zip(tasks, made_of, strict=True))
        digest = hashlib.sha256("\n".join(lines).encode())
        for task in tasks[:: len(tasks) // 6]:
            made = setting(task.data["scenario"], task.data["world"])
            turns = expert(task.data["scenario"], made.goal.slots)
            first = [next(turns), turns.send("")]
            digest.update(repr((made.instruction, made.goal.steps, made.goal.answer, first)).encode())
        digests[split] = digest.hexdigest()[:16]
    assert digests == {
        "train": "413f2c1f67eaf374",
        "fresh": "afb9337bd3eb2d44",
        "dev": "6d292332ccfbba89",
        "test_normal": "6d7f006bec90bfd9",
        "test_challenge": "9f74efe20d1cad1a",
    }


def test_practice_has_tasks_in_worlds_of_its_own() -> None:
    tasks = Errands.tasks("practice", Errands.Options(per_scenario=2))
    names = [kind.name() for kind in [*DRILLS, *ROUNDS, *RELAYS]]
    assert [task.id for task in tasks[: len(names)]] == [f"practice/{name}/0" for name in names]
    assert {task.data["world"] for task in tasks} == {"practice/0/0", "practice/0/1"}
    assert Errands.tasks("practice", Errands.Options(per_scenario=5, per_drill=2)) == tasks
    assert len(Errands.tasks("train", Errands.Options(per_scenario=5, per_drill=2))) == 5 * 28


@pytest.mark.parametrize("kind", SOME, ids=[kind.name() for kind in SOME])
def test_every_wording_says_everything(kind: Any) -> None:
    slots = setting(kind.name(), "tests/0").goal.slots
    assert len(set(kind.phrasings)) == len(kind.phrasings) >= 3
    for wording in kind.phrasings:
        assert {field for _, field, _, _ in string.Formatter().parse(wording) if field is not None} == set(slots)
        assert (wording[0].isupper() or wording[0] in "'{") and wording[-1] in ".?"
    assert all(find(api) for api in kind.apis)


@pytest.mark.parametrize("name", [kind.name() for kind in SOME])
def test_a_drill_is_sound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thorough expert succeeds, having read about each API in list and documentation. It succeeds in further worlds
    in `test_disguise.py`, and any drill's expert in `test_check_errands_in_two_worlds`."""
    calls: list[tuple[str, dict[str, Any]]] = []
    real = World.call

    def recording(self: World, api: Api, arguments: dict[str, Any]) -> Any:
        calls.append((f"{api.app}.{api.name}", arguments))
        return real(self, api, arguments)

    monkeypatch.setattr(World, "call", recording)
    attempt = played(name, 0)
    observed = [message.content for message in attempt.messages[1:] if message.role == "user"]
    assert attempt.outcome.success, (attempt.outcome.info, observed)
    assert not any("Traceback" in text or "characters more were cut" in text for text in observed)
    made = setting(name, "tests/0")
    goal = made.goal
    called = made.disguise.name if made.disguise else str
    listed = [arguments["app"] for api, arguments in calls if api == "docs.list_apis"]
    read = [arguments["api"] for api, arguments in calls if api == "docs.show"]
    used = {api for api, _ in calls if not api.startswith("docs.") and not api.endswith(".login")}
    assert used - {"owner.show_account", "owner.complete_task"} == set(read)
    assert set(read) == {called(api) for api in by_name()[name].apis}
    assert sorted(listed) == sorted({api.partition(".")[0] for api in by_name()[name].apis})
    assert goal.start.inconsistencies() == goal.wish.inconsistencies() == []
    goals = [setting(name, f"tests/{seed}").goal for seed in range(5)]
    assert len({repr((goal.slots, goal.steps, goal.answer)) for goal in goals}) >= 2


def test_a_drill_is_put_together_from_a_find_and_a_wish() -> None:
    thing = Find(
        "memo",
        ("the memo '{memo}'", "my memo '{memo}'"),
        'found = notes.search(query="{memo}")',
        lambda w: ({"memo": "Attic"}, [{"id": 7, "body": "red"}]),
    )
    rename = Act("notes.rename", ("Call {it} '{title}'.",), "call {them} '{title}'", "note_id", given=pick(title=["A"]))
    body = Ask("body", ("What is in {it}?",), "read {them}", show="notes.show", key="note_id")
    one, both = drills([thing], [rename, (body, rename)])
    assert (one.name(), one.difficulty, one.apis) == ("rename-memo", 1, ("notes.search", "notes.rename"))
    assert one.phrasings == (
        "Call the memo '{memo}' '{title}'.",
        "Call my memo '{memo}' '{title}'.",
        "This is about the memo '{memo}': call it '{title}'.",
        "This is about my memo '{memo}': call it '{title}'.",
        "Look for the memo '{memo}', and call it '{title}'.",
        "Look for my memo '{memo}', and call it '{title}'.",
        "I am thinking of the memo '{memo}'. Please call it '{title}'.",
        "I am thinking of my memo '{memo}'. Please call it '{title}'.",
    )
    assert (both.name(), both.difficulty) == ("body-and-rename-memo", 2)
    assert both.phrasings[0] == "What is in the memo '{memo}'? Then call it '{title}'."
    turns = list(both().solve(memo="Attic", title="A"))
    assert turns[0][1].splitlines()[1:] == [
        'found = apis.notes.search(query="Attic", access_token=notes)',
        "print(found)",
    ]
    assert [code.splitlines() for _, code in turns[1:]] == [
        ['answer = apis.notes.show(note_id=found[0]["id"], access_token=notes)["body"]', "print(answer)"],
        ['print(apis.notes.rename(note_id=found[0]["id"], title="A", access_token=notes))'],
        ["apis.owner.complete_task(answer=answer)"],
    ]


def test_many_drills_choose_by_a_condition_in_every_app() -> None:
    assert len(CHOOSING) >= 50
    assert {app for kind in CHOOSING for app in kind.apps()} == {app for kind in DRILLS for app in kind.apps()}


@pytest.mark.parametrize("kind", CHOOSING, ids=[kind.name() for kind in CHOOSING])
def test_who_does_not_look_at_the_condition_fails(kind: type[Drill]) -> None:
    """Taken is all that was looked at, or the first of it."""
    condition = re.compile(r"^found (?:= \[x for x in (\w+) if .*\]|= \[m(?:ax|in)\(.*\)\]|\+= .*)$", re.MULTILINE)
    others = re.compile(r"^rest = .*$", re.MULTILINE)

    def careless(turns: Turns) -> Turns:
        for thought, code in turns:
            all_of_it = condition.sub(lambda match: f"found = {match[1] or 'found'}", code)
            yield thought, others.sub("rest = []", all_of_it)

    def succeeds(seed: int) -> bool:
        task = Task(f"{kind.name()}/{seed}", "tests", {"scenario": kind.name(), "world": f"tests/{seed}"}, kind.name())
        made = setting(kind.name(), f"tests/{seed}")
        player = Expert(careless(expert(kind.name(), made.goal.slots)), made.disguise)
        return asyncio.run(play(Errands(Errands.Options()), task, player)).outcome.success

    assert not (any(map(succeeds, range(3))) if kind.find.many else all(map(succeeds, range(5))))


def test_a_condition_parts_what_there_is() -> None:
    w = make_world("tests/parts")
    assert {limit(w, [2.5, 11.99, 3.0]) for _ in range(50)} == {5, 10}
    assert {limit(w, [6, 9, 8]) for _ in range(50)} == {7}
    moments = [f"{w.day(-3)} 10:00", f"{w.day(2)} 09:00", f"{w.day(0)} 12:00"]
    assert {day(w, moments) for _ in range(50)} == {w.day(-2), w.day(-1), w.day(1)}


def test_a_drill_may_do_one_thing_with_some_and_another_with_the_rest() -> None:
    things = Find(
        "memos",
        ("all memos above {limit}",),
        'seen = notes.search()\nfound = [x for x in seen if x["id"] > {limit}]\n'
        'rest = [x for x in seen if x["id"] <= {limit}]',
        lambda w: ({"limit": 5}, [{"id": 7, "rest": False}, {"id": 3, "rest": True}, {"id": 4, "rest": True}]),
        many=True,
        keep="those whose `id` is above {limit}",
        rest="the other memos",
    )
    pin = Act("notes.pin", ("Pin {it}.",), "pin {them}", "note_id")
    delete = Act("notes.delete", ("Delete {it}.",), "delete {them}", "note_id", rest=True)
    count = Ask("how many", ("Count {it}.",), "count {them}")
    act, ask = drills([things], [(pin, delete), (pin, dataclasses.replace(count, rest=True))])
    assert (act.name(), ask.name()) == ("pin-and-delete-rest-memos", "pin-and-how-many-rest-memos")
    assert act.phrasings == (
        "Pin all memos above {limit}. After that, delete the other memos.",
        "This is about all memos above {limit}: pin them. Then delete the other memos.",
        "Look for all memos above {limit}, and pin them. And delete the other memos.",
        "I am thinking of all memos above {limit}. Please pin them. When that is done, delete the other memos.",
    )
    look, *do, _ = act().solve(limit=5)
    assert look[0] == "I look for all memos above 5. I keep those whose `id` is above 5; `rest` is the other memos."
    assert [code.splitlines()[0] for _, code in do] == ["for x in found:", "for x in rest:"]
    *_, done = ask().solve(limit=5)
    assert done == ("I answer with how many are left over.", "apis.owner.complete_task(answer=len(rest))")
    w = make_world("tests/rest")
    ids = [w.add("notes", owner=w.owner.id, title="Memo", body="", created=w.ago(1)) for _ in range(3)]
    rows = [{"id": id, "rest": id != ids[0]} for id in ids]
    parted = dataclasses.replace(things, put=lambda w: ({"limit": 5}, rows))
    act, ask = drills([parted], [(pin, delete), (pin, dataclasses.replace(count, rest=True))])
    assert [(api, arguments["note_id"]) for api, arguments in act().prepare(w).steps] == [
        ("notes.pin", ids[0]),
        ("notes.delete", ids[1]),
        ("notes.delete", ids[2]),
    ]
    assert ask().prepare(w).answer == 2


def test_all_that_was_found_may_be_asked_for() -> None:
    rows = [{"id": 7, "title": "Attic"}, {"id": 3, "title": "Orchard"}]
    memos = Find("memos", ("all memos",), "found = notes.search()", lambda w: ({}, rows), many=True)
    titles = Ask("each title", ("What are the titles of {it}?",), "tell me the titles")
    pin = Act("notes.pin", ("Pin {it}.",), "pin {them}", "note_id")
    alone, after = drills([memos], [titles, (pin, titles)])
    assert (alone.name(), after.name()) == ("each-title-memos", "pin-and-each-title-memos")
    assert after.phrasings[:2] == (
        "Pin all memos. After that, tell me the titles.",
        "This is about all memos: pin them. Then tell me the titles.",
    )
    *_, last = alone().solve()
    assert last == ("I answer with the titles.", 'apis.owner.complete_task(answer=[x["title"] for x in found])')
    assert alone().prepare(make_world("tests/told")).answer == ["Attic", "Orchard"]


def test_two_acts_on_one_find_are_in_an_order_that_works() -> None:
    memo = Find("memo", ("the memo",), "found = notes.search()", lambda w: ({}, [{"id": 7}]))
    rename = Act("notes.rename", ("Call {it} '{title}'.",), "call {them} '{title}'", "note_id")
    retitle = Act("notes.rewrite", ("Rewrite {it} as '{title}'.",), "rewrite {them} as '{title}'", "note_id")
    pin = Act("notes.pin", ("Pin {it}.",), "pin {them}", "note_id")
    delete = Act("notes.delete", ("Delete {it}.",), "delete {them}", "note_id")
    kinds = drills([memo], [rename, retitle, pin, delete])
    made = {kind.name() for kind in twice(kinds, 99, [])}
    both = {"rename-and-pin", "pin-and-rename", "rename-and-delete", "pin-and-delete", "pin-and-rewrite"}
    assert made == {f"{name}-memo" for name in both}, "deleted last, rewritten last, nothing told that is told already"
    assert len(twice(kinds, 3, [])) == 3
    assert not twice(kinds, 99, [frozenset(["notes.search"])])


def test_what_is_put_together_stays_further_away_from_the_tests() -> None:
    """All but one of the APIs of an errand of the tests are too many, unless it has only two."""
    for kind in [*TOLD, *TWICE, *ROUNDS, *RELAYS]:
        near = [
            other.name() for other in MEASURED if len({*other.apis} - {*kind.apis}) < (2 if len(other.apis) > 2 else 1)
        ]
        assert not near, kind.name()


def test_an_act_may_take_more_than_one_thing_of_what_was_found() -> None:
    thing = Find("item", ("the item",), "found = todo.search()", lambda w: ({"target": "Home"}, []))
    move = Act("todo.move", ("Move {it}.",), "move {them}", "item_id", also=(("list_id", "target"),))
    _, (thought, code), _ = drills([thing], [move])[0]().solve(target="Home")
    assert thought == "todo.move does it: `item_id` is the id of what I found; `list_id` is the target of what I found."
    assert code == 'print(apis.todo.move(item_id=found[0]["id"], list_id=found[0]["target"], access_token=todo))'
    assert move.plain
