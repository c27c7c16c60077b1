"""The judge, on hand-made ends of hand-made tasks: what each is worth was computed by hand."""

from typing import Any

import pytest

from errands.apps import make_world
from errands.judge import Goal, act, judge, same_answer
from errands.world import Done, World


@pytest.fixture(scope="module")
def base() -> World:
    world = make_world("judge")
    world.run("DELETE FROM todo_lists")  # and, with them, their items
    for name in ("Home", "Work"):
        world.add("todo_lists", owner=1, name=name)
    for text in ("sweep", "mow", "dust"):
        act(world, "todo.add", {"list_id": home(world), "text": text})
    return world


def home(world: World) -> int:
    return int(world.value("SELECT id FROM todo_lists WHERE owner = 1 AND name = 'Home'"))


def work(world: World) -> int:
    return int(world.value("SELECT id FROM todo_lists WHERE owner = 1 AND name = 'Work'"))


def item(world: World, text: str) -> int:
    return int(world.value("SELECT id FROM todo_items WHERE owner = 1 AND text = ?", text))


def reward(goal: Goal, end: World) -> float:
    tests = judge(goal, end)
    return sum(test.passed for test in tests) / len(tests)


def done(world: World, *steps: tuple[str, dict[str, Any]], answer: Any = None) -> World:
    """A copy in which these things were done."""
    end = world.fork()
    for api, arguments in steps:
        act(end, api, arguments)
    end.done = Done(answer)
    return end


def adding(world: World, text: str = "buy milk", **more: Any) -> tuple[str, dict[str, Any]]:
    return ("todo.add", {"list_id": home(world), "text": text, **more})


def goal_of(world: World, *steps: tuple[str, dict[str, Any]], answer: Any = None) -> Goal:
    goal = Goal(world)
    for api, arguments in steps:
        goal.do(api, **arguments)
    goal.answer = answer
    return goal


def test_one_new_row(base: World) -> None:
    """Two tests: the row, and that nothing else differs."""
    goal = goal_of(base, adding(base))
    note = ("notes.create", {"title": "x"})
    assert reward(goal, base.fork()) == 0
    assert reward(goal, done(base)) == 0
    assert reward(goal, done(base, adding(base))) == 1
    assert reward(goal, done(base, adding(base), note)) == 0.5
    assert reward(goal, done(base, note)) == 0
    assert reward(goal, done(base, adding(base), adding(base))) == 0.5
    assert reward(goal, done(base, adding(base, priority="high"))) == 0
    assert reward(goal, done(base, ("todo.add", {"list_id": work(base), "text": "buy milk"}))) == 0


def test_two_equal_new_rows_are_two_tests(base: World) -> None:
    """Three tests: each of the two, and nothing else."""
    goal = goal_of(base, adding(base), adding(base))
    assert [reward(goal, done(base, *[adding(base)] * n)) for n in range(4)] == [0, 2 / 3, 1, 2 / 3]


def test_three_changes_of_different_kinds(base: World) -> None:
    """Four tests: added, changed, removed, nothing else; in any order."""
    steps = [
        adding(base),
        ("todo.complete", {"item_id": item(base, "mow")}),
        ("todo.delete", {"item_id": item(base, "dust")}),
    ]
    goal = goal_of(base, *steps)
    assert reward(goal, done(base, *steps)) == 1
    assert reward(goal, done(base, *reversed(steps))) == 1
    assert reward(goal, done(base, steps[0])) == 0.5
    assert reward(goal, done(base, *steps[:2])) == 0.75
    assert reward(goal, done(base, *steps, ("notes.create", {"title": "x"}))) == 0.75
    wrong = ("todo.delete", {"item_id": item(base, "sweep")})
    assert reward(goal, done(base, *steps[:2], wrong)) == 0.5
    assert reward(goal, done(base, wrong)) == 0


def test_a_change_must_be_of_the_right_row_and_whole(base: World) -> None:
    goal = goal_of(base, ("todo.update", {"item_id": item(base, "mow"), "due": "2027-01-02", "priority": "high"}))

    def changed(text: str, **more: Any) -> World:
        return done(base, ("todo.update", {"item_id": item(base, text), **more}))

    assert reward(goal, changed("mow", due="2027-01-02", priority="high")) == 1
    assert reward(goal, changed("sweep", due="2027-01-02", priority="high")) == 0
    assert reward(goal, changed("mow", due="2027-01-02")) == 0
    assert reward(goal, changed("mow", due="2027-01-02", priority="high", note="x")) == 0


def test_what_is_done_and_undone_does_not_count(base: World) -> None:
    goal = goal_of(base, adding(base))
    mow = {"item_id": item(base, "mow")}
    there_and_back = [("todo.complete", mow), ("todo.reopen", mow)]
    assert reward(goal, done(base, adding(base), *there_and_back)) == 1
    assert reward(goal, done(base, *there_and_back)) == 0


