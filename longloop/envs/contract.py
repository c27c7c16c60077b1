"""The contract that every environment must meet, as sentences about the one that does not.

`check_class` and `tasks_of` look at a class before a run. `expect` checks every answer during one, and `failure`
describes a method that raised. `remarks` names what is allowed but seldom meant.
"""

import inspect
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from numbers import Real
from typing import Any

from longloop.envs.base import REQUIRED, Environment
from longloop.envs.user_code import raised_at
from longloop.types import Message, Outcome, Step, Task, UserError

_OWES = {
    "tasks": "it must return a list of Task, an empty one for a split that it does not have",
    "the constructor": "it must succeed with the options of the [env] table",
    "start": "it must return the first messages of any task",
    "step": "it must answer any text, a malformed action with a message that says what is wrong",
    "finish": "it must score the state that was reached, whatever that is",
    "expert": "it must return a player for any task of its splits",
    "baselines": "it must return a dict of players for any task",
    "act": "it must return what to say next, or an empty text when there is nothing more to do",
}
_TOOL = 'a list of {"type": "function", "function": {"name": ..., "description": ..., "parameters": ...}}'
"""What a Step's tools have to be."""
_COMPLETE = ("UserError", "WorkerLost")
"""Errors whose text already says what to do."""
_LONGEST = 10_000_000
"""The most characters of a message. No context holds more, and encoding it would take minutes."""
_LONG = 100_000
"""Characters above which few contexts hold a message."""
_MARKUP = re.compile(r"<\|\w+\|>|\[/?INST\]|<<SYS>>|<(?:start|end)_of_turn>")
"""The marks that chat templates put around messages."""


class NoTasks(UserError):
    """A split is empty."""


class NoExpert(UserError):
    """There is nobody who can do a task."""


class ContractError(TypeError):
    """An answer is not what was promised. The text says which method, what was expected, and what came."""


def check_class(name: str, found: Any) -> type[Environment]:
    """Return the class that `env.name` stands for, or raise a UserError that says why it is no environment."""
    if not (inspect.isclass(found) and issubclass(found, Environment)):
        kind = found.__name__ if inspect.isclass(found) else "MyEnv"
        raise UserError(
            f"env.name = {name!r} is no environment: derive it from the base class, as in class {kind}"
            "(longloop.Environment), and see docs/guides/environment.md for what it owes."
        )
    name = found.__name__
    for method in REQUIRED:
        if not found.defines(method):
            raise UserError(f"{name} has no method {method}(); docs/guides/environment.md shows the four it needs.")
    if inspect.isfunction(inspect.getattr_static(found, "tasks")):
        raise UserError(f"{name}.tasks must be a classmethod: write @classmethod above def tasks(cls, split, options).")
    _takes_options(f"{name}.__init__()", "def __init__(self, options)", found)
    _takes_options(f"{name}.tasks()", "def tasks(cls, split, options)", found.tasks, "train")
    declared = vars(found.Options).get("__dataclass_params__")
    if declared is None or not declared.frozen:
        raise UserError(
            f"{name}.Options must be a frozen dataclass: write @dataclass(frozen=True) above class Options."
        )
    if not isinstance(found.version, str):
        raise UserError(f"{name}.version is {_shown(found.version)}; it must be a text, as in version = '1.0'.")
    if found.reward_range is not None:
        try:
            low, high = map(float, found.reward_range)
        except (TypeError, ValueError):
            low, high = math.nan, math.nan
        if not low < high:
            raise UserError(
                f"{name}.reward_range is {_shown(found.reward_range)}; it must be the lowest and the highest reward "
                "that finish() pays, as in (0.0, 1.0)."
            )
    return found


def _takes_options(what: str, example: str, function: Callable[..., Any], *arguments: str) -> None:
    try:
        inspect.signature(function).bind(*arguments, options=None)
    except TypeError as error:
        raise UserError(
            f"{what} is given the options of the [env] table as one object, `options`, but {error}. Write {example}."
        ) from error


def failure(method: str, error: BaseException, env: Any = None) -> str:
    """Describe a method that raised: what, in which of the user's lines, and what was expected instead."""
    text, owes = str(error), _OWES[method]
    if "same thread" in text:  # sqlite3's; what it adds differs from attempt to attempt
        text = text.split(". ")[0]
        owes = (
            "plain methods run in a thread each: open the connection with check_same_thread=False, or write async def"
        )
    said = f"{_called(method)} raised {type(error).__name__}" + (f": {text}" if text else "")
    if type(error).__name__ in _COMPLETE:
        return said
    where = raised_at(error, env)
    return said + (f" ({where})" if where else "") + f"; {owes}"


