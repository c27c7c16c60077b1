"""Foreign words: verbs that no app has and no errand.

In a disguise some APIs do by such a verb what they do to a thing, and a drill may ask for it by the verb: which API is
meant is then said by the sentence in the list and by nothing else.
"""

from longloop.envs.errands.api import Api

_WORDS = """
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
VERBS = tuple(_WORDS.split())
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
