"""A page is a template and what it shows; and how addresses are written."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from longloop.store.run_reader import RunReader


class NotThere(Exception):
    """An address that names nothing."""


@dataclass(frozen=True)
class Page:
    """What a page shows."""

    template: str
    title: str
    values: dict[str, Any]
    run: RunReader | None = None
    watch: tuple[RunReader, ...] | None = None
    """The runs whose growth changes the page: None for none, an empty tuple for all."""
    unfinished: bool = False
    """Whether a reload would show more."""
    links: dict[str, str] = field(default_factory=dict)
    """`prev`, `next` and `up`: where the arrow keys lead."""


def address(*parts: object, **query: object) -> str:
    path = "/" + "/".join(quote(str(part), safe="~") for part in parts)
    given = {key: value for key, value in query.items() if value not in ("", None)}
    return path + (f"?{urlencode(given, doseq=True)}" if given else "")


def is_number(part: str) -> bool:
    """Whether a part of an address can be a step, a group or an attempt."""
    return part.isascii() and part.isdigit() and len(part) < 10
