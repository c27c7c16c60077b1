"""What belongs to another person can be neither read nor changed, whatever is called."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings

from errands.api import Api, ApiError
from errands.apps import APPS, make_world
from errands.world import World
from tests.support.arguments import APIS, FUZZ, PEOPLE, READS, WHERE, Undo, passed, token, values_of

WRITES = [api for api in APIS if api not in READS and api.logged_in and api.name != "logout"]
IDS = 140
"""Most tables have fewer rows than this."""
GROUP = "SELECT person FROM expenses_members WHERE grp = "
ITEMS = "SELECT grp FROM expenses_items WHERE id = "
SHARED = {
    # What several people may see and change by its nature: a query for who may, by the id of the row.
    "calendar_guests": "SELECT guest FROM calendar_guests WHERE id = ?1 UNION SELECT owner FROM calendar_events WHERE "
    "id = (SELECT event_id FROM calendar_guests WHERE id = ?1)",
    "calendar_reminders": "SELECT owner FROM calendar_reminders WHERE id = ?1 UNION SELECT owner FROM calendar_events "
    "WHERE id = (SELECT event_id FROM calendar_reminders WHERE id = ?1)",
    "expenses_groups": f"{GROUP} ?1",
    "expenses_members": f"{GROUP} (SELECT grp FROM expenses_members WHERE id = ?1)",
    "expenses_items": f"{GROUP} ({ITEMS} ?1)",
    "expenses_settlements": f"{GROUP} (SELECT grp FROM expenses_settlements WHERE id = ?1)",
    "expenses_shares": f"{GROUP} ({ITEMS} (SELECT item FROM expenses_shares WHERE id = ?1))",
    "expenses_comments": f"{GROUP} ({ITEMS} (SELECT item FROM expenses_comments WHERE id = ?1))",
    "files_shares": "SELECT owner FROM files_files WHERE id = (SELECT file FROM files_shares WHERE id = ?1)",
    "mail_labelled": "SELECT owner FROM mail_messages WHERE id = (SELECT message FROM mail_labelled WHERE id = ?1)",
    "music_tracks": "SELECT owner FROM music_playlists WHERE id = (SELECT playlist FROM music_tracks WHERE id = ?1)",
    "notes_tags": "SELECT owner FROM notes WHERE id = (SELECT note_id FROM notes_tags WHERE id = ?1)",
    "shop_order_items": "SELECT o.owner FROM shop_orders o JOIN shop_order_items i ON order_id = o.id WHERE i.id = ?1",
    "wallet_requests": "SELECT owner FROM wallet_requests WHERE id = ?1 UNION SELECT payer FROM wallet_requests WHERE "
    "id = ?1",
}
SEEN = SHARED | {
    # What others may see, but not change.
    "calendar_events": "SELECT owner FROM calendar_events WHERE id = ?1 UNION SELECT guest FROM calendar_guests WHERE "
    "event_id = ?1",
    "files_files": "SELECT owner FROM files_files WHERE id = ?1 UNION SELECT person FROM files_shares WHERE file = ?1",
    "music_playlists": "SELECT p.id FROM people p JOIN music_playlists m ON m.id = ?1 WHERE public OR owner = p.id",
    "shop_reviews": "SELECT id FROM people WHERE ?1",
}
DELIVERED = ("mail_messages", "phone_messages", "phone_calls", "wallet_transactions")
"""Where others may leave something new with a person, and no more."""
COMMON = ("shop_products", "wallet_accounts")
"""Stock, which everyone's orders take from; balances, which anyone's payments add to."""


@pytest.fixture(scope="module")
def base() -> World:
    return make_world("fuzz")


def tables(world: World) -> list[str]:
    found = world.all("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    return [row["name"] for row in found if row["name"] not in ("people", "accounts")]


def columns(world: World, table: str) -> set[str]:
    return {row["name"] for row in world.all(f"PRAGMA table_info({table})")}


def texts(world: World, table: str) -> list[str]:
    free = {"title", "subject", "body", "text", "note", "name", "path", "code", "label", "tag", "place", "sender"}
    return [r["name"] for r in world.all(f"PRAGMA table_info({table})") if r["name"] in free and r["type"] == "TEXT"]


def may(world: World, queries: dict[str, str], table: str, id: int) -> set[int]:
    """Who may, by the queries; without one, the person that the row names as its own."""
    own = "owner" if "owner" in columns(world, table) else "person"
    query = queries.get(table) or f"SELECT {own} FROM {table} WHERE id = ?1"
    return {row[0] for row in world.db.execute(query, (id,))}


def private(world: World) -> list[str]:
    """The tables whose rows are someone's; the others are catalogues."""
    return [t for t in tables(world) if t in SEEN or columns(world, t) & {"owner", "person"}]


def tainted(world: World) -> World:
    """A world in which every text that is someone's says of which row it is."""
    copy = world.fork()
    for table in private(copy):
        for column in texts(copy, table):
            copy.run(f"UPDATE {table} SET {column} = {column} || ' <{table} ' || id || '>'")
    return copy


def everything_readable(world: World, person: int) -> str:
    """What someone gets from all reading APIs, with every id there could be."""
    choose: dict[str, list[Any]] = {
        "email": [p.email for p in world.people],
        "number": [p.phone for p in world.people],
        "day": [world.day(offset) for offset in range(-50, 40)],
        "until": ["2030-01-01"],
        "month": list(range(1, 13)),
        "query": [""],
        "label": [row["name"] for row in world.all("SELECT name FROM mail_labels")],
        "folder": [row["path"] for row in world.all("SELECT path FROM files_folders")],
    }
    seen = []
    for api in READS:
        if not api.logged_in:
            continue  # these are the owner's, who is the agent
        mine = {"access_token": token(world, api.app, person)}
        needed = [name for name, (_, must) in values_of(api).items() if must]
        assert len(needed) <= 1, f"{api.app}.{api.name} needs {needed}"
        choices = choose.get(needed[0], list(range(1, IDS))) if needed else [None]
        pages = [{"page": page, "page_size": 20} for page in range(4)] if "page" in api.parameters else [{}]
        for choice in choices:
            for page in pages:
                try:
                    found = world.call(api, mine | page | ({needed[0]: choice} if needed else {}))
                except ApiError:
                    break
                seen.append(repr(found))
                if not found:
                    break
    return "\n".join(seen)


