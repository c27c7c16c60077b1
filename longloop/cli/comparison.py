"""`longloop compare`: print what is compared, run what is missing, then write the table and the picture."""

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.markup import escape

from longloop import api
from longloop.cli.commands import console
from longloop.compare import BASE, Entry, Plan, all_settings, differing, paired
from longloop.config import nearest
from longloop.stats import MIN_SEEDS, seed_interval
from longloop.store.files import whole_folder, write_whole
from longloop.store.run import differences, settings_of
from longloop.store.run_reader import RunReader, load_run, version_in_words
from longloop.types import Group, UserError

Results = dict[str, list[dict[str, Any]]]
"""method -> what each seed's run scored, by split."""

_FREE = (
    "save.",
    "learner.",
    "ranks.",
    "doctor",
    "env.isolation",
    "env.worker",
    "env.hosts",
    "model.threads",
    "eval.every",
)
"""Settings that may change when a comparison is continued: files, memory and speed."""
_OF_TRAINING = ("algo.", "steps", "tasks_per_step")
"""Settings that mean nothing to the model before training."""

_RULE = (
    "What [algo] says holds for every method that shares the option with the method named there, unless "
    "[methods.NAME.algo] says otherwise; options that do not hold stand under `not applied`."
)


def compare(
    path: Path,
    overrides: list[str],
    names: str,
    seeds: int,
    splits: list[str],
    start: str,
    jobs: int = 1,
    best: bool = False,
) -> None:
    methods = [_method(name.strip()) for name in names.split(",") if name.strip()]
    if not methods:
        raise UserError("Name some methods, for instance --methods base,sft,loop; `longloop algos` lists them.")
    start = _method(start) if start else "sft" if "sft" in methods else BASE
    if start not in (*methods, BASE):
        raise UserError(f"The others are to start from {start!r}, which is not among the methods that are compared.")
    asked = (path, overrides, methods, seeds, start, best)
    plan = Plan(*asked)
    for entry in plan.entries:
        _same_settings(plan, entry)
    splits = splits or [plan.split]
    rows = differing(plan.entries)
    console.print(_settings(rows), markup=False, soft_wrap=True)
    if jobs > 1:
        _side_by_side(plan, asked, splits, jobs)
    found: Results = {}
    for number, entry in enumerate(plan.entries, start=1):
        console.print(f"[bold]{escape(entry.method)}, seed {entry.seed}[/] ({number} of {len(plan.entries)})")
        found.setdefault(entry.method, []).append(_result(plan, entry, splits))
        _write(plan, found, splits, rows)
    console.print(f"\n{(plan.folder / 'table.md').read_text()}", soft_wrap=True, markup=False)
    console.print(f"It is in {plan.folder / 'table.md'}, a picture of it beside it.", soft_wrap=True)


Asked = tuple[Path, list[str], list[str], int, str, bool]
"""What a plan is made of."""


def _side_by_side(plan: Plan, asked: Asked, splits: Sequence[str], jobs: int) -> None:
    """Run what has no result yet, each run in a process of its own; the method that the others start from first."""
    numbers = range(len(plan.entries))
    first = [n for n in numbers if plan.entries[n].method == plan.start]
    failed = ""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for wave in (first, [n for n in numbers if n not in first]):
            running = {pool.submit(_alone, asked, n, splits): plan.entries[n] for n in wave}
            for done in as_completed(running):
                entry, error = running[done], done.exception()
                said = "done" if error is None else f"failed: {error}"
                console.print(f"{entry.method}, seed {entry.seed}: {said}", markup=False, soft_wrap=True)
                failed = failed or (f"{entry.method}, seed {entry.seed}: {error}" if error else "")
            if failed:
                raise UserError(f"{failed} What is done is kept: the same command goes on from there.")


def _alone(asked: Asked, number: int, splits: Sequence[str]) -> None:
    """One run of the plan. What it prints is in its folder's logs."""
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        plan = Plan(*asked)
        _result(plan, plan.entries[number], splits)


def _method(name: str) -> str:
    """A method's name; one of the user's own is `module:Class`."""
    from longloop.registry import ALGOS

    if ":" in name:
        return name
    name = name.replace("-", "_")
    if name not in (*ALGOS, BASE):
        raise UserError(
            f"There is no method {name!r}.{nearest(name, [*ALGOS, BASE])} `longloop algos` lists them; your own is "
            "written as module:Class."
        )
    return name


def _file(plan: Plan, entry: Entry) -> Path:
    return plan.folder / "results" / f"{entry.name}.json"


