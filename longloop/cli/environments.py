"""The commands `check` and `play`: an environment without a model."""

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from longloop import build
from longloop.config import Config, override
from longloop.diagnose.trial import Make, Score, by_luck, evenly_spaced, resident, scores, sharing, violations
from longloop.envs.base import Environment, Player
from longloop.envs.calls import called
from longloop.envs.contract import NoExpert, NoTasks
from longloop.envs.play import answered, expert_of
from longloop.envs.play import play as play_task
from longloop.isolation.environments import Environments
from longloop.isolation.guard import Watched
from longloop.types import Fault, Message, Step, Task, UserError

console = Console(highlight=False)

_DEADLINE = 600.0
"""Seconds for each call to an environment, if no limit is given."""
_SOME = 5
"""Tasks of a split that `longloop envs` plays; `check` plays all it has time for."""


def check(name: str, options: list[str], seeds: int, most: int, seconds: float, step_seconds: float) -> None:
    """Play every split with everyone who needs no model, and print what is wrong; exit with status 1 if anything is."""
    before = resident()
    made = environments(name, options)
    environment = made.environment
    found = _found(made)
    make = made.guarded(step_seconds)
    faults = _Faults()
    try:
        asyncio.run(_sound(make, found, faults, environment.deterministic))
    except Fault as fault:  # every task would meet it, or take as long
        faults.add(str(fault))
        _conclude(name, faults)
    results = {
        split: asyncio.run(scores(make, evenly_spaced(tasks)[: most or None], seconds=seconds / len(found)))
        for split, tasks in track(found.items(), "playing", console=console, transient=True)
    }
    sizes = {split: len(tasks) for split, tasks in found.items()}
    console.print(_scores_table(results, sizes))
    if any(_played(by_player) < sizes[split] for split, by_player in results.items()):
        console.print("A sample, spread evenly over each split; --seconds and --tasks set how large.", style="dim")
    console.print()
    console.print(_cost_table(results, before))
    for by_player in results.values():
        _judge(by_player, environment, faults)
    for line in environment.audit(seeds, lambda items: _for(seconds, items)):
        if line.startswith("FAULT "):
            faults.add(line.removeprefix("FAULT "))
        else:
            console.print(line, markup=False)
    _conclude(name, faults)


def _for(seconds: float, items: Sequence[Any]) -> Iterator[Any]:
    """The parts of an audit, until so many seconds have passed."""
    ends = time.perf_counter() + seconds
    for item in track(items, "auditing", console=console, transient=True):
        if time.perf_counter() > ends:
            console.print("The audit was ended by --seconds.", style="dim")
            return
        yield item


class _Faults:
    """What is wrong, and what is odd: sentences, each with the tasks where it was found."""

    def __init__(self) -> None:
        self.wrong: dict[str, list[str]] = {}
        self.odd: dict[str, list[str]] = {}

    def add(self, sentence: str, *tasks: str, odd: bool = False) -> None:
        found = (self.odd if odd else self.wrong).setdefault(sentence.rstrip("."), [])
        found += [task for task in tasks if task not in found]


async def _sound(make: Make, found: dict[str, list[Task]], faults: _Faults, repeatable: bool) -> None:
    """Try one task of each split: malformed actions, the same attempt again, and several side by side."""
    for tasks in found.values():
        for sentence in await violations(make, tasks[0], repeatable and not faults.wrong):
            faults.add(sentence, tasks[0].id)
    if faults.wrong:
        return
    disturbed, kept = await sharing(make, next(iter(found.values())))
    advice = "keep what belongs to an attempt on self, not on the class, in a module or in a file"
    if kept:
        advice = f"{kept} is set on the class, which all attempts share: {advice}"
    if disturbed:
        faults.add(f"attempts side by side disturb each other: {disturbed}; {advice}")
    elif kept:
        faults.add(advice, odd=True)


def _conclude(name: str, faults: _Faults) -> None:
    """Print what was found; exit with status 1 if something is wrong."""
    for kind, style, sentences in (("NOTE", "yellow", faults.odd), ("FAULT", "red", faults.wrong)):
        for sentence, tasks in sentences.items():
            where = f"{tasks[0]}: " if tasks else ""
            others = f"; the same at {len(tasks) - 1} other task{'s' * (len(tasks) > 2)}" if len(tasks) > 1 else ""
            console.print(f"[{style}]{kind}[/{style}] {escape(where + sentence + others)}.", soft_wrap=True)
    wrong = len(faults.wrong)
    plural = "s" * (wrong != 1)
    console.print(f"{name}: {f'{wrong} fault{plural}' if wrong else 'all is well'}.")
    if wrong:
        sys.exit(1)


def floors(made: Environments) -> Table:
    """Return what baselines score on some tasks of every split, for `longloop envs NAME`."""
    found = _found(made)
    results = {
        split: asyncio.run(scores(made.guarded(_DEADLINE), evenly_spaced(tasks)[:_SOME], expert=False))
        for split, tasks in found.items()
    }
    return _scores_table(results, {split: len(tasks) for split, tasks in found.items()})


