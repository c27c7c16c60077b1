"""The session: hostile code gets an error and does no harm; honest code finds what it left, the same every time."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from errands.apps import make_world
from errands.env import Errands
from errands.judge import same_answer
from errands.session import CALLS, NOTHING, OUTPUT, Session
from errands.world import World
from longloop.envs.play import Script, play
from longloop.envs.react import react


@pytest.fixture(scope="module")
def base() -> World:
    return make_world("session")


@pytest.fixture
def world(base: World) -> World:
    return base.fork()


@pytest.fixture
def session(world: World) -> Iterator[Session]:
    made = Session(world)
    yield made
    made.close()


def unharmed(session: Session, world: World, code: str) -> str:
    """Run code; what came back, once it is clear that nothing happened to the world and that the session goes on."""
    before = world.db.serialize()
    seen = session.run(code)
    assert world.db.serialize() == before and world.done is None
    assert session.run("print(len(apis.docs.list_apps()))") == "13"
    assert 0 < len(seen) < 2 * OUTPUT
    return seen


NESTED = "x = []\nfor i in range({}):\n    x = [x]\n"
HOSTILE = {
    # What is tried, and a word of the error that comes back.
    "an endless loop": ("while True: pass", "TimeoutError"),
    "an endless loop that catches everything": (
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "TimeoutError",
    ),
    "a long computation in one step": ("sum(range(10**10))", "TimeoutError"),
    "a list that doubles": ("x = [0]\nwhile True: x = x + x", "MemoryError"),
    "a string too long": ("x = 'a' * 10**10", "MemoryError"),
    "a list too long": ("x = [0] * 10**9", "MemoryError"),
    "a program too long": ("x = 1\n" * 100_000, "MemoryError"),
    "deep recursion": ("def f(n): return f(n + 1)\nf(0)", "RecursionError"),
    "recursion that catches itself": (
        "def f():\n    while True:\n        try: f()\n        except BaseException: pass\nf()",
        "TimeoutError",
    ),
    "deeply nested code": ("(" * 5000, "Error"),
    "a power too large": ("x = 10**10**8", "MemoryError"),
    "products too large": ("x = 7**2000000\nwhile True: y = x * x", "restarted"),
    "a shift too large": ("1 << 10**12", "MemoryError"),
    "a number too long to print": ("print(10**5000)", "ValueError"),
    "reading a file": ("open('/etc/passwd').read()", "PermissionError"),
    "writing a file": ("open('/tmp/longloop-evil', 'w').write('x')", "PermissionError"),
    "reading through pathlib": ("from pathlib import Path\nPath('/etc/passwd').read_text()", "PermissionError"),
    "listing a folder": ("import os\nos.listdir('/')", "PermissionError"),
    "the process's variables": ("import os\nprint(os.environ)", "RuntimeError"),
    "a shell": ("import os\nos.system('ls')", "AttributeError"),
    "subprocess": ("import subprocess", "ModuleNotFoundError"),
    "socket": ("import socket", "ModuleNotFoundError"),
    "ctypes": ("import ctypes", "ModuleNotFoundError"),
    "longloop itself": ("import longloop", "ModuleNotFoundError"),
    "the modules of the process": ("import sys\nprint(sys.modules)", "AttributeError"),
    "__import__": ("__import__('os')", "NameError"),
    "an import in exec": ("exec('import subprocess')", "ModuleNotFoundError"),
    "the classes of Python": ("print(().__class__.__bases__[0].__subclasses__())", "AttributeError"),
    "the globals": ("print(globals())", "NameError"),
    "an app that is not there": ("apis.judge.tests()", "there is no app 'judge'"),
    "the world": ("apis.world", "there is no app 'world'"),
    "the inside of apis": ("apis._apps", "AttributeError"),
    "the dict of apis": ("apis.__dict__", "AttributeError"),
    "the inside of an app": ("apis.mail._call(1, 2, 3)", "AttributeError"),
    "the method behind an app": ("apis.mail.call_method('login', (), {})", "has no API 'call_method'"),
    "another person's account": ("apis.owner.show_account(app='mail', person=2)", "422"),
    "another person's login": ("apis.mail.login(email='a@b.com', password='x')", "401"),
    "a token of one's own making": ("apis.mail.search(access_token='mail-00000000')", "401"),
    "SQL in a token": ('apis.mail.search(access_token="\' OR 1=1 --")', "401"),
    "who one is": ("apis.notes.search(me=1)", "has no parameter 'me'"),
    "an argument by place": ("apis.docs.show('mail.send')", "by keyword"),
    "an API as a value": ("print(apis.mail.send)", "can only be called"),
    "SystemExit": ("raise SystemExit", "SystemExit"),
    "exit": ("exit()", "NameError"),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "input": ("input()", "NameError"),
    "a repr that raises": ("class A:\n    def __repr__(self): raise ValueError\nprint(A())", "ValueError"),
    "an exception with a long text": ("raise ValueError('x' * 100_000)", "ValueError"),
    "no Python": ("I will now log in!", "SyntaxError"),
    "half a function": ("def", "SyntaxError"),
    "a NUL": ("\x00", "SyntaxError"),
    "half a character": ("x = '\ud800'", "SyntaxError"),
    "half a character by number": ("chr(0xd800)", "ValueError"),
    "a NUL passed on": ("apis.docs.show(api='a\\x00b')", "422"),
    "an amount that is no number": ("apis.docs.show(api=float('nan'))", "422"),
    "a number too long passed on": ("apis.docs.show(api=10**5000)", "422"),
    "a string too long passed on": ("apis.docs.show(api='x' * 10**6)", "422"),
    "bytes passed on": ("apis.docs.show(api=b'x')", "422"),
    "apis passed on": ("apis.docs.show(api=apis)", "422"),
    "an object passed on": ("class A: pass\napis.docs.show(api=A())", "422"),
    "an exception passed on": ("apis.docs.show(api=ValueError('x'))", "422"),
    "a function passed on": ("apis.docs.show(api=lambda: 1)", "4"),
    "a generator passed on": ("apis.docs.show(api=(i for i in range(3)))", "422"),
    "a deep list passed on": (NESTED.format(190) + "apis.docs.show(api=x)", "422"),
    "a very deep list passed on": (NESTED.format(100_000) + "apis.docs.show(api=x)", "422"),
    "a list that holds itself": ("x = []\nx.append(x)\napis.docs.show(api=x)", "422"),
    "a name too long": ("apis.docs.show(**{'a' * 10_000: 1})", "422"),
    "a name that is no string": ("apis.docs.show(**{1: 1})", "TypeError"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_code_gets_an_error_and_harms_nothing(what: str, session: Session, world: World) -> None:
    code, error = HOSTILE[what]
    assert error in unharmed(session, world, code)
    assert not Path("/tmp/longloop-evil").exists()


@pytest.mark.parametrize("code", ["", "   ", "\n\n", "# nothing", "pass", "x = 3", "None"])
def test_code_that_prints_nothing_is_told_so(code: str, session: Session, world: World) -> None:
    assert unharmed(session, world, code) == NOTHING


@pytest.mark.parametrize("code", ["print('a' * 1000)", "print('a' * 9)"])
def test_a_flood_of_output_is_stopped_and_cut(code: str, session: Session, world: World) -> None:
    seen = unharmed(session, world, f"while True: {code}")
    assert "Error" in seen and "characters more were cut" in seen


@pytest.mark.parametrize(
    "call",
    ["apis.docs.list_apps()", "apis.docs.nothing()", "apis.nothing", "apis.docs.nothing", "apis.docs.show(api=1)"],
)
def test_calling_for_ever_and_catching_every_error_comes_to_an_end(call: str, session: Session, world: World) -> None:
    """Time spent outside the sandbox does not count as computing, so the number of calls must be limited too."""
    seen = unharmed(session, world, f"while True:\n    try: {call}\n    except BaseException: pass")
    assert "Error" in seen


def test_a_thousand_calls_in_a_turn_are_too_many(session: Session, world: World) -> None:
    code = "done = 0\nfor i in range(1000):\n    apis.docs.list_apps()\n    done += 1"
    assert f"429 More than {CALLS} API calls" in unharmed(session, world, code)
    assert session.run("print(done)") == str(CALLS)


def test_calls_that_fail_count_as_calls(session: Session, world: World) -> None:
    code = "for i in range(1000):\n    try: apis.docs.show(api='x')\n    except LookupError: pass"
    assert "429" in unharmed(session, world, code)


def test_an_error_inside_a_call_can_be_caught(session: Session) -> None:
    code = (
        "try:\n    apis.docs.show(api='x.y')\nexcept LookupError as e:\n    print('caught', e)\n"
        "try:\n    apis.notes.search(access_token='x')\nexcept PermissionError as e:\n    print('caught', e)\n"
        "try:\n    apis.docs.show(api=3)\nexcept ValueError as e:\n    print('caught', e)"
    )
    lines = session.run(code).splitlines()
    assert [line[:10] for line in lines] == ["caught 404", "caught 401", "caught 422"]


def test_what_was_done_before_an_error_stays_done(session: Session, world: World) -> None:
    seen = session.run(f"{LOG_IN}\napis.notes.create(title='kept', access_token=notes)\n1 / 0")
    assert "ZeroDivisionError" in seen
    assert world.value("SELECT count(*) FROM notes WHERE title = 'kept'") == 1
    assert "kept" in session.run("print(apis.notes.search(query='kept', access_token=notes))")


LOG_IN = 'notes = apis.notes.login(**apis.owner.show_account(app="notes"))["access_token"]'


@pytest.mark.parametrize("code", ["apis = 1", "del apis", "class apis: pass", "def apis(): pass", "apis.mail = 5"])
def test_apis_is_there_again_in_the_next_turn(code: str, session: Session, world: World) -> None:
    unharmed(session, world, code)
    assert "401" in session.run("apis.mail.search(access_token='x')")


def test_another_persons_data_stay_theirs(session: Session, world: World) -> None:
    """With the owner's token for the right app and the number of someone else's row."""
    theirs = world.value("SELECT id FROM notes WHERE owner != 1")
    secret = world.value("SELECT password FROM accounts WHERE app = 'notes' AND person = 2")
    session.run(LOG_IN)
    for call in (f"show(note_id={theirs}", f"delete(note_id={theirs}", f"rename(title='x', note_id={theirs}"):
        assert "404" in unharmed(session, world, f"apis.notes.{call}, access_token=notes)")
    assert secret not in session.run("for a in ('notes', 'mail'):\n    print(apis.owner.show_account(app=a))")


def test_after_completing_the_task_nothing_more_can_be_done(session: Session, world: World) -> None:
    session.run(f"{LOG_IN}\napis.owner.complete_task(answer=1)")
    before = world.db.serialize()
    for code in (
        "apis.notes.create(title='late', access_token=notes)",
        "apis.owner.complete_task(answer=2)",
        "apis.docs.list_apps()",
    ):
        assert "409 The task is already completed" in session.run(code)
    assert world.db.serialize() == before
    assert world.done is not None and world.done.answer == 1


def test_completing_the_task_ends_the_calls_of_the_same_turn_too(session: Session, world: World) -> None:
    seen = session.run(f"{LOG_IN}\napis.owner.complete_task()\napis.notes.create(title='late', access_token=notes)")
    assert "409" in seen and world.value("SELECT count(*) FROM notes WHERE title = 'late'") == 0


ANSWERS = {
    "a function": "lambda: 1",
    "apis": "apis",
    "print": "print",
    "a type": "int",
    "nan": "float('nan')",
    "inf": "float('inf')",
    "a number too long": "10**5000",
    "numbers too long": "[10**5000]",
    "bytes": "b'x'",
    "a set": "{1, 2}",
    "a dict": "{'a': [1]}",
    "an exception": "ValueError('x')",
    "a generator": "(i for i in range(3))",
    "a long string": "'x' * 10**6",
    "a NUL": "'\\x00'",
    "half a character": "'\\ud800'",
    "a long list": "[1] * 10_000",
    "an ellipsis": "...",
    "a complex number": "1 + 2j",
    "deep": "x",
    "itself": "y",
    "an object equal to all": "A()",
}


@pytest.mark.parametrize("what", ANSWERS)
def test_a_strange_answer_is_a_wrong_answer(what: str, session: Session, world: World) -> None:
    session.run(NESTED.format(100_000))
    session.run("y = []\ny.append(y)")
    session.run("class A:\n    def __eq__(self, other): return True\n    def __hash__(self): return 0")
    session.run(f"apis.owner.complete_task(answer={ANSWERS[what]})")
    answer = world.done.answer if world.done else None
    for right in (3, "Ada Abel", [3, 4], ["Ada Abel"]):
        assert not same_answer(right, answer)


@pytest.mark.parametrize(
    "amount", ["float('nan')", "float('inf')", "-float('inf')", "-1", "0", "1e308", "0.001", "True"]
)
def test_an_impossible_amount_is_refused(amount: str, session: Session, world: World) -> None:
    session.run('wallet = apis.wallet.login(**apis.owner.show_account(app="wallet"))["access_token"]')
    email = world.people[1].email
    seen = unharmed(
        session, world, f"apis.wallet.send(email='{email}', amount={amount}, note='x', access_token=wallet)"
    )
    assert "422" in seen


def test_variables_and_functions_stay_between_turns(session: Session) -> None:
    session.run("x = [1]\ndef twice(n): return 2 * n\nimport math")
    session.run("x.append(twice(21))")
    assert session.run("print(x, math.floor(2.5))") == "[1, 42] 2"


def test_output_is_cut_with_a_note(session: Session) -> None:
    assert session.run(f"print('a' * {OUTPUT - 1})") == "a" * (OUTPUT - 1)
    seen = session.run(f"print('a' * {OUTPUT + 99})")
    assert seen.startswith("a" * OUTPUT) and seen.endswith("\n... (100 characters more were cut; print less)")


def test_the_error_is_not_cut_for_the_sake_of_the_output(session: Session) -> None:
    seen = session.run("print('a' * 5000)\nraise ValueError('the reason')")
    assert seen.endswith("ValueError: the reason") and "were cut" in seen and len(seen) < OUTPUT + 100


def test_the_clock_stands_still(session: Session, world: World) -> None:
    seen = session.run("import datetime, time\nprint(datetime.datetime.now(), datetime.date.today())\ntime.sleep(3600)")
    assert seen == f"{world.now} {world.today}"
    assert session.run("print(datetime.datetime.now())") == str(world.now)
    assert session.run("a = time.time()\nfor i in range(10**5): pass\nprint(time.time() - a)") == "0.0"
    assert world.moment in session.run("print(apis.owner.show_time())")


def test_random_numbers_are_the_same_in_two_sessions_of_one_world(session: Session, world: World) -> None:
    code = "import random\nprint(random.random(), random.sample(range(1000), 5), random.Random().random())"
    other = Session(world.fork())
    stranger = Session(make_world("another"))
    first = session.run(code)
    assert other.run(code) == first and stranger.run(code) != first
    assert session.run(code) == other.run(code) != first
    other.close()
    stranger.close()


def test_a_copy_has_the_variables_functions_and_aliases(session: Session, world: World) -> None:
    session.run(
        f"{LOG_IN}\nx = [1]\ndef titles(q): return [n['title'] for n in box.search(query=q, access_token=notes)]"
    )
    session.run("box = apis.notes\nbox.create(title='walrus', access_token=notes)")
    copied = world.fork()
    copy = Session(copied, session.dump())
    assert copy.run("x.append(2)\nbox.create(title='osprey', access_token=notes)\nprint(x, titles('walrus'))") == (
        "[1, 2] ['walrus']"
    )
    assert session.run("print(x, titles('osprey'))") == "[1] []"
    assert copied.value("SELECT count(*) FROM notes WHERE title = 'osprey'") == 1
    assert world.value("SELECT count(*) FROM notes WHERE title = 'osprey'") == 0
    session.run("box.create(title='badger', access_token=notes)")
    assert copy.run("print(titles('badger'))") == "[]"
    copy.close()
    assert session.run("print(titles('walrus'))") == "['walrus']"


@pytest.mark.parametrize("split", Errands.splits)
def test_a_recorded_attempt_can_be_played_again(split: str) -> None:
    for task in Errands.tasks(split, Errands.Options(per_scenario=1))[:3]:
        env = Errands(Errands.Options())
        first = asyncio.run(play(env, task, env.expert(task)))
        assert first.turns > 1 and first.outcome.success
        assert asyncio.run(play(Errands(Errands.Options()), task, Script(first.said))) == first


def test_a_recorded_attempt_full_of_errors_can_be_played_again() -> None:
    task = Errands.tasks("train", Errands.Options(per_scenario=1))[0]
    codes = [code for code, error in HOSTILE.values() if error not in ("TimeoutError", "restarted")]
    lines = [react("?", code) for code in ["x = 1", *codes, "print(x)", "apis.owner.complete_task(answer=1)"]]
    first = asyncio.run(play(Errands(Errands.Options()), task, Script(lines), max_turns=100))
    again = asyncio.run(play(Errands(Errands.Options()), task, Script(lines), max_turns=100))
    assert first.turns == len(lines)
    assert again == first


def test_an_app_comes_with_the_first_code_that_names_it(session: Session) -> None:
    """A call is one question; an app that had to be sent for would be another."""
    asked = {
        "apis.docs.list_apps()": 1,
        "def f(): return apis.owner.show_time()": 0,
        "f()\nf()": 2,
        "apis.docs.list_apis(app='notes')\nf()": 2,
        "x = apis": 0,
        "x.docs.list_apps()\nx.mail.login(email='a@b.cd', password='')": 2,
    }
    for code, questions in asked.items():
        session.run(code)
        assert session._questions == questions, code
