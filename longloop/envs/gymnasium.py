"""Gymnasium: any environment of that library whose actions are text or a few numbered moves. `env.id` says which.

An observation that is text is shown as it is, any other as Python prints it. With `env.options.render_mode=ansi`, what
the environment draws is shown instead. Each task is a seed.
"""

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from longloop.envs.base import Environment, Player
from longloop.envs.play import Random, Silent
from longloop.envs.react import action_of
from longloop.types import Message, Outcome, Step, Task, UserError

SYSTEM = """{about}In each turn write a thought, then one action{moves}:

Thought: why
Action: {example}"""

_FIRST_SEED = {"train": 0, "dev": 1_000_000, "test": 2_000_000}


class Gymnasium(Environment):
    @dataclass(frozen=True)
    class Options:
        id: str = ""
        """A registered environment, or `module:id` with the module that registers it."""
        options: dict[str, Any] = field(default_factory=dict)
        """Options of the environment's maker, such as `render_mode`."""
        about: str = ""
        """What the agent is told about where it is."""
        actions: list[str] = field(default_factory=list)
        """Names of the moves of a discrete action space, in their order. The agent may say a move's number as well."""
        reward: Literal["sum", "last"] = "sum"
        """The reward of an attempt: the sum of all rewards or the last one, clipped to 0..1."""
        success: float = 1.0
        """An attempt with at least this reward has succeeded."""
        count: int = 100
        """Tasks (seeds) in each of train, dev and test."""

    options: Options
    analysis = {
        "patterns": {"failure": {"heard": r"^There is no action", "title": "actions that failed"}},
    }

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._paid = 0.0
        self._env: Any = None

    @classmethod
    def tasks(cls, split: str, options: Options) -> Sequence[Task]:
        attempt = cls(options)
        attempt._make()  # so that a mistake shows before a run begins
        attempt.finish()
        first = _FIRST_SEED.get(split)
        seeds = range(first, first + options.count) if first is not None else ()
        return [Task(f"{split}/{seed}", split, {"seed": seed}) for seed in seeds]

    def start(self, task: Task) -> Sequence[Message]:
        self._make()
        observation, _ = self._env.reset(seed=task.data["seed"])
        moves = f", one of: {', '.join(self._moves)}" if self._moves else ""
        about = self.options.about and f"{self.options.about}\n\n"
        system = SYSTEM.format(about=about, moves=moves, example=self._moves[0] if self._moves else "what to do")
        return [Message("system", system), Message("user", self._seen(observation))]

    def step(self, action: Message) -> Step:
        said = action_of(action.content)
        move = self._move(said)
        if not self._env.action_space.contains(move):
            known = f" The actions are: {', '.join(self._moves)}." if self._moves else ""
            return Step([Message("user", f"There is no action {said!r}.{known}")])
        before = self._reward
        observation, paid, terminated, truncated, _ = self._env.step(move)
        self._paid = float(paid) + (self._paid if self.options.reward == "sum" else 0.0)
        done = bool(terminated or truncated)
        return Step([Message("user", self._seen(observation))], self._reward - before, done)

    def finish(self) -> Outcome:
        if self._env is not None:
            self._env.close()
        return Outcome(self._reward, self._reward >= self.options.success)

    def baselines(self, task: Task) -> dict[str, Player]:
        self._make()
        lucky: dict[str, Player] = {"random": Random(lambda: self._moves, task.id)} if self._moves else {}
        return {"nothing": Silent()} | lucky

    @property
    def _reward(self) -> float:
        return min(max(self._paid, 0.0), 1.0)

    def _make(self) -> None:
        """Make Gymnasium's environment, and name its moves; an action space of texts has none."""
        if self._env is not None:
            return
        name = self.options.id
        try:
            gymnasium = importlib.import_module("gymnasium")
        except ModuleNotFoundError:
            raise UserError("The environment gymnasium needs the library: `pip install gymnasium`.") from None
        if not name:
            raise UserError("env.name = 'gymnasium' needs env.id, for instance env.id=FrozenLake-v1.")
        try:
            self._env = gymnasium.make(name, disable_env_checker=True, **self.options.options)
        except (gymnasium.error.Error, ModuleNotFoundError, TypeError) as error:
            raise UserError(f"env.id = {name!r} cannot be made: {error}") from error
        space, discrete = self._env.action_space, gymnasium.spaces.Discrete
        if not isinstance(space, (discrete, gymnasium.spaces.Text)):
            raise UserError(f"env.id = {name!r} has actions {space}; only text and discrete ones can be said.")
        self._numbers = range(space.start, space.start + space.n) if isinstance(space, discrete) else range(0)
        self._moves = self.options.actions or [str(number) for number in self._numbers]
        if len(self._moves) != len(self._numbers):
            raise UserError(f"env.actions has {len(self._moves)} names; {name} has {len(self._numbers)} actions.")

    def _move(self, said: str) -> Any:
        """Return the number of a move; if the words name none, the words themselves."""
        by_word = {str(number): number for number in self._numbers}
        by_word |= {name.lower(): number for name, number in zip(self._moves, self._numbers, strict=True)}
        return by_word.get(said.lower(), said)

    def _seen(self, observation: Any) -> str:
        """Return an observation as text, with brackets around what a drawing has in color."""
        if self._env.render_mode != "ansi":
            return str(observation)
        return re.sub(r"\x1b\[\d[\d;]*m", "[", re.sub(r"\x1b\[0?m", "]", self._env.render()))
