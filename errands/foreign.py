"""Foreign words: verbs and nouns that no app has and no errand.

In a disguise some APIs do by such a verb what they do to a thing, or the thing has such a noun for a name, and a drill
asks for it by these words: which API is meant is then said by the sentence in the list and by nothing else.
"""

import re

from errands.api import Api
from errands.words import read

_WORDS = read("foreign")
VERBS, NOUNS = tuple(_WORDS["verbs"]), tuple(_WORDS["nouns"])
USUAL = tuple(_WORDS["usual"])
"""The nouns in whose place a foreign one may stand."""
FORMS = (
    "{verb} {it} in the app {app}.",
    "Use the app {app} to {verb} {it}.",
    "Please {verb} {it} with the app {app}.",
    "In the app {app}, {verb} {it}.",
)
"""How something is wished by a foreign verb."""


def thing(api: Api) -> str:
    """What an API does something to; nothing if it only tells something."""
    first = next((name for name in api.parameters if name != "access_token"), "")
    if api.name.startswith(("list_", "search", "show")):
        return ""
    if first == "message_id":
        return "a mail" if api.app == "mail" else "a text message"
    return str(_WORDS["things"].get(first, ""))


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