def tasks_of(environment: type[Environment], split: str, options: Any) -> list[Task]:
    """Return the split's tasks, after checking that each is a Task with an id of its own and data that can be
    stored."""
    name = environment.__name__
    try:
        tasks = environment.tasks(split, options=options)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{name}.{failure('tasks', error, environment)}.") from error
    if not isinstance(tasks, Sequence) or not all(isinstance(task, Task) for task in tasks):
        raise UserError(f"{name}.tasks({split!r}) must return a list of Task, but returned {_shown(tasks)}.")
    if not tasks:
        others = [one for one in environment.splits if one != split]
        meant = "".join(f" Did you mean {one!r}?" for one in get_close_matches(split, others, n=1, cutoff=0.5))
        raise NoTasks(
            f"{name} has no tasks in the split {split!r}.{meant} It declares {', '.join(environment.splits)}. Set "
            "`split`, `eval.split` or --split to one that has tasks."
        )
    for index, task in enumerate(tasks):
        if not isinstance(task.id, str) or not task.id:
            raise UserError(
                f"{name}.tasks({split!r}) must give every Task an id that is a text, but item {index} has the id "
                f"{_shown(task.id)}. Write Task(id=f'{split}-{{n}}', ...)."
            )
        if problem := _unstorable(task.data, "data") or "" if isinstance(task.data, dict) else "data is no dict":
            raise UserError(
                f"{name}.tasks({split!r}): the data of {task.id!r} must be JSON values, so that it can be stored: "
                f"{problem}."
            )
    twice, times = Counter(task.id for task in tasks).most_common(1)[0]
    if times > 1:
        raise UserError(
            f"{name}.tasks({split!r}) has two tasks with the same id, {twice!r}; ids must be unique, or attempts at "
            "one are compared with those at the other."
        )
    return list(tasks)


def expect(method: str, answer: Any, reward_range: tuple[float, float] | None = None) -> Any:
    """Return the answer of an environment or a player, with plain numbers and JSON values in it. Raise ContractError if
    it is not what was promised, or if the reward of an outcome lies outside `reward_range`."""
    if method == "act":
        if not isinstance(answer, str):
            raise ContractError(f"act() must return a text, but returned {_shown(answer)}")
        return answer
    if method == "start":
        promise = "start() must return a list with at least one Message"
        first = answer.messages if isinstance(answer, Step) else answer
        if problem := _not_messages(first) or ("" if first else "an empty list"):
            raise ContractError(f"{promise}, but returned {problem}")
        return replace(expect("step", answer), messages=first) if isinstance(answer, Step) else answer
    if method == "step":
        if not isinstance(answer, Step):
            raise ContractError(f"step() must return a Step, but returned {_shown(answer)}")
        if problem := _not_messages(answer.messages):
            raise ContractError(
                f"step() must return a Step whose messages are a list of Message, but they are {problem}"
            )
        done = _truth("step() must return a Step whose done", answer.done)
        if not done and not answer.messages:
            raise ContractError(
                "step() returned a Step that is not done but has no message for the agent: add one, or done=True"
            )
        rebuild = _truth("step() must return a Step whose rebuild", answer.rebuild)
        if problem := _not_tools(answer.tools):
            raise ContractError(f"a Step's tools must be {_TOOL}, but {problem}")
        if not isinstance(answer.thread, str) or not all(isinstance(text, str) and text for text in answer.stop):
            raise ContractError("a Step's thread must be a text, and its stop a list of texts that are not empty")
        reward, info = _number(method, answer.reward), _json(method, answer.info)
        return replace(answer, reward=reward, done=done, info=info, rebuild=rebuild)
    if not isinstance(answer, Outcome):
        raise ContractError(f"finish() must return an Outcome, but returned {_shown(answer)}")
    reward = _number(method, answer.reward)
    low, high = reward_range or (-math.inf, math.inf)
    if not low <= reward <= high:
        raise ContractError(f"finish() returned the reward {reward:g}, but reward_range says {low:g} to {high:g}")
    success = _truth("finish() must return an Outcome whose success", answer.success)
    return replace(answer, reward=reward, success=success, info=_json(method, answer.info))


