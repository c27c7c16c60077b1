"""Say it again: names, numbers and words in any order, to be repeated exactly.

What a small model learns last in Errands is to copy a name from the instruction into its code: a few tokens in a
hundred. Here every token is a copy, so it learns that first, in minutes.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from errands.people import FIRST, LAST
from longloop.envs.base import Environment
from longloop.types import Message, Outcome, Step, Task

WORDS = (
    *("the", "tent", "violin", "paint", "rug", "toaster", "tea", "dinner", "late", "call", "keys", "sister", "manager"),
    *("dentist", "landlord", "mother", "father", "brother", "wrap", "insure", "photograph", "ready", "home", "note"),
)


class Echo(Environment):
    @dataclass(frozen=True)
    class Options:
        items: int = 6
        """Names, numbers and words to repeat."""

    splits = ("train", "dev")

    @classmethod
    def tasks(cls, split: str, options: Options) -> Sequence[Task]:
        many = {"train": 20_000, "dev": 64}.get(split, 0)
        texts = [_text(random.Random(f"{split}/{n}"), options.items) for n in range(many)]
        return [Task(f"{split}-{n}", split, {"text": text}) for n, text in enumerate(texts)]

    async def start(self, task: Task) -> Sequence[Message]:
        self._text = task.data["text"]
        self._said = ""
        return [Message("user", self._text)]

    async def step(self, action: Message) -> Step:
        self._said = action.content
        return Step(done=True)

    async def finish(self) -> Outcome:
        right = self._said == self._text
        return Outcome(float(right), right)

    def expert(self, task: Task) -> "Echo":
        return self

    def act(self, messages: Sequence[Message]) -> str:
        return messages[-1].content


def _text(rng: random.Random, items: int) -> str:
    kinds = (
        lambda: f"{rng.choice(FIRST)} {rng.choice(LAST)}",
        lambda: str(rng.randrange(10**5)),
        lambda: f"'{' '.join(rng.choices(WORDS, k=3))}'",
        lambda: (
            f"2026-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02} {rng.randrange(8, 20):02}:{rng.randrange(60):02}"
        ),
        lambda: f'"{rng.choice(FIRST)} {rng.choice(LAST)}"',
    )
    return ", ".join(rng.choice(kinds)() for _ in range(items))
