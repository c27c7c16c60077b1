"""Runs as one HTML file to send to somebody: the same pages as sections of one, with the links between them.

A run may have tens of thousands of attempts, so the file has all of the run's curves and a choice of its attempts.
"""

import base64
import hashlib
import math
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from longloop.store.files import write_whole
from longloop.store.run_reader import RunReader
from longloop.viewer.library import Library
from longloop.viewer.page import NotThere, address
from longloop.viewer.pages import HERE, Pages

_GROUPS = 8
"""Groups of a step that the file has with all their attempts; several runs share this number."""


def write(library: Library, file: Path) -> tuple[int, int]:
    """Write the file. Returns how many pages it has, and its size in bytes."""
    runs = list(library.runs.values())
    groups = max(1, _GROUPS // len(runs))
    wanted = [address(), *(path for run in runs for path in _chosen(run, groups))]
    curves = address("curves", run=[run.name for run in runs]) if len(runs) > 1 else ""
    wanted += [curves] * bool(curves)
    inside = set(wanted)

    def link(path: str) -> str:
        return f"#{path}" if path in inside else ""

    pages = Pages(library, "section.html", link, patience=math.inf)
    sections = []
    for path in wanted:
        route, _, _ = path.partition("?")
        query = {"run": [run.name for run in runs]} if route == "/curves" else {}
        try:
            sections.append((path, pages.html(route, query)))
        except NotThere:
            continue  # cut off, or gone since it was chosen
    style, script = ((HERE / "static" / name).read_text() for name in ("view.css", "view.js"))
    environment = Environment(loader=FileSystemLoader(HERE / "templates"), autoescape=True)
    text = environment.get_template("html_export.html").render(
        sections=sections,
        first=runs[0].name if len(runs) == 1 else "",
        start=address("run", runs[0].name) if len(runs) == 1 else address(),
        curves=curves,
        style=style,
        script=script,
        style_hash=_digest(style),
        script_hash=_digest(script),
    )
    data = text.encode(errors="replace")
    write_whole(file, data)
    return len(sections), len(data)


def _chosen(run: RunReader, count: int) -> list[str]:
    """The addresses of the run, its analysis, and attempts of the first, middle and last step and of the evaluations at
    both ends."""
    paths = [address("run", run.name, *page) for page in ((), ("analysis",), ("behaviors",))]
    for kind, stored in run.stored.items():
        steps = stored.steps()
        middle = steps[len(steps) // 2 : len(steps) // 2 + 1] if kind == "step" else []
        for step in sorted({*steps[:1], *middle, *steps[-1:]}):
            entries = stored.entries(step)
            groups = sorted({entry.group for entry in entries})[:count]
            paths.append(address("run", run.name, kind, step))
            paths += [address("run", run.name, kind, step, group) for group in groups]
            paths += [address("run", run.name, kind, step, *e.key) for e in entries if e.group in groups]
    return paths


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
