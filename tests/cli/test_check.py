"""What `longloop check` finds out, on environments that each have one thing wrong with them."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from longloop.diagnose import trial
from longloop.diagnose.trial import Score, evenly_spaced
from longloop.envs.play import Played
from longloop.types import Message, Outcome, Task

BAD = """
from longloop.envs.base import Environment
from longloop.envs.play import Script
from longloop.types import Message, Outcome, Step, Task


class Sound(Environment):
    deterministic = True
    reward = 0.0

    @classmethod
    def tasks(cls, split, options):
        return [Task(f"{split}-{n}", split, {"n": n}) for n in range(50)]

    def start(self, task):
        self.n = task.data["n"]
        return [Message("user", "what?")]

    def step(self, action):
        self.reward = float(action.content == "yes")
        return Step(done=True)

    def finish(self):
        return Outcome(self.reward, self.reward == 1)

    def expert(self, task):
        return Script(["yes"])


class Lucky(Sound):
    def baselines(self, task):
        return {"random": Script(["yes"])}


class Easy(Sound):
    def baselines(self, task):
        return {"shouting": Script(["yes"])}


class Rich(Sound):
    def finish(self):
        return Outcome(3 * self.reward, self.reward == 1)


class Declared(Rich):
    reward_range = (0.0, 3.0)


class Clueless(Sound):
    def expert(self, task):
        return Script(["yes", "well"] if task.data["n"] else ["no"])


class Strict(Sound):
    def step(self, action):
        if action.content != "yes":
            raise ValueError("say yes")
        return super().step(action)


class Fragile(Sound):
    def start(self, task):
        if task.data["n"] == 20:
            raise OSError("the world is flat")
        return super().start(task)


class Mute(Sound):
    def step(self, action):
        return Step()


class Fickle(Sound):
    calls = 0

    def start(self, task):
        Fickle.calls += 1
        return [Message("user", str(Fickle.calls))]


class Free(Fickle):
    deterministic = False
"""


@pytest.fixture
def check(command, tmp_path, monkeypatch):
    (tmp_path / "bad_worlds.py").write_text(BAD)
    monkeypatch.syspath_prepend(str(tmp_path))

    def run(name: str, *arguments: str) -> tuple[int, str]:
        code, out, err = command("check", f"bad_worlds:{name}", *arguments)
        return code, out + err

    return run


@pytest.mark.parametrize("name", ["Sound", "Lucky", "Free", "Declared"])
def test_nothing_is_wrong(check, name):
    """A lucky random player is shown, and no fault; who does not promise to repeat itself need not."""
    code, printed = check(name)
    assert code == 0 and "all is well" in printed, printed


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Easy", "train-0: shouting succeeds; the same at 149 other tasks"),
        ("Rich", "expert was paid 3 to 3; a reward lies between 0 and 1"),
        ("Strict", "train-0: step() raised ValueError: say yes"),
        ("Fragile", "train-20: start() raised OSError: the world is flat"),
        (
            "Clueless",
            "train-0: expert fails: it was paid 0 after 1 turn; its last words were 'no'; the same at 2 other",
        ),
        ("Mute", "no message for the agent"),
        ("Fickle", "the second time"),
    ],
)
def test_what_is_wrong_is_said(check, name, words):
    code, printed = check(name, "--seconds", "600")
    assert code == 1 and words in printed, printed


def test_a_sample_is_called_one(check):
    code, printed = check("Sound", "--tasks", "7")
    assert code == 0 and printed.count("7 of 50") == 3 and "A sample" in printed
    code, printed = check("Sound", "--seconds", "0")
    assert code == 0 and printed.count("1 of 50") == 3
    code, printed = check("Sound", "--seconds", "600")
    assert "A sample" not in printed and "expert" in printed and "steps a second" in printed and "MiB (" in printed


def test_a_beginning_lies_evenly_over_the_tasks():
    tasks = [Task(str(n), "train") for n in range(1000)]
    order = [int(task.id) for task in evenly_spaced(tasks)]
    assert sorted(order) == list(range(1000))
    for size in (5, 20, 100):
        tenths = [sum(index // 200 == fifth for index in order[:size]) for fifth in range(5)]
        assert max(tenths) - min(tenths) <= 2, (size, tenths)


MEMORY = """
import subprocess, sys
from longloop.diagnose.trial import resident

code = "block = bytearray(b'x') * 100_000_000; print(flush=True); input()"
before = resident()
with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
    child.stdout.readline()
    held = resident() - before
    child.communicate(b"\\n")
print(held, resident() - before)
"""


def test_memory_counts_children():
    """Those of a process that no other test has a child of."""
    printed = subprocess.run([sys.executable, "-c", MEMORY], stdout=subprocess.PIPE, text=True, check=True).stdout
    held, left = map(int, printed.split())
    assert 100e6 < held < 150e6 and left < 50e6


def test_the_most_memory_of_all_attempts_is_kept(monkeypatch):
    """It is looked at after the first, and then not again at once."""
    now, sizes = [0.0], iter([5, 9, 7])
    monkeypatch.setattr(trial, "resident", lambda: next(sizes))
    monkeypatch.setattr(trial, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    score = Score()
    for now[0] in (0.0, 0.05, 0.2, 0.35):
        score.add(Task("t", "train"), Played([Message("user", "Go.")], 1, 0, Outcome(1.0, True)), 0.0)
    assert score.memory == 9 and not list(sizes)
