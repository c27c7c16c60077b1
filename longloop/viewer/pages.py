"""Addresses and pages, for server and letter: `/run/NAME/step/12/3/5` is attempt 5 of group 3 of step 12.

A page is a template and what it shows; what that is comes from overview.py (a run as a whole) and detail.py (attempts).
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from longloop.analysis.report import BEHAVIOURS
from longloop.viewer import detail, overview, text
from longloop.viewer.analysis import Counted, attempts
from longloop.viewer.charts import legend, number, sparkline
from longloop.viewer.library import Library
from longloop.viewer.page import Content, NotThere, address
from longloop.viewer.run_reader import KINDS, Record

HERE = Path(__file__).parent

Query = Mapping[str, list[str]]


class Pages:
    def __init__(
        self,
        library: Library,
        layout: str = "page.html",
        link: Callable[[str], str] = lambda path: path,
        patience: float = 1.0,
    ) -> None:
        """`patience` is for how many seconds a page may count before it shows what it has."""
        self._patience = patience
        self.library = library
        self._counted: dict[str, Counted] = {}
        self._layout = layout
        self._link = link
        self._environment = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals.update(
            to=lambda *parts, **query: link(address(*parts, **query)),
            link=link,
            attempts=attempts,
            action=text.action,
            excerpt=text.excerpt,
            long=text.long,
            legend=legend,
            sparkline=sparkline,
        )
        self._environment.filters.update(number=number, share=lambda value: number(value, True), shade=_shade)

    def html(self, path: str, query: Query | None = None) -> str:
        """The page at an address. Raises NotThere."""
        return self._render(self.content(path, query or {}))

    def missing(self, said: str) -> str:
        return self._render(Content("missing.html", "Not here", {"said": said}))

    def _render(self, content: Content) -> str:
        watched = None if content.watch is None else [record.name for record in content.watch]
        shown = {
            "layout": self._layout,
            "title": content.title,
            "record": content.record,
            "links": {name: self._link(path) for name, path in content.links.items()},
            "follow": watched is not None,
            "watch": watched or [],
            "version": "" if watched is None else self.version(watched),
            "unfinished": content.unfinished,
        }
        html = self._environment.get_template(content.template).render(shown | content.values)
        return html.encode(errors="replace").decode()  # half a surrogate pair, from text that was never Unicode

    def version(self, names: list[str]) -> str:
        """Changes when one of the runs does; without names, also when there is another run."""
        records = self.library.records
        wanted = [records[name] for name in names if name in records] if names else records.values()
        return " ".join(record.version for record in wanted)

    def content(self, path: str, query: Query) -> Content:
        match path.strip("/").split("/"):
            case [""]:
                asked = (_one(query, name) for name in ("text", "sort", "order"))
                return overview.runs(list(self.library.records.values()), *asked)
            case ["curves"]:
                chosen = [self.record(name) for name in query.get("run", [])]
                return overview.curves(chosen, _one(query, "smooth"), _one(query, "log"))
            case ["compare"]:
                return detail.compare(
                    self.library.records, _one(query, "left"), _one(query, "right"), _one(query, "run")
                )
            case ["run", name]:
                return overview.run(self.record(name), _one(query, "smooth"), _one(query, "log"))
            case ["run", name, "analysis" | "behaviours" as which]:
                record = self.record(name)
                counted = self._counted.setdefault(name, Counted(record))
                return overview.analysis(record, counted, self._patience, BEHAVIOURS if which == "behaviours" else "")
            case ["run", name, "find"]:
                return detail.find(self.record(name), {key: values[0] for key, values in query.items() if values})
            case ["run", name, kind, *place] if kind in KINDS and all(map(_is_number, place)):
                record = self.record(name)
                match [int(part) for part in place]:
                    case [step]:
                        return detail.step(record, kind, step, _one(query, "sort"))
                    case [step, group]:
                        return detail.group(record, kind, step, group)
                    case [step, group, attempt]:
                        return detail.attempt(record, kind, step, group, attempt, _one(query, "tokens"))
        raise NotThere(f"There is no page {path}.")

    def record(self, name: str) -> Record:
        records = self.library.records
        if name not in records:
            raise NotThere(f"There is no run {name} here.")
        return records[name]


def _one(query: Query, name: str) -> str:
    return (query.get(name) or [""])[0]


def _is_number(part: str) -> bool:
    return part.isascii() and part.isdigit() and len(part) < 10


def _shade(value: float | None) -> int:
    """0 to 8, for a share."""
    return round(8 * min(1.0, max(0.0, value or 0.0)))
