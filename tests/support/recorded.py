"""Run folders as training leaves them, written in seconds: by the real writer, with attempts that were made up."""

import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from longloop import config
from longloop.store.metrics import Evaluation
from longloop.store.run import Run
from longloop.types import Group, Message, Sample, SampleSource, StopReason, Task, Trajectory, Turn

SYSTEM = "You do errands for your owner by writing Python. " + "Read the documentation before you call anything. " * 12
_GOOD = "Thought: The newest order comes first.\n```python\nprint(apis.shop.list_orders(page_size=1))\n```"
_ANSWER = "Thought: I answer with its total.\n```python\napis.owner.complete_task(answer=401.96)\n```"
_WRONG = "Thought: That should be all.\n```python\napis.owner.complete_task()\n```"
_HEARD = "[{'id': 114, 'at': '2026-04-28 11:55', 'status': 'placed', 'total': 401.96}]\n" * 8


def settings(folder: Path, **changes: Any) -> config.Config:
    tree = {"name": folder.name, "folder": str(folder.parent), "steps": 200, "env": {"name": "errands"}}
    return config.resolve(tree | {"model": {"path": "novice"}} | changes, "tests/support/recorded.py")


def attempt(
    task: Task, number: int, success: bool, stop: StopReason = StopReason.FINISHED, **fields: Any
) -> Trajectory:
    """Two turns, of which the second does it right or not."""
    opening = (Message("system", SYSTEM), Message("user", f"How much was my last order? ({task.id})"))
    ids = tuple(range(5, 25))
    said = (_GOOD, _ANSWER) if success else (_GOOD, _WRONG)
    turns = tuple(
        Turn(
            context=context,
            context_ids=ids,
            action=Message("assistant", action),
            action_ids=ids[:12],
            action_logprobs=(-0.25,) * 12,
            seconds={"sample": 0.5, "env": 0.01},
        )
        for context, action in zip((opening, (Message("user", _HEARD),)), said, strict=True)
    )
    tests = [{"name": "nothing else differs", "passed": True}, {"name": "the answer is 401.96", "passed": success}]
    reward = float(success) if stop.scored else 0.0
    given = {"turns": turns, "reward": reward, "success": success and stop.scored, "info": {"tests": tests}} | fields
    return Trajectory(task=task, attempt=number, stop=stop, **given)


def groups(count: int, k: int, share: float, seed: object) -> list[Group]:
    rng = random.Random(f"{seed}")
    made = []
    for number in range(count):
        task = Task(f"train/cost-of-last-order/{number}", "train", {"world": number}, "cost-of-last-order")
        stops = [StopReason.CANCELLED if rng.random() < 0.03 else StopReason.FINISHED for _ in range(k)]
        tried = tuple(attempt(task, which, rng.random() < share, stop) for which, stop in enumerate(stops))
        made.append(Group(task, tried))
    return made


def samples(tried: list[Group]) -> Iterator[Sample]:
    """Each scored attempt against the mean of its group."""
    for index, group in enumerate(tried):
        mean = sum(t.reward for t in group.scored) / max(1, len(group.scored))
        for trajectory in group.scored:
            for stretch in trajectory.stretches():
                yield Sample(
                    ids=stretch.ids,
                    mask=stretch.mask,
                    logprobs=stretch.logprobs,
                    turns=stretch.turns,
                    advantages=stretch.mask * (trajectory.reward - mean),
                    weights=np.ones(len(stretch.ids)),
                    source=SampleSource(index, trajectory.attempt),
                )


def metrics(step: int, share: float, attempts: int, count: int) -> dict[str, Any]:
    update = {"loss": 0.1 / step, "kl": 0.01 * step, "entropy": 1 / step, "clipped": 0.01, "grad_norm": 0.2}
    line = {"step": step, "success": share, "reward": share, "groups": count, "equal_groups": count // 4}
    line |= {"attempts": attempts, "stops": {"finished": attempts}, "turns": 2.0, "action_tokens": 24 * attempts}
    return line | {"update": update, "time": {"collect": 4.0, "credit": 0.1, "update": 2.0}}


def evaluation(success: float) -> dict[str, Any]:
    """Of three tasks, with two attempts at each."""
    found = Evaluation(3, 2, 0, success, (0.2, 0.8), success, (0.2, 0.8), {"1": success}, None, 0.0, 0.0)
    return found.to_json()


def step(run: Run, number: int, share: float = 0.5, count: int = 3, k: int = 4) -> None:
    """One more step of a run that is open."""
    tried = groups(count, k, share, number)
    run.trajectories.write(number, tried, list(samples(tried)))
    run.metrics.write(metrics(number, share, count * k, count))


def small(folder: Path, steps: int = 3, **changes: Any) -> Path:
    """A finished run with an evaluation at both ends."""
    with Run.create(settings(folder, steps=steps, **changes), {}) as run:
        for number in (0, steps):
            run.evaluations.write(number, groups(3, 2, 0.3 + 0.1 * number, "eval"))
        for number in range(1, steps + 1):
            step(run, number, number / (steps + 1))
        run.metrics.write({"step": 0, "eval": evaluation(0.25)})
        run.metrics.write(metrics(steps, steps / (steps + 1), 12, 3) | {"eval": evaluation(0.5)})
    return folder


def big(folder: Path, steps: int = 200, count: int = 25, k: int = 10, copies: bool = False) -> Path:
    """A long run: a few steps are written, and stand for all the others (as links, unless copies are asked for)."""
    variants = 8
    same = shutil.copy if copies else os.link
    with Run.create(settings(folder, steps=steps), {}) as run:
        first: dict[int, int] = {}
        store = run.trajectories.folder
        for number in range(1, steps + 1):
            variant = (number - 1) * variants // steps
            share = (variant + 1) / (variants + 1)
            if variant not in first:
                first[variant] = number
                tried = groups(count, k, share, variant)
                run.trajectories.write(number, tried, list(samples(tried)))
            else:
                for kind in ("jsonl", "safetensors"):
                    same(store / f"{first[variant]:06d}.{kind}", store / f"{number:06d}.{kind}")
        lines = [json.loads(line) for line in (store / "index.jsonl").read_text().splitlines()]
        with (store / "index.jsonl").open("w") as index, (folder / "metrics.jsonl").open("w") as numbers:
            for number in range(1, steps + 1):
                variant = (number - 1) * variants // steps
                for line in lines:
                    if line["step"] == first[variant]:
                        index.write(json.dumps(line | {"step": number}, separators=(",", ":")) + "\n")
                share = (variant + 1) / (variants + 1)
                numbers.write(json.dumps(metrics(number, share, count * k, count)) + "\n")
    return folder
