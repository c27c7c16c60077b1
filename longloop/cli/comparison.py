"""`longloop compare`: run what is not there yet, then write the table and the picture."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from longloop.cli import commands
from longloop.cli.commands import console
from longloop.compare import BASE, Entry, Plan, over_seeds, paired
from longloop.config import nearest
from longloop.store.files import write_whole
from longloop.store.run import checkpoints
from longloop.types import UserError

Results = dict[str, list[dict[str, Any]]]
"""method -> what each seed's run scored, by split."""


def compare(path: Path, overrides: list[str], names: str, seeds: int, splits: list[str], start: str) -> None:
    from longloop.algos import ALGOS

    methods = [name.strip().replace("-", "_") for name in names.split(",") if name.strip()]
    if not methods:
        raise UserError("Name some methods, for instance --methods base,sft,loop; `longloop algos` lists them.")
    for name in methods:
        if name not in (*ALGOS, BASE):
            raise UserError(f"There is no method {name!r}.{nearest(name, [*ALGOS, BASE])} `longloop algos` lists them.")
    start = start or ("sft" if "sft" in methods else BASE)
    if start not in (*methods, BASE):
        raise UserError(f"The others are to start from {start!r}, which is not among the methods that are compared.")
    plan = Plan(path, overrides, methods, seeds, start)
    found: Results = {}
    for number, entry in enumerate(plan.entries, start=1):
        console.print(f"[bold]{entry.method}, seed {entry.seed}[/] ({number} of {len(plan.entries)})")
        found.setdefault(entry.method, []).append(_result(plan, entry, splits or [entry.config.eval.split]))
        _write(plan, found)
    console.print(f"\n{(plan.folder / 'table.md').read_text()}", soft_wrap=True)
    console.print(f"It is in {plan.folder / 'table.md'}, a picture of it beside it.", soft_wrap=True)


def _result(plan: Plan, entry: Entry, splits: Sequence[str]) -> dict[str, Any]:
    """What an entry scored; what was done before is not done again."""
    file = plan.folder / "results" / f"{entry.method}-{entry.seed}.json"
    done: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    left = [split for split in splits if split not in done]
    if not left:
        return done
    run = plan.folder / f"{entry.method}-{entry.seed}"
    trained = None if entry.method == BASE else _trained(plan, entry, run)
    from longloop.build import evaluation

    for split, (measured, groups) in asyncio.run(evaluation(entry.config, trained, left)).items():
        tasks = {group.task.id: fmean(t.success for t in group.scored) for group in groups if group.scored}
        done[split] = measured.to_json() | {"by_task": tasks}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps(done).encode())
    return done


def _trained(plan: Plan, entry: Entry, run: Path) -> Path:
    """The last checkpoint of an entry's run; if it is the others' start, also as a model."""
    if max(checkpoints(run), default=0) < entry.config.steps:
        briefly = entry.config.eval.model_copy(update={"tasks": 1, "attempts": 1})  # all of it is measured afterwards
        commands.trained(entry.config.model_copy(update={"eval": briefly}), run if run.is_dir() else None)
    checkpoint = run / "checkpoints" / f"{max(checkpoints(run)):06d}"
    if entry.method == plan.start and not plan.model(entry.seed).exists():
        from longloop.build import exported

        exported(entry.config, checkpoint, plan.model(entry.seed), "float32")
    return checkpoint


def _write(plan: Plan, found: Results) -> None:
    splits = list(next(iter(found.values()))[0])
    write_whole(plan.folder / "table.md", table(found, splits, plan.start).encode())
    _draw(found, splits, plan.folder / "table.png")


def table(found: Results, splits: Sequence[str], start: str) -> str:
    """Success in percent, mean over seeds; beside it, how much better than the start on the same tasks."""
    lines = [
        "| method | seeds |" + "".join(f" {split} | over {start} |" for split in splits),
        "|---|---|" + "---|---|" * len(splits),
    ]
    for method, runs in found.items():
        cells = []
        for split in splits:
            mean, reach = over_seeds([run[split]["success"] for run in runs])
            cells.append(f"{100 * mean:.1f} ± {100 * reach:.1f}" if len(runs) > 1 else f"{100 * mean:.1f}")
            cells.append("" if method == start or start not in found else _gain(runs, found[start], split))
        lines.append(f"| {method} | {len(runs)} | " + " | ".join(cells) + " |")
    lines.append("\n± is a 95% interval over seeds (Student's t); the brackets are a 95% interval over tasks (paired")
    lines.append("bootstrap).")
    return "\n".join(lines) + "\n"


def _gain(runs: Sequence[Mapping[str, Any]], starts: Sequence[Mapping[str, Any]], split: str) -> str:
    one, other = ([run[split]["by_task"] for run in some] for some in (runs, starts))
    mean, low, high = paired(one, other)
    return f"{100 * mean:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def _draw(found: Results, splits: Sequence[str], picture: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 0.8 + 0.32 * len(found) * len(splits)), layout="constrained")
    axes = figure.subplots()
    height = 0.8 / len(splits)
    for place, split in enumerate(splits):
        numbers = [over_seeds([run[split]["success"] for run in runs]) for runs in found.values()]
        rows = [row + place * height for row in range(len(found))]
        axes.barh(
            rows,
            [100 * mean for mean, _ in numbers],
            height,
            xerr=[100 * reach for _, reach in numbers],
            label=split,
            error_kw={"elinewidth": 0.8},
        )
    axes.set_yticks([row + 0.4 - height / 2 for row in range(len(found))], list(found))
    axes.invert_yaxis()
    axes.set_xlabel("success, %")
    axes.legend(frameon=False)
    figure.savefig(picture, dpi=150)
