"""The practice split: drills are as sound as scenarios, and none of them is a rehearsal of a test."""

import asyncio
import dataclasses
import re
import string
from collections import Counter
from typing import Any

import pytest

from errands.api import Api
from errands.apps import BY_NAME, find, make_world
from errands.catalog import by_name, expert, setting
from errands.env import Errands, Expert
from errands.practice.blocks import COUNT, Sets, Source, found, practice
from errands.practice.conditions import All, Amount, Condition, Kin, Moment, Name, State, Top, Value
from errands.practice.drill import Act, Ask, Drill, Find, drills
from errands.practice.kinds import DRILLS, PLAIN, RELAYS, ROUNDS, TWICE
from errands.practice.pairs import twice
from errands.scenario import Turns
from errands.scenarios import SCENARIOS
from errands.world import World
from longloop.envs.play import Played, play
from longloop.types import Task

SOME = [*PLAIN[::2], *TWICE[::5]]
"""Of the kinds, some; `longloop check errands` looks at all."""
CHOOSING = [kind for kind in PLAIN[1::2] if kind.find.keep]
MEASURED = [kind for kind in SCENARIOS if kind.split != "train"]
TRAINED = {api for kind in SCENARIOS if kind.split == "train" for api in kind.apis}


def played(name: str, seed: int, thorough: bool = True) -> Played:
    env = Errands(Errands.Options(thorough=thorough, example=False))
    task = Task(f"{name}/{seed}", "tests", {"scenario": name, "world": f"tests/{seed}"}, name)
    return asyncio.run(play(env, task, env.expert(task)))


def test_there_are_many_and_each_has_a_name_of_its_own() -> None:
    assert len(DRILLS) + len(ROUNDS) + len(RELAYS) >= 773 and len(PLAIN) >= 502
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


def test_every_switch_is_practiced_on_and_off() -> None:
    """An agent that only ever took stars away did so when asked for one."""
    sides: dict[str, set[bool]] = {}
    for wish in (wish for kind in PLAIN for wish in kind.wishes if isinstance(wish, Act)):
        last = list(find(wish.api).parameters.values())[-1]
        if last.default is True:
            sides.setdefault(wish.api, set()).add(dict(wish.fixed).get(last.name, True))
    assert len(sides) >= 5 and all(both == {True, False} for both in sides.values()), sides


def test_what_the_apps_of_train_can_do_is_practised() -> None:
    apps = {app for kind in SCENARIOS if kind.split == "train" for app in kind.apps()}
    able = {f"{app}.{api}" for app in apps for api in BY_NAME[app].apis if api not in ("login", "logout")}
    used = {api for kind in DRILLS for api in kind.apis} | TRAINED
    assert able <= used


def test_practice_has_tasks_in_worlds_of_its_own() -> None:
    tasks = Errands.tasks("practice", Errands.Options(per_scenario=2))
    names = [kind.name() for kind in [*DRILLS, *ROUNDS, *RELAYS]]
    assert [task.id for task in tasks[: len(names)]] == [f"practice/{name}/0" for name in names]
    assert {task.data["world"] for task in tasks} == {"practice/0/0", "practice/0/1"}
    assert Errands.tasks("practice", Errands.Options(per_scenario=5, per_drill=2)) == tasks
    assert len(Errands.tasks("train", Errands.Options(per_scenario=5, per_drill=2))) == 5 * 28


