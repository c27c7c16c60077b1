"""A disguise: other names for the apps' APIs and their parameters, in another order, so that they must be read.

Made from a seed. An app's APIs here do what the real ones do and say in their documentation and errors what they are
called here. The apps `docs` and `owner`, `login` and `logout` are as everywhere, for the system prompt names them. A
quarter of the other names stay, one in eight says nothing, and the rest are other words for the same, so that what an
API does can be read from its sentence and not be known from its name. Most of those that do something to a thing, and
are not `known` to the task by their usual words, are called and described by a foreign verb (foreign.py). Experts speak
real names; `turn` translates.
"""

import ast
import functools
import random
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from longloop.envs.errands import foreign
from longloop.envs.errands.api import Api, ApiError, Problem
from longloop.envs.errands.apps import BY_NAME, find

_OPEN = ("docs", "owner")
_KEPT = ("login", "logout")
_FOREIGN = 0.7
"""The share of APIs that get a foreign verb, of those that may."""
_ROOM = 80
"""Characters by which the names of an app may be longer in all: its list must not be cut when it is printed."""

_PARSING = threading.Lock()
"""Python 3.11 sometimes fails with a SystemError when two threads parse at once (python/cpython#106905)."""

_MENTION = re.compile(r"\b([a-z]+)\.([a-z_]+)\b|`(\w+)`|\b(\w+)(?==)")
"""In a sentence: an API, or a parameter of the API named before, written `so` or so=."""

_THINGS = {
    "calendar": "event",
    "contacts": "contact",
    "files": "file",
    "mail": "mail",
    "notes": "note",
    "phone": "number",
    "shop": "product",
    "todo": "item",
    "wallet": "money",
}
"""What the APIs of an app are about that do not say it."""

_VERBS = {
    "accept": "agree join confirm",
    "add": "put insert include attach",
    "append": "extend write_on add_on",
    "apply": "use redeem enter",
    "archive": "store stow shelve put_away",
    "block": "ban bar mute",
    "cancel": "call_off revoke stop",
    "change": "set edit adjust alter",
    "clear": "empty reset wipe unset",
    "complete": "finish tick check_off close",
    "copy": "duplicate clone",
    "create": "make new begin write",
    "decline": "refuse reject deny",
    "delete": "erase drop discard remove destroy",
    "empty": "purge clear wipe",
    "follow": "subscribe track",
    "forward": "pass_on relay resend",
    "invite": "ask bring add_guest",
    "leave": "quit exit",
    "like": "heart favour",
    "list": "all browse get_all index every",
    "mark": "flag set tag_as",
    "move": "shift transfer put relocate",
    "next": "skip advance",
    "pause": "halt hold",
    "pay": "settle fulfil clear",
    "pin": "fix stick keep_on_top",
    "place": "submit make confirm",
    "play": "start hear",
    "queue": "enqueue line_up",
    "rate": "grade score",
    "remind": "nudge prod ask_again",
    "remove": "take_off strip detach drop",
    "rename": "retitle name call set_name",
    "reopen": "undo untick reset",
    "replace": "swap substitute exchange",
    "reply": "answer respond write_back",
    "request": "ask claim demand",
    "restore": "bring_back recover undelete",
    "rewrite": "overwrite set_text put_text",
    "search": "find lookup query seek scan",
    "send": "post dispatch deliver submit",
    "set": "put assign give write",
    "settle": "balance even",
    "share": "grant lend",
    "show": "get read view open fetch see",
    "star": "flag highlight mark",
    "start": "begin make open launch",
    "unblock": "unban allow unmute admit",
    "unshare": "revoke withdraw",
    "update": "change edit modify alter revise",
    "withdraw": "take_out pull take_back",
    "write": "post compose put",
}
_NOUNS = {
    "balance": "funds account",
    "birthdays": "birth_dates",
    "blocked": "banned barred",
    "call": "phone_call ring",
    "calls": "phone_calls rings",
    "cart": "basket trolley",
    "conversation": "chat thread",
    "conversations": "chats threads",
    "draft": "unsent sketch",
    "drafts": "unsent sketches",
    "due": "deadline due_date",
    "favourite": "preferred",
    "favourites": "preferred",
    "friend": "buddy pal",
    "friends": "buddies pals",
    "guest": "attendee",
    "guests": "attendees",
    "invitations": "invites",
    "items": "entries tasks",
    "label": "category marker",
    "labelled": "with_label",
    "labels": "categories markers",
    "list": "checklist",
    "lists": "checklists",
    "message": "text sms",
    "messages": "texts sms",
    "money": "cash funds",
    "note": "remark memo",
    "order": "purchase",
    "orders": "purchases",
    "product": "article goods",
    "quantity": "number count",
    "read": "seen",
    "reminder": "alert alarm",
    "reminders": "alerts alarms",
    "request": "demand claim",
    "requests": "demands claims",
    "review": "opinion rating",
    "reviews": "opinions ratings",
    "sent": "outbox outgoing",
    "starred": "flagged with_star",
    "tag": "keyword",
    "tags": "keywords",
    "text": "part piece",
    "transaction": "payment transfer",
    "transactions": "payments transfers",
    "unread": "unseen",
    "upcoming": "coming future",
    "voicemail": "recording",
    "voicemails": "recordings",
    "voucher": "coupon",
    "vouchers": "coupons",
    "wishlist": "wishes",
}
_PARAMETERS = {
    "address": "home_address lives_at street",
    "amount": "how_much sum money",
    "answer": "response reaction",
    "archived": "in_archive is_archived",
    "birthday": "born date_of_birth birth_date",
    "body": "text content contents",
    "category": "section department",
    "code": "voucher voucher_code coupon",
    "day": "date on_day",
    "direction": "way sent_or_received",
    "done": "finished completed is_done",
    "due": "deadline due_date by_day",
    "email": "mail_address e_mail who",
    "everyone": "to_all everybody reply_all",
    "favourite": "is_favourite preferred",
    "folder": "box in_folder",
    "kind": "type call_type",
    "label": "label_name category",
    "line": "text new_line added",
    "max_price": "price_to highest_price",
    "min_price": "price_from lowest_price",
    "minutes": "length_in_minutes lasts_minutes",
    "minutes_before": "minutes_ahead minutes_earlier",
    "name": "called named",
    "new": "new_text by replacement",
    "note": "remark comment memo",
    "number": "phone phone_number telephone",
    "old": "old_text what piece",
    "page": "page_number page_no",
    "page_size": "per_page limit",
    "phone": "phone_number telephone mobile",
    "pinned": "pin on_top is_pinned",
    "place": "location where venue",
    "priority": "importance urgency",
    "quantity": "how_many count pieces",
    "query": "words search_for contains phrase q",
    "read": "is_read seen",
    "reason": "why because",
    "relation": "relationship who_is_it",
    "sender": "sent_by author",
    "since": "from_day first_day",
    "sort": "order_by sorted_by",
    "starred": "with_star has_star",
    "stars": "rating score",
    "start": "begins starts_at when",
    "status": "state only",
    "subject": "heading topic headline",
    "tag": "keyword tag_name",
    "text": "content words wording",
    "title": "heading called headline",
    "to": "recipients receivers addressees",
    "until": "up_to last_day",
}
_ID = ("{}", "{}_number", "{}_ref", "id_of_{}", "which_{}")
"""For parameters that end in _id."""