def test_logging_in_does_not_count(base: World) -> None:
    goal, end = goal_of(base, adding(base)), done(base, adding(base))
    password = end.value("SELECT password FROM accounts WHERE app = 'mail' AND person = 1")
    assert end.log_in("mail", end.owner.email, password)
    assert reward(goal, end) == 1


def test_ids_of_new_rows_do_not_count(base: World) -> None:
    goal = goal_of(base, adding(base))
    end = done(base, adding(base, "a slip"), adding(base))
    act(end, "todo.delete", {"item_id": item(end, "a slip")})
    assert item(end, "buy milk") > item(goal.wish, "buy milk")
    assert reward(goal, end) == 1


def new_list(world: World, name: str, *texts: str) -> None:
    made = act(world, "todo.create_list", {"name": name})["list_id"]
    for text in texts:
        act(world, "todo.add", {"list_id": made, "text": text})


def test_new_rows_that_refer_to_new_rows_are_compared_by_what_they_refer_to(base: World) -> None:
    """Three tests for a list with one item; four for two lists with one item each, and nothing else."""
    goal = Goal(base)
    made = goal.do("todo.create_list", name="Trip")["list_id"]
    goal.do("todo.add", list_id=made, text="tent")
    right, other_ids, elsewhere, swapped = (done(base) for _ in range(4))
    new_list(right, "Trip", "tent")
    new_list(other_ids, "Slip")
    act(other_ids, "todo.delete_list", {"list_id": other_ids.value("SELECT max(id) FROM todo_lists")})
    new_list(other_ids, "Trip", "tent")
    new_list(elsewhere, "Trip")
    act(elsewhere, "todo.add", {"list_id": home(base), "text": "tent"})
    assert [reward(goal, end) for end in (right, other_ids, elsewhere)] == [1, 1, 1 / 3]
    for name, text in (("Trip", "tent"), ("Food", "rice")):
        new_list(swapped, name, text)
    both = Goal(base)
    for name, text in (("Trip", "rice"), ("Food", "tent")):
        both.do("todo.add", list_id=both.do("todo.create_list", name=name)["list_id"], text=text)
    assert reward(both, swapped) == 2 / 5


def test_whoever_never_says_that_it_is_done_has_not_succeeded(base: World) -> None:
    """Or an agent would learn that it need not stop."""
    goal = goal_of(base, adding(base))
    end = done(base, adding(base))
    assert all(test.passed for test in judge(goal, end))
    end.done = None
    assert [(test.name, test.passed) for test in judge(goal, end)][-1] == (
        "nothing else differs (but: it was never said that the task is done)",
        False,
    )
    assert reward(goal, end) == 0.5 and reward(goal, base.fork()) == 0


def test_a_deleted_row_that_is_made_again_is_another_row(base: World) -> None:
    """The goal changes it: deleting and making it anew is a removal and an addition, neither of them asked for."""
    goal = goal_of(base, ("todo.update", {"item_id": item(base, "mow"), "priority": "high"}))
    again = done(base, ("todo.delete", {"item_id": item(base, "mow")}), adding(base, "mow", priority="high"))
    assert reward(goal, again) == 0
    undone = goal_of(base, adding(base))
    again = done(base, adding(base), ("todo.delete", {"item_id": item(base, "mow")}), adding(base, "mow"))
    assert reward(undone, again) == 0.5


def test_rows_that_go_with_another_count_too(base: World) -> None:
    """A list and its two done items: three removals, and nothing else; each done item is a change, if it stays."""
    world = base.fork()
    new_list(world, "Old", "tent", "rope")
    items = [item(world, "tent"), item(world, "rope")]
    for one in items:
        act(world, "todo.complete", {"item_id": one})
    old = int(world.value("SELECT max(id) FROM todo_lists"))
    goal = goal_of(world, ("todo.delete_list", {"list_id": old}))
    assert len(judge(goal, world)) == 4
    assert reward(goal, done(world, ("todo.delete_list", {"list_id": old}))) == 1
    assert reward(goal, done(world, *[("todo.delete", {"item_id": one}) for one in items])) == 0.75
    keep = goal_of(world, ("todo.delete", {"item_id": items[0]}))
    assert reward(keep, done(world, ("todo.delete_list", {"list_id": old}))) == 0.5


def test_a_second_change_of_the_same_kind_is_seen(base: World) -> None:
    """Also in a world that is judged, goes on, and is judged again."""
    goal, end = goal_of(base, adding(base)), done(base, adding(base))
    assert reward(goal, end) == 1
    act(end, *adding(base))
    assert reward(goal, end) == 0.5
    copy = end.fork()
    assert reward(goal, copy) == 0.5
    act(copy, "todo.delete", {"item_id": int(copy.value("SELECT max(id) FROM todo_items"))})
    assert (reward(goal, copy), reward(goal, end)) == (1, 0.5)


