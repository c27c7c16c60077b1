"""ScienceWorld: do school experiments in a text world of ten rooms: boil water, grow fruit, find a living thing.

The simulator of Wang et al. (2022) in version 1.2.3: 30 kinds of tasks in 7,207 variations, of which 3,592 are for
training, 1,796 for dev and 1,819 for test. It runs on Java, one game at a time in a process (jvm.py).

The reward is the score over 100, and success is a score of 100. A score below 0 (a wrong `focus on` ends the attempt
with -100) counts as 0, and so does one that is no better than the score at the start. Experts follow the simulator's
gold paths, of which some are longer than the simulator's own limit of 100 steps; here `rollout.max_turns` is the limit.
"""

import functools
import importlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longloop.envs.react import action_of
from longloop.envs.shared.jvm import Machine, Simulated
from longloop.types import Message, Outcome, Step, Task, UserError

SYSTEM = """You do a science experiment in a text world with these rooms: kitchen, foundry, workshop, bathroom, \
outside, living room, bedroom, greenhouse, art studio, hallway. Find the things you need, then do what the task asks.

In each turn write a thought, then one action:

Thought: I need water, and there is a sink in the kitchen.
Action: {go} kitchen

Actions: {go} ROOM, open OBJ, close OBJ, pick up OBJ, move OBJ to OBJ, pour OBJ into OBJ, mix OBJ, use OBJ on OBJ, \
activate OBJ, deactivate OBJ, connect OBJ to OBJ, disconnect OBJ, look around, look at OBJ, examine OBJ, read OBJ, \
inventory, focus on OBJ, wait (10 steps), wait1. Only `focus on` what the task tells you to: a wrong one ends it."""

_FAILED = r"^No known action|^Ambiguous request|^Unknown action"
_TELEPORT = ("easy", "teleportAction")


def _launch() -> Any:
    simulator = importlib.import_module("scienceworld").ScienceWorldEnv("")
    simulator.aside = simulator._gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface()
    return simulator


_MACHINE = Machine("scienceworld", _launch)


class ScienceWorld(Simulated):
    @dataclass(frozen=True)
    class Options:
        simplification: str = "easy"
        """The simulator's simplifications, separated by commas: `easy` (all that a task allows), teleportAction,
        openDoors, openContainers, selfWateringFlowerPots, noElectricalAction; empty for none."""
        steps: int = 0
        """End an attempt after this many actions; 0 for no limit."""
        indices: str = ""
        """JSON files with lists of `[task, variation]` that replace the simulator's splits, as ETO publishes them;
        write `{split}` for the split's name."""

    options: Options
    requires = ("scienceworld==1.2.3",)
    analysis = {
        "patterns": {
            "failure": {"heard": _FAILED, "title": "actions that failed"},
            "focus": {"said": r"(?i)^Action:\s*focus on", "title": "`focus on` / attempt"},
            "waits": {"said": r"(?i)^Action:\s*wait"},
        }
    }

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._score = self._first = 0

    @classmethod
    def tasks(cls, split: str, options: Options) -> Sequence[Task]:
        _check(options.simplification)
        chosen = _listed(options.indices, split) if options.indices else _variations().get(split, [])
        return [Task(f"{kind}/{number}", split, {"kind": kind, "variation": number}) for kind, number in chosen]

    def start(self, task: Task) -> Sequence[Message]:
        simulator = _MACHINE.take(self)
        simulator.load(task.data["kind"], task.data["variation"], self.options.simplification)
        server = simulator.server
        seen = server.step("look around")
        self._score = self._first = _score(server)
        teleports = any(word in _TELEPORT for word in self.options.simplification.split(","))
        system = SYSTEM.format(go="teleport to" if teleports else "go to")
        return [Message("system", system), Message("user", f"{server.getTaskDescription()}\n\n{seen}")]

    def step(self, action: Message) -> Step:
        server = _MACHINE.of(self).server
        before = self._reward
        seen = server.step(action_of(action.content))
        self._score = _score(server)
        self._left -= 1
        done = server.getCompleted() or self._score < 0 or self._left == 0
        state = self.state_key(seen, server.freeActionLook(), server.freeActionInventory(), self._score)
        info = {"score": self._score, "state": state}
        return Step([Message("user", seen)], self._reward - before, done, info)

    def finish(self) -> Outcome:
        return Outcome(self._reward, self._score == 100, {"score": self._score})

    def gold(self, task: Task) -> Sequence[str]:
        return _gold(task.data["kind"], task.data["variation"], self.options.simplification)

    def valid(self) -> list[str]:
        """Return the possible actions, sorted. Takes many times as long as a step."""
        return sorted(_MACHINE.of(self).server.getValidActionObjectCombinations())

    @property
    def _reward(self) -> float:
        return self._score / 100 if self._score > self._first else 0.0


def _score(server: Any) -> int:
    return round(100 * server.getScore())


@functools.lru_cache(maxsize=10_000)
def _gold(kind: str, number: int, simplification: str) -> tuple[str, ...]:
    server = _MACHINE.running().aside
    server.load(kind, number, simplification, True)
    return tuple(server.getGoldActionSequence())


@functools.cache
def _variations() -> dict[str, list[tuple[str, int]]]:
    """Return every (kind of task, variation) by split."""
    server = _MACHINE.running().aside
    found: dict[str, list[tuple[str, int]]] = {"train": [], "dev": [], "test": []}
    for kind in server.getTaskNames():
        server.load(kind, 0, "", False)
        for split, numbers in found.items():
            numbers += [(kind, number) for number in getattr(server, f"getVariations{split.title()}")()]
    return found


def _check(simplification: str) -> None:
    known = ["easy", *_MACHINE.running().get_possible_simplifications()]
    for word in filter(None, simplification.split(",")):
        if word not in known:
            raise UserError(f"env.simplification: there is no {word!r}. Known are {', '.join(known)}.")


def _listed(indices: str, split: str) -> list[tuple[str, int]]:
    """Return the tasks in a file of the user's. ETO writes `task-2a-test-conductivity` for test-conductivity."""
    if "{split}" not in indices:
        raise UserError(f"env.indices = {indices!r}: write {{split}} where the file's name has train, dev or test.")
    path = Path(indices.format(split=split))
    try:
        rows = json.loads(path.read_text())
        chosen = [(re.sub(r"^task-\w+?-|[()]", "", str(kind)), int(number)) for kind, number in rows]
    except OSError as error:
        raise UserError(f"env.indices: cannot read {path}: {error.strerror}.") from error
    except (ValueError, TypeError) as error:
        raise UserError(f"env.indices: {path} is not a JSON list of [task, variation].") from error
    known = {pair for pairs in _variations().values() for pair in pairs}
    if unknown := [pair for pair in chosen if pair not in known]:
        raise UserError(f"env.indices: {path} names {unknown[0][0]} {unknown[0][1]}, which ScienceWorld has not.")
    return chosen
