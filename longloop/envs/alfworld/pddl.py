"""The engine of ALFWorld's games (TextWorld's, over the Fast Downward planner), with caches for its slow parts.

Upstream translates a game's PDDL four times when it is loaded, and parses the same few grammar rules for every command
it lists. Here it is translated once, and kept on disk for the other workers and the next run; parses are cached in
memory. The games are upstream's and answer the same, word for word. The caches replace functions for the whole process,
which is why ALFWorld has one of its own; `LOCK` is held throughout, since nothing below it is thread-safe.
"""

import contextlib
import copy
import functools
import hashlib
import io
import os
import random
import sys
import threading
import weakref
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from longloop.cache import cache_dir
from longloop.types import UserError

LOCK = threading.RLock()
_GAMES = 8
"""Games that are cached in memory: about 2 MB each."""
_FREE: list[Any] = []
"""Copies of the planner's library that no game uses. Each game needs one; closing one can crash, so none is closed."""


class Game:
    """A game in progress: its last text, the possible commands, and whether it is won."""

    def __init__(self, file: Path, handcoded: bool = False) -> None:
        with LOCK:
            _install_caches()
            from alfworld.agents.environment import alfred_tw_env as alfred
            from textworld import EnvInfos
            from textworld.envs import PddlEnv

            engine = PddlEnv(EnvInfos(won=True, admissible_commands=True, facts=handcoded))
            weakref.finalize(engine, _FREE.append, engine.downward_lib)
            self._env = alfred.AlfredDemangler(env=engine)
            if handcoded:
                self._env = alfred.AlfredExpert(env=self._env)
            self._env.load(str(file))
            self._state = self._env.reset()

    def step(self, command: str) -> None:
        with LOCK:
            self._state, _, _ = self._env.step(command)

    @property
    def text(self) -> str:
        return self._state.feedback

    @property
    def commands(self) -> list[str]:
        return self._state["admissible_commands"]

    @property
    def facts(self) -> list[str]:
        """All that is true in the game, sorted; not what was looked at, which the engine notes and never asks for."""
        return sorted(str(fact) for fact in self._state["_facts"] if fact.name != "checked")

    @property
    def won(self) -> bool:
        return self._state["won"]

    @property
    def advice(self) -> str:
        """The handcoded expert's next command."""
        return self._state["extra.expert_plan"][0]


def handcoded(file: Path, most: int) -> Iterator[str]:
    """Yield the commands of ALFWorld's handcoded expert until it wins, gives up or has said `most` of them.

    It plays a game of its own, one command ahead.
    """
    chance = random.Random(0).getstate()  # it chooses among equal objects with Python's global generator
    game, said = None, ""
    for _ in range(most):
        with LOCK:
            before = random.getstate()
            random.setstate(chance)
            try:
                if game is None:
                    game = Game(file, handcoded=True)
                else:
                    game.step(said)
                if game.won:
                    return
                said = game.advice
            except UserError:
                raise
            except Exception:  # it gives up with errors of many kinds
                return
            finally:
                chance = random.getstate()
                random.setstate(before)
        yield said


@functools.cache
def _install_caches() -> None:
    """Replace upstream's slow functions by cached ones."""
    try:
        import fast_downward
        from textworld.envs.pddl import logic, textgen
        from textworld.logic import Rule
    except ImportError as error:
        raise UserError(
            f"ALFWorld's packages are not installed for {sys.executable} ({error}). `longloop envs install alfworld` "
            'builds a virtualenv with them, which env.isolation = "venv" uses.'
        ) from error
    translate, load = fast_downward.pddl2sas, fast_downward.load_lib
    parse = functools.lru_cache(4096)(textgen._parse_and_convert)

    @functools.lru_cache(_GAMES)
    def translated(domain: str, problem: str) -> tuple[Any, str]:
        return _translated(translate, domain, problem)

    # The second, optimized translation is for a planner that is not used here; the first does as well.
    fast_downward.pddl2sas = lambda domain, problem, verbose=False, optimize=False: translated(domain, problem)
    fast_downward.load_lib = lambda: _FREE.pop() if _FREE else load()
    logic.GameLogic = functools.lru_cache(_GAMES)(logic.GameLogic)
    textgen._parse_and_convert = lambda *text, **rule: copy.deepcopy(parse(*text, **rule))
    # Upstream makes a deep copy of what is never changed in place.
    textgen.copy_context = lambda old: old | {name: dict(old[name]) for name in ("variables", "mapping")}
    Rule.parse_conjunctive_query = staticmethod(functools.lru_cache(4096)(Rule.parse_conjunctive_query))


def _translated(translate: Any, domain: str, problem: str) -> tuple[Any, str]:
    """Return what `pddl2sas` returns: the parsed task, and its translation, from disk if it is there."""
    name = hashlib.sha256(f"fast-downward-textworld 20.6\0{domain}\0{problem}".encode()).hexdigest()
    file = cache() / f"{name}.sas.z"
    try:
        sas = zlib.decompress(file.read_bytes()).decode()
    except (OSError, ValueError, zlib.error):
        argv = sys.argv
        try:
            task, sas = translate(domain, problem)
        finally:
            sys.argv = argv
        _write(file, zlib.compress(sas.encode()))
        return task, sas
    return _parsed(domain, problem), sas


def _parsed(domain: str, problem: str) -> Any:
    """Return the task as the translator parses it, in a fiftieth of the time that translating takes."""
    argv, sys.argv = sys.argv, ["translate.py", "domain", "task"]  # an import there reads the command line
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            from fast_downward.translate import normalize
            from fast_downward.translate.pddl_parser import lisp_parser, parsing_functions

            lists = (lisp_parser.parse_nested_list(text.split("\n")) for text in (domain, problem))
            task = parsing_functions.parse_task(*lists)
            normalize.normalize(task)
    finally:
        sys.argv = argv
    return task


def cache() -> Path:
    """Return the folder of the translations."""
    return cache_dir() / "alfworld"


def _write(file: Path, content: bytes) -> None:
    """Write a file whole or not at all. A disk that cannot be written to costs only time."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}")
        part.write_bytes(content)
        part.replace(file)
