"""Findings about the environment, without a model: its contract, whether it is deterministic, and what it rewards."""

import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import fmean
from typing import Any

from longloop.diagnose.finding import Finding, Verdict
from longloop.diagnose.trial import MALFORMED, Make, Score, by_luck, contests, difference, sharing
from longloop.engines.scripted import ScriptedEngine
from longloop.envs.base import Environment
from longloop.envs.contract import NoExpert
from longloop.envs.play import Script, answered, expert_of, play
from longloop.isolation.guard import Watched
from longloop.isolation.proxy import Remote
from longloop.rollout.episode import RolloutContext, run_episode
from longloop.types import Fault, Group, Message, Step, Task, Trajectory, UserError

_DONE = ["done", "I am done: the task is complete.", "finish", "submit", "complete_task()"]
"""How an agent may claim to be done, if no expert shows how."""
_LAST_WORDS = 6
"""How many of the expert's last actions are tried."""
_SOME, _MUCH, _ALL = 0.05, 0.3, 0.9
"""Shares of the expert's reward. Above the first, doing nothing pays; above the second, claiming to be done does; above
the third, the task itself is not worth doing."""


def watched(setting: RolloutContext) -> Make:
    return lambda: Watched(setting.make, setting.limits.step_seconds)


async def try_out(name: str, setting: RolloutContext, task: Task) -> None:
    """Play one turn, so that a broken environment is refused before a model is used."""
    silent = ScriptedEngine(None, setting.chat, [""])
    limits = setting.limits.model_copy(update={"max_turns": 1})
    trajectory = await run_episode(replace(setting, engine=silent, limits=limits), task, 0, "try-out")
    if not trajectory.stop.scored:
        raise UserError(f"{name} fails on task {task.id!r}: {trajectory.error}.")


async def contract(name: str, setting: RolloutContext, task: Task) -> Finding:
    """Does it start, take any text for an action, and score what was reached?"""
    try:
        await try_out(name, setting, task)
    except UserError as error:
        return Finding("contract", "fail", str(error), "docs/guides/environment.md says what each method owes.")
    env = watched(setting)()
    said = ""
    try:
        await env.start(task)
        for said in ("", *MALFORMED):
            if (await env.step(Message("assistant", said))).done:
                break
        await env.finish()
    except Fault as fault:
        await env.leave()
        return Finding(
            "contract",
            "warning",
            f"An action may be any text, but after {said[:20]!r} {fault}; such attempts will have no reward.",
            "Answer a malformed action with a message that says what was wrong.",
        )
    return Finding(
        "contract", "pass", "It starts, takes any text for an action, and scores the state that was reached."
    )


async def determinism(make: Make, tasks: Sequence[Task]) -> Finding:
    """Do the same actions meet the same answers?"""
    if not make().deterministic:
        return Finding("determinism", "pass", "Not looked at: the environment says of itself that it is not.")
    for task in tasks:
        if other := await difference(make, task):
            return _random(
                "determinism", f"The same actions at {task.id!r} met something else the second time: {other}"
            )
    return Finding(
        "determinism", "pass", f"The same actions met the same answers and the same score at {_count(tasks, 'task')}."
    )


async def separation(make: Make, tasks: Sequence[Task]) -> Finding:
    """Do attempts side by side leave each other alone?"""
    disturbed, kept = await sharing(make, tasks)
    advice = "Keep what belongs to an attempt on self, not on the class, in a module or in a file."
    what = f" {kept} is set on the class, which all attempts share." if kept else ""
    if disturbed:
        seen = f"Attempts that were made side by side, as in training, disturbed each other: {disturbed}."
        return Finding("separation", "fail", seen + what, advice)
    seen = "Attempts that were made side by side went as they do alone."
    return Finding("separation", "warning" if kept else "pass", seen + what, advice if kept else "")


async def hooks(make: Make, needed: Collection[str], tasks: Sequence[Task], groups: Sequence[Group]) -> Finding:
    """Does the environment give what the method needs besides rewards?"""
    env = make()
    turns = [turn for group in groups for t in group.trajectories for turn in t.turns]
    missing: Mapping[str, Callable[[], bool | Awaitable[bool]]] = {
        "state": lambda: bool(turns) and not any("state" in turn.info for turn in turns),
        "replay": lambda: not env.deterministic,
        "answers": lambda: not all(task.data.get("answers") for task in tasks),
        "expert": lambda: _without_expert(make, tasks),
    }
    for hook in sorted(needed):
        if await answered(missing[hook]()):
            seen, verdict, advice = _HOOKS[hook]
            return Finding("method", verdict, seen, advice)
    given = f"The environment gives what the method needs ({', '.join(sorted(needed))})." if needed else ""
    return Finding("method", "pass", given or "The method needs nothing special of the environment.")


