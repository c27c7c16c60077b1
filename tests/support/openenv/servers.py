"""Servers made with the real OpenEnv package: an action that is a text, one that has fields, and tools.

`python servers.py PORT` serves the guessing game there; `python servers.py` serves all three at free ports, and prints
them.
"""

import socket
import sys
import threading
import time

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State


class Said(Action):
    message: str
    """What the agent says."""
    loud: bool = False


class Heard(Observation):
    text: str = ""
    turn: int = 0


class Guess(Environment):
    """Higher or lower; a guess that is right pays 1, any other -0.1. It lists three tasks to train on."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()

    def list_splits(self):
        return ["train", "validation"]

    def num_tasks(self, split):
        return {"train": 3, "validation": 1}[split]

    def reset(self, seed=None, episode_id=None, split="train", index=0, **others):
        self._number, self._state = index + 1, State()
        return Heard(text="guess 1-3")

    def step(self, action, timeout_s=None, **others):
        self._state.step_count += 1
        if action.message == "crash":
            raise RuntimeError("the dice are lost")
        if action.message == "die":
            import os

            os._exit(3)
        if action.message == str(self._number):
            return Heard(text="right", turn=self._state.step_count, reward=1.0, done=True)
        return Heard(text="higher or lower", turn=self._state.step_count, reward=-0.1)

    @property
    def state(self):
        return self._state


class Move(Action):
    """Go somewhere."""

    right: int
    down: int


class Walk(Environment):
    """Pays for where one stands, every time: 1 for (2, 2), which is not the end."""

    def __init__(self) -> None:
        super().__init__()
        self._state = State()

    def reset(self, seed=None, episode_id=None, **others):
        self._at = [(seed or 0) % 2, 0]
        return Heard(text=f"You stand at {self._at}.")

    def step(self, action, timeout_s=None, **others):
        self._at = [self._at[0] + action.right, self._at[1] + action.down]
        return Heard(text=f"You stand at {self._at}.", reward=float(self._at == [2, 2]))

    @property
    def state(self):
        return self._state


class Notes(MCPEnvironment):
    """Tools: write a note, and read it again. Reading one pays."""

    def __init__(self) -> None:
        server, self._notes = FastMCP("notes"), {}

        @server.tool
        def write(name: str, text: str) -> str:
            """Write a note."""
            self._notes[name] = text
            return "written"

        @server.tool
        def read(name: str) -> str:
            """Read a note."""
            return self._notes[name]

        super().__init__(server)
        self._state = State()

    def reset(self, seed=None, episode_id=None, **others):
        self._notes.clear()
        return Observation(metadata={"message": "Write a note, then read it."})

    def step(self, action, timeout_s=None, **others):
        return self._paid(action, super().step(action, timeout_s=timeout_s, **others))

    async def step_async(self, action, timeout_s=None, **others):
        return self._paid(action, await super().step_async(action, timeout_s=timeout_s, **others))

    def _paid(self, action, observation):
        if isinstance(action, CallToolAction) and action.tool_name == "read" and not observation.error:
            observation.reward, observation.done = 1.0, True
        return observation

    def _step_impl(self, action, timeout_s=None, **others):
        return Observation()

    @property
    def state(self):
        return self._state


def served(app, port: int = 0) -> int:
    """The port of an app that is being served. Who calls before the server has started waits for it."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", port))
    listening.listen()
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    threading.Thread(target=server.run, kwargs={"sockets": [listening]}).start()
    return listening.getsockname()[1]


if __name__ == "__main__":
    guess = create_fastapi_app(Guess, Said, Heard, max_concurrent_envs=4)
    if len(sys.argv) > 1:
        served(guess, int(sys.argv[1]))
    else:
        walk = create_fastapi_app(Walk, Move, Heard)
        notes = create_fastapi_app(Notes, CallToolAction, CallToolObservation)
        print(served(guess), served(walk), served(notes), flush=True)
    time.sleep(3600)  # whoever started it ends it
