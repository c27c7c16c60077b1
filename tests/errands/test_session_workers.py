"""Sessions in many threads, and what is left of one whose worker died."""

import gc
import os
import re
import signal
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest

from errands.apps import make_world
from errands.env import Errands
from errands.session import Session
from errands.world import World
from longloop.types import Task

LOG_IN = 'notes = apis.notes.login(**apis.owner.show_account(app="notes"))["access_token"]'


@pytest.fixture(scope="module")
def base() -> World:
    return make_world("session")


def test_many_sessions_at_once_do_not_disturb_each_other(base: World) -> None:
    def attempt(number: int) -> tuple[str, list[Any]]:
        world = base.fork()
        session = Session(world)
        session.run(f"{LOG_IN}\nmine = {number}")
        for part in range(5):
            session.run(f"apis.notes.create(title=f'note {{mine}}.{part}', access_token=notes)")
        if number % 4 == 0:
            session.run("while True: pass")
            session.run(f"mine = {number}")
        seen = session.run("print(mine)")
        session.close()
        return seen, [
            row["title"] for row in world.all("SELECT title FROM notes WHERE title LIKE 'note %' ORDER BY id")
        ]

    with ThreadPoolExecutor(16) as pool:
        for number, (seen, titles) in enumerate(pool.map(attempt, range(24))):
            assert seen == str(number)
            assert titles == [f"note {number}.{part}" for part in range(5)]


@pytest.mark.parametrize("code", ["print(apis.docs.list_apps())", "while True: pass"])
def test_a_closed_session_is_forgotten(code: str, base: World) -> None:
    """It and its world are freed: thousands of attempts must not add up."""
    world = base.fork()
    session = Session(world)
    session.run(code)
    left = weakref.ref(world)
    session.close()
    del session, world
    gc.collect()
    assert left() is None


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children() if "monty" in child.name()}


def test_a_killed_worker_costs_one_error_and_not_the_run(base: World) -> None:
    crowd = [Session(base.fork()) for _ in range(len(children()) + 1)]  # so that the next one has a worker of its own
    before = children()
    world = base.fork()
    session = Session(world)
    other = Session(base.fork())
    other.run("x = 7")
    session.run("x = 5")
    new = children() - before
    assert new, "no worker of these sessions was found"
    for pid in sorted(new):
        os.kill(pid, signal.SIGKILL)
    for one in (session, other):
        assert re.search("restarted and its variables are gone", one.run("print(x)"))
        assert "NameError" in one.run("print(x)")
        assert one.run("print(len(apis.docs.list_apps()))") == "13"
        one.close()
    for one in crowd:
        assert one.run("print(1)") == "1"
        one.close()


def test_a_worker_killed_between_attempts_costs_nothing(base: World) -> None:
    first = Session(base.fork())
    first.close()
    for pid in children():
        os.kill(pid, signal.SIGKILL)
    second = Session(base.fork())
    assert "1" in (second.run("print(1)"), second.run("print(1)"))
    second.close()


def test_a_copy_of_a_session_whose_worker_died_can_still_be_scored() -> None:
    task: Task = Errands.tasks("train", Errands.Options(per_scenario=1))[0]
    env = Errands(Errands.Options())
    env.start(task)
    for pid in children():
        os.kill(pid, signal.SIGKILL)
    assert env.finish().reward == 0.0
