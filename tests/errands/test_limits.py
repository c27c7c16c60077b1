"""What hostile code costs the host: values are bounded before they are touched, work is counted, data has a quota."""

import asyncio
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from pydantic_monty import MontyError

from errands import judge, reader
from errands.apps import make_world
from errands.database import ROOM
from errands.env import Errands
from errands.judge import same_answer
from errands.session import NOTHING, OUTPUT, Session, _parsed, _read
from errands.tame import LONGEST, parsed, tame
from errands.values import CHARACTERS, LEVELS, VALUES
from errands.world import World
from longloop.envs.play import play
from longloop.envs.react import react
from longloop.types import Message


@pytest.fixture(scope="module")
def base() -> World:
    return make_world("limits")


@pytest.fixture
def world(base: World) -> World:
    return base.fork()


@pytest.fixture
def session(world: World) -> Iterator[Session]:
    made = Session(world)
    yield made
    made.close()


LIST = "x = ['lol'] * 10\nfor i in range(8): x = [x] * 10\n"
DICT = "x = {'a': 1}\nfor i in range(60): x = {'a': x, 'b': x}\n"
HASH = "x = (1, 2)\nfor i in range(60): x = (x, x)\n"
ATTACKS = {
    # What is tried, and a part of the answer.
    "a list as the answer": (LIST + "apis.owner.complete_task(answer=x)", "answer is too large"),
    "a dict as the answer": (DICT + "apis.owner.complete_task(answer=x)", "answer is too large"),
    "a tuple as the answer": (HASH + "apis.owner.complete_task(answer=x)", "answer is too large"),
    "a deep list as the answer": (
        "x = []\nfor i in range(10_000): x = [x]\napis.owner.complete_task(answer=x)",
        "answer is too large",
    ),
    "a long string as the answer": ("apis.owner.complete_task(answer='x' * 10**6)", "answer is too large"),
    "long bytes as the answer": ("apis.owner.complete_task(answer=b'x' * 10**6)", "answer is too large"),
    "a number as the answer": ("apis.owner.complete_task(answer=10**1_000_000)", "answer is too large"),
    "many numbers as the answer": ("apis.owner.complete_task(answer=list(range(10**5)))", "answer is too large"),
    "a set as the answer": ("apis.owner.complete_task(answer=set(range(10**4)))", "answer is too large"),
    "a list for text": (LIST + "apis.docs.show(api=x)", "api is too large"),
    "a list for a list": (LIST + "apis.mail.send(recipients=x)", "recipients is too large"),
    "a list for a number": (LIST + "apis.notes.show(note_id=x)", "note_id is too large"),
    "a list for a token": (LIST + "apis.notes.search(access_token=x)", "access_token is too large"),
    "a list for what is not there": (LIST + "apis.notes.search(nothing=x)", "nothing is too large"),
    "a list in many arguments": (
        "apis.docs.show(**{'a' + str(i): [1] * 30 for i in range(50)})",
        "is too large",
    ),
    "many arguments": ("apis.docs.show(**{'a' + str(i): 1 for i in range(5000)})", "is too large"),
    "a long name": ("apis.docs.show(**{'a' * 10**6: 1})", "is too large"),
    "a list by place": (LIST + "apis.docs.show(x)", "by keyword"),
    "a list for an API that is not there": (LIST + "apis.docs.nothing(x)", "has no API"),
    "a name that is very long": ("getattr(apis.docs, 'x' * 10**6)()", "has no API"),
    "an app whose name is very long": ("getattr(apis, 'x' * 10**6)", "there is no app"),
    "a hash as a key": (HASH + "apis.docs.show(api={x: 1})", "more than 1 s of work"),
    "a hash in a set": (HASH + "apis.owner.complete_task(answer=[{x}])", "more than 1 s of work"),
    "a hash for an API that is not there": (HASH + "apis.docs.nothing({x})", "has no API"),
    "a hash for a function that is not there": (HASH + "nothing({x})", "NameError"),
    "a hash for the system": (HASH + "import os\nos.getenv({x})", "TypeError"),
    "a hash at the end": (HASH + "{x}", "MemoryError"),
    "an attribute that is shared": (
        "class A: pass\nx = 1\nfor i in range(60):\n    a = A()\n    a.one = x\n    a.two = x\n    x = a\n"
        "apis.docs.show(api=x)",
        "422",
    ),
    "large arguments for ever": (
        "x = 'x' * 10**6\nwhile True:\n    try: apis.docs.show(api=x)\n    except ValueError: pass",
        "more than 1 s of work",
    ),
}
SCRIPT = """
import json, resource, sys, time
from errands.apps import make_world
from errands.session import Session

world = make_world("limits")
session = Session(world)
session.run("print(apis.docs.list_apps())")
before, began, seen = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time(), {}
for what, code in json.load(sys.stdin).items():
    seen[what] = session.run(code)
    assert world.done is None, what
used = time.process_time() - began
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps({"seen": seen, "seconds": used, "megabytes": grown / 1024, "next": session.run("print(1)")}))
"""


