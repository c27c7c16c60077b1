"""What the tests of ALFWorld play, in a process of the Python that has it: `alfworld_session.py WHAT,... FOLDER`.

Prints JSON: what is found, by name if several are asked for. `upstream` plays the games with ALFWorld's own classes and
nothing of ours.
"""

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any

from longloop.envs.play import play
from longloop.types import Message

DETOUR = ["look", "inventory", "dance", "go to the moon"]


def files(folder: str) -> list[Path]:
    return sorted(Path(folder).glob("json_2.1.1/*/*/*/game.tw-pddl"))


def lines(file: Path) -> list[str]:
    """A walkthrough, with commands before it that change nothing, or nothing happens at all."""
    return DETOUR + json.loads(file.read_text())["walkthrough"]


def upstream(folder: str) -> Any:
    """Everything that every game says, by ALFWorld's own means."""
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
    from textworld import EnvInfos
    from textworld.envs import PddlEnv

    games = []
    for file in files(folder):
        env = AlfredDemangler(env=PddlEnv(EnvInfos(won=True, admissible_commands=True)))
        env.load(str(file))
        states = [env.reset(), *(env.step(line)[0] for line in lines(file))]
        games.append([[state.feedback, state["admissible_commands"], bool(state["won"])] for state in states])
    return games


def ours(folder: str) -> Any:
    """The same, by ours; and the command line afterwards."""
    from longloop.envs.alfworld.pddl import Game

    games = []
    for file in files(folder):
        game = Game(file)
        states = [[game.text, game.commands, game.won]]
        for line in lines(file):
            game.step(line)
            states.append([game.text, game.commands, game.won])
        games.append(states)
    return {"games": games, "argv": sys.argv[1:]}


def untranslated(folder: str) -> Any:
    """Ours, where translating a game is impossible."""
    import fast_downward

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("this was translated before")

    fast_downward.pddl2sas = refuse
    return ours(folder)


def players(folder: str) -> Any:
    """Task by task and player by player: messages, reward and success. `again` is the expert a second time."""
    from longloop.envs.alfworld.env import Alfworld

    def one(task: Any, name: str) -> Any:
        env = Alfworld(Alfworld.Options(folder, expert="handcoded" if name == "handcoded" else "walkthrough"))
        player = env.baselines(task)[name] if name in ("nothing", "random") else env.expert(task)
        played = asyncio.run(play(env, task, player))
        said = [[message.role, message.content] for message in played.messages]
        return {"said": said, "reward": played.outcome.reward, "success": played.outcome.success}

    names = ("expert", "again", "handcoded", "nothing", "random")
    before = random.getstate()
    found = {
        task.id: {name: one(task, name) for name in names}
        for task in Alfworld.tasks("valid_seen", Alfworld.Options(data=folder))
    }
    assert random.getstate() == before
    return found


def answers(folder: str) -> Any:
    """What the environment answers to things that are said in many ways, each at the start of a game."""
    from longloop.envs.alfworld.env import Alfworld

    task = Alfworld.tasks("valid_seen", Alfworld.Options(data=folder))[0]
    env = Alfworld(Alfworld.Options(folder))
    place = env.start(task)[1].content.partition("you see a ")[2].partition(",")[0]
    said = {
        "plain": f"Thought: Hm.\nAction: go to {place}",
        "no thought": f"go to {place}",
        "loud": f"THOUGHT: Hm.\r\nACTION: GO  TO {place.upper()}.\r\n",
        "marked": f"Thought: Hm.\n**Action:** `go to {place}`",
        "two": f"Action: go to {place}\nAction: look",
        "nothing": "",
        "label alone": "Thought: Hm.\nAction:",
        "nonsense": "Action: \x00\u202e<|im_end|> {x.__class__} #look# [[",
        "long": "Action: " + "go to " * 5000,
    }
    found = {}
    for name, text in said.items():
        env = Alfworld(Alfworld.Options(folder))
        env.start(task)
        step = env.step(Message("assistant", text))
        found[name] = [step.messages[0].content, step.done, env.finish().reward]
    return found


def keys(folder: str) -> Any:
    """The keys of states after an action, after one that changes nothing, and in a copy."""
    from longloop.envs.alfworld.env import Alfworld

    task = Alfworld.tasks("valid_seen", Alfworld.Options(data=folder))[0]
    env = Alfworld(Alfworld.Options(folder))
    first, other = env.start(task)[1].content.partition("you see a ")[2].split(", a ")[:2]

    def said(place: Any, command: str) -> str:
        return place.step(Message("assistant", f"Action: {command}")).info["state"]

    at = [said(env, f"go to {first}"), said(env, "look"), said(env.fork(), "dance"), said(env, f"go to {other}")]
    return [*at, said(env, f"go to {first}")]


def copies(folder: str) -> Any:
    """A fork goes its own way; commands are shown when they are asked for."""
    from longloop.envs.alfworld.env import Alfworld

    task = Alfworld.tasks("valid_seen", Alfworld.Options(data=folder))[0]
    env = Alfworld(Alfworld.Options(folder, commands=True))
    opening = env.start(task)[1].content
    *first, last = json.loads((Path(folder) / "json_2.1.1" / task.data["game"] / "game.tw-pddl").read_text())[
        "walkthrough"
    ]
    for line in first:
        env.step(Message("assistant", line))
    other = env.fork()
    done = other.step(Message("assistant", last)).done
    return {"opening": opening, "fork": [done, other.finish().success], "env": env.finish().success}


if __name__ == "__main__":
    _, wanted, folder = sys.argv  # before the library changes it
    found = {what: globals()[what](folder) for what in wanted.split(",")}
    print(json.dumps(found if len(found) > 1 else found[wanted]))