def remarks(messages: Sequence[Message], opening: int) -> Iterator[str]:
    """Yield what is odd, though allowed, about an environment's messages in a conversation; each kind once. The first
    `opening` of them are from `start`."""
    long = marked = False
    for place, message in enumerate(messages):
        method = "start" if place < opening else "step"
        if method == "step" and message.role == "assistant":
            continue
        if len(message.content) > _LONG and not long:
            long = True
            yield (
                f"{method}() returned a message of {len(message.content):,} characters: an attempt ends as soon as its "
                "conversation does not fit into rollout.context. Cut it, or show it in parts"
            )
        if (found := _MARKUP.search(message.content)) and not marked:
            marked = True
            yield (
                f"{method}() returned a message with chat markup in it ({found.group()}). It does no harm: the model "
                "reads it as plain text, never as a special token. But the chat template frames every message itself; "
                "leave it out unless the agent is to see it spelled"
            )


def _not_messages(value: Any) -> str:
    """Describe what is there in place of a list of messages; empty when it is one."""
    if isinstance(value, Message):
        return "one Message that is in no list: write [Message(...)]"
    if isinstance(value, str):
        return f"the text {_shown(value)}: write [Message('user', text)]"
    if not isinstance(value, Sequence):
        return _shown(value)
    for index, one in enumerate(value):
        if not isinstance(one, Message):
            return f"a list whose item {index} is {_shown(one)}: write Message('user', text)"
        for name in ("role", "content"):
            if not isinstance(getattr(one, name), str):
                return f"a list with a Message whose {name} must be a text and is {_shown(getattr(one, name))}"
        if len(one.content) > _LONGEST:
            return f"a message of {len(one.content):,} characters, and no more than {_LONGEST:,} are taken: cut it"
    return ""


def _not_tools(tools: Any) -> str:
    """Describe what is there in place of a list of tools; empty when it is one."""
    if not isinstance(tools, Sequence) or isinstance(tools, str):
        return f"they are {_shown(tools)}"
    for index, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            return f"item {index} is {_shown(tool)}"
        if problem := _unstorable(tool, f"tools[{index}]"):
            return problem
    return ""


def _number(method: str, reward: Any) -> float:
    """Return the reward as a float. Numbers of any library, and booleans, are taken."""
    if not isinstance(reward, Real) or not math.isfinite(reward):
        raise ContractError(
            f"{method}() returned the reward {_shown(reward)}, which is not a finite number: write float(...)"
        )
    return float(reward)


def _truth(promise: str, value: Any) -> bool:
    """Return a bool. Anything else is refused, since a coroutine or a method that was not called would count as
    true."""
    try:
        if value in (True, False):
            return bool(value)
    except Exception:  # an array's, which is equal to nothing as a whole
        pass
    raise ContractError(f"{promise} is True or False, but it is {_shown(value)}")


def _json(method: str, info: Any) -> dict[str, Any]:
    """Return `info` as it will be read from disk, with the repr of what JSON cannot hold."""
    if not isinstance(info, dict):
        raise ContractError(f"{method}() must return an info that is a dict, but it is {_shown(info)}")
    try:
        return json.loads(json.dumps(info, default=repr))
    except (TypeError, ValueError, RecursionError) as error:
        raise ContractError(
            f"{method}() must return an info of JSON values, but it cannot be stored: {error}"
        ) from error


def _unstorable(value: Any, path: str) -> str:
    """Describe the part of a value that JSON would not give back unchanged; empty when there is none."""
    if isinstance(value, dict):
        for key, one in value.items():
            if not isinstance(key, str):
                return f"{path} has the key {_shown(key)}, which is no text"
            if problem := _unstorable(one, f"{path}[{key!r}]"):
                return problem
        return ""
    if isinstance(value, list):
        return next(filter(None, (_unstorable(one, f"{path}[{n}]") for n, one in enumerate(value))), "")
    if isinstance(value, float) and not math.isfinite(value):
        return f"{path} is {value}"
    if value is None or isinstance(value, str | int | float):
        return ""
    if isinstance(value, tuple):
        return f"{path} is a tuple, which reads back as a list: write a list"
    return f"{path} is {_shown(value)}, of the type {type(value).__name__}"


def _called(method: str) -> str:
    return method if " " in method else f"{method}()"


def _shown(value: Any) -> str:
    """Describe what came instead, and the slip that is usually behind it."""
    if inspect.isawaitable(value):
        name = getattr(value, "__name__", type(value).__name__)
        if inspect.iscoroutine(value):
            value.close()  # or Python would warn of it besides
        return f"a coroutine: write `await` before {name}()"
    if value is None:
        return "None: is a `return` missing?"
    if inspect.isroutine(value):
        return f"the method {value.__name__}: call it, {value.__name__}()"
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."