async def _without_expert(make: Make, tasks: Sequence[Task]) -> bool:
    """Whether there are tasks without an expert. For one in a worker, this shows when it is asked to act."""
    for task in tasks:
        env = make()
        expert = expert_of(env, task)
        if expert is None:
            return True
        if isinstance(env.env, Remote):
            try:
                with suppress(Fault):  # other findings tell of it
                    await play(env, task, expert, max_turns=1)
            except NoExpert:
                return True
    return False


_HOOKS: Mapping[str, tuple[str, Verdict, str]] = {
    "state": (
        "The method compares turns that began in the same state, but no step of this environment says info['state'].",
        "warning",
        "No two states count as the same now, and only whole attempts are compared. docs/guides/environment.md says "
        "what a key of a state is.",
    ),
    "replay": (
        "The method plays on from turns of earlier attempts, but this environment says that it is not deterministic.",
        "fail",
        "Set `deterministic = True` if it is; else choose a method without side rollouts (`longloop algos`).",
    ),
    "answers": (
        "The method reads the right answers, but there are tasks without data['answers'].",
        "fail",
        "Give every task a list of its right answers, or choose another method (`longloop algos`).",
    ),
    "expert": (
        "The method begins in an expert's states, but there are tasks without an expert.",
        "fail",
        "Give the environment an `expert`, train on a split that has one, or choose another method (`longloop algos`).",
    ),
}


async def replay(make: Make, groups: Sequence[Group]) -> Finding:
    """Do the policy's own attempts start alike, and end alike when they are repeated?"""
    tried = 0
    for group in groups:
        starts = {t.turns[0].context for t in group.scored if t.turns}
        for trajectory in group.policy_trajectories[:2]:
            try:
                env = make()
                if not env.deterministic:
                    return Finding(
                        "replay", "pass", "Not looked at: the environment says that it is not deterministic."
                    )
                other = await _differs(env, trajectory)
            except Fault as fault:
                return Finding("replay", "fail", f"An attempt at {group.task.id!r} was made again: {fault}.")
            if len(starts) > 1:
                other = f"start() returned one of {len(starts)} different openings"
            if other:
                return _random("replay", f"An attempt at {group.task.id!r} was made again and {other}")
            tried += 1
    return Finding("replay", "pass", f"Attempts at a task start alike; {tried} of the policy's were made again alike.")


async def _differs(env: Watched, trajectory: Trajectory) -> str:
    """Repeat an attempt's actions, and say what was different; empty if nothing was."""
    said = ""
    step = Step.of(await env.start(trajectory.task))
    threads = {turn.thread for turn in trajectory.turns}  # of which each has its turns in the order of time
    left = {thread: iter([turn for turn in trajectory.turns if turn.thread == thread]) for thread in threads}
    for number in range(1, len(trajectory.turns) + 1):
        turn = next(left.get(step.thread, iter(())), None)
        if turn is None or tuple(step.messages) != turn.context:
            said = f"other messages came before turn {number}"
            break
        step = await env.step(turn.action)
        if step.info.get("state") != turn.info.get("state"):
            said = f"another info['state'] came with the answer to turn {number}"
            break
    outcome = await env.finish()
    if not said and (outcome.reward, outcome.success) != (trajectory.reward, trajectory.success):
        said = f"was paid {outcome.reward:g}, not {trajectory.reward:g}"
    return said


async def paid(make: Make, tasks: Sequence[Task], seconds: float, everyone: bool) -> dict[str, Score]:
    """Return the scores of the expert and of doing nothing, and of `everyone` else who needs no model, at as many tasks
    as there is time for."""
    found: dict[str, Score] = {}
    for task in _in_time(tasks, seconds):
        async for env, name, player in contests(make, task, lambda name: everyone or name in ("expert", "nothing")):
            with suppress(NoExpert):  # in a worker, this shows when it is asked to act
                played = await play(env, task, player)
                found.setdefault(name, Score()).add(task, played, 0.0)
    return found


