"""The reward of a purchase: WebShop's (Yao et al. 2022), in an implementation of our own.

    r_type * (attributes that match + options that match + [price <= limit]) / (attributes + options + 1)

`r_type` says whether it is the right kind of product: 1 if query, categories or title agree, 0.5 if none does, 0.1 or 0
if the titles have almost nothing or nothing in common. Two things differ from the published code: the nouns of a title
are its words of three letters and more (there, what a spaCy model tags as nouns), and the list of colors is our own.
"""

import functools
import re
from collections.abc import Iterable, Mapping

from longloop.envs.webshop.shop import Goal, Product
from longloop.types import UserError

_ALIKE = 85
"""Two phrases count as equal above this similarity, of 100."""
_COLORS = (
    "aqua beige black blue bronze brown burgundy charcoal chocolate copper coral cream fuchsia gold gray green grey "
    "indigo ivory khaki lavender lilac lime magenta maroon mint mustard navy nude olive orange peach pink plum purple "
    "red rose rust silver tan taupe teal turquoise violet white wine yellow"
)
_NO_NOUNS = (
    "and are but for from has have her his into its more new non not our out per set than that the their them these "
    "this use was will with you your"
)


def reward(goal: Goal, wanted: Product, bought: Product, chosen: Mapping[str, str]) -> tuple[float, dict[str, float]]:
    """Return the reward, and its parts."""
    kind = type_reward(wanted, bought)
    attributes = sum(_has(bought, attribute) for attribute in goal.attributes)
    options = sum(_is_among(_color(value), map(_color, chosen.values())) for value in goal.options.values())
    price = bought.price <= goal.limit
    share = (attributes + options + price) / (len(goal.attributes) + len(goal.options) + 1)
    parts = {"type": kind, "attributes": attributes, "options": options, "price": float(price)}
    return kind * share, parts


def type_reward(wanted: Product, bought: Product) -> float:
    nouns = _nouns(wanted.title)
    title = len(set(nouns) & set(_nouns(bought.title))) / len(nouns) if nouns else 0.2
    if title == 0:
        return 0.0
    if title < 0.1:
        return 0.1
    same_kind = wanted.query == bought.query or len(wanted.categories & bought.categories) >= 2
    return 1.0 if same_kind or title > 0.2 else 0.5


@functools.lru_cache(maxsize=1 << 16)
def alike(one: str, other: str) -> int:
    """Return how alike two phrases are as sets of words, 0..100: the token set ratio of thefuzz, which WebShop uses. If
    one phrase has all the words of the other, it is 100."""
    try:
        from rapidfuzz import fuzz
    except ImportError:
        raise UserError("WebShop's reward needs the package rapidfuzz: pip install 'longloop[envs]'.") from None
    return round(fuzz.token_set_ratio(_plain(one), _plain(other)))


def _plain(text: str) -> str:
    return re.sub(r"\W", " ", text.encode("ascii", "ignore").decode().lower())


def _has(product: Product, attribute: str) -> bool:
    texts = (product.title, " ".join(product.features), product.description)
    return _is_among(attribute, product.attributes) or any(attribute in text.lower() for text in texts)


def _is_among(phrase: str, others: Iterable[str]) -> bool:
    return any(alike(other, phrase) > _ALIKE or other == phrase for other in others)


def _color(option: str) -> str:
    """Return the first color that an option's value names; the value itself if it names none."""
    return next((color for color in _COLORS.split() if color in option), option)


@functools.lru_cache(maxsize=1 << 12)
def _nouns(title: str) -> tuple[str, ...]:
    return tuple(word for word in re.findall(r"[^\W\d_]{3,}", title.lower()) if word not in _NO_NOUNS.split())
