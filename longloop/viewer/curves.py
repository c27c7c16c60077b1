"""A run's numbers as charts. Several runs share a chart; those alike but for their seed become a mean and a band."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from longloop.store.run_reader import RunReader
from longloop.store.trajectories import SCORED
from longloop.viewer.charts import Chart, Line, Point, finite

Metrics = Mapping[str, Any]


@dataclass(frozen=True)
class _Curve:
    title: str
    value: Callable[[Metrics], Any]
    share: bool = False
    note: str = ""
    sampled: bool = False
    """Whether it describes the attempts of training; a run that only imitates has none of its own."""


def _of(*keys: str) -> Callable[[Metrics], Any]:
    def value(line: Any) -> Any:
        for key in keys:
            line = line.get(key) if isinstance(line, Mapping) else None
        return line

    return value


def scored(key: str) -> Callable[[Metrics], Any]:
    """A mean over scored attempts, which is stored as 0 where there was none."""

    def value(line: Metrics) -> Any:
        stops = line.get("stops")
        nothing = isinstance(stops, Mapping) and stops and not SCORED & stops.keys()
        return None if nothing or line.get("turns") == 0 else line.get(key)

    return value


def _per(above: str, below: str) -> Callable[[Metrics], Any]:
    def value(line: Metrics) -> Any:
        return line[above] / line[below] if above in line and line.get(below) else None

    return value


def _unscored(line: Metrics) -> Any:
    stops = line.get("stops") or {}
    lost = sum(stops.get(name, 0) for name in ("env_error", "timeout", "cancelled", "set_aside"))
    return lost / line["attempts"] if line.get("attempts") else None


def _gib(name: str) -> Callable[[Metrics], Any]:
    def value(line: Metrics) -> Any:
        size = _of("memory", name)(line)
        return size / 2**30 if isinstance(size, int | float) else None

    return value


trained = scored("success")
"""Success of a training step, by its line of metrics; None where nothing was scored in it."""
_UPDATED = {
    "loss": _Curve("Loss", _of("update", "loss")),
    "kl": _Curve("KL", _of("update", "kl"), note="old minus new log-prob, summed over a trajectory"),
    "reference_kl": _Curve("KL to the reference", _of("update", "reference_kl"), note="per token"),
    "entropy": _Curve("Entropy", _of("update", "entropy"), note="nats per token"),
    "clipped": _Curve("Clipped", _of("update", "clipped"), True, "share of ratios"),
    "grad_norm": _Curve("Gradient norm", _of("update", "grad_norm"), note="before clipping"),
    "ratio_gap": _Curve(
        "Sampler-learner gap", _of("update", "ratio_gap"), note="largest |ratio - 1| at the first update"
    ),
    "value_error": _Curve("Value error", _of("update", "value_error")),
}
_CURVES = (
    _Curve("Reward", scored("reward"), sampled=True),
    _Curve("Nothing to learn from", _per("equal_groups", "groups"), True, "groups that were paid all alike", True),
    *_UPDATED.values(),
    _Curve("Turns", scored("turns"), note="mean of an attempt", sampled=True),
    _Curve("Tokens", _per("action_tokens", "attempts"), note="chosen by the agent, per attempt", sampled=True),
    _Curve("Abandoned or spoiled", _unscored, True, "attempts without a score"),
)
_PHASES = ("collect", "credit", "update", "evaluate")


def of_run(run: RunReader) -> list[Chart]:
    """All that a run has measured."""
    metrics = run.metrics
    lines = [Line("demonstrations" if run.demonstrated else "training", success(run), 0)]
    measured = run.evaluations
    if measured:
        band = [(step, *found.success_interval) for step, found in measured.items()]
        held_out = [(step, found.success) for step, found in measured.items()]
        lines.append(Line("held out, 95%", held_out, 1, band, dots=True))
        floor = [(step, found.floor_success) for step, found in measured.items()]
        if any(y > 0 for _, y in floor):
            lines.append(Line("doing nothing", floor, 7, dashed=True))
    charts = [Chart("Success", lines, share=True)]
    curves = [curve for curve in (*_CURVES, *_further(metrics)) if not (curve.sampled and run.demonstrated)]
    charts += [_chart(curve, [Line(curve.title, _points(metrics, curve.value), 0)]) for curve in curves]
    phases = [Line(name, _points(metrics, _of("time", name)), color) for color, name in enumerate(_PHASES)]
    charts.append(Chart("Seconds", [line for line in phases if line.points], note="per phase of a step"))
    memory = [Line(name, _points(metrics, _gib(name)), color) for color, name in enumerate(("process", "card"))]
    shown = [line for line in memory if line.points]
    charts.append(Chart("Memory", shown, note="GiB at most: process so far, card in the step"))
    return [chart for chart in charts if not chart.empty]


def of_runs(runs: Sequence[RunReader]) -> list[Chart]:
    """The same curves of several runs, drawn over one another."""
    groups = list(alike(runs).items())
    held_out = _Curve("Success, held out", _of("eval", "success"), True)
    training = _Curve("Success, training", trained, True, sampled=True)
    time = _Curve("Seconds", lambda line: sum(line["time"].values()) if line.get("time") else None, note="of a step")
    charts = []
    further = _further([line for run in runs for line in run.metrics])
    for curve in (held_out, training, *_CURVES, *further, time):
        lines = [
            _mean(name, members, curve, color)
            for color, (name, members) in enumerate(groups)
            if not (curve.sampled and members[0].demonstrated)
        ]
        charts.append(_chart(curve, [line for line in lines if line.points]))
    return [chart for chart in charts if not chart.empty]


def alike(runs: Sequence[RunReader]) -> dict[str, list[RunReader]]:
    """Group the seeds of a method: runs that a comparison made of it, or whose configs differ in seed and name only."""
    groups: dict[tuple[str, int], list[RunReader]] = {}
    times: Counter[tuple[str, object]] = Counter()
    for run in runs:
        settings = run.settings
        method: Any = {key: value for key, value in settings.items() if key not in ("seed", "name", "folder")}
        match run.facts.get("comparison"):
            case {"name": comparison, "method": name}:  # each seed of it may start from a model of its own
                method = [comparison, name]
        alike = json.dumps([method if settings and run.metrics else run.name], sort_keys=True, default=str)
        seed = alike, settings.get("seed")
        groups.setdefault((alike, times[seed]), []).append(run)  # one seed twice is no second seed
        times[seed] += 1
    named: dict[str, list[RunReader]] = {}
    for members in groups.values():
        name = members[0].name
        if len(members) > 1:
            name = (name.rstrip("-_.~0123456789") or "runs") + f", {len(members)} seeds"
        named[name if name not in named else members[0].name] = members
    return named


def _further(metrics: Sequence[Metrics]) -> list[_Curve]:
    """Curves of the metrics that only this algorithm has."""
    names = {name for line in metrics for name in line.get("update") or {}} - _UPDATED.keys()
    return [_Curve(name.replace("_", " ").capitalize(), _of("update", name)) for name in sorted(names)]


def success(run: RunReader) -> list[Point]:
    """Success of the training steps in which something was scored."""
    return _points(run.metrics, trained)


def _chart(curve: _Curve, lines: Sequence[Line]) -> Chart:
    return Chart(curve.title, lines, curve.share, curve.note)


def _mean(name: str, members: Sequence[RunReader], curve: _Curve, color: int) -> Line:
    """The mean of several runs at the steps that all of them have, with a band from the lowest to the highest."""
    values: dict[float, list[float]] = {}
    for run in members:
        for step, value in _points(run.metrics, curve.value):
            values.setdefault(step, []).append(value)
    steps = [step for step in sorted(values) if len(values[step]) == len(members)]
    points = [(step, fmean(values[step])) for step in steps]
    band = [(step, min(values[step]), max(values[step])) for step in steps] if len(members) > 1 else []
    return Line(name, points, color, band)


def _points(metrics: Sequence[Metrics], value: Callable[[Metrics], Any]) -> list[Point]:
    return finite([(line["step"], value(line)) for line in metrics])
