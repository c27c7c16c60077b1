"""What a purchase is worth to a customer: WebShop's reward (Yao et al. 2022), computed anew.

    r_type * (attributes that match + options that match + [price <= limit]) / (attributes + options + 1)

`r_type` says whether it is the right kind of thing: 1 when query, categories or title agree, 0.5 when none does, and
0.1 or 0 when the titles have almost nothing or nothing in common. Two things differ from the published code: the nouns
of a title are its words of three letters and more (there, what a spaCy model tags as nouns), and the list of colours is
our own.
"""

import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping

from longloop.envs.webshop.shop import Goal, Product

_ALIKE = 85
"""Two phrases are the same when they are more alike than this, of 100."""
_COLOURS = (
    "aqua beige black blue bronze brown burgundy charcoal chocolate copper coral cream fuchsia gold gray green grey "
    "indigo ivory khaki lavender lilac lime magenta maroon mint mustard navy nude olive orange peach pink plum purple "
    "red rose rust silver tan taupe teal turquoise violet white wine yellow"
)
_NO_NOUNS = (
    "and are but for from has have her his into its more new non not our out per set than that the their them these "
    "this use was will with you your"
)


def reward(goal: Goal, wanted: Product, bought: Product, chosen: Mapping[str, str]) -> tuple[float, dict[str, float]]:
    """The reward, and what it is made of."""
    kind = type_reward(wanted, bought)
    attributes = sum(_has(bought, attribute) for attribute in goal.attributes)
    options = sum(_is_among(_colour(value), map(_colour, chosen.values())) for value in goal.options.values())
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
    """How alike two phrases are as sets of words, 0..100: FuzzyWuzzy's token set ratio. A phrase whose words are all in
    the other is as good as equal."""
    a, b = (set(re.sub(r"\W", " ", text.encode("ascii", "ignore").decode().lower()).split()) for text in (one, other))
    if not a or not b:
        return 0
    both, first, second = (" ".join(sorted(words)) for words in (a & b, a - b, b - a))
    first, second = f"{both} {first}".strip(), f"{both} {second}".strip()
    return max(_ratio(both, first), _ratio(both, second), _ratio(first, second))


def _ratio(one: str, other: str) -> int:
    """Twice the length of the longest common subsequence, in per cent of both lengths together."""
    at: Counter[str] = Counter()
    for place, letter in enumerate(one):
        at[letter] |= 1 << place
    everywhere = free = (
        1 << len(one)
    ) - 1  # Hyyrö's bit-parallel algorithm: a bit is cleared for every letter in common
    for letter in other:
        taken = free & at[letter]
        free = (free + taken) | (free - taken)
    return round(200 * (~free & everywhere).bit_count() / (len(one) + len(other)))


def _has(product: Product, attribute: str) -> bool:
    texts = (product.title, " ".join(product.features), product.description)
    return _is_among(attribute, product.attributes) or any(attribute in text.lower() for text in texts)


def _is_among(phrase: str, others: Iterable[str]) -> bool:
    return any(alike(other, phrase) > _ALIKE or other == phrase for other in others)


def _colour(option: str) -> str:
    """The first of the colours that an option's value names; the value itself when it names none."""
    return next((colour for colour in _COLOURS.split() if colour in option), option)


@functools.lru_cache(maxsize=1 << 12)
def _nouns(title: str) -> tuple[str, ...]:
    return tuple(word for word in re.findall(r"[^\W\d_]{3,}", title.lower()) if word not in _NO_NOUNS.split())
