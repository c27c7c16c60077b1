"""TextArena: games in text, from Tower of Hanoi to poker, alone or against someone who moves at random.

The games of Guertler et al. (2025) in version 0.7.4. `env.game` names one as TextArena does: `TowerOfHanoi-v0`. With
`env.players = 2` the agent plays against a uniform opponent: of the moves that the game's messages name in brackets, it
takes any that is legal. So the game must be one that lists its moves, such as TicTacToe-v0 or KuhnPoker-v0. The agent
sits in either seat in turn.

The reward of a game alone is what the game pays, clipped to 0..1; against an opponent a win is 1, a draw 0.5 and a loss
0. Success is a reward of 1. The games seed Python's own generator, so each has a process of its own. They come without
experts.
"""

import contextlib
import copy
import importlib
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from longloop.envs.base import Environment, Player
from longloop.envs.play import Random, Silent
from longloop.types import Message, Outcome, Step, Task, UserError

SYSTEM = """You play a game. Read its rules, and write each move in square brackets, as they say."""
_SEEDS = {"train": 0, "dev": 1_000_000, "test": 2_000_000}
_MOVE = re.compile(r"\[[^\[\]\n]+\]")


class TextArena(Environment):
    @dataclass(frozen=True)
    class Options:
        game: str = "TowerOfHanoi-v0"
        """Which game, by its id in TextArena."""
        players: int = 1
        """1, or 2 to play against someone who takes random moves."""
        settings: dict[str, Any] = field(default_factory=dict)
        """What the game is made with, such as `{num_disks = 4}`."""
        count: int = 100
        """Tasks (seeds) in each of train, dev and test."""

    options: Options
    isolation = "venv"
    requires = ("textarena==0.7.4", "numpy==2.4.6")
    reward_range = (0.0, 1.0)

    _game: Any = None

    @classmethod
    def tasks(cls, split: str, options: Options) -> Sequence[Task]:
        if split not in cls.splits:
            return []
        tasks = [
            Task(f"{options.game}/{split}/{n}", split, {"seed": _SEEDS[split] + n, "seat": n % options.players})
            for n in range(options.count)
        ]
        for task in tasks[: options.players]:  # a mistake shows before the first attempt
            cls(options).start(task)
        return tasks

    def start(self, task: Task) -> Sequence[Message]:
        options = self.options
        arena = importlib.import_module("textarena")
        try:
            game = arena.make(options.game, **options.settings)
            while isinstance(game, arena.Wrapper):  # they tell the whole history at each turn, which the agent has
                game = game.env
            game.reset(num_players=options.players, seed=task.data["seed"])
            self._game, self._seat = game, task.data["seat"]
            self._heard: dict[int, str] = {}
            self._rng = random.Random(task.id)
            self._let_others_move()
            return [Message("system", SYSTEM), Message("user", self._news())]
        except UserError:
            raise
        except Exception as error:
            said = (str(error).strip(" *\n").splitlines() or [""])[0]
            raise UserError(
                f"env.game = {options.game!r} with env.players = {options.players} and env.settings = "
                f"{options.settings} cannot be played: {type(error).__name__}: {said}"
            ) from error

    def step(self, action: Message) -> Step:
        said = action.content.strip()
        errors = self._game.state.error_count
        done, _ = self._game.step(said if _MOVE.search(said) else f"[{said}]")
        failed = self._game.state.error_count > errors or bool(self._info.get("invalid_move"))
        done = done or self._let_others_move()
        if done:
            return Step([Message("user", str(self._info.get("reason") or "The game is over."))], done=True)
        return Step([Message("user", self._news())], info={"failed": failed})

    def finish(self) -> Outcome:
        rewards = self._game.state.rewards if self._game is not None else None
        if rewards is None:  # it has not come to an end
            return Outcome(0.0, False)
        paid = float(rewards[self._seat])
        reward = min(max(paid if self.options.players == 1 else (paid + 1) / 2, 0.0), 1.0)
        return Outcome(reward, reward == 1.0, {"paid": paid, "reason": self._info.get("reason")})

    def baselines(self, task: Task) -> dict[str, Player]:
        return {"nothing": Silent(), "random": Random(lambda: self.legal() or ["[?]"], task.id)}

    def legal(self) -> list[str]:
        """Return the moves that the player to move has been shown in brackets, and that the game takes now."""
        state = random.getstate()
        try:
            return [move for move in self._shown() if self._takes(move)]
        finally:
            random.setstate(state)

    @property
    def _info(self) -> dict[str, Any]:
        return self._game.state.game_info[self._seat]

    def _let_others_move(self) -> bool:
        """Let the opponent move until it is the agent's turn. Returns whether the game is over."""
        while not self._game.state.done and self._game.state.current_player_id != self._seat:
            self._hear()
            moves = self.legal()
            if not moves:
                raise UserError(
                    f"The opponent in env.game = {self.options.game!r} finds no legal move among those that the game "
                    "shows in brackets. Choose a game that lists its moves, or play one for a single player."
                )
            self._game.step(self._rng.choice(moves))
        return bool(self._game.state.done)

    def _news(self) -> str:
        """What the player to move has not heard yet, without its own words."""
        return self._hear() or "It is your move."

    def _hear(self) -> str:
        seat, news = self._game.get_observation()
        self._heard[seat] = self._heard.get(seat, "") + "\n".join(text for _, text, _ in news)
        return "\n".join(self._told(seat, news))

    def _told(self, seat: int, news: Sequence[tuple[int, str, Any]]) -> Iterator[str]:
        for speaker, text, kind in news:
            if kind.name != "PLAYER_ACTION":
                yield text
            elif self.options.players > 1 and speaker != seat:
                yield f"[{self._game.state.role_mapping.get(speaker, f'Player {speaker}')}] {text}"

    def _shown(self) -> list[str]:
        return sorted(set(_MOVE.findall(self._heard.get(self._game.state.current_player_id, ""))))

    def _takes(self, move: str) -> bool:
        """Whether a copy of the game takes the move."""
        trial = copy.deepcopy(self._game)
        trial.state.error_count, trial.state.error_allowance = 0, 1
        with contextlib.suppress(Exception):  # a text that was no move at all
            trial.step(move)
            return bool(trial.state.error_count == 0)
        return False
