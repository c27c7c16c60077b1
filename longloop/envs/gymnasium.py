"""Gymnasium: any environment of that library whose actions are text or a few numbered moves. `env.id` says which.

An observation that is text is shown as it is; any other as Python writes it. With `env.options.render_mode=ansi`, what
the environment draws is shown instead. Each task is a seed: `env.count` of them in train, dev and test.
"""

import importlib
import re
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from longloop.envs.play import Random, Silent
from longloop.envs.react import action_of
from longloop.protocols import Player
from longloop.types import Message, Outcome, Step, Task, UserError

SYSTEM = """{about}In each turn write a thought, then one action{moves}:

Thought: why
Action: {example}"""

_FIRST_SEED = {"train": 0, "dev": 1_000_000, "test": 2_000_000}


class Gymnasium:
    """`id` is a registered environment, or `module:id` with the module that registers it; `options` go to its maker.
    `about` tells the agent where it is, and `actions` names the moves of a discrete action space, in their order (it
    may say the number as well). The reward is the `sum` of all rewards or the `last` one, clipped to 0..1; an attempt
    that reaches `success` has succeeded."""

    analysis: ClassVar = {
        "patterns": {"failure": {"heard": r"^There is no action", "title": "actions that failed"}},
    }

    def __init__(
        self,
        id: str = "",
        options: dict[str, Any] | None = None,
        about: str = "",
        actions: list[str] | None = None,
        reward: Literal["sum", "last"] = "sum",
        success: float = 1.0,
        count: int = 100,
    ) -> None:
        self._id, self._options, self._about, self._names = id, options or {}, about, actions
        self._kind, self._success = reward, success
        self._paid = 0.0
        self._env: Any = None

    @classmethod
    def tasks(cls, split: str, id: str = "", count: int = 100, **options: Any) -> Sequence[Task]:
        attempt = cls(id, **options)
        attempt._make()  # so that a mistake shows before a run begins
        attempt.finish()
        first = _FIRST_SEED.get(split)
        seeds = range(first, first + count) if first is not None else ()
        return [Task(f"{split}/{seed}", split, {"seed": seed}) for seed in seeds]

    def start(self, task: Task) -> Sequence[Message]:
        self._make()
        observation, _ = self._env.reset(seed=task.data["seed"])
        moves = f", one of: {', '.join(self._moves)}" if self._moves else ""
        about = self._about and f"{self._about}\n\n"
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
        self._paid = float(paid) + (self._paid if self._kind == "sum" else 0.0)
        done = bool(terminated or truncated)
        return Step([Message("user", self._seen(observation))], self._reward - before, done)

    def finish(self) -> Outcome:
        if self._env is not None:
            self._env.close()
        return Outcome(self._reward, self._reward >= self._success)

    def baselines(self, task: Task) -> dict[str, Player]:
        self._make()
        lucky: dict[str, Player] = {"random": Random(lambda: self._moves, task.id)} if self._moves else {}
        return {"nothing": Silent()} | lucky

    @property
    def _reward(self) -> float:
        return min(max(self._paid, 0.0), 1.0)

    def _make(self) -> None:
        """Make the environment, and learn what its moves are called; an action space of texts has none."""
        if self._env is not None:
            return
        try:
            gymnasium = importlib.import_module("gymnasium")
        except ModuleNotFoundError:
            raise UserError("The environment gymnasium needs the library: `pip install gymnasium`.") from None
        if not self._id:
            raise UserError("env.name = 'gymnasium' needs env.id, for instance env.id=FrozenLake-v1.")
        try:
            self._env = gymnasium.make(self._id, disable_env_checker=True, **self._options)
        except (gymnasium.error.Error, ModuleNotFoundError, TypeError) as error:
            raise UserError(f"env.id = {self._id!r} cannot be made: {error}") from error
        space, discrete = self._env.action_space, gymnasium.spaces.Discrete
        if not isinstance(space, (discrete, gymnasium.spaces.Text)):
            raise UserError(f"env.id = {self._id!r} has actions {space}; only text and discrete ones can be said.")
        self._numbers = range(space.start, space.start + space.n) if isinstance(space, discrete) else range(0)
        self._moves = self._names or [str(number) for number in self._numbers]
        if len(self._moves) != len(self._numbers):
            raise UserError(f"env.actions has {len(self._moves)} names; {self._id} has {len(self._numbers)} actions.")

    def _move(self, said: str) -> Any:
        """What the environment takes for what was said; the words themselves when it is no move."""
        by_word = {str(number): number for number in self._numbers}
        by_word |= {name.lower(): number for name, number in zip(self._moves, self._numbers, strict=True)}
        return by_word.get(said.lower(), said)

    def _seen(self, observation: Any) -> str:
        """As text; where a drawing is coloured, brackets stand around it."""
        if self._env.render_mode != "ansi":
            return str(observation)
        return re.sub(r"\x1b\[\d[\d;]*m", "[", re.sub(r"\x1b\[0?m", "]", self._env.render()))
