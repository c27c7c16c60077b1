"""BFCL multi-turn: requests of a user, one after the other, done by calling the functions of simulated services.

The 800 multi-turn tasks of the Berkeley Function-Calling Leaderboard (Patil et al. 2025), from the package `bfcl-eval`
2026.3.23: 200 conversations over files, cars, trading, travel, tickets, messages, posts and sums, each in four
categories (base, long_context, miss_func, miss_param). The agent calls functions as native tools. An action without a
call ends the user's turn, and the next request comes; after the last one the attempt is over.

The judge is the package's own: after each turn the state of the services, and what the calls returned, must be what the
reference calls lead to. The reward is 1 or 0. The expert makes the reference calls.
"""

import ast
import functools
import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longloop.envs.base import Environment, Player
from longloop.envs.calls import arguments_of, called
from longloop.envs.play import Script, Silent
from longloop.types import Call, Message, Outcome, Step, Task, UserError

SYSTEM = """You do what a user asks by calling functions. Make as many calls as the request needs, and look at what \
they return. Then answer in words, without a call: the user goes on. If a function or a detail is missing, say so."""

CATEGORIES = ("base", "long_context", "miss_func", "miss_param")
_SPLITS = ("train", "train", "train", "dev", "test")
"""The split of a conversation, by its number modulo 5: the four categories of a conversation stay together."""
_TYPES = {"dict": "object", "float": "number", "tuple": "array"}
"""Python's names of types, as JSON schemas have them."""
_MODEL = "longloop"
"""The name under which the package keeps the services of an attempt."""


class Bfcl(Environment):
    @dataclass(frozen=True)
    class Options:
        categories: list[str] = field(default_factory=lambda: ["base", "long_context", "miss_func", "miss_param"])
        """Which tasks: base, long_context (much data to look through), miss_func (a function comes later), miss_param
        (a detail comes later)."""

        def __post_init__(self) -> None:
            if unknown := set(self.categories) - set(CATEGORIES):
                raise ValueError(f"there is no category {sorted(unknown)[0]!r}; there are {', '.join(CATEGORIES)}")

    options: Options
    isolation = "venv"
    prepare = (("pip", "install", "--quiet", "--no-deps", "bfcl-eval==2026.3.23", "mpmath==1.3.0"),)
    """The package pins 150 others for its command line, of which these tasks need none."""
    reward_range = (0.0, 1.0)

    _task: Task | None = None

    @classmethod
    def tasks(cls, split: str, options: Options) -> Sequence[Task]:
        numbers = [n for n in range(200) if _SPLITS[n % len(_SPLITS)] == split]
        return [
            Task(f"multi_turn_{category}_{n}", split, {"category": category}, scenario=f"conversation {n}")
            for n in numbers
            for category in options.categories
        ]

    def start(self, task: Task) -> Step:
        self._task, self._entry = task, _entry(task)
        self._missing: dict[str, list[str]] = self._entry.get("missed_function", {})
        held = {name for names in self._missing.values() for name in names}
        self._docs = _functions(tuple(self._entry["involved_classes"]))
        self._offered = self._docs.keys() - held
        self._calls: list[list[list[str]]] = [[]]
        """By the user's turn, then by the action."""
        _forget()
        tools = tuple(_tool(doc) for name, doc in self._docs.items() if name in self._offered)
        return Step([Message("system", SYSTEM), Message("user", self._request())], tools=tools)

    def step(self, action: Message) -> Step:
        if action.calls:
            self._calls[-1].append([])
            answers = [(call, *self._answer(call)) for call in action.calls]
            messages = [Message("tool", text, call=call.id) for call, text, _ in answers]
            return Step(messages, info={"failed": any(failed for _, _, failed in answers)})
        if len(self._calls) == len(self._entry["question"]):
            return Step(done=True)
        self._calls.append([])
        return Step([Message("user", self._request())])

    def finish(self) -> Outcome:
        if self._task is None:
            return Outcome(0.0, False)
        truth = _truth(self._task)
        rest: list[list[list[str]]] = [[] for _ in truth[len(self._calls) :]]
        checker = importlib.import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker")
        verdict = checker.multi_turn_checker(
            [*self._calls, *rest], truth, self._entry, self._task.data["category"], _MODEL
        )
        done = bool(verdict["valid"])
        info = {} if done else {"error": verdict.get("error_type"), "reason": verdict.get("error_message")}
        return Outcome(float(done), done, info)

    def expert(self, task: Task) -> Player:
        """Return a player who makes the reference calls, one in each action, and ends each turn of the user's."""
        docs = _functions(tuple(_entry(task)["involved_classes"]))
        return Script([said for turn in _truth(task) for said in (*(_reference(call, docs) for call in turn), "Done.")])

    def baselines(self, task: Task) -> dict[str, Player]:
        """`words` answers every request without a call."""
        return {"nothing": Silent(), "words": Script(["Done."] * len(_truth(task)))}

    def _request(self) -> str:
        """What the user says at this turn. Where functions were held back until now, they are described."""
        turn = len(self._calls) - 1
        said = [message["content"] for message in self._entry["question"][turn]]
        if new := self._missing.get(str(turn)):
            self._offered |= set(new)
            prompts = importlib.import_module("bfcl_eval.constants.default_prompts")
            said += [prompts.DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC]
            said += [json.dumps(_tool(self._docs[name])["function"]) for name in new]
        return "\n".join(said)

    def _answer(self, call: Call) -> tuple[str, bool]:
        """What a call returns, and whether it failed."""
        try:
            if call.name not in self._offered:
                raise ValueError(f"there is no function {call.name[:40]!r}")
            arguments = arguments_of(call)
            if odd := next((key for key in arguments if not key.isidentifier()), None):
                raise ValueError(f"{call.name} has no parameter {odd[:40]!r}")
        except ValueError as error:
            return f"Error: {error}", True
        written = f"{call.name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
        self._calls[-1][-1].append(written)
        (result,), _ = _utilities().execute_multi_turn_func_call(
            func_call_list=[written],
            initial_config=self._entry["initial_config"],
            involved_classes=self._entry["involved_classes"],
            model_name=_MODEL,
            test_entry_id=self._entry["id"],
            long_context="long_context" in self._entry["id"],
        )
        return result, result.startswith("Error during execution:")