def play(name: str, options: list[str], split: str, task_id: str | None) -> None:
    """Let a person do a task, seeing what an agent would see."""
    made = environments(name, options)
    tasks = made.tasks(split)
    task = tasks[0] if task_id is None else next((task for task in tasks if task.id == task_id), None)
    if task is None:
        raise UserError(f"The split {split!r} of {name} has no task {task_id!r}; the first is {tasks[0].id!r}.")
    console.rule(f"{task.id}")
    console.print("Write what the agent would say; an empty line sends it, /quit ends the attempt.\n", style="dim")
    try:
        env = _Shown(made.make, _DEADLINE)
        played = asyncio.run(play_task(env, task, _Person(expert_of(env, task))))
    except Fault as fault:
        raise UserError(f"{name} fails on task {task.id!r}: {fault}.") from fault
    if played.messages:
        _show(played.messages[-1:])
    console.rule(f"reward {played.outcome.reward:.3f}, {'success' if played.outcome.success else 'no success'}")
    for test in played.outcome.info.get("tests", []):
        console.print(f"{'passed' if test['passed'] else 'FAILED'}  {test['name']}", markup=False, soft_wrap=True)


class _Shown(Watched):
    """An environment for a person, who is told its tools. An agent reads them in its chat template's words."""

    async def start(self, task: Task) -> Sequence[Message] | Step:
        opening = await super().start(task)
        if tools := Step.of(opening).tools:
            console.print("[tools]", style="bold", markup=False)
            for tool in tools:
                console.print(json.dumps(tool["function"], ensure_ascii=False), markup=False, soft_wrap=True)
            console.print(f"A call is a block of JSON:\n{called('NAME', {})}\n", markup=False, style="dim")
        return opening


class _Person:
    """A person at the terminal. `/expert` shows the expert's next action."""

    def __init__(self, expert: Player | None) -> None:
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
                try:
                    said = await answered(self._expert.act(messages))
                except NoExpert:
                    said = ""
                console.print(said or "(nothing more)", markup=False, style="cyan")
            elif line or not lines:
                lines += [line] if line else []
            else:
                return "\n".join(lines)


def _show(messages: Sequence[Message]) -> None:
    for message in messages:
        console.print(f"[{message.role}]", style="bold", markup=False)
        console.print(message.content, markup=False, soft_wrap=True)


def environments(name: str, options: list[str]) -> Environments:
    """Return what makes the environments of a name, with options as `key=value`."""
    tree: dict[str, Any] = {"env": {"name": name}}
    for option in options:
        override(tree, f"env.{option}")
    return build.world(Config.model_validate(tree))


def _found(made: Environments) -> dict[str, list[Task]]:
    """Return the tasks of each split that has any. If none has, raise what the first is missing."""
    found, missing = {}, []
    for split in made.environment.splits:
        try:
            found[split] = made.tasks(split)
        except NoTasks as error:
            missing.append(error)
    if not found:
        raise missing[0]
    return found


def _judge(by_player: dict[str, Score], environment: type[Environment], faults: _Faults) -> None:
    """Add what is wrong with the scores of a split: the expert must succeed, others must not, unless by chance."""
    for player, score in by_player.items():
        for sentence, tasks in score.errors.items():
            faults.add(sentence, *tasks)
        for sentence, task in score.remarks.items():
            faults.add(sentence, task, odd=True)
        low, high = environment.reward_range or (0.0, 1.0)
        if score.rewards and not low <= min(score.rewards) <= max(score.rewards) <= high:
            paid = f"{min(score.rewards):g} to {max(score.rewards):g}"
            faults.add(f"{player} was paid {paid}; a reward lies between {low:g} and {high:g} (see reward_range)")
        if player == "expert" and score.failures:
            faults.add(f"expert fails: {score.why}", *score.failures)
        elif player != "expert" and score.successes and not by_luck(environment, player):
            faults.add(f"{player} succeeds", *score.successes)


def _played(by_player: dict[str, Score]) -> int:
    return max(len(score.rewards) + sum(map(len, score.errors.values())) for score in by_player.values())


def _scores_table(results: dict[str, dict[str, Score]], sizes: dict[str, int]) -> Table:
    names = list(dict.fromkeys(name for by_player in results.values() for name in by_player))
    table = Table(box=None, pad_edge=False, title="mean reward (share of tasks done, if any)", title_justify="left")
    table.add_column("split", style="bold", overflow="fold")
    table.add_column("tasks", justify="right", overflow="fold")
    for name in names:
        table.add_column(name, justify="right", overflow="fold")
    for split, by_player in results.items():
        played, size = _played(by_player), sizes[split]
        tasks = f"{played} of {size}" if played < size else str(size)
        table.add_row(split, tasks, *(_cell(by_player[name]) if name in by_player else "-" for name in names))
    return table


def _cost_table(results: dict[str, dict[str, Score]], before: int) -> Table:
    """Return the speed of each player over all splits, and the memory of all the processes that were started."""
    table = Table(box=None, pad_edge=False, title="speed and memory", title_justify="left")
    table.add_column("player", style="bold", overflow="fold")
    for name in ("steps", "steps a second", "with starting", f"MiB ({before >> 20} before)"):
        table.add_column(name, justify="right", overflow="fold")
    for name in dict.fromkeys(name for by_player in results.values() for name in by_player):
        some = [by_player[name] for by_player in results.values() if name in by_player]
        steps = sum(score.steps for score in some)
        seconds = [sum(score.stepping for score in some), sum(score.seconds for score in some)]
        rates = [f"{steps / spent:.0f}" if steps else "" for spent in seconds]
        table.add_row(name, str(steps), *rates, str(max(score.memory for score in some) >> 20))
    return table


def _cell(score: Score) -> str:
    done = f" ({score.success:.0%})" if 0 < score.success < 1 else " (all)" if score.success else ""
    return f"{score.reward:.3f}{done}"