@dataclass(frozen=True)
class _Names:
    """What an API and its parameters are called."""

    api: str
    parameters: Mapping[str, str]
    verb: str = ""
    """The foreign one, if it does something by one."""


@dataclass(frozen=True)
class Disguise:
    """The names of one task, the same for the same seed."""

    seed: str
    known: frozenset[str] = frozenset()
    """APIs that keep their sentences, because the task asks for what they do in the usual words."""

    def apis(self, app: str) -> Mapping[str, Api]:
        """An app's APIs by what they are called here."""
        return _apis(self, app)

    def name(self, api: str) -> str:
        """What an API is called here, both as app.api."""
        return _said(self, api)

    def parameter(self, api: str, name: str) -> str:
        """What a parameter of an API is called here."""
        app, _, of = api.partition(".")
        return _names(self, app)[of].parameters.get(name, name)

    def verb(self, api: str) -> str:
        """The foreign verb for what an API does, if it has one."""
        app, _, name = api.partition(".")
        return _names(self, app)[name].verb

    def sentence(self, api: str) -> str:
        """What the list says of an API, with real names."""
        verb = self.verb(api)
        return f"{verb.capitalize()} {foreign.thing(find(api))}." if verb else find(api).summary

    def turn(self, thought: str, code: str) -> tuple[str, str]:
        """What an expert who speaks real names would say here."""
        return _said(self, thought), self._code(code)

    def _code(self, code: str) -> str:
        lines = [line.encode() for line in code.split("\n")]  # positions are counted in bytes
        with _PARSING:
            tree = ast.parse(code)
        for line, column, old, new in sorted(self._changes(tree), reverse=True):
            text = lines[line - 1]
            lines[line - 1] = text[:column] + new.encode() + text[column + len(old) :]
        return b"\n".join(lines).decode()

    def _changes(self, tree: ast.AST) -> list[tuple[int, int, str, str]]:
        """(line, column, what stands there, what should)."""
        changes: list[tuple[int, int, str, str]] = []
        for node in ast.walk(tree):
            match node:
                case ast.keyword("api", ast.Constant(str(api)) as text):  # in docs.show(api="app.api")
                    changes.append((text.lineno, text.col_offset + 1, api, self.name(api)))
                case ast.Call(ast.Attribute(ast.Attribute(ast.Name("apis"), app), api) as called, _, keywords):
                    names = _names(self, app)[api]
                    changes.append((called.end_lineno or 0, (called.end_col_offset or 0) - len(api), api, names.api))
                    for word in keywords:
                        if word.arg and (new := names.parameters.get(word.arg)):
                            changes.append((word.lineno, word.col_offset, word.arg, new))
        return changes


