"""Every API against anything that can be passed to it, by anyone: it does its work or says why not."""

import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from pydantic import TypeAdapter

from errands.api import NO_TOKEN, Api, ApiError, Problem
from errands.apps import APPS, BY_NAME, make_world
from errands.world import World
from tests.support.arguments import APIS, FUZZ, READS, Undo, calls, token


@pytest.fixture(scope="module")
def base() -> World:
    return make_world("fuzz")


def content(world: World) -> bytes:
    """The database, without what SQLite writes into its header whenever it writes: counters and its own version."""
    image = bytearray(world.db.serialize())
    image[24:28], image[92:100] = bytes(4), bytes(8)
    return bytes(image)


def says(problem: Problem, error: ApiError) -> bool:
    """Whether an error is this problem, with something in its blanks."""
    pattern = ".*".join(re.escape(part) for part in re.split(r"{[^}]*}", f"{problem.code} {problem.text}"))
    return error.code == problem.code and re.fullmatch(pattern, str(error), re.DOTALL) is not None


def check_error(api: Api, error: ApiError) -> None:
    """It is one that the documentation lists, or says which parameter is wrong."""
    listed = [*api.problems, *([NO_TOKEN] if api.logged_in else [])]
    about_parameters = error.code == 422 and str(error).startswith(f"422 {api.app}.{api.name}")
    assert about_parameters or any(says(problem, error) for problem in listed), f"{api.app}.{api.name}: {error}"
    assert len(str(error)) < 1000


RESULTS = {id(api): TypeAdapter(api.result) for api in APIS}


@pytest.mark.parametrize("app", BY_NAME)
def test_an_app_does_its_work_or_says_why_not(app: str, base: World) -> None:
    """Thousands of calls in all: nothing but an ApiError that is listed, a result of the promised type, nothing changed
    by a call that failed or only reads, and a consistent world after each series."""

    @FUZZ
    @given(st.lists(calls(list(BY_NAME[app].apis.values())), min_size=10, max_size=30))
    def fuzz(series: list[tuple[Api, int, dict[str, Any]]]) -> None:
        world = base.fork()
        for api, who, arguments in series:
            if who:
                arguments = {"access_token": token(world, app, who), **arguments}
            before = content(world)
            try:
                result = world.call(api, arguments)
            except ApiError as error:
                check_error(api, error)
                assert content(world) == before, f"{app}.{api.name} failed, but changed something"
                assert world.done is None
                continue
            except Exception as error:
                raise AssertionError(f"{app}.{api.name}({arguments!r:.300})") from error
            RESULTS[id(api)].validate_python(result)
            if api in READS:
                assert content(world) == before, f"{app}.{api.name} reads, but changed something"
            world.done = None
        assert world.inconsistencies() == []

    fuzz()


@pytest.mark.parametrize("app", [app.name for app in APPS if app.login])
def test_nearly_every_api_is_seen_to_work_with_such_values(app: str, base: World) -> None:
    """So that the test above does not pass for want of trying."""
    worked: set[str] = set()
    for api in BY_NAME[app].apis.values():

        def works(one: tuple[Api, int, dict[str, Any]]) -> bool:
            api, who, arguments = one
            if not who:
                return False
            try:
                with base.undone_on_error():
                    base.call(api, {"access_token": token(base, app, who), **arguments})
                    raise Undo
            except ApiError:
                return False
            except Undo:
                return True

        with suppress(NoSuchExample):
            find(calls([api]), works, settings=settings(FUZZ, max_examples=200))
            worked.add(api.name)
    missing = set(BY_NAME[app].apis) - worked - {"login"}
    assert len(missing) <= 0.15 * len(BY_NAME[app].apis), missing
