"""What the pages about whole runs show: the list, one run, curves of several, the analysis of one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from longloop.store.run_reader import RunReader, mixed_versions
from longloop.viewer import curves as drawn
from longloop.viewer.analysis import CountedSteps, charts
from longloop.viewer.charts import SMOOTHINGS, Chart, styled
from longloop.viewer.outcome import outcome, sentence, worries
from longloop.viewer.page import NotThere, Page


@dataclass(frozen=True)
class Summary:
    """A run in a line of the list."""

    run: RunReader
    status: str
    started: str
    env: str
    model: str
    algo: str
    step: int
    steps: int | None
    held_out: float | None
    """Success in the last evaluation."""
    interval: Sequence[float] | None
    tasks: int | None
    """Of the last evaluation."""
    direction: int
    """1 and -1 where held-out success clearly rose or fell since the first evaluation, otherwise 0."""
    demonstrated: bool
    """Whether the success in training is that of demonstrations, and says nothing of the agent."""
    trained: float | None
    """Success in the last training step in which something was scored."""
    curve: Sequence[tuple[float, float]]
    tags: Sequence[str]

    @property
    def words(self) -> str:
        """What a filter looks at."""
        return " ".join((self.run.name, self.status, self.algo, self.env, self.model, *self.tags)).lower()


def summary(run: RunReader) -> Summary:
    settings, metrics = run.settings, run.metrics
    found = outcome(run)
    last = found.last if found else None
    demonstrated = run.demonstrated
    curve = drawn.success(run)
    return Summary(
        run=run,
        status=run.status,
        started=_moment(run.facts.get("started")),
        env=f"{_name(settings.get('env'))} {run.env_version}".strip(),
        model=str(run.table("model").get("path") or "-").rstrip("/").rsplit("/", 1)[-1],
        algo=_name(settings.get("algo")),
        step=max((line["step"] for line in metrics), default=0),
        steps=settings.get("steps"),
        held_out=last.success if last else None,
        interval=last.success_interval if last else None,
        tasks=last.tasks if last else None,
        direction=found.direction if found else 0,
        demonstrated=demonstrated,
        trained=curve[-1][1] if curve else None,
        curve=[] if demonstrated else curve,
        tags=run.tags,
    )


_COLUMNS: dict[str, tuple[str, Callable[[Summary], Any], bool]] = {
    "run": ("run", lambda summary: summary.run.name.lower(), False),
    "status": ("status", lambda summary: summary.status, False),
    "held_out": ("held out", lambda summary: summary.held_out, True),
    "training": ("training", lambda summary: None if summary.demonstrated else summary.trained, True),
    "step": ("step", lambda summary: summary.step, True),
    "algorithm": ("algorithm", lambda summary: summary.algo, False),
    "environment": ("environment", lambda summary: summary.env, False),
    "model": ("model", lambda summary: summary.model, False),
    "started": ("started", lambda summary: summary.started or None, True),
}
"""What runs are sorted by: the heading, the value, and whether the greatest comes first."""


def runs(every: Sequence[RunReader], text: str = "", sort: str = "", order: str = "") -> Page:
    """The list of runs that match all the words (`#word`: a tag), sorted. Runs without a value come last either way."""
    sort = sort if sort in _COLUMNS else "started"
    _, value, greatest = _COLUMNS[sort]
    descending = greatest if order not in ("up", "down") else order == "down"
    found = sorted((one for one in map(summary, every) if _wanted(one, text)), key=lambda one: one.run.name)
    known = [one for one in found if value(one) is not None]
    known.sort(key=value, reverse=descending)
    values = {
        "runs": known + [one for one in found if value(one) is None],
        "of": len(every),
        "text": text,
        "columns": {name: heading for name, (heading, _, _) in _COLUMNS.items()},
        "sort": sort,
        "order": "down" if descending else "up",
    }
    return Page("runs.html", "Runs", values, watch=())


def _wanted(summary: Summary, text: str) -> bool:
    tags = [tag.lower() for tag in summary.tags]
    whole = text.lower().strip()
    if whole.startswith("#") and whole[1:] in tags:
        return True  # a tag may have spaces
    return all(word[1:] in tags if word.startswith("#") else word in summary.words for word in whole.split())


def run_page(run: RunReader, smooth: str = "", log: str = "") -> Page:
    steps = [line for line in run.metrics if line["step"] > 0]
    held_out = {step: found.success for step, found in run.evaluations.items()}
    values = {
        "summary": summary(run),
        "sentence": sentence(run),
        "worries": worries(run),
        **_curves(drawn.of_run(run), smooth, log),
        "ribbon": _ribbon(run),
        "evaluations": [(step, held_out.get(step)) for step in run.stored["eval"].steps()],
        "seconds": sum(sum((line.get("time") or {}).values()) for line in steps),
        "facts": _flat(
            {key: value for key, value in run.facts.items() if key not in ("memory", "packages", "analysis")}
        ),
        "config": _config(run),
        "memory": _memory(run.facts.get("memory")),
    }
    return Page("run.html", run.name, values, run, (run,))


def curves(runs: Sequence[RunReader], smooth: str = "", log: str = "") -> Page:
    if not runs:
        raise NotThere("No run was chosen. Tick some on the page of all runs.")
    groups = drawn.alike(runs)
    values = {
        **_curves(drawn.of_runs(runs), smooth, log),
        "chosen": [run.name for run in runs],
        "mixed": mixed_versions(runs),
        "groups": groups,
        "banded": any(len(group) > 1 for group in groups.values()),
    }
    return Page("curves.html", "Curves", values, watch=tuple(runs))


def analysis(run: RunReader, counted: CountedSteps, patience: float, only: str = "") -> Page:
    """All that longloop.analysis finds, or one section of it."""
    done, of = counted.count(patience)
    report = counted.report(done == of)
    sections = [s for s in report.sections if only in ("", s.title)] if report else []
    values = {
        "done": done,
        "of": of,
        "headline": report.headline if report else "No attempt was scored yet.",
        "sections": [(section, charts(section.pictures)) for section in sections],
    }
    return Page("analysis.html", only or "Analysis", values, run, (run,), unfinished=done < of)


def _curves(charts: Sequence[Chart], smooth: str, log: str) -> dict[str, Any]:
    smooth = smooth if smooth in SMOOTHINGS else ""
    return {"charts": styled(charts, smooth, bool(log)), "smooth": smooth, "log": bool(log), "smoothings": SMOOTHINGS}


def _ribbon(run: RunReader) -> list[tuple[int, float | None]]:
    """All steps that can be opened, with their success."""
    success = dict(drawn.success(run))
    return [(step, success.get(step)) for step in run.stored["step"].steps()]


def _memory(memory: Any) -> list[tuple[str, str, float]]:
    """The parts of the forecast: name, GiB, and the share of the largest."""
    if not isinstance(memory, dict):
        return []
    parts = [(name, size) for name, size in memory.items() if isinstance(size, int | float) and size]
    most = max((size for _, size in parts), default=1)
    return [(name.replace("_", " "), f"{size / 2**30:.3g} GiB", size / most) for name, size in parts]


def _flat(tree: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows = []
    for key, value in tree.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{key}.")
        else:
            rows.append((prefix + key, str(value)))
    return rows


def _config(run: RunReader) -> list[tuple[str, str]]:
    """The settings of a run as they are now; those that changed when it was resumed with their old values."""
    changed = {
        key: f" (from step {change.step}, was {old})"
        for change in run.changes
        for key, (old, _) in change.changed.items()
    }
    return [(key, value + changed.get(key, "")) for key, value in _flat(run.settings)]


def _name(table: Any) -> str:
    return str(table.get("name", "-")) if isinstance(table, dict) else "-"


def _moment(started: Any) -> str:
    try:
        return datetime.fromisoformat(str(started)).strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return ""
