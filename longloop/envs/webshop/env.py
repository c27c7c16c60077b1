"""WebShop: find and buy what an instruction asks for, in a shop of real products, with search[...] and click[...].

Our own engine over the published product data (Yao et al. 2022): BM25 search, pages of results, product pages with
options and sub-pages. Buying ends the visit; the reward looks at what was bought (reward.py), success is a reward of 1.
It needs the packages bm25s and rapidfuzz (`pip install 'longloop[envs]'`) and WebShop's data (shop.py says which).
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from longloop.envs.base import Environment, Player
from longloop.envs.play import Silent
from longloop.envs.react import call_of
from longloop.envs.shared import datasets as files
from longloop.envs.webshop import players
from longloop.envs.webshop.reward import reward
from longloop.envs.webshop.shop import SOURCE, Goal, Product, Shop, shop
from longloop.types import Message, Outcome, Step, Task

SYSTEM = """You buy what someone asks for in a web shop. In each turn write a thought, then one action:

Thought: I need a ceramic mug that is dishwasher safe, so I search for that.
Action: search[ceramic mug dishwasher safe]

search[words] looks for products. click[button] presses one of the buttons of the page, which stand in brackets: a \
product's id opens its page, where you choose options, read more, and buy. Choose every option that was asked for, \
then click[buy now]: it ends the visit, and only what you bought counts."""

_SPLITS = {"test": slice(0, 500), "dev": slice(500, 1500), "train": slice(1500, None)}
"""WebShop's rule: of the shuffled goals, the first 500 are for test, the next 1,000 for dev."""
_FOUND, _A_PAGE = 50, 10
"""The most products that a search finds, and the number on a page."""
_LONGEST = 2000
"""Characters of a description that are shown."""
BACK, PREVIOUS, NEXT, BUY = "back to search", "< prev", "next >", "buy now"
_MORE = ("description", "features", "attributes")


