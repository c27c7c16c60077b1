"""An environment that does what it is told, also to its worker; and collections in which some attempts tell it.

The agent adds numbers up. Its other words are faults: `kill`, `hang`, `late`, `leak`, `garbage`, `lie`.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from longloop.envs.base import Environment
from longloop.envs.play import Script
from longloop.isolation.pool import Pool
from longloop.isolation.proxy import remote
from longloop.isolation.worker import packed
from longloop.types import Group, Message, Outcome, Step, Task, UserError

FAULTS = ("kill", "hang", "late", "leak", "garbage", "lie")
TURNS, MOST = 3, 9
HOARD: list[bytes] = []
ON = {"messages": [{"role": "user", "content": "on"}], "reward": 0.0, "info": {}}


class Obedient(Environment):
    """Three turns; the reward is the sum of what was added, as a share of the most that could be."""

    @dataclass(frozen=True)
    class Options:
        late: float = 0.0
        words: str = "add"

    options: Options
    variables = ("WANTED",)

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._sum = self._turns = 0
        self._shown = ""

    @classmethod
    def tasks(cls, split: str, options: Any = None) -> list[Task]:
        return [Task(f"{split}-{n}", split, {"first": n}) for n in range(25)] if split == "train" else []

    def start(self, task: Task) -> list[Message]:
        self._sum = task.data["first"] % 3
        print("a line for the log")
        return [Message("user", f"{self.options.words} to {self._sum}")]

    async def step(self, action: Message) -> Step:
        word, _, rest = action.content.partition(" ")
        self._turns += 1
        if word == "add":
            self._sum += int(rest)
        else:
            self._turns = getattr(self, f"_{word}")(rest) or self._turns
        return Step(
            [Message("user", self._shown or str(self._sum))], done=self._turns >= TURNS, info={"sum": self._sum}
        )

    def finish(self) -> Outcome:
        return Outcome(self._sum / (2 + TURNS * MOST), self._sum > 20, {"pid": 0})

    def fork(self) -> "Obedient":
        copy = Obedient(self.options)
        copy._sum, copy._turns = self._sum, self._turns
        return copy

    def expert(self, task: Task) -> "Adder":
        return Adder()

    def baselines(self, task: Task) -> dict[str, Any]:
        return {"zero": Adder(0), "one": Adder(1)}

    def _kill(self, rest: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _hang(self, rest: str) -> None:
        time.sleep(3600)

    def _late(self, rest: str) -> None:
        time.sleep(self.options.late)

    def _leak(self, rest: str) -> None:
        hoard = []
        while True:
            hoard.append(b"x" * (8 << 20))
            time.sleep(0.002)

    def _hoard(self, rest: str) -> None:
        HOARD.append(b"x" * (int(rest) << 20))

    def _garbage(self, rest: str) -> None:
        _in_serve("pipe").sendall(b"Exception in thread main: something else than a frame\n")

    def _lie(self, rest: str) -> int:
        """Says done with a word for it, or twice, or answers what it was not asked yet with the best of verdicts."""
        asked, pipe = _in_serve("number"), _in_serve("pipe")
        lies = {
            "0": {"id": asked, "value": ON | {"done": "yes"}},
            "1": {"id": asked, "value": ON | {"done": True}},
            "2": {"id": asked + 1, "value": {"reward": 1.0, "success": True, "info": {}}},
        }
        pipe.sendall(packed(lies[rest]))
        return TURNS

    def _raise(self, rest: str) -> None:
        raise ValueError(rest)

    def _exit(self, rest: str) -> None:
        sys.exit(rest)

    def _spawn(self, rest: str) -> None:
        """A child that ignores polite signals, and whose number is told."""
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"
        self._shown = f"{os.getpid()} {subprocess.Popen([sys.executable, '-c', code]).pid}"

    def _burn(self, rest: str) -> None:
        while True:
            pass

    def _say(self, rest: str) -> None:
        """What it sees of the machine, as the next observation."""
        self._shown = str({"pid": os.getpid(), "variables": sorted(os.environ), "prefix": sys.prefix}[rest])

    def _import(self, rest: str) -> None:
        __import__(rest)

    def _print(self, rest: str) -> None:
        print(rest * 10000)
        os.write(1, b"raw \x00\x00\x00\x05 bytes")


class Picky(Obedient):
    def __init__(self, options: Any) -> None:
        raise UserError("no licence")

    @classmethod
    def tasks(cls, split: str, options: Any = None) -> list[Task]:
        raise UserError("there is no data")


class Rowdy(Obedient):
    def baselines(self, task: Task) -> dict[str, Any]:
        return {"raises": Script(["raise no"]), "hangs": Script(["hang"]), "dies": Script(["kill"]), "one": Adder(1)}


class Fatal(Obedient):
    def __init__(self, options: Any) -> None:
        print("out of luck")
        sys.stdout.flush()
        os._exit(3)

    @classmethod
    def tasks(cls, split: str, options: Any = None) -> list[Task]:
        os.kill(os.getpid(), signal.SIGSEGV)
        return []


class Adder:
    def __init__(self, number: int = MOST) -> None:
        self._number = number

    def act(self, messages: Sequence[Message]) -> str:
        return f"add {self._number}"


def _in_serve(name: str) -> Any:
    """A variable of the loop that answers requests: a liar that knows the protocol."""
    frame: Any = sys._getframe()
    while frame.f_code.co_name != "serve":
        frame = frame.f_back
    return frame.f_locals[name]


def pool(
    environment: type[Environment] = Obedient, size: int = 2, options: dict[str, Any] | None = None, **limits: Any
) -> Pool:
    how = {"python": sys.executable, "path": sys.path, "memory": 4000, "disk": 2000, "cpu": 600.0, "episodes": 100}
    return Pool(environment, environment.Options(**options or {}), size=size, **how | limits)  # type: ignore[arg-type]


def made(where: Pool, environment: type[Environment] = Obedient) -> Any:
    return lambda: remote(environment)(where)


def plan(episodes: int, share: float, k: int) -> dict[tuple[int, int], str]:
    """Which attempts, by the place of their task and their number, commit which fault."""
    order = random.Random(1).sample([(n // k, n % k) for n in range(episodes)], episodes)
    each = round(share * episodes)
    return {key: word for n, word in enumerate(FAULTS) for key in order[n * each : (n + 1) * each]}


def number(place: int, attempt: int, turn: int) -> int:
    """What the agent adds."""
    return random.Random(f"{place}/{attempt}/{turn}").randrange(MOST + 1)


def script(faults: dict[tuple[int, int], str]) -> Any:
    """What the agent says: numbers that follow from the session, and a fault at its second turn."""

    def say(session: str, turn: int) -> str:
        place, attempt = map(int, session.split("/")[-2:])
        fault = faults.get((place, attempt))
        return f"{fault} {attempt % 3}" if fault and turn == 1 else f"add {number(place, attempt, turn)}"

    return say


def paid(place: int, attempt: int) -> float:
    """What an attempt without a fault is paid, by hand."""
    return (place % 3 + sum(number(place, attempt, turn) for turn in range(TURNS))) / (2 + TURNS * MOST)


def plain(groups: Sequence[Group]) -> list[Group]:
    """Without the one thing that is never the same: how long it took."""
    return [
        Group(
            group.task,
            tuple(replace(t, turns=tuple(replace(turn, seconds={}) for turn in t.turns)) for t in group.trajectories),
        )
        for group in groups
    ]


def children() -> dict[int, str]:
    """The processes that this one has started and not buried, and their states (Z: a zombie)."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid():
                found[int(folder.name)] = state
    return found