@functools.lru_cache(maxsize=256)
def _names(disguise: Disguise, app: str) -> dict[str, _Names]:
    """By the real name, in the order in which they are listed here."""
    real = BY_NAME[app].apis
    rng = random.Random(f"{disguise.seed}/{app}/disguise")
    names = {name: _Names(name, {}) for name in real if app in _OPEN or name in _KEPT}
    others = [name for name in real if name not in names]
    rng.shuffle(others)
    taken, room, verbs = set(real), _ROOM, _verbs(disguise.seed, app)
    for name in others:
        parameters = _new_parameters(list(real[name].parameters), rng)
        thing = "" if f"{app}.{name}" in disguise.known else foreign.thing(real[name])
        verb = verbs.pop() if thing and verbs and rng.random() < _FOREIGN else ""
        new = _new_name(app, f"{verb}_{thing.split()[-1]}" if verb else name, taken, room, rng)
        taken.add(new)
        room -= len(new) - len(name)
        names[name] = _Names(new, parameters, verb)
    return names


def _verbs(seed: str, app: str) -> list[str]:
    """The foreign verbs that an app may have; no other has them."""
    all_of_them = random.Random(f"{seed}/verbs").sample(foreign.VERBS, len(foreign.VERBS))
    return all_of_them[list(BY_NAME).index(app) :: len(BY_NAME)]


@functools.lru_cache(maxsize=256)
def _apis(disguise: Disguise, app: str) -> dict[str, Api]:
    made = (_disguised(disguise, BY_NAME[app].apis[name], names) for name, names in _names(disguise, app).items())
    return {api.name: api for api in made}


def _disguised(disguise: Disguise, api: Api, names: _Names) -> Api:
    real = {new: old for old, new in names.parameters.items()}

    def say(text: str) -> str:
        return _said(disguise, text, names)

    def function(world: Any, **values: Any) -> Any:
        try:
            return api.function(world, **{real.get(name, name): value for name, value in values.items()})
        except ApiError as error:
            if problems == api.problems:
                raise
            raise ApiError(error.code, say(str(error).removeprefix(f"{error.code} "))) from None

    problems = tuple(Problem(problem.code, say(problem.text)) for problem in api.problems)
    parameters = (replace(p, name=names.parameters.get(p.name, p.name)) for p in api.parameters.values())
    return replace(
        api,
        name=names.api,
        about=disguise.sentence(f"{api.app}.{api.name}") if names.verb else say(api.about),
        parameters={parameter.name: parameter for parameter in parameters},
        problems=problems,
        function=function,
    )


def _said(disguise: Disguise, text: str, names: _Names | None = None) -> str:
    """A sentence with the names of here. `names` are of the API that it is about, if one is known."""

    def here(match: re.Match[str]) -> str:
        nonlocal names
        app, api, marked, given = match.groups()
        if app is None:
            new = names.parameters.get(marked or given) if names else None
            return match[0].replace(marked or given, new) if new else match[0]
        if app not in BY_NAME or api not in BY_NAME[app].apis:
            return match[0]
        names = _names(disguise, app)[api]
        return f"{app}.{names.api}"

    return _MENTION.sub(here, text)


def _new_name(app: str, name: str, taken: set[str], room: int, rng: random.Random) -> str:
    """Another name, or the same; never one that is taken, nor one too long."""
    luck = rng.random()
    if luck < 0.25:
        return name
    for _ in range(20 if luck < 0.875 else 0):
        new = _synonym(app, name, rng)
        if new not in taken and len(new) - len(name) <= room:
            return new
    while (new := f"{rng.choice(('do', 'op', 'fn'))}_{rng.choice('bdfgkmprst')}{rng.randrange(10)}") in taken:
        pass
    return new


def _synonym(app: str, name: str, rng: random.Random) -> str:
    verb, *nouns = name.split("_")
    verb = rng.choice((verb, *_VERBS.get(verb, "").split()))
    nouns = [rng.choice((noun, *_NOUNS.get(noun, "").split())) for noun in nouns]
    nouns = nouns or ([_THINGS[app]] if app in _THINGS and rng.random() < 0.6 else [])
    first, last = "_".join([verb, *nouns]), "_".join([noun for noun in nouns if noun not in ("to", "from")] + [verb])
    return rng.choice((first, first, last, re.sub("_(.)", lambda part: part[1].upper(), first)))


def _new_parameters(names: list[str], rng: random.Random) -> dict[str, str]:
    """Those that are called otherwise."""
    new: dict[str, str] = {}
    for name in names:
        thing = name.removesuffix("_id")
        others = _PARAMETERS.get(name, "").split() if thing == name else [form.format(thing) for form in _ID]
        free = [other for other in others if other not in names and other not in new.values()]
        if free and rng.random() < 0.75:
            new[name] = rng.choice(free)
    return new