def rows_in(text: str) -> set[tuple[str, int]]:
    return {(table, int(id)) for table, id in re.findall(r"<(\w+) (\d+)>", text)}


@pytest.mark.parametrize("person", PEOPLE)
def test_nobody_reads_what_belongs_to_another(base: World, person: int) -> None:
    world = tainted(base)
    seen = rows_in(everything_readable(world, person))
    assert seen, "nothing was read, so nothing was tested"
    for table, id in sorted(seen):
        assert person in may(world, SEEN, table, id), f"{person} reads {table} {id}"


@pytest.mark.parametrize("person", PEOPLE)
def test_nobody_reaches_a_row_by_its_number_that_is_not_theirs_to_see(base: World, person: int) -> None:
    """Also where what comes back says nothing of its own: the songs of a private playlist are a secret too."""
    reached, refused = 0, 0
    for api in READS:
        needed = [name for name, (_, must) in values_of(api).items() if must and name.endswith("_id")]
        if not needed:
            continue
        table = WHERE.get(f"{api.app}.{needed[0]}", WHERE.get(needed[0], "")).partition(" FROM ")[2].split()[0]
        mine = {"access_token": token(base, api.app, person)}
        for row in base.all(f"SELECT id FROM {table}") if table in private(base) else ():
            try:
                base.call(api, mine | {needed[0]: row["id"]})
            except ApiError:
                refused += 1
                continue
            reached += 1
            assert person in may(base, SEEN, table, row["id"]), f"{person} reaches {table} {row['id']}"
    assert reached > 3 and refused > 100


def test_the_owner_reads_nearly_everything_that_is_the_owners(base: World) -> None:
    """So that the test above does not pass for want of trying."""
    world = tainted(base)
    seen = rows_in(everything_readable(world, 1))
    own = {
        (table, row["id"])
        for table in private(world)
        if texts(world, table) and table not in ("addresses", "cards")  # these are shown by the app `owner`
        for row in world.all(f"SELECT id FROM {table}")
        if 1 in may(world, SEEN, table, row["id"])
    }
    assert len(own) > 200
    assert len(own - seen) < 0.05 * len(own), sorted(own - seen)


def watch(world: World) -> None:
    """Note every row that is added, changed or removed."""
    world.db.execute("CREATE TEMP TABLE seen (what TEXT, tab TEXT, row INTEGER)")
    for table in tables(world):
        for what, which in (("INSERT", "NEW"), ("UPDATE", "OLD"), ("DELETE", "OLD")):
            world.db.execute(
                f"CREATE TEMP TRIGGER {table}_{what} AFTER {what} ON main.{table} "
                f"BEGIN INSERT INTO seen VALUES ('{what}', '{table}', {which}.id); END"
            )


def effects(world: World, api: Api, arguments: dict[str, Any]) -> Iterator[tuple[str, str, int, World]]:
    """(what, table, row) of all that a call changes; the call is undone afterwards."""
    try:
        with world.undone_on_error():
            try:
                world.call(api, arguments)
            except ApiError:
                return
            yield from [(row[0], row[1], row[2], world) for row in world.db.execute("SELECT * FROM seen").fetchall()]
            raise Undo
    except Undo:
        return


@pytest.mark.parametrize("person", PEOPLE[1:])
def test_nobody_changes_what_belongs_to_another(base: World, person: int) -> None:
    """Every writing API with every id and fitting values, by someone who is not the owner."""
    world = base.fork()
    watch(world)
    tokens = {app.name: token(world, app.name, person) for app in APPS if app.login}
    balances = {row["owner"]: row["balance_cents"] for row in world.all("SELECT * FROM wallet_accounts")}
    changed: set[str] = set()

    def check(api: Api, arguments: dict[str, Any]) -> None:
        new: set[tuple[str, int]] = set()
        for what, table, id, after in effects(world, api, {**arguments, "access_token": tokens[api.app]}):
            changed.add(f"{api.app}.{api.name}")
            where = f"{api.app}.{api.name}({arguments}): {what} {table} {id}"
            if what == "INSERT":
                new.add((table, id))
                whose = may(after, SHARED, table, id)  # nobody's when it is already gone again
                assert table in DELIVERED or not whose or person in whose, where
            elif table == "wallet_accounts":
                for row in after.all("SELECT * FROM wallet_accounts"):
                    assert row["owner"] == person or row["balance_cents"] >= balances[row["owner"]], where
            elif table not in COMMON and (table, id) not in new:
                assert person in may(base, SHARED, table, id), where

    for api in WRITES:
        ids = [name for name, (_, must) in values_of(api).items() if must and name.endswith("_id")]

        @settings(FUZZ, max_examples=4 if ids else 20)
        @given(passed(api))
        def attempt(drawn: dict[str, Any]) -> None:
            for id in range(1, IDS if ids else 2):  # noqa: B023 (called before the loop goes on)
                check(api, drawn | ({ids[0]: id} if ids else {}))  # noqa: B023

        attempt()
    assert len(changed) > 0.5 * len(WRITES), sorted({f"{a.app}.{a.name}" for a in WRITES} - changed)
