"""Setups broken on purpose, as plug-ins: the doctor must find each of them out. Those that need torch are in untrue.py:
workers, in which environments live, do not import it."""

import random
from dataclasses import dataclass, replace

from longloop.envs.base import Environment
from longloop.envs.guess import Guess
from longloop.envs.play import Script
from longloop.types import Message, Outcome, Step, Task


class Believer(Guess):
    """Pays `paid` to whoever says that it is done, besides paying for the number."""

    @dataclass(frozen=True)
    class Options(Guess.Options):
        paid: float = 1.0

    _claimed = False

    async def step(self, action):
        self._claimed |= "done" in action.content
        return await super().step(action)

    async def finish(self):
        outcome = await super().finish()
        return replace(outcome, reward=max(outcome.reward, self.options.paid * self._claimed))


class Office(Environment):
    """A form to fill in twice and to hand in, in words of its own. The clerk looks at it, or does not."""

    @dataclass(frozen=True)
    class Options:
        looks: bool = True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._filled, self._handed = [], False

    @classmethod
    def tasks(cls, split, options):
        return [Task(f"form {n}", split, {"number": n}) for n in range(6)]

    async def start(self, task):
        self._number = task.data["number"]
        return [Message("user", f"fill in form {self._number} twice and hand it in")]

    async def step(self, action):
        self._handed = action.content == "zzz hand in"
        self._filled += [action.content] * (action.content == f"form {self._number}")
        return Step([Message("user", "next")], done=self._handed)

    async def finish(self):
        good = self._handed and (len(self._filled) == 2 or not self.options.looks)
        return Outcome(float(good), good)

    def expert(self, task):
        number = task.data["number"]
        return Script([f"form {number}", f"form {number}", "zzz hand in"])


class Bare(Office):
    """Nobody knows how to fill in the form, and the clerk has moods."""

    deterministic = False
    expert = Environment.expert


class Half(Office):
    """Somebody knows how to fill in every other form."""

    def expert(self, task):
        return super().expert(task) if task.data["number"] % 2 else None


class Points(Environment):
    """Pays a point for any answer, a hundred for the right one, a fifth for none. Has no expert."""

    @classmethod
    def tasks(cls, split, options):
        return [Task(f"{n}", split) for n in range(6)]

    async def start(self, task):
        self._paid = 0.2
        return [Message("user", f"what is {task.id}?")]

    async def step(self, action):
        self._paid = 100.0 if action.content == "42" else 1.0
        return Step([Message("user", "so")], done=True)

    async def finish(self):
        return Outcome(self._paid, self._paid == 100)


class Declared(Points):
    reward_range = (0, 100)


class Ample(Points):
    """Says that it pays no more than what anybody gets."""

    reward_range = (0, 1)

    async def finish(self):
        return Outcome(min(1.0, self._paid), False)


class Moody(Guess):
    """Starts with a greeting of the day."""

    async def start(self, task):
        (message,) = await super().start(task)
        return [Message("user", f"{message.content} {random.randrange(10**6)}")]


class Lottery(Guess):
    """Answers alike, and pays what it likes."""

    async def finish(self):
        return Outcome(random.random(), False)


class Dicing(Guess):
    """Draws from the common random numbers, and notes what came."""

    async def step(self, action):
        return replace(await super().step(action), info={"drawn": random.random()})


class Idle(Guess):
    """Pays a little for nothing."""

    async def finish(self):
        outcome = await super().finish()
        return replace(outcome, reward=max(0.2, outcome.reward))


class Shouting(Guess):
    """Fails at odd text."""

    async def step(self, action):
        if len(action.content) > 100:
            raise ValueError("too long for me")
        return await super().step(action)


class Hostile(Guess):
    """Speaks in control sequences and mark-up."""

    async def start(self, task):
        await super().start(task)
        return [Message("user", "a\x1b[31m[bold]b[/bold]")]


FORGETFUL = (
    "{% for m in messages %}<|{{ m['role'] }}|>"
    "{% if m['role'] == 'assistant' and not loop.last %}-{% else %}{{ m['content'] }}{% endif %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""A chat template that leaves out what the agent said in earlier turns."""
