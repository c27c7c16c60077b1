"""What the pages about whole runs show: all of them, one, several over one another, what became of one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from longloop.viewer import curves as drawn
from longloop.viewer.analysis import Counted, charts
from longloop.viewer.charts import SMOOTHINGS, Chart, styled
from longloop.viewer.outcome import outcome, sentence, worries
from longloop.viewer.page import Content, NotThere
from longloop.viewer.run_reader import Record

_MEMORY = ("weights", "adapters", "masters", "gradients", "optimizer", "second_copy", "activations", "working", "kv")


@dataclass(frozen=True)
class Summary:
    """A run in a line."""

    record: Record
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
    """Success in the last training step."""
    curve: Sequence[tuple[float, float]]
    tags: Sequence[str]

    @property
    def words(self) -> str:
        """What a filter looks at."""
        return " ".join((self.record.name, self.status, self.algo, self.env, self.model, *self.tags)).lower()


def summary(record: Record) -> Summary:
    config, metrics = record.config, record.metrics
    found = outcome(record)
    last = found.last["eval"] if found else {}
    demonstrated = record.demonstrated
    trained = [line["success"] for line in metrics if line.get("success") is not None]
    return Summary(
        record=record,
        status=record.status,
        started=_moment(record.facts.get("started")),
        env=_name(config.get("env")),
        model=str((config.get("model") or {}).get("path") or "-").rstrip("/").rsplit("/", 1)[-1],
        algo=_name(config.get("algo")),
        step=max((line["step"] for line in metrics), default=0),
        steps=config.get("steps"),
        held_out=last.get("success"),
        interval=last.get("success_interval"),
        tasks=last.get("tasks"),
        direction=found.direction if found else 0,
        demonstrated=demonstrated,
        trained=trained[-1] if trained else None,
        curve=[] if demonstrated else drawn.success(record),
        tags=record.tags,
    )


_COLUMNS: dict[str, tuple[str, Callable[[Summary], Any], bool]] = {
    "run": ("run", lambda run: run.record.name.lower(), False),
    "status": ("status", lambda run: run.status, False),
    "held_out": ("held out", lambda run: run.held_out, True),
    "training": ("training", lambda run: None if run.demonstrated else run.trained, True),
    "step": ("step", lambda run: run.step, True),
    "algorithm": ("algorithm", lambda run: run.algo, False),
    "environment": ("environment", lambda run: run.env, False),
    "model": ("model", lambda run: run.model, False),
    "started": ("started", lambda run: run.started or None, True),
}
"""What runs are sorted by: the heading, the value, and whether the greatest comes first."""


def runs(records: Sequence[Record], text: str = "", sort: str = "", order: str = "") -> Content:
    """Those that have all the words (`#word`: that tag), sorted. Runs without a value come last either way."""
    sort = sort if sort in _COLUMNS else "started"
    _, value, greatest = _COLUMNS[sort]
    descending = greatest if order not in ("up", "down") else order == "down"
    found = sorted((run for run in map(summary, records) if _wanted(run, text)), key=lambda run: run.record.name)
    known = [run for run in found if value(run) is not None]
    known.sort(key=value, reverse=descending)
    values = {
        "runs": known + [run for run in found if value(run) is None],
        "of": len(records),
        "text": text,
        "columns": {name: heading for name, (heading, _, _) in _COLUMNS.items()},
        "sort": sort,
        "order": "down" if descending else "up",
    }
    return Content("runs.html", "Runs", values, watch=())


def _wanted(run: Summary, text: str) -> bool:
    tags = [tag.lower() for tag in run.tags]
    whole = text.lower().strip()
    if whole.startswith("#") and whole[1:] in tags:
        return True  # a tag may have spaces
    return all(word[1:] in tags if word.startswith("#") else word in run.words for word in whole.split())


def run(record: Record, smooth: str = "", log: str = "") -> Content:
    steps = [line for line in record.metrics if line["step"] > 0]
    values = {
        "run": summary(record),
        "sentence": sentence(record),
        "worries": worries(record),
        **_curves(drawn.of_run(record), smooth, log),
        "ribbon": _ribbon(record),
        "evaluations": [(step, _evaluation(record, step)) for step in record.attempts["eval"].steps()],
        "seconds": sum(sum((line.get("time") or {}).values()) for line in steps),
        "facts": _flat(
            {key: value for key, value in record.facts.items() if key not in ("memory", "packages", "analysis")}
        ),
        "config": _config(record),
        "memory": _memory(record.facts.get("memory")),
    }
    return Content("run.html", record.name, values, record, (record,))


def curves(records: Sequence[Record], smooth: str = "", log: str = "") -> Content:
    if not records:
        raise NotThere("No run was chosen. Tick some on the page of all runs.")
    groups = drawn.alike(records)
    values = {
        **_curves(drawn.of_runs(records), smooth, log),
        "chosen": [record.name for record in records],
        "groups": groups,
        "banded": any(len(group) > 1 for group in groups.values()),
    }
    return Content("curves.html", "Curves", values, watch=tuple(records))


def analysis(record: Record, counted: Counted, patience: float, only: str = "") -> Content:
    """All that longloop.analysis finds, or one section of it."""
    done, of = counted.count(patience)
    report = counted.report()
    sections = [s for s in report.sections if only in ("", s.title)] if report else []
    values = {
        "done": done,
        "of": of,
        "headline": report.headline if report else "No attempt was scored yet.",
        "sections": [(section, charts(section.pictures)) for section in sections],
    }
    return Content("analysis.html", only or "Analysis", values, record, (record,), unfinished=done < of)


def _curves(charts: Sequence[Chart], smooth: str, log: str) -> dict[str, Any]:
    smooth = smooth if smooth in SMOOTHINGS else ""
    return {"charts": styled(charts, smooth, bool(log)), "smooth": smooth, "log": bool(log), "smoothings": SMOOTHINGS}


def _ribbon(record: Record) -> list[tuple[int, float | None]]:
    """All steps that can be opened, with their success."""
    success = {line["step"]: line.get("success") for line in record.metrics}
    return [(step, success.get(step)) for step in record.attempts["step"].steps()]


def _evaluation(record: Record, step: int) -> float | None:
    return next(((line.get("eval") or {}).get("success") for line in record.metrics if line["step"] == step), None)


def _memory(memory: Any) -> list[tuple[str, str, float]]:
    """The parts of the forecast: name, GiB, and the share of the largest."""
    if not isinstance(memory, dict):
        return []
    parts = [(name, memory[name]) for name in (*_MEMORY, "update", "collect", "peak") if memory.get(name)]
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


def _config(record: Record) -> list[tuple[str, str]]:
    """The settings of a run as they are now, with what those were that changed when it was resumed."""
    changed = {
        key: f" (from step {line.get('step')}, was {old})"
        for line in record.changes
        for key, (old, _) in line["changed"].items()
    }
    return [(key, value + changed.get(key, "")) for key, value in _flat(record.config)]


def _name(table: Any) -> str:
    return str(table.get("name", "-")) if isinstance(table, dict) else "-"


def _moment(started: Any) -> str:
    try:
        return datetime.fromisoformat(str(started)).strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return ""
