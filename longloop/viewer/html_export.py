"""Runs as one HTML file to send to somebody: the same pages, as sections of one, with the links between them.

A run may have tens of thousands of attempts, so a letter has all of the run's curves and a choice of its attempts.
"""

import base64
import hashlib
import math
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from longloop.store.files import write_whole
from longloop.viewer.library import Library
from longloop.viewer.page import NotThere, address
from longloop.viewer.pages import HERE, Pages
from longloop.viewer.run_reader import Record

_GROUPS = 8
"""Groups of a step that are sent with all their attempts; several runs share them."""


def write(library: Library, path: Path) -> tuple[int, int]:
    """Write the file; how many pages it has, and its size in bytes."""
    records = list(library.records.values())
    groups = max(1, _GROUPS // len(records))
    wanted = [address(), *(place for record in records for place in _chosen(record, groups))]
    if len(records) > 1:
        wanted.append(address("curves", run=[record.name for record in records]))
    inside = set(wanted)

    def link(place: str) -> str:
        return f"#{place}" if place in inside else ""

    pages = Pages(library, "section.html", link, patience=math.inf)
    sections = []
    for place in wanted:
        route, _, _ = place.partition("?")
        query = {"run": [record.name for record in records]} if route == "/curves" else {}
        try:
            sections.append((place, pages.html(route, query)))
        except NotThere:
            continue  # cut off, or gone since it was chosen
    style, script = ((HERE / "static" / name).read_text() for name in ("view.css", "view.js"))
    environment = Environment(loader=FileSystemLoader(HERE / "templates"), autoescape=True)
    text = environment.get_template("letter.html").render(
        sections=sections,
        first=records[0].name if len(records) == 1 else "",
        start=address("run", records[0].name) if len(records) == 1 else address(),
        style=style,
        script=script,
        style_hash=_digest(style),
        script_hash=_digest(script),
    )
    data = text.encode(errors="replace")
    write_whole(path, data)
    return len(sections), len(data)


def _chosen(record: Record, count: int) -> list[str]:
    """The run, its analysis, and attempts of the first, middle and last step and of the evaluations at both ends."""
    places = [address("run", record.name, *page) for page in ((), ("analysis",), ("behaviours",))]
    for kind, attempts in record.attempts.items():
        steps = attempts.steps()
        middle = steps[len(steps) // 2 : len(steps) // 2 + 1] if kind == "step" else []
        for step in sorted({*steps[:1], *middle, *steps[-1:]}):
            entries = attempts.entries(step)
            groups = sorted({entry.group for entry in entries})[:count]
            places.append(address("run", record.name, kind, step))
            places += [address("run", record.name, kind, step, group) for group in groups]
            places += [address("run", record.name, kind, step, *e.place) for e in entries if e.group in groups]
    return places


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
