"""Players who shop without a model. All see the pages that an agent sees; the oracle also knows the goal's product."""

import random
import re
from collections.abc import Sequence

from longloop.envs.react import act
from longloop.envs.webshop.shop import Goal
from longloop.types import Message

_PAGES = 2
"""Pages of results that the oracle reads before it searches again."""


class Oracle:
    """Searches as a person would, with the words of the instruction, then for the title if the product is not found.
    Opens the product, chooses the options and buys."""

    def __init__(self, goal: Goal, title: str) -> None:
        self._goal = goal
        self._button = f"[{goal.product.lower()}]"
        self._searches = iter([_words(goal), title])
        self._left = list(goal.options.items())
        self._pages = _PAGES

    def act(self, messages: Sequence[Message]) -> str:
        page = messages[-1].content
        if self._button in page:
            return act("This product fits, I open it.", f"click{self._button}")
        if "[buy now]" in page and self._left:
            name, value = self._left.pop(0)
            return act(f"The {name} must be {value}.", f"click[{value}]")
        if "[buy now]" in page:
            return act("It has all that was asked for.", "click[buy now]")
        if "[next >]" in page and self._pages > 1:
            self._pages -= 1
            return act("None of these fits, I look at more.", "click[next >]")
        words = next(self._searches, "")
        self._pages = _PAGES
        if page.startswith("["):
            return act("I do not see it, other words may do better.", f"search[{words}]") if words else ""
        return act(f"I look for {words}.", f"search[{words}]")


class Hasty:
    """Buys the first product that a search for the instruction finds."""

    def __init__(self, goal: Goal) -> None:
        self._goal = goal

    def act(self, messages: Sequence[Message]) -> str:
        page = messages[-1].content
        first = re.search(r"^\[(\w{10})\]", page, re.MULTILINE)
        if first:
            return act("The first will do.", f"click[{first[1]}]")
        if "[buy now]" in page:
            return act("I take it.", "click[buy now]")
        return act("I look for it.", f"search[{_words(self._goal)}]") if not page.startswith("[") else ""


class Clicker:
    """Searches for the instruction, then clicks on anything, until it happens to buy."""

    def __init__(self, goal: Goal, seed: str) -> None:
        self._goal = goal
        self._random = random.Random(f"clicks/{seed}")

    def act(self, messages: Sequence[Message]) -> str:
        buttons = re.findall(r"\[([^\[\]]+)\]", messages[-1].content)
        if not messages[-1].content.startswith("["):
            return act("I look for it.", f"search[{_words(self._goal)}]")
        return act("Anything.", f"click[{self._random.choice(buttons)}]")


def _words(goal: Goal) -> str:
    return goal.wish.removeprefix("Find me ").replace(",", "")