def _same_settings(plan: Plan, entry: Entry) -> None:
    """Raise UserError where a stored result was measured with other settings than the plan's."""
    file, run = _file(plan, entry), plan.folder / entry.name
    stored: list[tuple[Path, dict[str, Any]]] = []
    if file.exists():
        result = json.loads(file.read_text())
        stored.append((file, {"env_version": ""} | result.get("settings", {})))
        if entry.method != BASE and result.get("best", False) != plan.best:
            raise UserError(
                f"{file} was measured {'without' if plan.best else 'with'} --best. A comparison has one rule: say it "
                f"again, start another with name=..., or delete {file.parent} to measure the same runs anew."
            )
    if (run / "config.toml").is_file():
        stored.append((run, settings_of(load_run(run).config)))
    now, free = all_settings(entry.config), _FREE + (_OF_TRAINING if entry.method == BASE else ())
    for source, then in stored:
        for key, (was, becomes) in differences(then, now).items():
            if not key.startswith(free):
                raise UserError(
                    f"{source} was made with {key} = {was!r}, and now it is {becomes!r}. A comparison has one set of "
                    f"settings: start another with name=..., or delete {file} and {run} to do this part again."
                )


def _result(plan: Plan, entry: Entry, splits: Sequence[str]) -> dict[str, Any]:
    """An entry's scores by split. Only what has no stored result is trained and measured."""
    file = _file(plan, entry)
    done: dict[str, Any] = json.loads(file.read_text())["splits"] if file.exists() else {}
    left = [split for split in splits if split not in done]
    unexported = entry.method == plan.start != BASE and not plan.model(entry.seed).exists()
    if not (left or unexported):
        return done
    trained = None if entry.method == BASE else _trained(plan, entry)
    if not left:
        return done
    if trained is not None and entry.config.eval.split in left:
        left.remove(entry.config.eval.split)
        done[entry.config.eval.split] = _evaluation(plan.folder / entry.name, int(trained.name))
    measuring: AbstractContextManager[dict[str, Any]]
    measuring = api.measuring(entry.config, trained, left) if left else nullcontext({})
    with measuring as measured:
        done |= {split: _scored(result.to_json(), groups) for split, (result, groups) in measured.items()}
        _store(plan, entry, done)
    return done


def _store(plan: Plan, entry: Entry, scores: dict[str, Any]) -> None:
    """Write an entry's result: its scores by split, and what was played to get there."""
    steps = [] if entry.method == BASE else RunReader(plan.folder / entry.name).metrics
    played = {key: sum(step.get(key, 0) for step in steps) for key in ("attempts", "actions")}
    phases = ("collect", "credit", "update")
    played["minutes"] = sum(step.get("time", {}).get(phase, 0.0) for step in steps for phase in phases) / 60
    for scored in scores.values():
        scored["played"] = played
    file = _file(plan, entry)
    file.parent.mkdir(parents=True, exist_ok=True)
    made = {"method": entry.method, "seed": entry.seed, "settings": all_settings(entry.config)}
    made |= {"not_applied": entry.not_applied, "best": plan.best, "splits": scores}
    write_whole(file, json.dumps(made).encode())


def _evaluation(folder: Path, step: int) -> dict[str, Any]:
    """What a run's evaluation after a step found."""
    run = load_run(folder)
    return _scored(run.evaluations[step].to_json(), run.evaluation_trajectories(step))


def _scored(measured: dict[str, Any], groups: Sequence[Group]) -> dict[str, Any]:
    return measured | {"by_task": {g.task.id: fmean(t.success for t in g.scored) for g in groups if g.scored}}


def _trained(plan: Plan, entry: Entry) -> Path:
    """The checkpoint of an entry's run that is measured; the run is trained if need be. The start of the others, which
    is its last, is exported too."""
    run = plan.folder / entry.name
    if max(RunReader(run).checkpoints, default=0) < entry.config.steps:
        part = {"name": plan.folder.name, "method": entry.method, "seed": entry.seed, "start": plan.start}
        api.trained(entry.config, run if run.is_dir() else None, console, comparison=part)
    checkpoint = api.checkpoint_of(run)
    if entry.method == plan.start and not plan.model(entry.seed).exists():
        with whole_folder(plan.model(entry.seed)) as model:
            api.export(entry.config, checkpoint, model, "float32")
    return api.checkpoint_of(run, "best") if plan.best else checkpoint


