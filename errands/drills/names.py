"""Drills in which all that was found is to be told: by name, title or subject, or what it says. Alone, and when
something was done to it."""

from collections.abc import Collection, Sequence

from errands.drill import Act, Ask, Drill, drills

_TOLD = {
    "name": """
        of-all of-those-born-before of-those-in-street of-two-relations of-favourites of-favourites-of-relation
        of-favourites-in-street of-those-born-in-my-month empty-labels much-used-labels guests-who-accepted
        guests-of-relation those-not-invited long-lists finished-lists small-requests sent-requests large-sent-requests
        of-those-who-owe cheap-things-in-cart things-often-in-cart products-below products-in-stock wishes cheap-wishes
        wishes-in-cart reviewed-wishes products-of-last-order bad-reviews cheap-products-of-last-order
        dear-products-of-order""",
    "title": """
        tagged-notes notes-before tagged-notes-after pinned-notes unpinned-notes invitations-by archived-notes-before
        notes-with-commonest-tag invitations-by-relation own-events-with accepted-invitations-after events-of-day
        events-of-day-by-others""",
    "subject": "labelled-mails unread-from drafts-to-relation starred-read-mails",
    "text": """
        open-items done-items items-due-before items-of-priority urgent-items-due-until items-due-on
        calls-to-relation""",
}
"""By which field things are told, and the finds of which that can be asked: those whose things differ in it."""


def _ask(field: str) -> Ask:
    asked = (
        f"What are the {field}s of {{it}}?",
        f"Tell me the {field}s of {{it}}.",
        f"I need a list with the {field}s of {{it}}.",
        f"Please list the {field}s of {{it}} for me.",
    )
    return Ask(f"each {field}", asked, f"tell me the {field}s")


def told(kinds: Sequence[type[Drill]], withheld: Collection[frozenset[str]]) -> list[type[Drill]]:
    """For each of the finds above the question, and the question after the first thing that a drill does to it. None
    uses all APIs of a withheld set."""
    made: list[type[Drill]] = []
    for field, names in _TOLD.items():
        for name in names.split():
            same = [kind for kind in kinds if kind.find.name == name]
            acts = [wish for kind in same if len(kind.wishes) == 1 for wish in kind.wishes if isinstance(wish, Act)]
            keeping = [act for act in acts if field not in act.told]
            made += drills([same[0].find], [_ask(field), *((act, _ask(field)) for act in keeping[:1])])
    return [kind for kind in made if not any(those <= {*kind.apis} for those in withheld)]
