"""The shop: its products, their search index, and the goals of its customers.

It is read once per process from WebShop's own files, and never changed. Where WebShop draws a random number without a
seed (a price within a range, a price limit), ours is seeded with the product's id.
"""

import itertools
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from longloop.envs.shared import datasets
from longloop.envs.shared.search_index import Index
from longloop.types import UserError

SOURCE = (
    "WebShop's setup.sh (github.com/princeton-nlp/WebShop, `-d small`) makes items_ins_v2_1000.json, and "
    "resources_1k/documents.jsonl, to be named documents_1k.jsonl."
)
NO_LIMIT = 1e6
"""The price limit of a goal that has none."""
_LIMITS = [10.0 * tens for tens in range(1, 100)]
_SHUFFLED = 233
"""The seed that WebShop shuffles its goals with."""


@dataclass(frozen=True)
class Product:
    """A product that is for sale."""

    id: str
    title: str
    description: str
    features: tuple[str, ...]
    attributes: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    """The values to choose from, by name. As published, a value may occur twice."""
    tag: str
    """The price as the page shows it, which may be a range."""
    price: float
    """The price that is compared with a goal's limit."""
    query: str
    """The search words with which the product was collected."""
    categories: frozenset[str]


@dataclass(frozen=True)
class Goal:
    """What a customer wants."""

    product: str
    """The id of the product that the instruction was written about."""
    instruction: str
    wish: str
    """The instruction without options and price."""
    attributes: tuple[str, ...]
    options: dict[str, str]
    limit: float
    """The highest price."""

    def as_data(self) -> dict[str, Any]:
        return asdict(self) | {"attributes": list(self.attributes)}

    @classmethod
    def from_data(cls, values: Mapping[str, Any]) -> "Goal":
        return cls(**{**values, "attributes": tuple(values["attributes"])})


class Shop:
    def __init__(self, folder: Path) -> None:
        documents, wishes = (
            datasets.file(folder, "documents_1k.jsonl", SOURCE),
            datasets.file(folder, "items_ins_v2_1000.json", SOURCE),
        )
        rows, instructions = datasets.read(documents), datasets.read(wishes)
        try:
            self.products = {row["id"]: _product(row["product"]) for row in rows}
            self._numbers = list(self.products)
            self._index = Index(row["contents"] for row in rows)
            goals = [goal for product in self.products.values() for goal in _goals(product, instructions[product.id])]
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise UserError(
                f"{documents} and {wishes.name} are not the files of WebShop small, or not of one version: "
                f"{type(error).__name__} {error}. {SOURCE}"
            ) from error
        random.Random(_SHUFFLED).shuffle(goals)
        self.goals = goals

    def find(self, words: str, most: int) -> list[str]:
        """Return the ids of the best products for some words."""
        return [self._numbers[number] for number in self._index.find(words, most)]


shop = datasets.once(Shop)


def _product(row: Mapping[str, Any]) -> Product:
    prices = [float(price) for price in row["pricing"]] or [100.0]
    low, high = prices[0], prices[-1]
    return Product(
        id=row["asin"],
        title=row["Title"],
        description=row["Description"],
        features=tuple(row["BulletPoints"]),
        attributes=tuple(row["Attributes"]),
        options={name: tuple(map(_one_space, values)) for name, values in row["options"].items()},
        tag=row["Price"],
        price=low if low == high else random.Random(f"price/{row['asin']}").uniform(low, high),
        query=row["query"].strip().lower(),
        categories=frozenset(part.strip() for part in row["product_category"].split("\u203a")),
    )


def _goals(product: Product, wish: Mapping[str, Any]) -> list[Goal]:
    """Return a goal for every combination of the product's options, all with one price limit."""
    if not wish.get("instruction"):
        return []
    above = [limit for limit in _LIMITS if limit > product.price][:4]
    limit = max(random.Random(f"limit/{product.id}").sample(above, 2)) if len(above) > 1 else NO_LIMIT
    price = f", and price lower than {limit:.2f} dollars" if limit < NO_LIMIT else ""
    names = sorted(product.options)
    goals = []
    for values in itertools.product(*(product.options[name] for name in names)):
        options = dict(zip(names, values, strict=True))
        chosen = ", and ".join(f"{name}: {value}" for name, value in options.items())
        instruction = wish["instruction"] + (f" with {chosen}" if chosen else "") + price
        attributes = tuple(wish["instruction_attributes"])
        goals.append(Goal(product.id, instruction, wish["instruction"], attributes, options, limit))
    return goals


def _one_space(text: str) -> str:
    return " ".join(text.split())