@pytest.mark.parametrize("kind", DRILLS, ids=[kind.name() for kind in DRILLS])
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
    observed = [message.content for message in attempt.messages[attempt.opening - 1 :] if message.role == "user"]
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
    rename = Act("notes.rename", "call {it} '{title}'", args={"title": ["A"]})
    body = Ask("body", "text", asked="What is in {it}?", show="notes.show")
    one, both = drills([thing], [rename, (body, rename)])
    assert (one.name(), one.difficulty, one.apis) == ("rename-memo", 1, ("notes.search", "notes.rename"))
    assert one.phrasings == (
        "Call the memo '{memo}' '{title}'.",
        "Call my memo '{memo}' '{title}'.",
        "Please call the memo '{memo}' '{title}'.",
        "Please call my memo '{memo}' '{title}'.",
        "Can you call the memo '{memo}' '{title}'?",
        "Can you call my memo '{memo}' '{title}'?",
        "Find the memo '{memo}' and call it '{title}'.",
        "Find my memo '{memo}' and call it '{title}'.",
    )
    assert (both.name(), both.difficulty) == ("body-and-rename-memo", 2)
    assert both.phrasings[0] == "What is in the memo '{memo}'? Then call it '{title}'."
    turns = list(both().turns(memo="Attic", title="A"))
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
    condition = re.compile(r"^found = \[(?:x for x in seen if .*|m(?:ax|in)\(.*\))\]$", re.MULTILINE)
    others = re.compile(r"^rest = .*$", re.MULTILINE)

    def careless(turns: Turns) -> Turns:
        for thought, code in turns:
            yield thought, others.sub("rest = []", condition.sub("found = seen", code))

    def succeeds(seed: int) -> bool:
        task = Task(f"{kind.name()}/{seed}", "tests", {"scenario": kind.name(), "world": f"tests/{seed}"}, kind.name())
        made = setting(kind.name(), f"tests/{seed}")
        player = Expert(careless(expert(kind.name(), made.goal.slots)), made.disguise)
        return asyncio.run(play(Errands(Errands.Options()), task, player)).outcome.success

    assert not (any(map(succeeds, range(2))) if kind.find.many else all(map(succeeds, range(5))))


THINGS = [
    {"id": 1, "name": "Ada", "cost": 2.5, "day": "2026-05-03 10:00", "done": True, "kind": "a"},
    {"id": 2, "name": "Ben", "cost": 11.99, "day": "2026-05-07 09:00", "done": False, "kind": "b"},
    {"id": 3, "name": "Eve", "cost": 3.0, "day": "2026-05-05 12:00", "done": False, "kind": "b"},
]


def drawn(condition: Condition, rows: Any = THINGS) -> dict[str, set[tuple[Any, tuple[int, ...]]]]:
    """What each choice of a condition draws, again and again: what is said, and the ids of what is chosen."""
    w = make_world("tests/parts")
    found: dict[str, set[tuple[Any, tuple[int, ...]]]] = {}
    for choice in condition.choices():
        made = [choice.draw(w, list(rows), lambda more: []) for _ in range(50)]
        found[choice.name] = {(*one[0].values(), tuple(row["id"] for row in one[1])) for one in made if one}
    return found


def test_a_number_parts_what_there_is() -> None:
    cost = drawn(Amount("cost", "{noun} of {than} {limit}", "dearest {noun}", "cheapest {noun}"))
    assert cost == {
        "cost-above": {(5, (2,)), (10, (2,))},
        "cost-below": {(5, (1, 3)), (10, (1, 3))},
        "highest-cost": {((2,),)},
        "lowest-cost": set(),  # whoever takes the first that is listed would be right
    }
    assert drawn(Amount("id", "{than}"), THINGS[:2]) == {"id-above": set(), "id-below": set()}, "nothing is between"
    assert drawn(Amount("cost", "{than}"), []) == {"cost-above": set(), "cost-below": set()}


def test_a_day_parts_what_there_is() -> None:
    days = drawn(Moment("day", "{noun} {than} {day}", "", "first {noun}"), THINGS[::-1])
    assert days == {
        "day-after": {("2026-05-04", (3, 2)), ("2026-05-06", (2,))},
        "day-before": {("2026-05-04", (1,)), ("2026-05-06", (3, 1))},
        "earliest-day": {((1,),)},
    }


def test_states_values_and_names_have_things_on_both_sides() -> None:
    assert drawn(State("done", "done {noun}", "open {noun}")) == {"done": {((1,),)}, "not-done": {((2, 3),)}}
    assert drawn(State("done", "done {noun}"), THINGS[1:]) == {"done": set()}
    assert drawn(Value("kind", "{noun} of {value}")) == {"of-kind": {("b", (2, 3))}}
    assert drawn(Value("kind", "{noun} of {value}", ("a",))) == {"of-kind": {("a", (1,))}}
    assert drawn(Value("kind", "{noun} of {value}"), THINGS[1:]) == {"of-kind": set()}
    assert drawn(Name("kind", "the {called}")) == {"by-kind": {("a", (1,))}}
    assert drawn(Name("kind", "the {called}", "query")) == {"by-kind": set()}, "the call finds none by it"
    assert drawn(Top("first {noun}")) == {"top": {((1,),)}} and drawn(All()) == {"all": {((1, 2, 3),)}}
    assert drawn(Top("first {noun}", "kind"), THINGS[1:]) == {"top": set()}, "the second is as good"
    assert drawn(All(), THINGS[:1]) == {"all": set()}


