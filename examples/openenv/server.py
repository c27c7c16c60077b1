"""A guessing game as a server of OpenEnv: find a number from "higher" and "lower", in two tries."""

import re
import sys

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Guess(Action):
    message: str


class Told(Observation):
    text: str = ""


class Guessing(Environment):
    def __init__(self) -> None:
        super().__init__()
        self._state = State()

    def reset(self, seed=None, episode_id=None, **others):
        self._number, self._state = (seed or 0) % 3 + 1, State(episode_id=episode_id)
        return Told(text="guess 1-3")

    def step(self, action, timeout_s=None, **others):
        self._state.step_count += 1
        found = re.search(r"\d+", action.message)
        guess = int(found[0]) if found else None
        right, over = guess == self._number, self._state.step_count == 2
        text = "right" if right else "number?" if guess is None else "higher" if guess < self._number else "lower"
        return Told(text=text, reward=float(right), done=right or over)

    @property
    def state(self):
        return self._state


if __name__ == "__main__":
    uvicorn.run(create_fastapi_app(Guessing, Guess, Told), port=int(sys.argv[1]), log_level="warning")
