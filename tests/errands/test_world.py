"""A world is its seed: the same bytes anywhere, consistent, documented, open only to those with a token."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from errands.api import NO_TOKEN, Api, ApiError
from errands.apps import APPS, BY_NAME, find, make_world
from errands.database import Change, Database, Overspent
from errands.judge import act, same_state
from errands.world import World

APIS = [api for app in APPS for api in app.apis.values()]
WITH_LOGIN = [app.name for app in APPS if app.login]
NAMES = [f"{api.app}.{api.name}" for api in APIS]
PAGED = [f"{api.app}.{api.name}" for api in APIS if {"page", "page_size"} <= set(api.parameters)]

# Where to find values for the parameters that a list needs: what the owner has, all of it.
NEEDED = {
    "day": "SELECT DISTINCT substr(start, 1, 10) FROM calendar_events",
    "event_id": "SELECT id FROM calendar_events WHERE owner = 1",
    "folder": "SELECT path FROM files_folders WHERE owner = 1",
    "group_id": "SELECT grp FROM expenses_members WHERE person = 1",
    "label": "SELECT name FROM mail_labels WHERE owner = 1",
    "list_id": "SELECT id FROM todo_lists WHERE owner = 1",
    "month": "SELECT DISTINCT CAST(substr(birthday, 6, 2) AS INTEGER) FROM people",
    "number": "SELECT DISTINCT number FROM phone_messages WHERE owner = 1",
    "playlist_id": "SELECT id FROM music_playlists WHERE owner = 1",
    "product_id": "SELECT id FROM shop_products",
    "query": "SELECT ''",
    "until": "SELECT '2030-01-01'",
}


@pytest.fixture(scope="module")
def base() -> World:
    return make_world("base")


@pytest.fixture
def world(base: World) -> World:
    return base.fork()


def digest(world: World) -> str:
    return hashlib.blake2b(world.db.serialize()).hexdigest()


def call(world: World, name: str, **arguments: Any) -> Any:
    api = find(name)
    return world.call(api, arguments)


def password(world: World, app: str, person: int) -> dict[str, str]:
    secret = world.value("SELECT password FROM accounts WHERE app = ? AND person = ?", app, person)
    return {"email": world.people[person - 1].email, "password": secret}


@pytest.mark.parametrize("seed", ["0", "train/0/x/7", "ü"])
def test_the_same_seed_gives_the_same_bytes(seed: str) -> None:
    one, other = make_world(seed), make_world(seed)
    assert one.db.serialize() == other.db.serialize()
    assert (one.now, one.people) == (other.now, other.people)


def test_other_seeds_give_other_worlds() -> None:
    worlds = [make_world(str(seed)) for seed in range(5)]
    assert len({digest(world) for world in worlds}) == 5
    assert len({world.owner.name for world in worlds}) > 1 and len({world.now for world in worlds}) > 1


def test_another_process_with_another_hash_seed_makes_the_same_bytes() -> None:
    code = (
        "import hashlib; from errands.apps import make_world\n"
        "for n in range(4): print(hashlib.blake2b(make_world(str(n)).db.serialize()).hexdigest())"
    )
    here = [digest(make_world(str(n))) for n in range(4)]
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.split() == here


@pytest.mark.parametrize("seed", range(20))
def test_a_new_world_is_consistent(seed: int) -> None:
    world = make_world(f"consistent/{seed}")
    assert world.inconsistencies() == []
    assert world.value("PRAGMA integrity_check") == "ok", "what tables allow is not checked while it is filled"
    assert world.tokens == {}
    assert {row["person"] for row in world.all("SELECT person FROM accounts")} == {p.id for p in world.people}


def test_an_inconsistent_world_is_noticed(world: World) -> None:
    world.db.execute("PRAGMA foreign_keys = OFF")
    world.run("UPDATE wallet_accounts SET balance_cents = balance_cents + 1 WHERE owner = 1")
    world.run("DELETE FROM music_songs WHERE id = (SELECT song FROM music_library LIMIT 1)")
    broken = world.inconsistencies()
    assert any(line.startswith("wallet: ") for line in broken)
    assert any(line.startswith("foreign key: ('music_library'") for line in broken)


def test_every_table_has_an_id_that_is_never_given_twice(world: World) -> None:
    """The judge tells rows by their ids: one that was deleted must not come back as another."""
    tables = world.all("SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    assert len(tables) > 40
    for table in tables:
        assert "(id INTEGER PRIMARY KEY AUTOINCREMENT" in " ".join(table["sql"].split()), table["name"]


def test_there_are_many_apis() -> None:
    assert len(APPS) == 13 and len(BY_NAME) == 13
    assert len(APIS) >= 120
    assert all(len(app.apis) >= 3 for app in APPS)


@pytest.mark.parametrize("name", NAMES)
def test_an_api_is_documented_by_its_definition(base: World, name: str) -> None:
    api = find(name)
    shown = call(base, "docs.show", api=name)
    signature, about, returns, *errors = shown.split("\n")
    assert signature.startswith(f"{name}(") and signature.endswith(")")
    for parameter in api.parameters.values():
        label = parameter.label.removesuffix(" | None") if parameter.default is None else parameter.label
        assert f"{parameter.name}: {label}" in signature
    assert about == api.about and about[0].isupper() and about.rstrip("'\"`)").endswith((".", "?"))
    assert returns == f"Returns {api.returns}" and api.returns
    listed = [*([NO_TOKEN] if api.logged_in else []), *api.problems]
    assert errors == (["Errors: " + " ".join(f"{p.code} {p.text}" for p in listed)] if listed else [])
    for leak in ("Annotated", "typing", "ForwardRef", "NoneType", "<class", "<function"):
        assert leak not in shown


def test_the_docs_list_every_app_and_api(base: World) -> None:
    apps = call(base, "docs.list_apps")
    assert [line["app"] for line in apps] == [app.name for app in APPS] and all(line["about"] for line in apps)
    listed = [line for app in apps for line in call(base, "docs.list_apis", app=app["app"])]
    assert [line["api"] for line in listed] == NAMES and all(line["about"] for line in listed)
    with pytest.raises(ApiError, match=r"^404 There is no app 'mial'"):
        call(base, "docs.list_apis", app="mial")
    for wrong in ("search", ".search", "mial.search"):
        with pytest.raises(ApiError, match=r"^404 There is no app '.*'. The apps are docs, owner, contacts, mail,"):
            call(base, "docs.show", api=wrong)
    for wrong in ("mail", "mail.", "mail.serch", "mail.search.x"):
        with pytest.raises(ApiError, match=rf"^404 There is no API '{wrong}'. The APIs of mail are login, .*, search"):
            call(base, "docs.show", api=wrong)


def a_read(app: str) -> Api:
    """Some API of an app that needs nothing but a token."""
    names = [p for p in BY_NAME[app].apis.values() if p.logged_in and p.name != "logout"]
    return next(api for api in names if all(p.text.find("=") > 0 for p in list(api.parameters.values())[1:]))


@pytest.mark.parametrize("app", WITH_LOGIN)
def test_a_token_opens_its_app_until_it_expires(world: World, app: str) -> None:
    read, mine = a_read(app), password(world, app, 1)
    first = call(world, f"{app}.login", **mine)["access_token"]
    world.call(read, {"access_token": first})
    second = call(world, f"{app}.login", **mine)["access_token"]
    assert first != second
    other = call(world, f"{app}.login", **password(world, app, 2))["access_token"]
    with pytest.raises(ApiError, match=r"^401 "):
        world.call(read, {"access_token": first})
    world.call(read, {"access_token": second})
    call(world, f"{app}.logout", access_token=second)
    with pytest.raises(ApiError, match=r"^401 "):
        world.call(read, {"access_token": second})
    world.call(read, {"access_token": other})


@pytest.mark.parametrize("app", WITH_LOGIN)
def test_a_token_does_not_open_another_app(world: World, app: str) -> None:
    token = call(world, f"{app}.login", **password(world, app, 1))["access_token"]
    for other in WITH_LOGIN:
        if other != app:
            with pytest.raises(ApiError, match=r"^401 "):
                world.call(a_read(other), {"access_token": token})


@pytest.mark.parametrize("app", WITH_LOGIN)
def test_a_wrong_password_opens_nothing(world: World, app: str) -> None:
    mine, before = password(world, app, 1), digest(world)
    other_app = WITH_LOGIN[WITH_LOGIN.index(app) - 1]
    for wrong in ("", "x", mine["password"].upper(), password(world, app, 2)["password"], "' OR '1'='1"):
        with pytest.raises(ApiError, match=r"^401 E-mail or password is wrong"):
            call(world, f"{app}.login", email=mine["email"], password=wrong)
    with pytest.raises(ApiError, match=r"^401 "):
        call(world, f"{app}.login", **password(world, other_app, 1))
    with pytest.raises(ApiError, match=r"^401 "):
        call(world, f"{app}.login", email="no@one.com", password=mine["password"])
    assert digest(world) == before


def test_passwords_differ_between_apps_and_people(base: World) -> None:
    rows = base.all("SELECT password FROM accounts")
    assert len({row["password"] for row in rows}) > 0.99 * len(rows)


def arguments_of(world: World, api: Api) -> Iterator[dict[str, Any]]:
    """What to call a list with: everything that the owner could."""
    needed = [p.name for p in api.parameters.values() if p.name != "access_token" and p.text.find("=") < 0]
    assert len(needed) <= 1, f"{api.app}.{api.name} needs {needed}"
    if not needed:
        yield {}
    else:
        assert needed[0] in NEEDED, f"say in NEEDED what {needed[0]} of {api.app}.{api.name} can be"
        yield from ({needed[0]: row[0]} for row in world.db.execute(NEEDED[needed[0]]).fetchall())


@pytest.mark.parametrize("name", PAGED)
def test_pages_add_up_to_the_whole(base: World, name: str) -> None:
    api = find(name)
    rows = 0
    for arguments in arguments_of(base, api):

        def pages(size: int, arguments: dict[str, Any] = arguments) -> list[Any]:
            found: list[Any] = []
            page = 0
            while here := act(base, name, {**arguments, "page": page, "page_size": size}):
                assert len(here) <= size
                found += here
                page += 1
            return found

        whole = pages(20)
        assert pages(3) == whole and pages(7) == whole
        keys = [row["id"] if "id" in row else repr(row) for row in whole]
        assert len(set(keys)) == len(keys)
        rows += len(whole)
    assert rows > 0, "nothing was listed, so nothing was tested"


def test_a_copy_and_its_original_do_not_touch_each_other(world: World) -> None:
    act(world, "notes.create", {"title": "before"})
    before = digest(world)
    copy = world.fork()
    assert digest(copy) == before
    act(copy, "notes.create", {"title": "in the copy"})
    call(copy, "owner.complete_task", answer=3)
    assert digest(world) == before and world.done is None
    changed = digest(copy)
    act(world, "notes.create", {"title": "in the original"})
    world.close()
    assert digest(copy) == changed
    titles = {row["title"] for row in copy.all("SELECT title FROM notes")}
    assert {"before", "in the copy"} <= titles and "in the original" not in titles
    assert copy.fork().done == copy.done


def test_a_connection_that_is_used_again_shows_nothing_of_before(base: World) -> None:
    one = base.fork()
    act(one, "notes.create", {"title": "of the first"})
    connection, before = one.db, digest(base)
    one.close()
    other = base.fork()
    assert other.db is connection and digest(other) == before
    with pytest.raises(AssertionError, match="closed"):
        one.all("SELECT * FROM notes")


def test_a_first_call_that_fails_leaves_everything_as_it_was(base: World) -> None:
    """SQLite once emptied a database of which it had read nothing."""
    for _ in range(3):
        world = base.fork()
        with pytest.raises(ApiError, match="Only 1"), world.undone_on_error():
            world.run("UPDATE shop_products SET stock = 1")
            act(world, "shop.add_to_cart", {"product_id": 1, "quantity": 9})
        assert "shop_products" in world.written and same_state(world, base)
        assert world.inconsistencies() == []
        world.close()


def test_what_was_written_is_known_whoever_prepared_the_statement(base: World) -> None:
    for _ in range(2):
        world = base.fork()
        world.written.clear()
        note = world.value("SELECT note_id FROM notes_tags")
        act(world, "notes.search", {})
        assert world.written == set()
        act(world, "notes.delete", {"note_id": note})
        assert world.written == {"notes", "notes_tags"}, "its tags go with it"
        world.close()


def test_a_table_is_read_again_only_after_it_was_written_to(world: World) -> None:
    before, tags = world.table("notes"), world.table("notes_tags")
    assert world.table("notes") is before
    note = act(world, "notes.create", {"title": "new"})["note_id"]
    after = world.table("notes")
    assert [row[0] for row in after.rows] == [*(row[0] for row in before.rows), note]
    assert world.table("notes_tags") is tags and world.table("notes") is after
    assert after.since(before) == Change([after.rows[-1]], [])
    act(world, "notes.delete", {"note_id": note})
    assert world.table("notes") == before and not world.table("notes").since(before)
    assert before.since(after) == Change([], [note])


def test_a_table_is_what_it_is_when_read_as_a_whole_whatever_wrote_to_it(world: World) -> None:
    """Rows that are written by their ids are read by them."""
    writes: list[Callable[[World], object]] = [
        lambda w: w.add("notes", owner=1, title="new", body="", created=w.moment),
        lambda w: w.change("notes", 2, title="changed"),
        lambda w: w.change("notes", 2, title="changed again"),
        lambda w: w.remove("notes", id=3),
        lambda w: w.remove("notes", id=3),
        lambda w: w.remove("notes", owner=1, pinned=0),
        lambda w: [w.change("notes", id, title="many") for id in range(4, 40)],
        lambda w: w.run("UPDATE notes SET body = 'all'"),
    ]
    world.table("notes")
    one_by_one = world.begin()
    for number, write in enumerate(writes):
        together, alone = world.begin(), world.begin()
        for former in writes[:number]:
            former(together)
        for copy in (one_by_one, together, alone):
            write(copy)
            rows = copy.db.execute("SELECT * FROM notes ORDER BY id").fetchall()
            assert copy.table("notes").rows == [tuple(row) for row in rows]


def test_what_one_attempt_read_another_is_told_at_the_same_cost(world: World) -> None:
    def search(attempt: World, allowance: int = 10**9) -> tuple[list[Any], int]:
        attempt.allowance = allowance
        found = act(attempt, "notes.search", {"query": "e"})
        return found, allowance - attempt.allowance

    first, second, third = world.begin(), world.begin(), world.begin()
    found, cost = search(first)
    assert search(second) == (found, cost) and cost > 0
    assert second._connection is None, "nothing was asked of SQLite"
    with pytest.raises(Overspent):
        search(second, cost - 1)
    act(third, "todo.create_list", {"name": "of another table"})
    assert search(third) == (found, cost)
    act(third, "notes.rename", {"note_id": found[0]["id"], "title": "e, newly named"})
    assert search(third)[0][0]["title"] == "e, newly named"
    assert search(second) == search(world.begin()) == (found, cost)
    found[0]["title"] = "changed by whoever was given it"
    assert search(second)[0][0]["title"] != found[0]["title"]


def test_values_that_are_equal_but_of_another_type_are_other_questions(world: World) -> None:
    world.allowance = 10**9
    assert [world.value("SELECT typeof(?)", value) for value in (1, 1.0, True, "1")] == [
        *("integer", "real", "integer", "text")
    ]


def test_what_was_read_of_a_change_that_was_undone_is_forgotten(world: World) -> None:
    before = world.table("notes").rows
    with pytest.raises(ValueError, match="undo"), world.undone_on_error():
        world.run("UPDATE notes SET title = 'x'")
        assert world.table("notes").rows != before
        raise ValueError("undo")
    assert world.table("notes").rows == before


def test_equal_changes_have_equal_digests_whichever_objects_they_are_made_of() -> None:
    text, number = "".join(["a", "b"]), int("1000")
    shared = Change([(1, text, text, number, number, 0.5, None)], [7])
    apart = Change([(1, "".join(["a", "b"]), sys.intern("ab"), int("1000"), int("1000"), 0.5, None)], [7])
    assert shared.digest == apart.digest
    assert shared.digest != Change([(1, text, text, number, 1001, 0.5, None)], [7]).digest
    assert shared.digest != Change(shared.rows, [8]).digest


@pytest.mark.parametrize("count", [*range(5), 31, 32, 33, 63, 64, 77])
def test_many_rows_are_inserted_in_their_order(count: int) -> None:
    database = Database("CREATE TABLE numbers (id INTEGER PRIMARY KEY AUTOINCREMENT, half REAL, name TEXT);", None)
    rows = [(number / 2, f"number {number}") for number in range(count)]
    with database.filling():
        database.add_all("numbers", "half, name", rows)
    assert database.table("numbers").rows == [(place, *row) for place, row in enumerate(rows, 1)]


def test_a_copy_goes_on_as_its_original_would(world: World) -> None:
    """Same tokens, same ids, rules still enforced."""
    token = call(world, "notes.login", **password(world, "notes", 1))["access_token"]
    copy = world.fork()
    for one in (world, copy):
        call(one, "notes.create", title="x", access_token=token)
        call(one, "notes.login", **password(one, "notes", 1))
    assert world.db.serialize() == copy.db.serialize()
    assert copy.value("PRAGMA foreign_keys") == 1
