"""Every API against anything that can be passed to it, by anyone: it does its work or says why not, and is private."""

import functools
import re
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from longloop.envs.errands.api import NO_TOKEN, Api, ApiError, Problem
from longloop.envs.errands.apps import APPS, BY_NAME, find
from longloop.envs.errands.world import World

APIS = [api for app in APPS for api in app.apis.values()]
READS = [api for api in APIS if api.name.startswith(("list_", "show", "search"))]
WRITES = [api for api in APIS if api not in READS and api.logged_in and api.name != "logout"]
PEOPLE = (1, 2, 8, 12)
"""The owner, and strangers from different circles."""
IDS = 140
"""Most tables have fewer rows than this."""

FUZZ = settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=40,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def base() -> World:
    return World.make("fuzz")


def content(world: World) -> bytes:
    """The database, without the counters that SQLite raises when it writes the same again."""
    image = bytearray(world.db.serialize())
    image[24:28] = image[92:96] = bytes(4)
    return bytes(image)


def token(world: World, app: str, person: int) -> str:
    secret = world.value("SELECT password FROM accounts WHERE app = ? AND person = ?", app, person)
    made = world.log_in(app, world.people[person - 1].email, secret)
    assert made is not None
    return made


# -- anything that can be passed ---------------------------------------------------------------------------------------

JUNK: list[Any] = [
    *(None, True, False, 0, -1, 1.5, 2**31, 2**31 + 1, 2**63, -(2**200), 10**5000, 1e308, -0.0, 0.001, 100_000.01),
    *(float("nan"), float("inf"), -float("inf"), 1 + 2j, b"x", object(), print, str, ...),
    *(
        "",
        " ",
        "\n",
        "\x00",
        "a\x00b",
        "\ud800",
        "%",
        "_",
        "%%%",
        "\\",
        "'; DROP TABLE people; --",
        "{id}",
        "{",
        "x" * 201,
    ),
    *("x" * 4001, "x" * 10**6, "ﬁ İ ß \u202e 😀", "None", "nan", "1", "0000-00-00", "2026-02-30", "2026-1-1", "25:00"),
    *([], [None], [[]], ["x"] * 50, (), {}, {"a": 1}, {1}, [{"email": "x", "amount": -1}], range(3)),
]
DAYS = ["1000-01-01", "1999-12-31", "2026-02-28", "2026-08-10", "2027-01-01", "9999-12-31"]
MOMENTS = [f"{day} {time}" for day in DAYS for time in ("00:00", "12:30", "23:55")]
AMOUNTS = [0.01, 1, 3.5, 12.34, 50, 999.99, 100_000, 0.1 + 0.2]


WHERE = {
    # Where the values of a parameter are found: app.parameter, or the parameter in any app.
    "address_id": "SELECT id FROM addresses WHERE person IN (1, 2)",
    "artist": "SELECT DISTINCT artist FROM music_songs",
    "call_id": "SELECT id FROM phone_calls",
    "card_id": "SELECT id FROM cards WHERE person IN (1, 2)",
    "code": "SELECT code FROM shop_vouchers WHERE owner = 1",
    "contact_id": "SELECT id FROM contacts",
    "draft_id": "SELECT id FROM mail_messages WHERE folder = 'drafts'",
    "event_id": "SELECT id FROM calendar_events",
    "expense_id": "SELECT id FROM expenses_items",
    "file_id": "SELECT id FROM files_files",
    "folder": "SELECT path FROM files_folders WHERE owner = 1",
    "group_id": "SELECT id FROM expenses_groups",
    "item_id": "SELECT id FROM todo_items",
    "list_id": "SELECT id FROM todo_lists",
    "mail.label": "SELECT name FROM mail_labels",
    "mail.message_id": "SELECT id FROM mail_messages",
    "note_id": "SELECT id FROM notes",
    "old": "SELECT body FROM notes WHERE body NOT LIKE '%\n%' UNION SELECT 'a'",
    "order_id": "SELECT id FROM shop_orders WHERE owner = 1",
    "path": "SELECT path FROM files_folders WHERE owner = 1 UNION SELECT 'New' UNION SELECT 'New/er'",
    "phone.message_id": "SELECT id FROM phone_messages",
    "phone.number": "SELECT number FROM phone_messages UNION SELECT number FROM phone_blocked",
    "playlist_id": "SELECT id FROM music_playlists",
    "product_id": "SELECT id FROM shop_products",
    "reminder_id": "SELECT id FROM calendar_reminders",
    "request_id": "SELECT id FROM wallet_requests",
    "song_id": "SELECT id FROM music_songs",
    "tag": "SELECT DISTINCT tag FROM notes_tags",
    "transaction_id": "SELECT id FROM wallet_transactions",
    "voicemail_id": "SELECT id FROM phone_voicemails",
}
WORDS = ["x", "Trip", "a.txt", "b.csv", "milk", "lunch", "A longer line of text."]


