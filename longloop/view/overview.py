"""What the pages about whole runs show: all of them, one, several over one another, what became of one."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from longloop.view import curves as drawn
from longloop.view.analysis import Counted, charts
from longloop.view.charts import number
from longloop.view.content import Content, NotThere
from longloop.view.record import Record

_MEMORY = ("weights", "adapters", "masters", "gradients", "optimiser", "second_copy", "activations", "working", "kv")


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
    trained: float | None
    """Success in the last training step."""
    curve: Sequence[tuple[float, float]]


def summary(record: Record) -> Summary:
    config, metrics = record.config, record.metrics
    evaluated = [line["eval"] for line in metrics if line.get("eval")]
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
        held_out=evaluated[-1].get("success") if evaluated else None,
        interval=evaluated[-1].get("success_interval") if evaluated else None,
        trained=trained[-1] if trained else None,
        curve=drawn.success(record),
    )


def runs(records: Sequence[Record]) -> Content:
    listed = sorted((summary(record) for record in records), key=lambda run: run.started, reverse=True)
    return Content("runs.html", "Runs", {"runs": listed}, watch=())


def run(record: Record) -> Content:
    steps = [line for line in record.metrics if line["step"] > 0]
    values = {
        "run": summary(record),
        "sentence": _sentence(record),
        "worries": _worries(record),
        "charts": drawn.of_run(record),
        "ribbon": _ribbon(record),
        "evaluations": [(step, _evaluation(record, step)) for step in record.attempts["eval"].steps()],
        "seconds": sum(sum((line.get("time") or {}).values()) for line in steps),
        "facts": _flat(
            {key: value for key, value in record.facts.items() if key not in ("memory", "packages", "analysis")}
        ),
        "config": _flat(record.config),
        "memory": _memory(record.facts.get("memory")),
    }
    return Content("run.html", record.name, values, record, (record,))


def curves(records: Sequence[Record]) -> Content:
    if not records:
        raise NotThere("No run was chosen. Tick some on the page of all runs.")
    groups = drawn.alike(records)
    values = {"charts": drawn.of_runs(records), "groups": groups, "banded": any(len(g) > 1 for g in groups.values())}
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


def _sentence(record: Record) -> str:
    """What came of it, in words."""
    found = [
        (line["step"], line["eval"]) for line in record.metrics if (line.get("eval") or {}).get("success") is not None
    ]
    if len(found) > 1:
        (_, before), (step, after) = found[0], found[-1]
        verb = {1: "rose", -1: "fell", 0: "stayed"}[
            (after["success"] > before["success"]) - (after["success"] < before["success"])
        ]
        moved = f"from {_held_out(before)} to {_held_out(after)}" if verb != "stayed" else f"at {_held_out(after)}"
        said = f"Held-out success {verb} {moved} by step {step}"
    elif found:
        said = f"Held-out success was {_held_out(found[0][1])} at step {found[0][0]}"
    else:
        trained = [line for line in record.metrics if line.get("success") is not None]
        if not trained:
            return "Nothing was measured yet."
        few = max(1, min(5, len(trained) // 2))
        first, last = (sum(line["success"] for line in part) / few for part in (trained[:few], trained[-few:]))
        over = "the first and last steps" if few == 1 else f"the first and last {few} steps"
        return f"Success in training went from {number(first, True)} to {number(last, True)} (mean of {over})."
    last_evaluation = found[-1][1]
    floor = last_evaluation.get("floor_success")
    tasks, attempts = last_evaluation.get("tasks"), last_evaluation.get("attempts")
    size = f" ({_count(tasks, 'task')}, {_count(attempts, 'attempt')} each)" if tasks else ""
    return said + size + (f"; doing nothing scores {number(floor, True)}." if floor is not None else ".")


def _count(number: Any, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _held_out(evaluation: dict[str, Any]) -> str:
    interval = evaluation.get("success_interval")
    ends = f" [{number(interval[0], True)}, {number(interval[1], True)}]" if interval else ""
    return number(round(evaluation["success"], 3), True) + ends


def _worries(record: Record) -> list[str]:
    """What a person should look at first."""
    steps = [line for line in record.metrics if line.get("attempts")]
    found = []
    if record.too_new:
        found.append("A later longloop wrote this run; upgrade, or some of it may be shown wrongly.")
    if record.status == "killed":
        found.append(f"The process was killed. Continue with: longloop train --resume {record.folder}")
    guarded = [line["step"] for line in steps if line.get("guard")]
    if guarded:
        found.append(f"A guard skipped updates in {len(guarded)} of {len(steps)} steps, last in step {guarded[-1]}.")
    late = steps[-10:]
    equal = sum(line.get("equal_groups", 0) for line in late)
    groups = sum(line.get("groups", 0) for line in late)
    imitates = not any((line.get("update") or {}).get("kl") is not None for line in steps)
    if groups and equal / groups > 0.8 and not imitates:
        found.append(
            f"Of the last {groups} groups, {equal} had attempts that were all paid alike: little is left to learn from."
        )
    for stop, meaning in (("env_error", "met an error of the environment"), ("timeout", "overran a deadline")):
        lost = sum((line.get("stops") or {}).get(stop, 0) for line in steps)
        if lost:
            found.append(f"{lost:,} attempts {meaning}.")
    return found


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


def _name(table: Any) -> str:
    return str(table.get("name", "-")) if isinstance(table, dict) else "-"


def _moment(started: Any) -> str:
    try:
        return datetime.fromisoformat(str(started)).strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return ""
