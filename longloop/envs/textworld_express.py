"""TextWorldExpress: small text games made from seeds: find a coin, cook a meal, tidy up, read a map, count and sort.

The simulator of Jansen and Cote (2022) in version 1.1.0: the games coin, cookingworld, twc, mapreader, arithmetic,
sorting, simonsays and peckingorder, each with 1,000 seeds for train, dev and test. It runs on Java, one game at a time
in a process (jvm.py).

The reward is the game's score, 0 to 1; the game decides what is a success. Experts follow the simulator's gold paths.
"""

import functools
import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from longloop.envs.react import action_of
from longloop.envs.shared.jvm import Machine, Simulated
from longloop.types import Message, Outcome, Step, Task, UserError

SYSTEM = """You play a text game. In each turn write a thought, then one action, a few words long:

Thought: I do not see it here, but there is a door.
Action: open door to north

Actions are like: look around, inventory, move north, open door to north, open OBJ, close OBJ, take OBJ, put OBJ in \
OBJ, read OBJ, examine OBJ, cook OBJ in OBJ, slice OBJ, eat OBJ."""


_FAILED = r"^Unknown action|^You can't move there|^That is already "


def _launch() -> Any:
    return importlib.import_module("textworld_express").TextWorldExpressEnv()


_MACHINE = Machine("textworld_express", _launch)
_ASIDE = Machine("textworld_express", _launch)
"""Makes gold paths, which would disturb a game that is played in the same JVM."""


class TextWorldExpress(Simulated):
    @dataclass(frozen=True)
    class Options:
        game: str = "coin"
        """Which game: coin, cookingworld, twc, mapreader, arithmetic, sorting, simonsays or peckingorder."""
        params: str = ""
        """How the game is made, in the simulator's words: `numLocations=5,includeDoors=0`."""
        steps: int = 0
        """End an attempt after this many actions; 0 for no limit."""

    options: Options
    requires = ("textworld-express==1.1.0",)
    analysis = {
        "patterns": {
            "failure": {"heard": _FAILED, "title": "actions that failed"},
            "looks": {"said": r"(?i)^Action:\s*(?:look around|inventory)"},
        }
    }

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._state: dict[str, Any] = {"score": 0.0, "tasksuccess": False, "validActions": []}

    @classmethod
    def tasks(cls, split: str, options: Options) -> Sequence[Task]:
        if split not in cls.splits:
            return []
        game, params = options.game, options.params
        server = _ASIDE.running().server
        if complaint := server.load(game, params):
            raise UserError(f"env.game = {game!r}, env.params = {params!r}: {complaint.strip()}")
        seeds = getattr(server, f"getSeeds{split.title()}")()
        return [Task(f"{game}/{seed}", split, {"seed": seed}) for seed in seeds]

    def start(self, task: Task) -> Sequence[Message]:
        simulator = _MACHINE.take(self)
        simulator.load(self.options.game, self.options.params)
        self._state = json.loads(simulator.server.generateNewGameJSON(task.data["seed"], task.split, False))
        goal = simulator.server.getTaskDescription()
        return [Message("system", SYSTEM), Message("user", f"{goal}\n\n{self._state['observation']}")]

    def step(self, action: Message) -> Step:
        before = self._reward
        self._state = json.loads(_MACHINE.of(self).server.stepJSON(action_of(action.content)))
        self._left -= 1
        done = self._state["tasksuccess"] or self._state["taskfailure"] or self._left == 0
        seen = self._state["observation"]
        state = self.state_key(seen, self._state["look"], self._state["inventory"], self._state["score"])
        return Step([Message("user", seen)], self._reward - before, done, {"state": state})

    def finish(self) -> Outcome:
        return Outcome(self._reward, self._state["tasksuccess"], {"score": self._state["score"]})

    def gold(self, task: Task) -> Sequence[str]:
        return _gold(self.options.game, self.options.params, task.data["seed"], task.split)

    def valid(self) -> list[str]:
        """Return the possible actions, sorted."""
        return sorted(self._state["validActions"])

    @property
    def _reward(self) -> float:
        return min(max(self._state["score"], 0.0), 1.0)


@functools.lru_cache(maxsize=10_000)
def _gold(game: str, params: str, seed: int, split: str) -> tuple[str, ...]:
    server = _ASIDE.running().server
    server.load(game, params)
    server.generateNewGameJSON(seed, split, True)
    return tuple(server.getGoldActionSequence())
