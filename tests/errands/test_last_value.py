"""As in a notebook: the value of an expression at the end of the code comes back."""

from collections.abc import Iterator

import pytest

from errands.apps import make_world
from errands.session import NOTHING, OUTPUT, Session


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    made = Session(make_world("notebook"))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("x = 3\nx", "3"),
        ("x = 3; x", "3"),
        ("x = 'é'; x + 'ü'", "'éü'"),
        ("(1,\n 2)", "(1, 2)"),
        ("1, 2", "(1, 2)"),
        ("x = 5\nx  # the last line", "5"),
        ("print(1)\n2", "1\n2"),
        ("print(1)", "1"),
        ("None", NOTHING),
        ("[].append(1)", NOTHING),
        ("x = 4", NOTHING),
        ("for i in range(2):\n    i", NOTHING),
        ("apis.owner.show_profile()['name'] != ''", "True"),
        ("7\n_ + 1", "8"),
    ],
)
def test_the_value_at_the_end_is_shown(session: Session, code: str, seen: str) -> None:
    session.run("_ = 7")
    assert session.run(code) == seen


def test_an_error_shows_the_code_as_it_was_written(session: Session) -> None:
    assert session.run("x = {}\nx['b']") == (
        "Traceback (most recent call last):\n  File \"code\", line 2, in <module>\n    x['b']\n    ~~~~~~\nKeyError: b"
    )
    inner = session.run("def f():\n    _ = {}['c']\n    return _\nf()")
    assert "\n    f()\n    ~~~\n" in inner and "KeyError: c" in inner


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("x = {}; x['b']", "x = {}; x['b']\n            ~~~~~~"),
        ("x = 1; 1/0; x", "x = 1; 1/0; x\n           ~~~"),
        ("é = {}; é['b']", "é = {}; é['b']\n            ~~~~~~"),
        ("def f():\n    _ = {}['c']\n    return _\nx = 1; f()", "x = 1; f()\n           ~~~"),
        ("def f():\n    _ = {}['c']\n    return _\nf()", "_ = {}['c']\n        ~~~~~~~"),
    ],
)
def test_what_an_error_marks_is_where_it_was_written(session: Session, code: str, seen: str) -> None:
    assert f"\n    {seen}\n" in session.run(code)


def test_what_is_shown_is_limited_as_what_is_printed(session: Session) -> None:
    assert "characters more were cut" in session.run("list(range(10_000))")
    shared = "x = 'lol'\nfor i in range(40):\n    x = [x, x]\nx"
    seen = session.run(shared)
    assert ("Error" in seen or "characters more were cut" in seen) and len(seen) < 2 * OUTPUT
    assert session.run("1 + 1") == "2"