def _reference(call: str, docs: dict[str, Any]) -> str:
    """A reference call, which is written in Python, as a player says it."""
    tree = ast.parse(call, mode="eval").body
    assert isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name)
    names = list(docs[tree.func.id]["parameters"]["properties"])
    given = dict(zip(names, tree.args, strict=False)) | {str(word.arg): word.value for word in tree.keywords}
    return called(tree.func.id, {name: ast.literal_eval(value) for name, value in given.items()})


def _forget() -> None:
    """Remove the services of attempts that the package keeps in its module."""
    kept = vars(_utilities())
    for name in [name for name in kept if name.startswith(_MODEL)]:
        del kept[name]


def _utilities() -> Any:
    return importlib.import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils")


def _tool(doc: dict[str, Any]) -> dict[str, Any]:
    """The package's description of a function, as a tool."""
    described = {key: doc[key] for key in ("name", "description")}
    return {"type": "function", "function": {**described, "parameters": _schema(doc["parameters"])}}


def _schema(value: Any) -> Any:
    if isinstance(value, list):
        return [_schema(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _TYPES.get(one, one) if key == "type" and isinstance(one, str) else _schema(one)
        for key, one in value.items()
    }


def _entry(task: Task) -> dict[str, Any]:
    return _lines(f"BFCL_v4_multi_turn_{task.data['category']}.json")[task.id]


def _truth(task: Task) -> list[list[str]]:
    """The reference calls of each turn of the user's."""
    return _lines(f"possible_answer/BFCL_v4_multi_turn_{task.data['category']}.json")[task.id]["ground_truth"]


@functools.lru_cache(maxsize=100)
def _functions(services: tuple[str, ...]) -> dict[str, Any]:
    """The descriptions of what services can do, by function."""
    files = importlib.import_module("bfcl_eval.constants.executable_backend_config").MULTI_TURN_FUNC_DOC_FILE_MAPPING
    return {name: doc for one in services for name, doc in _lines(f"multi_turn_func_doc/{files[one]}", "name").items()}


@functools.cache
def _lines(file: str, key: str = "id") -> dict[str, Any]:
    """A file of the package's data with an object on each line, by one of its entries."""
    package = importlib.import_module("bfcl_eval")
    try:
        text = (Path(package.__file__ or "").parent / "data" / file).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"bfcl-eval has no {file}: {error}. `longloop envs install bfcl` gets it anew.") from error
    return {entry[key]: entry for entry in map(json.loads, filter(None, text.split("\n")))}
