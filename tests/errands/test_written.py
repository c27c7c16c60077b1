"""Experts written as Python: how their source becomes thoughts and code."""

import gc
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from errands.apps import make_world
from errands.session import Session
from errands.written import apis, apis_called, every, log_in, shown, turns_of


def look(self: Any, title: str, amount: float, names: list[str]) -> None:
    # I look for '{title}'.
    mail, todo = log_in("mail", "todo")
    found = every(
        apis.mail.search(
            query=title,
            access_token=mail,
        )
    )
    print(f"{title}!", f"{len(found)}", todo)
    # {amount} is what I need.

    for name in names:
        rows = every(apis.todo.list_lists())
        print(name, rows, amount / 2, "title")


def text_them(self: Any, name: str) -> None:
    # I look for {name}.
    log_in("contacts")
    here = shown(apis.owner.show_time()["now"])
    # Who is it?
    for text in (name, here):
        found = shown([card["phone"] for card in apis.contacts.search(query=text)])
    # I text them.
    print(apis.phone.send_message(number=found[0], text=apis.notes.list_tags()[0]["tag"]))
    print(apis.phone.list_calls())
    # They know.
    apis.owner.complete_task()


def test_comments_are_thoughts_and_slots_are_values() -> None:
    turns = list(turns_of(look, {"title": 'Ann\'s "own" é', "amount": "12.50", "names": ["a", "b"], "more": 1}))
    assert turns == [
        (
            "I look for 'Ann's \"own\" é'.",
            """mail = apis.mail.login(**apis.owner.show_account(app="mail"))["access_token"]
todo = apis.todo.login(**apis.owner.show_account(app="todo"))["access_token"]
found, page = [], 0
while part := apis.mail.search(
        query='Ann\\'s "own" é',
        access_token=mail, page=page, page_size=20):
    found += part
    page += 1
print('Ann\\'s "own" é!', f"{len(found)}", todo)""",
        ),
        (
            "12.5 is what I need.",
            """for name in ['a', 'b']:
    rows, page = [], 0
    while part := apis.todo.list_lists(access_token=todo, page=page, page_size=20):
        rows += part
        page += 1
    print(name, rows, 12.5 / 2, "title")""",
        ),
    ]
    compile(turns[0][1], "turn", "exec")


def test_apps_are_entered_when_they_are_first_called_and_calls_get_their_tokens() -> None:
    assert list(turns_of(text_them, {"name": "Ann"})) == [
        (
            "I look for Ann.",
            """contacts = apis.contacts.login(**apis.owner.show_account(app="contacts"))["access_token"]
here = apis.owner.show_time()["now"]
print(here)""",
        ),
        (
            "Who is it?",
            """for text in ("Ann", here):
    found = [card["phone"] for card in apis.contacts.search(query=text, access_token=contacts)]
    print(found)""",
        ),
        (
            "I text them.",
            """phone = apis.phone.login(**apis.owner.show_account(app="phone"))["access_token"]
notes = apis.notes.login(**apis.owner.show_account(app="notes"))["access_token"]
print(apis.phone.send_message(number=found[0], text=apis.notes.list_tags(access_token=notes)[0]["tag"], """
            """access_token=phone))
print(apis.phone.list_calls(access_token=phone))""",
        ),
        ("They know.", "apis.owner.complete_task()"),
    ]


def test_the_apis_that_an_expert_reads_about_are_those_that_it_calls() -> None:
    called = ("owner.show_time", "contacts.search", "phone.send_message", "notes.list_tags", "phone.list_calls")
    assert apis_called(text_them) == called


def test_a_slot_cannot_be_a_variable() -> None:
    def rebinds(self: Any, title: str) -> None:
        # I look.
        title = apis.notes.search(query=title)

    with pytest.raises(ValueError, match="title is a slot of the task; name the variable otherwise"):
        list(turns_of(rebinds, {"title": "a"}))


def test_an_f_string_has_slots_or_variables() -> None:
    def mixes(self: Any, title: str) -> None:
        # I look.
        found = apis.notes.search(query=title)
        print(f"{title}: {found}")

    with pytest.raises(ValueError, match="not both"):
        list(turns_of(mixes, {"title": "a"}))


def test_it_runs_in_the_session() -> None:
    def reads(self: Any, word: str) -> None:
        # I look.
        rows = every(apis.notes.search(query=""))
        print(word, len(rows) > 5)

    ((_, code),) = list(turns_of(reads, {"word": "seen"}))
    session = Session(make_world("tests/0"))
    assert session.run(code) == "seen True"
    session.close()


def test_what_is_only_written_cannot_be_called() -> None:
    for written in (log_in, every, shown):
        with pytest.raises(TypeError, match="never called"):
            written("mail")


def test_experts_of_many_threads_do_not_disturb_each_other() -> None:
    """Python's parser does not bear it before 3.13. Collecting garbage all the time lets other threads in between."""

    def let_others_run(phase: str, info: dict[str, int]) -> None:
        time.sleep(0)

    before = gc.get_threshold()
    gc.callbacks.append(let_others_run)
    gc.set_threshold(20, 1000, 1000)
    try:
        with ThreadPoolExecutor(8) as pool:
            told = [pool.submit(list, turns_of(look, {"title": "a", "amount": n, "names": []})) for n in range(60)]
            assert all(future.result() for future in told)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(let_others_run)
