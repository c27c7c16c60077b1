"""The proof that a task is sound: its expert succeeds in any world, and every wrong variant of its goal fails."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from errands.api import ApiError
from errands.catalog import by_name, setting
from errands.judge import Goal, act, judge, same_state
from errands.scenario import Scenario
from errands.world import Done, World
from longloop import Task
from longloop.envs.play import play

Steps = list[tuple[str, dict[str, Any]]]


@dataclass
class Audit:
    """What was found out about a scenario."""

    tasks: int = 0
    variants: int = 0
    """Wrong end states that were judged."""
    turns: int = 0
    """Of the expert, over all tasks."""
    faults: list[str] = field(default_factory=list)


async def audit(make: Callable[[], Any], kind: type[Scenario], seeds: Iterable[int]) -> Audit:
    """Play and judge a scenario's tasks in some worlds. `make` makes the environment for each."""
    found = Audit()
    for seed in seeds:
        name, world = kind.name(), f"audit/{seed}"
        task = Task(f"{name}/{seed}", "audit", {"scenario": name, "world": world}, name)
        env = make()
        played = await play(env, task, env.expert(task))
        found.tasks += 1
        found.turns += played.turns
        if not played.outcome.success:
            failed = [test["name"] for test in played.outcome.info["tests"] if not test["passed"]]
            found.faults.append(f"{task.id}: the expert failed {failed}; it last saw {played.messages[-1].content!r}")
        goal = setting(name, world).goal
        for what, end in variants(goal):
            found.variants += 1
            if all(test.passed for test in judge(goal, end)):
                found.faults.append(f"{task.id}: passes although {what}")
            end.close()
    if found.tasks and not found.variants:
        found.faults.append(f"{kind.name()}: no wrong end state was found to judge")
    return found


def report(make: Callable[[], Any], seeds: int, progress: Callable[[list[Any]], Iterable[Any]]) -> Iterator[str]:
    """What was found, in lines; a fault's line starts with FAULT. Every scenario has its turn in one world before the
    first comes to a second, so an audit that `progress` ends early has seen something of all."""
    total = Audit()
    tasks = [(kind, seed) for seed in range(seeds) for kind in by_name().values()]
    for kind, seed in progress(tasks):
        found = asyncio.run(audit(make, kind, [seed]))
        total.tasks += found.tasks
        total.variants += found.variants
        yield from (f"FAULT {fault}" for fault in found.faults)
    yield (
        f"{len(by_name())} scenarios in {seeds} further worlds each: {total.tasks} of {len(tasks)} tasks played by the "
        f"expert, {total.variants} wrong end states judged."
    )


def variants(goal: Goal) -> Iterator[tuple[str, World]]:
    """Worlds in which something was left out, done twice, or done a little differently."""
    steps, answer = goal.steps, goal.answer
    if answer is not None:
        yield "the answer is wrong", _world(goal, steps, _other(answer))
        yield "no answer was given", _world(goal, steps, None)
    for place, (api, arguments) in enumerate(steps):
        plans: list[tuple[str, Steps]] = [
            (f"{api} was left out", steps[:place] + steps[place + 1 :]),
            (f"{api} was done twice", [*steps[: place + 1], *steps[place:]]),
        ]
        for name, value in arguments.items():
            altered = (api, arguments | {name: _other(value)})
            plans.append((f"{api} had the wrong {name}", [*steps[:place], altered, *steps[place + 1 :]]))
        for what, plan in plans:
            try:
                world = _world(goal, plan, answer)
            except (ApiError, TypeError):
                continue  # the app itself refuses it
            if same_state(world, goal.wish):
                world.close()  # the same end by another way, such as setting twice what is set
            else:
                yield what, world


def _world(goal: Goal, steps: Steps, answer: Any) -> World:
    world = goal.start.begin()
    for api, arguments in steps:
        act(world, api, arguments)
    world.done = Done(answer)
    return world


def _other(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, list):
        return [_other(value[0]), *value[1:]] if value else ["someone@else.com"]
    if isinstance(value, str):
        return _other_text(value)
    return "something" if value is None else None


def _other_text(text: str) -> str:
    if "@" in text:
        return "x" + text
    if text.isdigit():
        return text[:-1] + str((int(text[-1]) + 1) % 10)
    try:
        later = date.fromisoformat(text[:10]) + timedelta(days=1)
        return f"{later}{text[10:]}"
    except ValueError:
        return "other"