@pytest.mark.parametrize(
    ("text", "worth"),
    [
        ("buy milk", 1),
        ("Buy  Milk", 1),
        (" buy milk ", 1),
        ("buy milk.", 1),
        ("buy milk!", 1),
        ("buy milk .", 1),
        ("buy milk?", 0),
        ("buymilk", 0),
        ("buy milk now", 0),
        ("buy mílk", 0),
    ],
)
def test_case_and_spacing_of_text_do_not_count(base: World, text: str, worth: float) -> None:
    assert reward(goal_of(base, adding(base)), done(base, adding(base, text))) == worth


def test_a_question_only(base: World) -> None:
    """Two tests: the answer, and that nothing differs; the latter only for someone who knew the answer."""
    goal = goal_of(base, answer=7)
    assert reward(goal, base.fork()) == 0
    assert reward(goal, done(base)) == 0
    assert reward(goal, done(base, answer=7)) == 1
    assert reward(goal, done(base, answer=8)) == 0, "or a guess would be worth half"
    assert reward(goal, done(base, adding(base), answer=7)) == 0.5
    assert reward(goal, done(base, adding(base), answer=8)) == 0


def test_a_question_and_something_to_do(base: World) -> None:
    """Three tests: the row, nothing else, the answer."""
    goal = goal_of(base, adding(base), answer="Ada Abel")
    assert reward(goal, done(base, adding(base), answer="ada abel")) == 1
    assert reward(goal, done(base, adding(base))) == 2 / 3
    assert reward(goal, done(base, answer="Ada Abel")) == 1 / 3
    assert reward(goal, done(base, adding(base), adding(base), answer="Ada Abel")) == 2 / 3


def test_an_answer_that_nobody_asked_for_does_no_harm(base: World) -> None:
    assert reward(goal_of(base, adding(base)), done(base, adding(base), answer="done!")) == 1


@pytest.mark.parametrize(
    ("right", "given"),
    [
        (3, 3),
        (3, 3.0),
        (3, "3"),
        (3, " 3 "),
        (3, "3.0"),
        (3.5, "3.50"),
        ("3.50", 3.5),
        (3.5, 3.5000001),
        (0, 0),
        (0, "0"),
        (-2, "-2"),
        ("Ada Abel", "ada  abel"),
        ("Ada Abel", "Ada Abel."),
        ("Ada Abel", "'Ada Abel'"),
        ("2026-03-04", "2026-03-04"),
        ("5551234", 5551234),
        ([1, 2], [2, 1]),
        ([1, 2], (1, "2")),
        ([1, 2], {1, 2}),
        ([1, 2], frozenset({1, 2})),
        ([1, 2], "2, 1"),
        (["a", "b"], "B,a"),
        (["a", "b"], " a , b, "),
        (["a"], "a"),
        ([3.5], 3.5),
        ([2, 2, 3], [3, 2, 2]),
        ([], []),
        ([], ""),
    ],
)
def test_the_same_answer_in_other_words(right: Any, given: Any) -> None:
    assert same_answer(right, given)


@pytest.mark.parametrize(
    ("right", "given"),
    [
        (3, None),
        (3, 4),
        (3, 3.01),
        (3, "three"),
        (3, ""),
        (3, [3, 4]),
        (1, True),
        (0, False),
        (0, ""),
        (0, None),
        ("Ada", "Ada Abel"),
        ("Ada", ["Ada", "Ben"]),
        ("None", None),
        ([1, 2], [1]),
        ([1, 2], [1, 2, 2]),
        ([1, 2], [1, 2, 3]),
        ([1, 2, 2], {1, 2}),
        ([1, 2], "1 2"),
        ([1, 2], None),
        ([1, 2], 1),
        ([], None),
        (3, float("nan")),
        (3, float("inf")),
        (3, {"answer": 3}),
        ("a", [["a"]]),
    ],
)
def test_another_answer(right: Any, given: Any) -> None:
    assert not same_answer(right, given)


def test_a_number_too_long_to_be_written_is_another_answer() -> None:
    assert not same_answer(3, 10**5000)
    assert not same_answer([3], [10**5000])


def test_a_list_nested_too_deep_to_be_written_is_another_answer() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    assert not same_answer(3, nested)
    assert not same_answer([3], nested)


def test_a_verdict_says_what_was_expected_and_what_else_was_found(base: World) -> None:
    goal = goal_of(base, adding(base), answer=3)
    names = [test.name for test in judge(goal, done(base, ("notes.create", {"title": "stray"}), answer=4))]
    assert len(names) == 3
    assert "todo_items added" in names[0] and "buy milk" in names[0]
    assert names[1].startswith("nothing else differs (but: notes added") and "stray" in names[1]
    assert names[2] == "the answer is 3"
