"""Foreign words: verbs and nouns that no app has and no errand.

In a disguise some APIs do by such a verb what they do to a thing, or the thing has such a noun for a name, and a drill
asks for it by these words: which API is meant is then said by the sentence in the list and by nothing else.
"""

import re

from errands.api import Api

_VERBS = """
absorb anchor animate appraise approve auction audit bake bend blend bleach blur bolt boost bounce brew broadcast
bundle caption carve certify charm chase chill chop clip compress cool crown decode demolish demote digest dim
dock drill dub dye emboss encode encrypt endorse engrave escalate exhibit export ferment filter fold frame freeze
garnish glaze graft greet grind groom hammer harvest haul hide hoist hold hum ignite inflate inject inspect insure
iron juggle kick knit laminate launch lease link lock mirror mortgage narrate paddle paint park pickle plough polish
praise print promote prune rank recite rehearse release render renovate rinse roast rotate saddle salute scramble
scrub seal shuffle sign sketch slice snooze soak solder spice spin sponsor stamp staple steer stir stitch
stretch sweep sweeten tackle tame tease thaw tilt tint toast toss tow trace track translate trim twirl unfold unpack
unwrap varnish verify weave weigh weld whisk wrap zip
"""
_NOUNS = """
badger banjo barrel beacon beetle biscuit blossom boulder bramble bucket button candle canyon carrot
castle cedar cinder clover cobweb comet coral cradle cricket crystal dagger dolphin dragon falcon feather fiddle flute
fossil fountain gadget geyser glacier goblet hamster harbour hedgehog helmet hinge jewel jigsaw kettle ladder lemon
lizard locket magnet marble meadow meteor mitten monsoon paddock parrot pebble pelican pendulum pepper petal pigeon
pillar planet plum puddle puppet pyramid quilt rabbit raisin ribbon riddle river rocket sparrow spider spindle sponge
squirrel tadpole teapot thimble thistle throne tiger tulip tunnel turnip turtle violin waffle walnut whale willow
windmill zebra
"""
VERBS, NOUNS = tuple(_VERBS.split()), tuple(_NOUNS.split())
USUAL = (
    *("note", "mail", "voicemail", "call", "text message", "conversation", "event", "reminder", "transaction"),
    *("request", "friend", "product", "voucher", "order", "item", "list"),
)
"""The nouns in whose place a foreign one may stand."""
FORMS = (
    "{verb} {it} in the app {app}.",
    "Use the app {app} to {verb} {it}.",
    "Please {verb} {it} with the app {app}.",
    "In the app {app}, {verb} {it}.",
)
"""How something is wished by a foreign verb."""

_THINGS = {
    "call_id": "a call",
    "code": "a voucher",
    "contact_id": "a contact",
    "draft_id": "a draft",
    "email": "someone",
    "event_id": "an event",
    "item_id": "an item",
    "list_id": "a list",
    "note_id": "a note",
    "number": "a number",
    "order_id": "an order",
    "product_id": "a product",
    "reminder_id": "a reminder",
    "request_id": "a request",
    "transaction_id": "a transaction",
    "voicemail_id": "a voicemail",
}
"""By the first parameter of an API."""


def thing(api: Api) -> str:
    """What an API does something to; nothing if it only tells something."""
    first = next((name for name in api.parameters if name != "access_token"), "")
    if api.name.startswith(("list_", "search", "show")):
        return ""
    if first == "message_id":
        return "a mail" if api.app == "mail" else "a text message"
    return _THINGS.get(first, "")


def speaks_of(text: str, noun: str) -> bool:
    return _pattern(noun).search(text) is not None


def renamed(text: str, noun: str, new: str) -> str:
    """A text with another noun, one or many; but for what stands in braces, and names of apps and APIs."""

    def word(match: re.Match[str]) -> str:
        start = new.capitalize() if match["noun"][0].isupper() else new
        return (match["an"] or "").replace("n", "") + start + match["many"]

    return _pattern(noun).sub(word, text)


def _pattern(noun: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![-{{@.\w])(?<!app )(?P<an>an )?(?P<noun>{noun})(?P<many>s?)(?![\w}}]|\.\w)", re.IGNORECASE)
