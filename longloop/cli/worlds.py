"""What `check` and `play` do: an environment without a model in it."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from longloop.build import World
from longloop.build import world as build_world
from longloop.config import Config, override
from longloop.envs.play import answered
from longloop.envs.play import play as play_task
from longloop.envs.trial import Score, repeats, scores, splits
from longloop.types import Message, Task, UserError

console = Console(highlight=False)


def check(name: str, options: list[str], seeds: int) -> None:
    """Play every split with everyone who needs no model; stop with an error when something is not as it should be."""
    world = _world(name, options)
    faults: list[str] = []
    found = {split: tasks for split in splits(world.environment) if (tasks := _tasks(world, split))}
    if not found:
        raise UserError(f"{name} has no tasks in any split.")
    some = [tasks[0] for tasks in found.values()]
    for task in some:
        if not asyncio.run(repeats(world.make, task)):
            faults.append(f"{task.id}: the same actions met other answers or another score the second time.")
    results = {
        split: asyncio.run(scores(world.make, tasks))
        for split, tasks in track(found.items(), "playing", console=console, transient=True)
    }
    console.print(_scores_table(results, {split: len(tasks) for split, tasks in found.items()}))
    for by_player in results.values():
        for player, score in by_player.items():
            wrong = score.failures if player == "expert" else score.successes
            faults += [f"{task}: {player} {'fails' if player == 'expert' else 'succeeds'}." for task in wrong]
    expert = [by_player["expert"] for by_player in results.values() if "expert" in by_player]
    if expert:
        steps, seconds = sum(s.steps for s in expert), sum(s.seconds for s in expert)
        console.print(f"\n{steps} expert turns in {seconds:.1f} s: {steps / seconds:.0f} a second, starting included.")
    if hasattr(world.environment, "audit"):
        for line in world.environment.audit(
            seeds, lambda items: track(items, "auditing", console=console, transient=True)
        ):
            if line.startswith("FAULT "):
                faults.append(line.removeprefix("FAULT "))
            else:
                console.print(line, markup=False)
    for fault in faults:
        console.print(f"[red]FAULT[/red] {escape(fault)}", soft_wrap=True)
    console.print(f"{name}: {f'{len(faults)} faults' if faults else 'all is well'}.")
    if faults:
        sys.exit(1)


def floors(world: World) -> Table:
    """What baselines score on every split, for `longloop envs NAME`."""
    found = {split: tasks for split in splits(world.environment) if (tasks := _tasks(world, split))}
    results = {split: asyncio.run(scores(world.make, tasks, expert=False)) for split, tasks in found.items()}
    return _scores_table(results, {split: len(tasks) for split, tasks in found.items()})


def play(name: str, options: list[str], split: str, task_id: str | None) -> None:
    """A person does a task, seeing what an agent would see."""
    world = _world(name, options)
    tasks = world.tasks(split)
    task = tasks[0] if task_id is None else next((task for task in tasks if task.id == task_id), None)
    if task is None:
        raise UserError(f"The split {split!r} of {name} has no task {task_id!r}; the first is {tasks[0].id!r}.")
    console.rule(f"{task.id}")
    console.print("Write what the agent would say; an empty line sends it, /quit ends the attempt.\n", style="dim")
    env: Any = world.make()
    hint = env.expert(task) if hasattr(env, "expert") else None
    played = asyncio.run(play_task(env, task, _Person(hint)))
    if played.messages:
        _show(played.messages[-1:])
    console.rule(f"reward {played.outcome.reward:.3f}, {'success' if played.outcome.success else 'no success'}")
    for test in played.outcome.info.get("tests", []):
        console.print(f"{'passed' if test['passed'] else 'FAILED'}  {test['name']}", markup=False, soft_wrap=True)


class _Person:
    """Someone at the terminal. `/expert` shows what the expert would say from the start."""

    def __init__(self, expert: Any) -> None:
        self._expert = expert

    async def act(self, messages: Sequence[Message]) -> str:
        _show(messages)
        lines: list[str] = []
        while True:
            try:
                line = input("... " if lines else ">>> ")
            except EOFError:
                return "\n".join(lines)
            if line == "/quit":
                return ""
            if line == "/expert" and self._expert is not None:
                said = await answered(self._expert.act(messages))
                console.print(said or "(nothing more)", markup=False, style="cyan")
            elif line or not lines:
                lines += [line] if line else []
            else:
                return "\n".join(lines)


def _show(messages: Sequence[Message]) -> None:
    for message in messages:
        console.print(f"[{message.role}]", style="bold", markup=False)
        console.print(message.content, markup=False, soft_wrap=True)


def _world(name: str, options: list[str]) -> World:
    tree: dict[str, Any] = {"env": {"name": name}}
    for option in options:
        override(tree, f"env.{option}")
    return build_world(Config.model_validate(tree))


def _tasks(world: World, split: str) -> list[Task]:
    try:
        return world.tasks(split)
    except UserError:
        return []  # a split it does not have


def _scores_table(results: dict[str, dict[str, Score]], sizes: dict[str, int]) -> Table:
    names = list(dict.fromkeys(name for by_player in results.values() for name in by_player))
    table = Table(box=None, pad_edge=False, title="mean reward (share of tasks done, if any)", title_justify="left")
    table.add_column("split", style="bold")
    table.add_column("tasks", justify="right")
    for name in names:
        table.add_column(name, justify="right")
    for split, by_player in results.items():
        table.add_row(split, str(sizes[split]), *(_cell(by_player[name]) for name in names))
    return table


def _cell(score: Score) -> str:
    done = f" ({score.success:.0%})" if 0 < score.success < 1 else " (all)" if score.success else ""
    return f"{score.reward:.3f}{done}"
