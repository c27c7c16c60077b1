"""What can be passed to the APIs of Errands: values that fit, values that exist, and junk."""

import functools
import typing
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from errands.api import Api
from errands.apps import APPS, find, make_world
from errands.world import World

APIS = [api for app in APPS for api in app.apis.values()]
PEOPLE = (1, 2, 8, 12)
"""The owner, and strangers from different circles."""
READS = [api for api in APIS if api.name.startswith(("list_", "show", "search"))]

FUZZ = settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=40,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def token(world: World, app: str, person: int) -> str:
    secret = world.value("SELECT password FROM accounts WHERE app = ? AND person = ?", app, person)
    made = world.log_in(app, world.people[person - 1].email, secret)
    assert made is not None
    return made


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
    world = make_world("fuzz")
    return {
        p.name: (
            mostly(sensible(p.hint, p.name, world, api.app)),
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


class Undo(Exception):
    """To take back what was done."""