def _write(plan: Plan, found: Results, splits: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    made = table(found, splits, plan.start, chosen_by=plan.split if plan.best else "")
    write_whole(plan.folder / "table.md", (made + _settings(rows)).encode())
    _draw(found, splits, plan.folder / "table.png")


def table(found: Results, splits: Sequence[str], start: str, chosen_by: str = "") -> str:
    """A Markdown table: success in percent, mean over seeds, and the gain over the start on the same tasks. `chosen_by`
    is the split by which checkpoints were chosen."""
    lines = [
        "| method | seeds | attempts | actions | minutes |" + "".join(f" {s} | over {start} |" for s in splits),
        "|---|---|---|---|---|" + "---|---|" * len(splits),
    ]
    for method, runs in found.items():
        cells = []
        for split in splits:
            mean, interval = seed_interval([run[split]["success"] for run in runs])
            whole = [run[split]["scenarios"] for run in runs if run[split].get("scenarios") is not None]
            cells.append(
                f"{100 * mean:.1f}"
                + (f" [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]" if interval else "")
                + (f" ({100 * fmean(whole):.1f})" if whole else "")
            )
            cells.append("" if method == start or start not in found else _gain(runs, found[start], split))
        played = [run[splits[0]]["played"] for run in runs if "played" in run[splits[0]]]  # longloop 0.1 did not count
        counted = [
            f"{fmean(one[key] for one in played):,.{digits}f}" if played and all(key in one for one in played) else ""
            for key, digits in (("attempts", 0), ("actions", 0), ("minutes", 1))
        ]
        lines.append(f"| {method} | {len(runs)} | " + " | ".join([*counted, *cells]) + " |")
    lines.append(
        "\nSuccess in percent. Brackets after it are a 95% interval over seeds (Student's t), where seeds differ;"
    )
    lines.append(f"those after the gain over {start} a 95% interval over tasks (paired bootstrap), where tasks differ.")
    lines.append(
        "Attempts and actions (turns) are all that were played in training, on average: side rollouts, refinements,"
    )
    lines.append("practised actions (one action each) and the expert's included; minutes leave out evaluations.")
    if chosen_by:
        lines.append(
            f"Of each run the checkpoint is measured that was best on {chosen_by}, whose own column that flatters."
        )
    if any(run[split].get("scenarios") is not None for runs in found.values() for run in runs for split in splits):
        lines.append("In parentheses: scenarios of which every task succeeded, in percent.")
    versions = sorted(
        {run[split].get("env_version", "") for runs in found.values() for run in runs for split in splits}
    )
    if any(versions):
        lines.append(f"Measured in {' and '.join(map(version_in_words, versions))} of the environment.")
    for few in sorted({len(runs) for runs in found.values() if len(runs) < MIN_SEEDS}):
        lines.append(f"{few} seed{'s' if few > 1 else ''}: no interval over seeds, which takes at least {MIN_SEEDS}.")
    return "\n".join(lines) + "\n"


def _gain(runs: Sequence[Mapping[str, Any]], starts: Sequence[Mapping[str, Any]], split: str) -> str:
    one, other = ([run[split]["by_task"] for run in some] for some in (runs, starts))
    change = paired(one, other)
    if change is None:
        return ""
    ends = f" [{100 * change.interval[0]:+.1f}, {100 * change.interval[1]:+.1f}]" if change.interval else ""
    return f"{100 * change.difference:+.1f}{ends}"


def _settings(rows: Sequence[Sequence[str]]) -> str:
    """The settings that differ, as Markdown."""
    if not rows:
        return "\nAll methods have the same settings.\n"
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return f"\nSettings that differ. {_RULE}\n\n" + "\n".join(lines) + "\n"


def _draw(found: Results, splits: Sequence[str], picture: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 0.8 + 0.32 * len(found) * len(splits)), layout="constrained")
    axes = figure.subplots()
    height = 0.8 / len(splits)
    for number, split in enumerate(splits):
        means = [seed_interval([run[split]["success"] for run in runs]) for runs in found.values()]
        rows = [row + number * height for row in range(len(found))]
        ends = [interval or (mean, mean) for mean, interval in means]
        reach = [(100 * (mean - low), 100 * (high - mean)) for (mean, _), (low, high) in zip(means, ends, strict=True)]
        axes.barh(
            rows,
            [100 * mean for mean, _ in means],
            height,
            xerr=list(zip(*reach, strict=True)),
            label=split,
            error_kw={"elinewidth": 0.8},
        )
    axes.set_yticks([row + 0.4 - height / 2 for row in range(len(found))], list(found))
    axes.invert_yaxis()
    axes.set_xlabel("success, %")
    axes.legend(frameon=False)
    figure.savefig(picture, dpi=150)