def known(world: World, app: str, name: str) -> list[Any]:
    """What exists for a parameter."""
    query = WHERE.get(f"{app}.{name}") or WHERE.get(name)
    return [row[0] for row in world.db.execute(query)] if query else []


def sensible(hint: Any, name: str, world: World, app: str) -> st.SearchStrategy[Any]:
    """Values that an API may well take for a parameter of this type."""
    if here := known(world, app, name):
        return st.sampled_from(here)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    emails = [person.email for person in world.people]
    if origin is typing.Annotated:
        named = str([extra for extra in hint.__metadata__ if "Label" in type(extra).__name__])
        labelled = {
            "e-mail": [*emails, "no@one.org"],
            "7 digits": [*(person.phone for person in world.people), "0000000"],
            "YYYY-MM-DD HH:MM": MOMENTS,
            "YYYY-MM-DD": [*DAYS, world.today],
            "amount": AMOUNTS,
        }
        for label, values in labelled.items():
            if label in named:
                return st.sampled_from(values)
        return sensible(arguments[0], name, world, app)
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin is list:
        return st.lists(sensible(arguments[0], name, world, app), max_size=4)
    if typing.is_typeddict(hint) or hasattr(hint, "__total__"):
        fields = typing.get_type_hints(hint, include_extras=True)
        return st.fixed_dictionaries({key: sensible(kind, key, world, app) for key, kind in fields.items()})
    if arguments:
        return st.one_of(*(sensible(argument, name, world, app) for argument in arguments))
    plain: dict[Any, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        int: st.integers(0, 25),
        float: st.sampled_from(AMOUNTS),
        str: st.one_of(st.sampled_from(WORDS), st.text(max_size=20)),
        type(None): st.none(),
        Any: st.sampled_from(JUNK),
    }
    return plain[hint]


def mostly(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 9).flatmap(lambda n: good if n else st.sampled_from(JUNK))


@functools.cache
def values_named(name: str) -> dict[str, tuple[st.SearchStrategy[Any], bool]]:
    api = find(name)
    assert api is not None
    hints = typing.get_type_hints(api.function, include_extras=True)
    world = World.make("fuzz")
    return {
        p.name: (
            mostly(sensible(hints[p.name], p.name, world, api.app)),
            p.text.find("=") < 0,
        )
        for p in api.parameters.values()
        if p.name != "access_token"
    }


def values_of(api: Api) -> dict[str, tuple[st.SearchStrategy[Any], bool]]:
    """Of each parameter but the token: how to draw it, and whether it must be given."""
    return values_named(f"{api.app}.{api.name}")


def passed(api: Api) -> st.SearchStrategy[dict[str, Any]]:
    """All that must be given, and some of what may be."""
    every = values_of(api).items()
    needed = {name: values for name, (values, must) in every if must}
    return st.fixed_dictionaries(needed, optional={name: values for name, (values, must) in every if not must})


@st.composite
def calls(draw: st.DrawFn, apis: list[Api]) -> tuple[Api, int, dict[str, Any]]:
    """An API, who calls it (0: nobody, with some token), and what is passed."""
    api = draw(st.sampled_from(apis))
    arguments = {}
    for name, (values, needed) in values_of(api).items():
        if draw(st.integers(0, 19)) if needed else draw(st.booleans()):
            arguments[name] = draw(values)
    if draw(st.integers(0, 30)) == 0:
        arguments[draw(st.sampled_from(["id", "me", "w", "page ", ""]))] = 1
    if not api.logged_in:
        return api, 0, arguments
    who = draw(st.sampled_from([1, 1, 1, *PEOPLE, 0]))
    if who == 0:
        arguments["access_token"] = draw(st.sampled_from([*JUNK, "mail-00000000"]))
    return api, who, arguments


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

        @settings(FUZZ, max_examples=60)
        @given(calls([api]))
        def attempt(one: tuple[Api, int, dict[str, Any]]) -> None:
            api, who, arguments = one
            if not who or api.name in worked:
                return
            try:
                with base.undone_on_error():
                    base.call(api, {"access_token": token(base, app, who), **arguments})
                    raise Undo
            except ApiError:
                return
            except Undo:
                worked.add(api.name)

        attempt()
    missing = set(BY_NAME[app].apis) - worked - {"login"}
    assert len(missing) <= 0.15 * len(BY_NAME[app].apis), missing


class Undo(Exception):
    """To take back what was done."""


# -- whose what is -----------------------------------------------------------------------------------------------------

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


def tables(world: World) -> list[str]:
    found = world.all("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    return [row["name"] for row in found if row["name"] not in ("people", "accounts", "tokens")]


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
