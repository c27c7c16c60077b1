"""ALFWorld: household tasks in text, such as cooling an apple and putting it on the table.

The agent walks between the furniture of a room, opens, takes, heats, cools, cleans and moves things; the reward is 1
when the game is won, else 0. Splits: `train`; `valid_train` (or `dev`), other games of the kinds and rooms in `train`;
`valid_seen`, in rooms that training knows; `valid_unseen`, in rooms that it does not. The games are those that
`alfworld-download` fetches.
"""

import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from longloop.envs.alfworld.pddl import Game, cache, handcoded
from longloop.envs.base import Environment, Player
from longloop.envs.contract import NoTasks
from longloop.envs.play import Script, Silent
from longloop.envs.react import act, action_of
from longloop.types import Message, Outcome, Step, Task, UserError

PROMPT = """\
You are in a household and have a task to do there. In each turn you see what your last action led to. Answer with a \
short thought and one action:

Thought: The apple may be in the fridge.
Action: go to fridge 1

Actions:
go to PLACE
open PLACE
close PLACE
take OBJECT from PLACE
move OBJECT to PLACE
heat OBJECT with PLACE
cool OBJECT with PLACE
clean OBJECT with PLACE
slice OBJECT with OBJECT
use OBJECT
examine OBJECT
inventory
look

Name objects and places with their numbers, as you saw them. You can carry one object. "Nothing happens." means that \
the action was not possible."""
_TEXTWORLD = """\
import subprocess, sys, sysconfig
pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"]
wheel = ["--platform=manylinux2014_x86_64", "--target", sysconfig.get_path("purelib"), "textworld==1.7.0"]
sys.exit(subprocess.call(pip + wheel))"""
"""Installs the only wheel there is, on other processors too: what is not Python in it is a compiler that is not
used."""
_MOST = 150
"""The most commands of the handcoded expert."""


class Alfworld(Environment):
    @dataclass(frozen=True)
    class Options:
        data: str = ""
        """The folder that `alfworld-download` filled; empty for $ALFWORLD_DATA, $LONGLOOP_DATA/alfworld or
        ~/.cache/alfworld."""
        expert: Literal["walkthrough", "handcoded"] = "walkthrough"
        """Who the expert is: the walkthrough that comes with a game, or ALFWorld's handcoded expert, who has to look
        for things and may fail."""
        commands: bool = False
        """Show the agent which commands are possible."""

    options: Options
    isolation = "venv"
    requires = (
        "numpy==2.4.6",
        "tqdm==4.70.1",
        "networkx==3.6.1",
        "tatsu==5.8.3",
        "mementos==1.3.1",
        "termcolor==3.3.0",
        "requests==2.34.2",
        "fast-downward-textworld==20.6.4",
    )
    prepare = (
        ("pip", "install", "--quiet", "--no-deps", "jericho==3.3.1", "alfworld==0.4.2"),
        ("python", "-c", _TEXTWORLD),
    )
    system = ("make", "g++")
    variables = ("ALFWORLD_DATA",)
    writes = (str(cache()), "~/.cache/alfworld")
    """Translated games, and a folder that the library makes when it is imported."""
    analysis = {
        "patterns": {
            "failure": {"heard": r"^Nothing happens\.", "title": "actions that failed"},
            "places": {"said": r"(?i)^Action:\s*go to", "title": "walks / attempt"},
        }
    }
    reward_range = (0.0, 1.0)
    splits = ("train", "valid_train", "valid_seen", "valid_unseen")

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._games = games(options.data)
        self._said: list[str] = []

    @classmethod
    def tasks(cls, split: str, options: Options) -> list[Task]:
        folder = games(options.data) / {"dev": "valid_train"}.get(split, split)
        if split not in (*cls.splits, "dev"):
            return []
        files = sorted(folder.glob("*/*/game.tw-pddl"))
        if not files:
            raise NoTasks(f"ALFWorld's split {split!r} should lie in {folder}, and no game.tw-pddl is there. {_GET}")
        return [_task(split, file) for file in files if _playable(file)]

    def start(self, task: Task) -> list[Message]:
        self._task = task
        self._game = Game(self._file(task))
        text = self._game.text.partition("=-")[2].strip()  # the title of the game
        return [Message("system", PROMPT), Message("user", self._shown(text))]

    def step(self, action: Message) -> Step:
        command = " ".join(action_of(action.content).lower().split()).rstrip(".")
        self._said.append(command)
        self._game.step(command)
        shown = Message("user", self._shown(self._game.text))
        info = {"state": self.state_key(self._game.facts), "failed": self._game.text == "Nothing happens."}
        return Step([shown], done=self._game.won, info=info)

    def finish(self) -> Outcome:
        won = self._game.won
        return Outcome(float(won), won, {"type": self._task.data["type"]})

    def fork(self) -> "Alfworld":
        other = type(self)(self.options)
        other.start(self._task)
        for command in self._said:
            other._said.append(command)
            other._game.step(command)
        return other

    def expert(self, task: Task) -> Player:
        file = self._file(task)
        said = _read(file)["walkthrough"] if self.options.expert == "walkthrough" else handcoded(file, _MOST)
        thought = _thought(task.scenario)
        return Script(act(thought, command) for command in said)

    def baselines(self, task: Task) -> dict[str, Player]:
        return {"nothing": Silent(), "random": Script(_at_random(self._file(task), task.id))}

    def _file(self, task: Task) -> Path:
        return self._games / task.data["game"] / "game.tw-pddl"

    def _shown(self, text: str) -> str:
        return f"{text}\nYou can: {', '.join(self._game.commands)}" if self.options.commands else text


