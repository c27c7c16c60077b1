"""A newcomer's mistakes, one class each: `check`, `doctor` and `train` must name the method and say what to do."""

import asyncio
import random
import sqlite3
import time

from longloop.envs.base import Environment
from longloop.envs.play import Script
from longloop.types import Message, Outcome, Step, Task


class Sound(Environment):
    """Say the number that is asked for. Nothing is wrong with it."""

    right = False

    @classmethod
    def tasks(cls, split, options):
        return [Task(f"{split}-{n}", split, {"n": n}) for n in range(3)] if split in ("train", "dev") else []

    async def start(self, task):
        self.n = task.data["n"]
        return [Message("user", "number?")]

    async def step(self, action):
        self.right = action.content == str(self.n)
        return Step([Message("user", "no")], done=self.right)

    async def finish(self):
        return Outcome(float(self.right), self.right)

    def expert(self, task):
        return Script([str(task.data["n"])])


class HelplessExpert(Sound):
    def expert(self, task):
        return Script(["none"])


# --- what raises ---


class RaisingConstructor(Sound):
    def __init__(self, options) -> None:
        raise OSError("no licence")


class RaisingStart(Sound):
    def start(self, task):
        return [Message("user", self.questions[task.id])]


class RaisingStep(Sound):
    async def step(self, action):
        return Step([Message("user", str(1 / 0))])


class RaisingFinish(Sound):
    async def finish(self):
        assert self.right


class RaisingTasks(Sound):
    @classmethod
    def tasks(cls, split, options):
        return [Task(line, split) for line in open("/nowhere/questions.txt")]


class RaisingExpert(Sound):
    def expert(self, task):
        return Script(task.data["solution"])


class RaisingAct(Sound):
    def expert(self, task):
        class Lost:
            def act(self, messages):
                return {}[messages[-1].content]

        return Lost()


class HalfAnExpert(Sound):
    """Can do one task, gets one wrong, and is at a loss with the third."""

    def expert(self, task):
        return Script([{0: "0", 1: "7"}[task.data["n"]]])


class OneThread(Sound):
    """SQLite's connections stay in the thread that opened them, and plain methods run in a thread each."""

    def __init__(self, options) -> None:
        super().__init__(options)
        self.base = sqlite3.connect(":memory:")

    def step(self, action):
        self.right = self.base.execute("select ?", (action.content,)).fetchone() == (str(self.n),)
        return Step([Message("user", "no")], done=self.right)


# --- what blocks ---


class SleepingStep(Sound):
    async def step(self, action):
        time.sleep(30)
        raise RuntimeError("nobody has ended this")


class EndlessStart(Sound):
    async def start(self, task):
        while True:
            pass


class StubbornFinish(Sound):
    """Catches whatever is raised, and goes on."""

    async def finish(self):
        for _ in range(300):
            try:  # noqa: SIM105
                time.sleep(0.1)
            except Exception:
                pass


class SleepingPlainStep(Sound):
    def step(self, action):
        time.sleep(30)
        raise RuntimeError("nobody has given this up")


class WaitingStep(Sound):
    async def step(self, action):
        await asyncio.Event().wait()


# --- what was not awaited, or not called ---


class ForgottenAwait(Sound):
    async def step(self, action):
        return super().step(action)


class UnawaitedReward(Sound):
    async def score(self):
        return 1.0

    async def finish(self):
        return Outcome(self.score(), True)


class UnawaitedSuccess(Sound):
    async def solved(self):
        return self.right

    async def finish(self):
        return Outcome(0.0, self.solved())


class UncalledSuccess(Sound):
    def solved(self):
        return self.right

    async def finish(self):
        return Outcome(0.0, self.solved)


class UnawaitedText(Sound):
    async def question(self):
        return "number?"

    async def start(self, task):
        return [Message("user", self.question())]


# --- wrong types ---


class TextStart(Sound):
    async def start(self, task):
        return "number?"


class BareMessage(Sound):
    async def start(self, task):
        return Message("user", "number?")


class Dicts(Sound):
    async def start(self, task):
        return [{"role": "user", "content": "number?"}]


class NoReturn(Sound):
    async def step(self, action):
        await super().step(action)


class TextInStep(Sound):
    async def step(self, action):
        return Step("no")


class TextReward(Sound):
    async def finish(self):
        return Outcome("1.0", True)


class NanReward(Sound):
    async def finish(self):
        return Outcome(float("nan"), True)


class NoneSuccess(Sound):
    async def finish(self):
        return Outcome(0.0, None)


class ListInfo(Sound):
    async def finish(self):
        return Outcome(0.0, False, ["a note"])


# --- tasks ---


class NumberedTasks(Sound):
    @classmethod
    def tasks(cls, split, options):
        return [Task(n, split) for n in range(3)]


class UnnamedTasks(Sound):
    @classmethod
    def tasks(cls, split, options):
        return [Task(split=split) for _ in range(3)]


class SameIds(Sound):
    @classmethod
    def tasks(cls, split, options):
        return [Task("one", split), Task("two", split), Task("one", split)]


class SetData(Sound):
    @classmethod
    def tasks(cls, split, options):
        return [Task("one", split, {"words": [{"yes", "no"}]})]


class TupleData(Sound):
    @classmethod
    def tasks(cls, split, options):
        return [Task("one", split, {"span": (1, 2)})]


class GeneratedTasks(Sound):
    @classmethod
    def tasks(cls, split, options):
        yield Task("one", split)


class InstanceTasks(Sound):
    def tasks(self, split, options):
        return [Task("one", split)]


class AsyncTasks(Sound):
    @classmethod
    async def tasks(cls, split, options):
        return [Task("one", split)]


# --- what is not the same for all attempts ---


class RandomStart(Sound):
    async def start(self, task):
        await super().start(task)
        return [Message("user", f"number? {random.random()}")]


class OnTheClass(Sound):
    """The answer is kept where all attempts see it."""

    async def start(self, task):
        OnTheClass.n = task.data["n"]
        return [Message("user", "number?")]

    async def step(self, action):
        self.right = action.content == str(OnTheClass.n)
        return Step([Message("user", "no")], done=self.right)


class InTheModule(Sound):
    """The turns of all attempts are counted together; alone, an attempt sees none but its own."""

    turns: list = []

    async def start(self, task):
        self.turns.clear()
        return await super().start(task)

    async def step(self, action):
        self.turns.append(action.content)
        step = await super().step(action)
        return Step([Message("user", f"turn {len(self.turns)}")], done=step.done)


class Hopeless(Sound):
    """Nothing is ever right."""

    expert_splits = ()

    async def finish(self):
        return Outcome(0.0, False)


# --- allowed, and seldom meant ---


class ForClass(Sound):
    """Counts attempts on the class, which changes nothing."""

    attempts = 0

    async def start(self, task):
        ForClass.attempts += 1
        return await super().start(task)


class Markup(Sound):
    async def start(self, task):
        await super().start(task)
        return [Message("user", "<|im_start|>user\nnumber?<|im_end|>")]


class Enormous(Sound):
    async def step(self, action):
        step = await super().step(action)
        return Step([Message("user", "no " * 40_000)], done=step.done)


class Endless(Sound):
    """A message that no context holds."""

    async def start(self, task):
        return [Message("user", "no " * 4_000_000)]