def test_a_relation_is_known_to_the_contacts_alone() -> None:
    w = make_world("tests/parts")
    people = [*w.others("friend")[:1], *w.others("family")[:1]]
    rows = [{"id": n, "by": person.email} for n, person in enumerate(people)]
    (choice,) = Kin("by", "{noun} by a {kin} of mine", "email").choices()
    assert choice.draw(w, rows, lambda more: []) == ({"kin": "friend"}, rows[:1])
    assert choice.draw(w, rows[1:], lambda more: []) is None
    assert choice.before.startswith("people = contacts.search(") and "in known" in choice.code


def test_the_code_of_a_condition_chooses_what_it_draws() -> None:
    """The function that chooses and the expert's code are written apart: they agree."""
    conditions = [
        Amount("cost", "{noun} of {than} {limit}", "dearest {noun}"),
        Moment("day", "{noun} {than} {day}", "last {noun}"),
        State("done", "done {noun}", "open {noun}"),
        Value("kind", "{noun} of {value}"),
        Name("name", "the {called}"),
    ]
    w, tried = make_world("tests/parts"), 0
    for choice in (choice for condition in conditions for choice in condition.choices()):
        made = choice.draw(w, THINGS, lambda more: [])
        assert made is not None, choice.name
        seen: dict[str, Any] = {"seen": THINGS}
        exec(f"{choice.code}\n{choice.rest}".format(**made[0]), seen)
        assert seen["found"] == made[1], choice.name
        assert not choice.rest or seen["rest"] == [one for one in THINGS if one not in made[1]]
        tried += 1
    assert tried == 10


MEMOS = Source("memos", "notes.search", "memo*", long=True)


def test_a_source_and_a_condition_make_a_find() -> None:
    (after, before, oldest) = (
        found(MEMOS, choice) for choice in Moment("created", "{noun} from {than} {day}", "", "oldest {noun}").choices()
    )
    assert after.it == ("all memos from after {day}", "the memos from after {day}")
    assert oldest.it == ("the oldest memo",)
    assert (after.name, after.many, oldest.many) == ("memos-created-after", True, False)
    assert after.keep == "those whose `created` is after {day}" and after.rest == "the other memos"
    assert after.look.splitlines() == [
        "seen, page = [], 0",
        "while part := notes.search(page=page, page_size=20):",
        "    seen += part",
        "    page += 1",
        'found = [x for x in seen if x["created"][:10] > "{day}"]',
        'rest = [x for x in seen if x["created"][:10] <= "{day}"]',
        'print([x["created"] for x in found])',
    ]
    w = make_world("tests/find")
    slots, rows = before.put(w)
    assert all((row["created"] < slots["day"]) != row.get("rest", False) for row in rows)
    everything = w.value("SELECT count(*) FROM notes WHERE owner = ? AND NOT archived", w.owner.id)
    assert len(rows) == everything > sum(row.get("rest", False) for row in rows) > 0


def test_a_source_is_filled_until_its_things_differ() -> None:
    fills: list[int] = []

    def fill(w: World) -> dict[str, Any]:
        fills.append(w.add("notes", owner=w.owner.id, title="Memo", body="", created=w.ago(1)))
        return {}

    alike = dataclasses.replace(MEMOS, fill=fill)
    w = make_world("tests/find")
    w.run("DELETE FROM notes")
    (choice,) = Name("title", "the memo '{called}'").choices()
    assert found(alike, choice).put(w)[0] == {"called": "Memo"} and len(fills) == 1
    with pytest.raises(AssertionError, match="memos: nothing to choose by by-title"):
        found(alike, choice).put(w)
    assert w.value("SELECT count(*) FROM notes") == 1, "what was tried in vain is gone"


def test_there_is_something_to_choose_in_any_world() -> None:
    finds = {kind.find.name: kind.find for kind in PLAIN if kind.find.name}
    for seed in range(3):
        world = make_world(f"tests/any/{seed}")
        for thing in finds.values():
            w = world.fork()
            _, rows = thing.put(w)
            meant = [row for row in rows if not row.get("rest")]
            assert len(meant) >= 1 and (len(meant) < len(rows) or not thing.rest), thing.name
            assert w.inconsistencies() == [], thing.name
            w.close()


