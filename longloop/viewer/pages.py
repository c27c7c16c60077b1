"""Addresses and pages, for the server and the HTML export: `/run/NAME/step/12/3/5` is attempt 5 of group 3 of step 12.

What a page shows comes from overview.py (a run as a whole) and detail.py (attempts).
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from longloop.analysis.report import BEHAVIORS
from longloop.store.run_reader import FOLDERS, RunReader
from longloop.viewer import detail, overview, text
from longloop.viewer.analysis import CountedSteps, attempts
from longloop.viewer.charts import legend, number, sparkline
from longloop.viewer.library import Library
from longloop.viewer.page import NotThere, Page, address, is_number

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
        """`patience`: the seconds that a page may count before it shows what it has."""
        self._patience = patience
        self.library = library
        self._counted: dict[str, CountedSteps] = {}
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
            arguments=text.arguments,
            excerpt=text.excerpt,
            long=text.long,
            legend=legend,
            sparkline=sparkline,
        )
        self._environment.filters.update(number=number, share=lambda value: number(value, True), shade=_shade)

    def html(self, path: str, query: Query | None = None) -> str:
        """The page at an address. Raises NotThere."""
        return self._render(self.page(path, query or {}))

    def missing(self, said: str) -> str:
        return self._render(Page("missing.html", "Not here", {"said": said}))

    def _render(self, page: Page) -> str:
        watched = None if page.watch is None else [run.name for run in page.watch]
        shown = {
            "layout": self._layout,
            "title": page.title,
            "run": page.run,
            "links": {name: self._link(path) for name, path in page.links.items()},
            "follow": watched is not None,
            "watch": watched or [],
            "version": "" if watched is None else self.version(watched),
            "unfinished": page.unfinished,
        }
        html = self._environment.get_template(page.template).render(shown | page.values)
        return html.encode(errors="replace").decode()  # half a surrogate pair, from text that was never Unicode

    def version(self, names: list[str]) -> str:
        """Changes when one of the runs does; without names, also when there is another run."""
        runs = self.library.runs
        wanted = [runs[name] for name in names if name in runs] if names else runs.values()
        return " ".join(run.version for run in wanted)

    def page(self, path: str, query: Query) -> Page:
        match path.strip("/").split("/"):
            case [""]:
                asked = (_one(query, name) for name in ("text", "sort", "order"))
                return overview.runs(list(self.library.runs.values()), *asked)
            case ["curves"]:
                chosen = [self.run(name) for name in query.get("run", [])]
                return overview.curves(chosen, _one(query, "smooth"), _one(query, "log"))
            case ["compare"]:
                return detail.compare(self.library.runs, _one(query, "left"), _one(query, "right"), _one(query, "run"))
            case ["run", name]:
                return overview.run_page(self.run(name), _one(query, "smooth"), _one(query, "log"))
            case ["run", name, "analysis" | "behaviors" as which]:
                run = self.run(name)
                if name not in self._counted or self._counted[name].run is not run:
                    self._counted[name] = CountedSteps(run)
                return overview.analysis(
                    run, self._counted[name], self._patience, BEHAVIORS if which == "behaviors" else ""
                )
            case ["run", name, "find"]:
                return detail.find(self.run(name), {key: values[0] for key, values in query.items() if values})
            case ["run", name, kind, *numbers] if kind in FOLDERS and all(map(is_number, numbers)):
                run = self.run(name)
                match [int(part) for part in numbers]:
                    case [step]:
                        return detail.step(run, kind, step, _one(query, "sort"))
                    case [step, group]:
                        return detail.group(run, kind, step, group)
                    case [step, group, attempt]:
                        return detail.attempt(run, kind, step, group, attempt, _one(query, "tokens"))
        raise NotThere(f"There is no page {path}.")

    def run(self, name: str) -> RunReader:
        runs = self.library.runs
        if name not in runs:
            raise NotThere(f"There is no run {name} here.")
        return runs[name]


def _one(query: Query, name: str) -> str:
    return (query.get(name) or [""])[0]


def _shade(value: float | None) -> int:
    """0 to 8, for a share."""
    return round(8 * min(1.0, max(0.0, value or 0.0)))