def reward(found: dict[str, Score], environment: Environment) -> Finding:
    """Is there something to be gained, and only by doing the task?"""
    numbers = {name: round(score.reward, 4) for name, score in found.items()}
    table = ", ".join(f"{name} {value:.3g}" for name, value in numbers.items())
    seen = f"Paid on average at {_count(found['nothing'].rewards, 'task')}: {table}."
    low = {name: score for name, score in found.items() if name != "expert"}
    best = max(low, key=lambda name: low[name].reward)
    expert, nothing = found.get("expert"), found["nothing"]
    if expert and low[best].reward >= expert.reward:
        return Finding(
            "reward",
            "fail",
            f"{seen} {best!r} is paid as much as the expert, so there is nothing to learn.",
            "Let finish() score the state that was reached.",
            numbers,
        )
    if nothing.success == 1:
        return Finding(
            "reward",
            "fail",
            f"{seen} Doing nothing is called a success every time.",
            "Let finish() look at what was done.",
            numbers,
        )
    if nothing.reward > _SOME * _ceiling(found, environment)[0]:
        return Finding(
            "reward",
            "warning",
            f"{seen} Doing nothing pays: an agent may learn to do nothing rather than risk a mistake.",
            "Pay 0 for the state that an attempt starts with.",
            numbers,
        )
    if found_out := next((name for name in low if low[name].successes and not by_luck(environment, name)), ""):
        return Finding(
            "reward",
            "warning",
            f"{seen} {found_out!r} must not succeed, but does at {low[found_out].successes[0]!r}.",
            "Make the judge stricter, or leave such tasks out.",
            numbers,
        )
    if expert and expert.failures:
        return Finding(
            "reward",
            "warning",
            f"{seen} The expert fails at {len(expert.failures)} of them, for instance at {expert.failures[0]!r}: "
            f"{expert.why}.",
            "Look at it with `longloop play`: either the expert or the judge is wrong.",
            numbers,
        )
    return Finding("reward", "pass", seen, numbers=numbers)


async def shortcut(make: Make, tasks: Sequence[Task], found: dict[str, Score], seconds: float) -> Finding:
    """Is it enough to say that the task is done?

    Tries common words for it, and the expert's last action without those before. A last action that occurs at only one
    task may be that task's answer, so it is tried at the other tasks only.
    """
    tasks = tasks[: len(found["nothing"].rewards)]
    ends = {task.id: await _last_words(make, task) for task in tasks}
    times = Counter(end for end in ends.values() if end)
    own = [end for end, count in times.most_common(_LAST_WORDS) if count > 1 or len(tasks) > 1]
    best, most = "", float("-inf")
    for words in _in_time(list(dict.fromkeys([*own, *_DONE])), seconds):
        where = [task for task in tasks if times[words] > 1 or ends[task.id] != words] or tasks
        mean = fmean([(await play(make(), task, Script([words]))).outcome.reward for task in where])
        if mean > most:
            best, most = words, mean
    floor = found["nothing"].reward
    ceiling, known = _ceiling(found, make())
    share = (most - floor) / max(ceiling - floor, 1e-9)
    numbers = {"paid": round(most, 4), "nothing": round(floor, 4), "share": round(share, 4)}
    beside = f"(doing nothing {floor:.3g}, doing the task {ceiling:.3g}{'' if known else ' as is assumed'})"
    if share < _MUCH:
        seen = f"Who only claims to be done is paid {most:.3g} on average at the most {beside}."
        return Finding("shortcut", "pass", seen, numbers=numbers)
    return Finding(
        "shortcut",
        "fail" if share >= _ALL and known else "warning",
        f"Saying at once {_short(best)!r}, and nothing else, is paid {most:.3g} on average {beside}: an agent will "
        "learn to say just that.",
        "Let finish() score what was done, not what was claimed."
        + " If the task pays more, declare reward_range, or give the environment an expert." * (not known),
        numbers,
    )


async def _last_words(make: Make, task: Task) -> str:
    """Return the expert's last action; empty if it is also its first, and thus all that it does."""
    env = make()
    expert = expert_of(env, task)
    if expert is None:
        return ""
    try:
        said = (await play(env, task, expert)).said
    except NoExpert:
        return ""
    return said[-1] if len(said) > 1 else ""


def _ceiling(found: dict[str, Score], environment: Environment) -> tuple[float, bool]:
    """What doing the task is paid, and whether that is known: the expert's reward, or else the highest declared."""
    if "expert" in found:
        return found["expert"].reward, True
    highest = float(environment.reward_range[1]) if environment.reward_range else math.inf
    return (highest, True) if math.isfinite(highest) else (1.0, False)


def _in_time(things: Sequence[Any], seconds: float) -> Iterator[Any]:
    """Yield the first two, and more while there is time."""
    end = time.monotonic() + seconds
    for number, thing in enumerate(things):
        if number >= 2 and time.monotonic() > end:
            return
        yield thing


def _random(name: str, what: str) -> Finding:
    return Finding(
        name,
        "fail",
        f"{what}: what is compared between attempts is then partly luck, and no run can be repeated.",
        "Draw random numbers from a generator that is seeded with the task's id, and start every attempt alike.",
    )


def _count(things: Sequence[Any], noun: str) -> str:
    return f"{len(things)} {noun}{'s' * (len(things) != 1)}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"...{text[-57:]}"