def test_what_is_asked_for_is_there() -> None:
    """Who answers nothing shall not be right."""
    for seed in range(3):
        world = make_world(f"tests/any/{seed}")
        for kind in PLAIN:
            asks = [wish for wish in kind.wishes if isinstance(wish, Ask)]
            w = world.fork()
            _, rows = kind.put(w) if asks else ({}, [])
            for ask in asks:
                meant = [row for row in rows if row.get("rest", False) == ask.rest]
                assert ask.told(w, meant) not in ("", None, [], 0), kind.name()
            w.close()


def test_my_notes_are_all_of_them() -> None:
    """The search leaves out what is archived; an instruction that says "my notes" does not."""
    w = make_world("tests/any/0")
    assert w.value("SELECT count(*) FROM notes WHERE owner = ? AND archived", w.owner.id)
    (kind,) = (kind for kind in PLAIN if kind.name() == "delete-notes-created-after")
    kind.put(w)
    assert not w.value("SELECT count(*) FROM notes WHERE owner = ? AND archived", w.owner.id)


def test_every_wish_gets_its_turn_with_what_it_fits() -> None:
    pin = Act("notes.pin", "pin {it}", ready=Sets("notes", "pinned", 0))
    delete = Act("notes.delete", "delete {it}")
    wishes = [pin, delete, COUNT, Ask("title", of="each"), Ask("title")]
    kinds = practice(MEMOS, [State("pinned", "pinned {noun}", "other {noun}"), Top("newest {noun}")], wishes, 2)
    assert [kind.name() for kind in kinds] == [
        "delete-memos-pinned",
        "how-many-memos-pinned",
        "each-title-memos-not-pinned",
        "delete-memos-not-pinned",
        "delete-and-how-many-rest-memos-not-pinned",
        "delete-memos-top",
        "title-memos-top",
    ], "who pins what is pinned has looked at no condition"
    assert kinds[4].phrasings[0] == "Delete all other memos. After that, count the other memos."
    named = practice(MEMOS, [Name("title", "the memo '{called}'", "query")], [Ask("title"), Ask("created")])
    assert [kind.name() for kind in named] == ["created-memos-by-title"], "the title is told"


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
    pin, delete = Act("notes.pin", "pin {it}"), Act("notes.delete", "delete {it}", rest=True)
    act, ask = drills([things], [(pin, delete), (pin, dataclasses.replace(COUNT, rest=True))])
    assert (act.name(), ask.name()) == ("pin-and-delete-rest-memos", "pin-and-how-many-rest-memos")
    assert act.phrasings == (
        "Pin all memos above {limit}. After that, delete the other memos.",
        "Please pin all memos above {limit}. Then delete the other memos.",
        "Can you pin all memos above {limit}? Then delete the other memos.",
        "Find all memos above {limit} and pin them. When that is done, delete the other memos.",
    )
    look, *do, _ = act().turns(limit=5)
    assert look[0] == "I look for all memos above 5. I keep those whose `id` is above 5; `rest` is the other memos."
    assert [code.splitlines()[0] for _, code in do] == ["for x in found:", "for x in rest:"]
    *_, done = ask().turns(limit=5)
    assert done == ("I answer with how many are left.", "apis.owner.complete_task(answer=len(rest))")
    w = make_world("tests/rest")
    ids = [w.add("notes", owner=w.owner.id, title="Memo", body="", created=w.ago(1)) for _ in range(3)]
    rows = [{"id": id, "rest": id != ids[0]} for id in ids]
    parted = dataclasses.replace(things, put=lambda w: ({"limit": 5}, rows))
    act, ask = drills([parted], [(pin, delete), (pin, dataclasses.replace(COUNT, rest=True))])
    assert [(api, arguments["note_id"]) for api, arguments in act().prepare(w).steps] == [
        ("notes.pin", ids[0]),
        ("notes.delete", ids[1]),
        ("notes.delete", ids[2]),
    ]
    assert ask().prepare(w).answer == 2


def test_pronouns_stand_for_what_was_named() -> None:
    one, some, someone = (
        Find("memo", ("the memo",), "", lambda w: ({}, []), many, person)
        for many, person in ((False, False), (True, False), (False, True))
    )
    assert one.pronounced("set the title of {it} to 'A'") == "set its title to 'A'"
    assert some.pronounced("tell me the names of the senders of {it}") == "tell me the names of their senders"
    assert someone.pronounced("delete all my text messages with {it}") == "delete all my text messages with them"


