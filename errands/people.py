"""The people of a world: the owner, and those around them."""

import functools
import random
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from errands.words import read

_NAMES = read("people")
FIRST, LAST, STREETS = (tuple(_NAMES[kind]) for kind in ("first", "last", "streets"))

AROUND = tuple((circle, relation) for circle, relation in _NAMES["around"])
"""(circle, relation) of everyone but the owner."""

CIRCLES = ("family", "flatmates", "colleagues", "friends")
"""The people the owner meets, pays and is paid by."""

ALONE = ("mother", "father", "sister", "brother", "manager", "dentist", "landlord")
"""Relations that only one person has."""


@dataclass(frozen=True)
class Person:
    """Someone. First names and last names are unique within a world."""

    id: int
    first: str
    last: str
    phone: str
    address: str
    birthday: str
    relation: str
    """To the owner: mother, flatmate, manager, ...; `owner` for the owner."""
    circle: str
    """family, flatmates, colleagues, friends or services."""

    @property
    def name(self) -> str:
        return f"{self.first} {self.last}"

    @functools.cached_property
    def email(self) -> str:
        return f"{self.first}.{self.last}@mail.com".lower()

    def row(self) -> dict[str, Any]:
        kept = {name: getattr(self, name) for name in ("id", "first", "last", "phone", "address", "birthday")}
        return kept | {"email": self.email, "relation": self.relation}


def make_people(rng: random.Random, now: datetime) -> list[Person]:
    """The owner (first, id 1) and everyone around."""
    firsts = rng.sample(FIRST, len(AROUND) + 1)
    lasts = rng.sample(LAST, len(AROUND) + 1)
    numbers = rng.sample(range(2_000_000, 9_999_999), len(AROUND) + 1)
    home = _address(rng)
    people = []
    for place, (circle, relation) in enumerate((("owner", "owner"), *AROUND)):
        same_home = circle in ("owner", "flatmates")
        birthday = f"{now.year - rng.randrange(22, 65)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"
        people.append(
            Person(
                id=place + 1,
                first=firsts[place],
                last=lasts[place],
                phone=str(numbers[place]),
                address=home if same_home else _address(rng),
                birthday=birthday,
                relation=relation,
                circle=circle,
            )
        )
    return people


def _address(rng: random.Random) -> str:
    return f"{rng.randrange(1, 99)} {rng.choice(STREETS)}"