class WebShop(Environment):
    @dataclass(frozen=True)
    class Options:
        data: str = ""
        """The folder with documents_1k.jsonl and items_ins_v2_1000.json, plain or compressed with xz; empty for
        $LONGLOOP_DATA/webshop."""

    options: Options
    analysis = {
        "patterns": {
            "failure": {"heard": r"^That is no action|^This page has no button", "title": "actions that failed"},
            "searches": {"said": r"(?i)^Action:\s*search\["},
            "purchases": {"said": r"(?i)^Action:\s*click\[\s*buy now"},
        }
    }
    reward_range = (0.0, 1.0)
    lucky = ("buy first result",)  # a goal without options may be met by the first product found

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._found: list[str] = []
        self._page = 0
        self._product: Product | None = None
        self._reading = ""
        self._chosen: dict[str, str] = {}
        self._bought = False

    @classmethod
    def tasks(cls, split: str, options: Options) -> Sequence[Task]:
        goals = _shop(options.data).goals
        numbers = range(len(goals))[_SPLITS[split]] if split in _SPLITS else range(0)
        return [Task(f"goal-{number}", split, goals[number].as_data()) for number in numbers]

    def start(self, task: Task) -> Sequence[Message]:
        self._shop = _shop(self.options.data)
        self._goal = Goal.from_data(task.data)
        return [Message("system", SYSTEM), Message("user", f"{self._goal.instruction}\n\n{self._shown()}")]

    def step(self, action: Message) -> Step:
        name, argument = call_of(action.content)
        if name == "search" and argument:
            self._search(argument)
        elif name == "click":
            wrong = self._click(" ".join(argument.lower().split()))
            if wrong:
                return self._say(wrong, failed=True)
        else:
            wrong = "That is no action. Write `Action: search[words]` or `Action: click[button]`."
            return self._say(wrong, failed=True)
        if self._bought:
            return Step(done=True)
        return self._say(self._shown())

    def finish(self) -> Outcome:
        if not self._bought:
            return Outcome(0.0, False)
        assert self._product is not None
        wanted = self._shop.products[self._goal.product]
        value, parts = reward(self._goal, wanted, self._product, self._chosen)
        return Outcome(value, value == 1.0, {"bought": self._product.id, "chosen": self._chosen, **parts})

    def fork(self) -> "WebShop":
        other = copy.copy(self)
        other._chosen = dict(self._chosen)
        return other

    def expert(self, task: Task) -> Player:
        goal = Goal.from_data(task.data)
        return players.Oracle(goal, _shop(self.options.data).products[goal.product].title)

    def baselines(self, task: Task) -> dict[str, Player]:
        goal = Goal.from_data(task.data)
        return {
            "nothing": Silent(),
            "random clicks": players.Clicker(goal, task.id),
            "buy first result": players.Hasty(goal),
        }

    def _say(self, text: str, failed: bool = False) -> Step:
        product = self._product and self._product.id
        state = self.state_key(self._found, self._page, product, self._reading, self._chosen)
        return Step([Message("user", text)], info={"state": state, "failed": failed})

    def _search(self, words: str) -> None:
        self._found, self._page = self._shop.find(words, _FOUND), 1
        self._leave()

    def _click(self, button: str) -> str:
        """Press a button of the page. Return an error message if there is none, else an empty text."""
        product = self._product
        if button not in self._buttons():
            return f"This page has no button [{button}]. Its buttons: {_row(self._buttons())}"
        if button == BACK:
            self._found, self._page = [], 0
            self._leave()
        elif button in (NEXT, PREVIOUS) and product is None:
            self._page += 1 if button == NEXT else -1
        elif button == PREVIOUS and self._reading:
            self._reading = ""
        elif button == PREVIOUS:
            self._leave()
        elif product is None:
            self._product = self._shop.products[next(name for name in self._here() if name.lower() == button)]
        elif button == BUY:
            self._bought = True
        elif button in _MORE:
            self._reading = button
        else:
            self._chosen |= {name: button for name, values in product.options.items() if button in values}
        return ""

    def _leave(self) -> None:
        """Close the product's page and forget the options chosen there."""
        self._product, self._reading, self._chosen = None, "", {}

    def _buttons(self) -> list[str]:
        """Return the buttons of this page."""
        product = self._product
        if product is not None and self._reading:
            return [BACK, PREVIOUS]
        if product is not None:
            values = [value for some in product.options.values() for value in dict.fromkeys(some)]
            return [BACK, PREVIOUS, *values, *_MORE, BUY]
        if not self._page:
            return []
        return [*self._turns(), *(name.lower() for name in self._here())]

    def _turns(self) -> list[str]:
        """Return the buttons that lead from a page of results to others."""
        more = self._page * _A_PAGE < len(self._found)
        return [BACK, *([PREVIOUS] if self._page > 1 else []), *([NEXT] if more else [])]

    def _here(self) -> list[str]:
        return self._found[(self._page - 1) * _A_PAGE : self._page * _A_PAGE]

    def _shown(self) -> str:
        """Return the page as the agent sees it."""
        product = self._product
        if product is not None and self._reading:
            return f"{_row([BACK, PREVIOUS])}\n{self._reading}: {_text(product, self._reading)}"
        if product is not None:
            options = "".join(
                f"{name}{f' ({chosen} is chosen)' if (chosen := self._chosen.get(name)) else ''}: "
                f"{_row(list(dict.fromkeys(values)))}\n"
                for name, values in product.options.items()
            )
            return f"{_row([BACK, PREVIOUS])}\n{product.title}\nprice: {product.tag}\n{options}{_row([*_MORE, BUY])}"
        if not self._page:
            return "You are at the search page. Use search[words]."
        if not self._found:
            return f"{_row([BACK])}\nNothing was found."
        products = [self._shop.products[name] for name in self._here()]
        listed = "\n".join(f"[{product.id.lower()}] {product.title}, {product.tag}" for product in products)
        pages = -(-len(self._found) // _A_PAGE)
        return f"{_row(self._turns())}\nPage {self._page} of {pages}\n{listed}"


def _shop(data: str) -> Shop:
    return shop(files.folder("webshop", data, SOURCE))


def _text(product: Product, what: str) -> str:
    text = {
        "description": product.description,
        "features": "\n".join(feature.strip() for feature in product.features),
        "attributes": ", ".join(product.attributes),
    }[what]
    return (text[:_LONGEST] + " ..." if len(text) > _LONGEST else text) or "none"


def _row(buttons: Sequence[str]) -> str:
    return " ".join(f"[{button}]" for button in buttons)