@pytest.fixture(scope="module")
def attacked() -> dict[str, Any]:
    """What came of the attacks, and what they cost the process in which the session is."""
    codes = json.dumps({what: code for what, (code, _) in ATTACKS.items()})
    done = subprocess.run([sys.executable, "-c", SCRIPT], input=codes, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("what", ATTACKS)
def test_a_value_that_is_too_large_is_refused_with_a_reason(what: str, attacked: dict[str, Any]) -> None:
    assert ATTACKS[what][1] in attacked["seen"][what]
    assert len(attacked["seen"][what]) <= OUTPUT + 100


def test_values_that_are_too_large_cost_the_host_next_to_nothing(attacked: dict[str, Any]) -> None:
    """One of them took 5 s and 959 MB, and ten times that with a level more; hashing would never have ended."""
    assert attacked["next"] == "1"
    assert attacked["megabytes"] < 150
    assert attacked["seconds"] < 10


def test_an_attempt_with_such_an_answer_is_scored_as_any_other() -> None:
    task = Errands.tasks("train", Errands.Options(per_scenario=1))[0]
    env = Errands(Errands.Options())
    env.start(task)
    step = env.step(Message("assistant", react("?", LIST + "apis.owner.complete_task(answer=x)")))
    assert "too large" in step.messages[0].content and not step.done
    assert env.finish().reward == 0.0


@pytest.mark.parametrize(
    ("answer", "fits"),
    [
        (f"[1] * {VALUES - 2}", True),  # the list itself and the parameter's name are values too
        (f"[1] * {VALUES - 1}", False),
        ("[[1] * 98] * 10", True),
        ("[[1] * 99] * 10", False),
        (f"'x' * {CHARACTERS - len('answer')}", True),
        (f"'x' * {CHARACTERS}", False),
        ("[" * LEVELS + "]" * LEVELS, True),
        ("[" * (LEVELS + 1) + "]" * (LEVELS + 1), False),
        ("float('nan')", True),
        ("float('inf')", True),
        ("10**5000", True),
    ],
)
def test_the_limits_are_what_they_say_and_what_repeats_counts_each_time(
    answer: str, fits: bool, session: Session, world: World
) -> None:
    seen = session.run(f"apis.owner.complete_task(answer={answer})")
    assert (world.done is not None) == fits, seen
    assert fits or f"at most {VALUES:,} values in {LEVELS} levels and {CHARACTERS:,} characters" in seen


PLAIN = {
    "[1, 'a', None, True, 2.5]": [1, "a", None, True, 2.5],
    "(1, (2, 3))": (1, (2, 3)),
    "{'a': {'b': [1]}}": {"a": {"b": [1]}},
    "{1, 2}": {1, 2},
    "{(1, 2): 3}": {(1, 2): 3},
    "b'x'": b"x",
    "frozenset([1])": frozenset([1]),
    "{frozenset([1]): 2}": {frozenset([1]): 2},
    "{frozenset([1])}": {frozenset([1])},
    "{(1, frozenset([2]))}": {(1, frozenset([2]))},
}


@pytest.mark.parametrize("answer", PLAIN)
@pytest.mark.parametrize("before", ["", "x = {1, 2}"])
def test_plain_values_come_through_as_they_are(answer: str, before: str, session: Session, world: World) -> None:
    """Read here, or, after code that makes sets, by another process."""
    session.run(before)
    session.run(f"apis.owner.complete_task(answer={answer})")
    assert world.done is not None
    assert world.done.answer == PLAIN[answer] and type(world.done.answer) is type(PLAIN[answer])


KEYS = {
    "a frozen dataclass": "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass A:\n    x: int = 1\n",
    "a class with a hash": "class A:\n    def __hash__(self): return 1\n    def __eq__(self, other): return True\n",
    "a class": "class A: pass\n",
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("answer", ["{A(): 2}", "[{A()}]"])
def test_what_cannot_be_read_is_the_agents_mistake(kind: str, answer: str, session: Session, world: World) -> None:
    """It ended the process that reads arguments, and the attempt without a reward."""
    call = f"apis.owner.complete_task(answer={answer})"
    seen = session.run(f"{KEYS[kind]}{call}")
    assert "ValueError: 422 owner.complete_task: An argument cannot be read" in seen and world.done is None
    assert session.run(f"try: {call}\nexcept ValueError: print('caught')") == "caught"
    session.run("apis.owner.complete_task(answer={1})")
    assert world.done is not None and world.done.answer == {1}


def test_readers_that_died_are_replaced_and_those_that_fail_are_an_error(
    monkeypatch: pytest.MonkeyPatch, session: Session, world: World
) -> None:
    readers: queue.LifoQueue[reader.Process | None] = queue.LifoQueue()
    readers.put(None)
    monkeypatch.setattr(reader, "_readers", lambda: readers)
    session.run("apis.owner.complete_task(answer={1})")
    process = readers.get()
    assert process is not None
    process.kill()
    process.wait()
    readers.put(process)
    world.done = None
    session.run("apis.owner.complete_task(answer={2})")
    assert world.done is not None and world.done.answer == {2}
    reader._end(readers)
    readers.put(None)
    world.done = None
    monkeypatch.setattr(reader.sys, "executable", "/bin/false")
    with pytest.raises(reader.ReaderError):
        session.run("apis.owner.complete_task(answer={3})")


def test_an_answer_may_be_a_date(session: Session, world: World) -> None:
    session.run("import datetime\napis.owner.complete_task(answer=datetime.date(2026, 5, 1))")
    assert world.done is not None and same_answer(str(date(2026, 5, 1)), world.done.answer)


CODES = {
    "found = apis.notes.search(query='a', access_token=notes)\nprint(found[0]['title'])": True,
    "x = [(n['id'], n['title']) for n in found]\nfor i, (a, b) in enumerate(x): print(a, b)": True,
    "apis.todo.update(item_id=1)": True,
    "x = {'a': 1, **found[0]}\nx['b'] = 2": True,
    "while (part := apis.notes.search(page=page)): page += 1": True,
    "def f(a, *b, **c): return [a, b, c]\nf(1, 2, d=3)": True,
    "x = sorted({a for a in y}, reverse=True)\nprint(len(set(x) - {1}), {2})": True,
    "for a in {b, c}: print(a)\n[a for a in set(x) if a in {b, c}]": True,
    "{x}": False,
    "sorted([{x}])": False,
    "sorted(x, key={a for a in x})": False,
    "max({x}, {y})": False,
    "sum([], {x})": False,
    "print([a for a in {b: 1}])": False,
    "y = len({x}) or {x}": False,
    "apis.notes.search({x})": False,
    "def sorted(x): return x": False,
    "sorted = str": False,
    "f = lambda list: list({x})": False,
    "def f(*len): return len": False,
    "for repr in x: pass": False,
    "try: pass\nexcept ValueError as print: pass": False,
    "(all := any)": False,
    "{x: 1}": False,
    "{a: 1 for a in x}": False,
    "{a for a in x}": False,
    "d[x] = 1": False,
    "set(x)": False,
    "s = frozenset": False,
    "dict(x)": False,
    "d.update(x)": False,
    "d.setdefault(x)": False,
    "d.keys() | d": False,
    "d.items() - d": False,
    "eval('{x}')": False,
    "getattr(d, 'up' + 'date')(x)": False,
    "import collections": False,
    "class A: pass": False,
    "a.b = 1": False,
    "@f\ndef g(): pass": False,
    "(" * 5000: False,
    "x = 1\n" * 1000: False,
    "no Python at all": False,
}


@pytest.mark.parametrize("code", CODES)
def test_code_is_tame_only_if_it_makes_no_keys_of_its_own(code: str) -> None:
    assert tame(parsed(code), {"notes", "search", "todo", "update", "apis"}) == CODES[code]


def test_code_is_read_anew_where_apis_have_other_names() -> None:
    code = "apis.todo.update(item_id=1)"
    assert [_read(code, frozenset(names)).tame for names in ({"todo", "update"}, {"todo"})] == [True, False]


def test_long_code_is_not_remembered(session: Session) -> None:
    session.run("x = 1")
    held = _parsed.cache_info().currsize
    assert session.run("#" * LONGEST + "\nprint(x)") == "1"
    assert _parsed.cache_info().currsize == held


def test_a_copy_of_a_session_is_as_tame_as_its_model(session: Session, world: World) -> None:
    session.run(HASH + "y = {x}")
    copy = Session(world.fork(), session.dump())
    assert "more than 1 s of work" in copy.run("apis.docs.show(api=y)")
    copy.close()


@pytest.mark.parametrize(
    "code",
    [
        *("", "# nothing", "apis = 3", "apis.docs = 3", "apis.docs.list_apps = 3", "x = apis", "for apis in [3]: pass"),
        *("def f(apis): pass", "setattr(apis, 'docs', 3)", "exec('ap' + 'is = 3')", "no Python at all", "1 / 0"),
        *("apis.docs.list_apps()", "apis.docs.list_apps()\napis = 3", "apis.docs.list_apps()\n1 / 0"),
    ],
)
def test_apis_is_itself_in_the_next_turn_whatever_was_done_with_it(code: str, session: Session) -> None:
    for _ in range(2):
        session.run(code)
        assert session.run("print(len(apis.docs.list_apps()))") == "13"


FILES = 'files = apis.files.login(**apis.owner.show_account(app="files"))["access_token"]\n'
FILL = """
file = apis.files.create(folder="Work", name="big.txt", text="a" * 4000, access_token=files)["file_id"]
for i in range(100): apis.files.append(file_id=file, text="a" * 4000, access_token=files)
for i in range(20): apis.files.copy(file_id=file, folder="Work", name=f"copy {i}.txt", access_token=files)
"""
NEEDLE = "a" * 99 + "b" + "a" * 99
HEAVY = {
    "show a large file": "apis.files.show(file_id=file, access_token=files)",
    "search in large files": f"apis.files.search(query='{NEEDLE}', access_token=files)",
    "search with wildcards": f"apis.files.search(query='{'a_' * 99}b', access_token=files)",
}


def filled(world: World) -> Session:
    """A session in a world that is as full as can be, by one file and its copies."""
    session = Session(world)
    seen = session.run(FILES + FILL)
    assert "507 The apps have no room left: together they hold at most 1 MB. Delete something first." in seen
    return session


def test_what_is_stored_has_a_quota_and_deleting_makes_room(world: World) -> None:
    start = len(world.db.serialize())
    session = filled(world)
    assert start < len(world.db.serialize()) <= ROOM
    assert world.inconsistencies() == []
    rows = world.value("SELECT count(*) FROM files_files")
    note = 'notes = apis.notes.login(**apis.owner.show_account(app="notes"))["access_token"]\n'
    fill = "while True: apis.notes.create(title='x', body='y' * 4000, access_token=notes)"
    assert "507" in session.run(note + fill), "the quota is for all apps together"
    assert world.value("SELECT count(*) FROM files_files") == rows, "what does not fit changes nothing"
    session.run("apis.files.delete(file_id=file, access_token=files)\napis.files.empty_bin(access_token=files)")
    assert session.run("print(apis.notes.create(title='x', body='y' * 4000, access_token=notes))").startswith(
        "{'note_id'"
    )
    session.close()


@pytest.mark.parametrize("what", HEAVY)
def test_the_work_of_apis_is_counted_and_ends_the_turn_at_the_same_call_every_time(what: str, world: World) -> None:
    session = filled(world)
    seen = []
    for copied in (world, world.fork()):
        copy = Session(copied, session.dump())
        code = "while True:\n    print(calls)\n    calls += 1\n    " + HEAVY[what]
        began = time.process_time()
        seen.append(copy.run("calls = 0\n" + code))
        assert time.process_time() - began < 20
        assert "TimeoutError: the API calls of this turn took more than 1 s of work; the session was" in seen[-1]
        assert copy.run("print(len(apis.docs.list_apps()))") == "13"
        copy.close()
    assert seen[0] == seen[1]
    session.close()


def test_work_is_counted_alike_on_a_connection_that_has_been_used(base: World) -> None:
    """SQLite goes on counting a statement's steps where it stopped when the statement was last run."""
    full = base.fork()
    for _ in range(300):
        full.add("calendar_events", owner=1, title="x", start=full.moment, minutes=30)
    spent = []
    for _ in range(7):
        world = full.fork()
        world.allowance = 10**9
        assert len(judge.act(world, "calendar.search", {"query": "x", "page_size": 20})) == 20
        spent.append(10**9 - world.allowance)
        world.close()
    assert len(set(spent)) == 1 and spent[0] > 5 * 10**5, spent


def test_ordinary_calls_are_far_from_the_limit(monkeypatch: pytest.MonkeyPatch, session: Session, world: World) -> None:
    left, spend = [10**9], World.spend

    def watched(self: World, nanoseconds: int) -> None:
        spend(self, nanoseconds)
        left.append(left[-1] if self.allowance is None else self.allowance)

    monkeypatch.setattr(World, "spend", watched)
    for task in Errands.tasks("train", Errands.Options(per_scenario=1))[:3]:
        env = Errands(Errands.Options())
        assert asyncio.run(play(env, task, env.expert(task))).outcome.success
    assert min(left) > 0.99 * 10**9
    session.run('money = apis.expenses.login(**apis.owner.show_account(app="expenses"))["access_token"]')
    assert session.run("for i in range(250): apis.expenses.list_groups(access_token=money)") == NOTHING
    assert min(left) > 0.8 * 10**9, "though this one is the dearest"
    assert world.allowance is None, "nobody else's work is counted"


def test_a_worker_that_gets_no_processor_is_not_late(session: Session) -> None:
    """Computing is CPU time: what an innocent turn sees must not depend on what else the machine does."""
    session.run("x = 1")
    pid = session._monty.worker_pid
    assert pid is not None

    def hold() -> None:
        time.sleep(0.02)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(1.5)
        os.kill(pid, signal.SIGCONT)

    holding = threading.Thread(target=hold)
    holding.start()
    code = "for i in range(200):\n    x = sum(range(10_000))\n    apis.owner.show_time()\nprint(x)"
    assert session.run(code) == "49995000"
    holding.join()


def test_a_flood_of_output_says_the_same_every_time(world: World) -> None:
    seen = set()
    for _ in range(3):
        session = Session(world)
        seen.add(session.run("i = 0\nwhile True:\n    i += 1\n    print(i)") + session.run("print(i)"))
        session.close()
    assert len(seen) == 1 and "printed more than" in seen.pop()


def test_a_chain_of_new_rows_can_be_judged(base: World) -> None:
    """Replies to replies to replies: each row's content would be that of all before it."""
    world = base.fork()
    goal = judge.Goal(base)
    columns = {"owner": 1, "folder": "sent", "sender": "a", "address": "a@b.com", "recipients": "a@b.com"}
    last = None
    for _ in range(1100):
        columns |= {"subject": "s", "body": "b", "time": world.moment, "reply_to": last}
        last = world.add("mail_messages", **columns)
    tests = judge.judge(goal, world)
    assert not any(test.passed for test in tests)
    assert all(len(test.name) < 5000 for test in tests)


def test_a_sandbox_that_dies_at_a_call_costs_its_variables_and_not_the_attempt(session: Session) -> None:
    """The set makes the code untame, so that the sandbox is copied for the call, for which it has no memory left."""
    ended = set()
    for many in (110_000, 115_000, 120_000, 125_000):
        assert session.run(f"s = {{1}}\nx = [str(i) for i in range({many})]") == NOTHING
        said = session.run("apis.owner.show_time()")
        ended.add("the session was restarted" in said)
        assert session.run("print(1)") == "1"
        session.run("s = x = None")
    assert True in ended


def test_what_is_no_copy_is_not_taken_for_a_large_one(world: World) -> None:
    with pytest.raises(MontyError, match="protocol violation"):
        Session(world, b"\x01garbage")


@pytest.mark.parametrize("many", [100_000, 110_000])
def test_what_does_not_fit_twice_is_lost_by_a_copy_and_it_says_so(many: int, session: Session, world: World) -> None:
    """With the smaller number the copy cannot be loaded, with the larger one not even be made."""
    session.run(f"x = [str(i) for i in range({many})]")
    copy = Session(world.fork(), session.dump())
    first = copy.run("print(1)")
    assert first.startswith("MemoryError: the session was copied") and first.endswith("\n1")
    assert copy.run("print(2)") == "2"
    copy.close()
    kept = session.run("print(len(x))")
    assert kept == str(many) or kept.startswith("MemoryError: the session was copied")
