"""Other words for the names of APIs and parameters: what a disguise draws from."""

import random
import re

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


def new_name(app: str, name: str, taken: set[str], room: int, rng: random.Random) -> str:
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


def new_parameters(names: list[str], rng: random.Random) -> dict[str, str]:
    """Those that are called otherwise."""
    new: dict[str, str] = {}
    for name in names:
        thing = name.removesuffix("_id")
        others = _PARAMETERS.get(name, "").split() if thing == name else [form.format(thing) for form in _ID]
        free = [other for other in others if other not in names and other not in new.values()]
        if free and rng.random() < 0.75:
            new[name] = rng.choice(free)
    return new