_GET = (
    "`alfworld-download` (in the virtualenv that `longloop envs install alfworld` builds) fetches the games; set "
    "env.data or $ALFWORLD_DATA to the folder that it filled, the one with json_2.1.1 in it."
)


def games(data: str = "") -> Path:
    """Return the folder of the games, or raise a UserError that says how to get them."""
    known = os.environ.get("ALFWORLD_DATA"), os.environ.get("LONGLOOP_DATA")
    folder = data or known[0] or (known[1] and f"{known[1]}/alfworld") or "~/.cache/alfworld"
    found = Path(folder).expanduser() / "json_2.1.1"
    if not found.is_dir():
        raise UserError(f"ALFWorld's games are not on this machine: there is no folder {found}. {_GET}")
    return found


def _task(split: str, file: Path) -> Task:
    kind, trial = file.parts[-3:-1]
    data = {"game": "/".join(file.parts[-4:-1]), "type": kind.partition("-")[0]}
    return Task(f"{kind}/{trial}", split, data, scenario=kind)


def _playable(file: Path) -> bool:
    """Return whether ALFWorld itself would choose the game: it leaves out slices, movable containers and games without
    a solution."""
    return not any(word in file.parts[-3] for word in ("movable", "Sliced")) and _read(file).get("solvable", False)


def _read(file: Path) -> dict:
    game = json.loads(file.read_text())
    if "walkthrough" not in game:
        raise UserError(f"{file} is a game of another version of ALFWorld: it has no walkthrough. {_GET}")
    return game


def _thought(kind: str) -> str:
    """Return the thought that goes with each of an expert's commands: what it is for, in the words of the game."""
    task, thing, _, target, _ = kind.lower().split("-")
    wanted = {"pick_clean": "a clean", "pick_heat_": "a hot", "pick_cool_": "a cool"}.get(task[:10], "a")
    if task.startswith("look"):
        return f"I want to look at a {thing} with the {target}."
    if task.startswith("pick_two"):
        return f"I want a {thing} and another in the {target}."
    return f"I want {wanted} {thing} in the {target}."


def _at_random(file: Path, seed: str) -> Iterator[str]:
    """Yield possible commands without end, chosen at random. They are tried in a game of their own."""
    choice = random.Random(seed)
    game = Game(file)
    while True:
        command = choice.choice(game.commands)
        game.step(command)
        yield act("Anything.", command)