def test_things_are_called_by_their_noun_and_whose_they_are() -> None:
    mine, numbered = dataclasses.replace(MEMOS, noun="my memo*"), dataclasses.replace(MEMOS, noun="my memos {of}")
    assert MEMOS.called("old {noun}", many=True) == ["all old memos", "the old memos"]
    assert mine.called("old {noun}", many=True) == ["all my old memos", "my old memos"]
    assert mine.called("oldest {noun}", many=False) == ["my oldest memo"] and mine.others == "my other memos"
    assert mine.called("oldest of {noun}", many=False) == ["the oldest of my memos"]
    assert numbered.called("{noun} in red", many=True) == ["my memos {of} in red"]
    assert numbered.others == "the rest of my memos {of}"


def test_how_to_answer_is_said_in_every_wording() -> None:
    thing = Find("memo", ("the memo",), "found = notes.search()", lambda w: ({}, [{"created": "2026-01-31 15:00"}]))
    hint = "Answer like 2026-01-31 15:00."
    (kind,) = drills([thing], [Ask("created", asked="When was {it} written?", hint=hint)])
    assert all(wording.endswith(f" {hint}") for wording in kind.phrasings) and len(kind.phrasings) == 5


def test_all_that_was_found_may_be_asked_for() -> None:
    rows = [{"id": 7, "title": "Attic"}, {"id": 3, "title": "Orchard"}]
    memos = Find("memos", ("all memos",), "found = notes.search()", lambda w: ({}, rows), many=True)
    titles, pin = Ask("title", of="each"), Act("notes.pin", "pin {it}")
    alone, after = drills([memos], [titles, (pin, titles)])
    assert (alone.name(), after.name()) == ("each-title-memos", "pin-and-each-title-memos")
    assert after.phrasings[:2] == (
        "Pin all memos. After that, tell me their titles.",
        "Please pin all memos. Then tell me their titles.",
    )
    *_, last = alone().turns()
    assert last == ("I answer with the titles.", 'apis.owner.complete_task(answer=[x["title"] for x in found])')
    assert alone().prepare(make_world("tests/told")).answer == ["Attic", "Orchard"]


def test_two_acts_on_one_find_are_in_an_order_that_works() -> None:
    memo = Find("memo", ("the memo",), "found = notes.search()", lambda w: ({}, [{"id": 7}]))
    rename, retitle = Act("notes.rename", "call {it} '{title}'"), Act("notes.rewrite", "rewrite {it} as '{title}'")
    pin, delete = Act("notes.pin", "pin {it}"), Act("notes.delete", "delete {it}")
    kinds = drills([memo], [rename, retitle, pin, delete])
    made = {kind.name() for kind in twice(kinds, 99, [])}
    both = {"rename-and-pin", "pin-and-rename", "rename-and-delete", "pin-and-delete", "pin-and-rewrite"}
    assert made == {f"{name}-memo" for name in both}, "deleted last, rewritten last, nothing told that is told already"
    assert len(twice(kinds, 3, [])) == 3
    assert not twice(kinds, 99, [frozenset(["notes.search"])])


def test_what_is_put_together_stays_further_away_from_the_tests() -> None:
    """All but one of the APIs of an errand of the tests are too many, unless it has only two."""
    for kind in [*TWICE, *ROUNDS, *RELAYS]:
        near = [
            other.name() for other in MEASURED if len({*other.apis} - {*kind.apis}) < (2 if len(other.apis) > 2 else 1)
        ]
        assert not near, kind.name()


def test_an_act_may_take_what_looking_has_left_in_a_variable() -> None:
    thing = Find("item", ("the item",), "there = 3\nfound = todo.search()", lambda w: ({}, []))
    move = Act("todo.move", "move {it}", known=(("list_id", "there"),))
    _, (thought, code), _ = drills([thing], [move])[0]().turns()
    assert thought == "I use todo.move: `item_id` is the id of what I found; `list_id` is in there."
    assert code == 'print(apis.todo.move(item_id=found[0]["id"], list_id=there, access_token=todo))'


def test_kinds_are_spread_over_apps_and_ways_to_choose() -> None:
    apps = Counter(app for kind in PLAIN for app in kind.apps())
    assert min(apps.values()) >= 50
    assert sum(bool(kind.find.keep) for kind in PLAIN) >= 300 and sum(kind.find.many for kind in PLAIN) >= 200
    assert sum(any(wish.rest for wish in kind.wishes) for kind in PLAIN) >= 28
    assert len({kind.find.name for kind in PLAIN}) >= 300
