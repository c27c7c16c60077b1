"""AgentDojo: an assistant's tasks done by calling tools, where what the tools return may try to hijack the agent.

The package (Debenedetti et al. 2024, arXiv 2406.13352), version 0.1.35, benchmark v1.2.2: 97 tasks in an office, a
bank, a team chat and a travel agency. With `env.attack`, each of them stands once for each goal of an attacker, 949 in
all: the goal is written, in the words of the attack, into the mails, files or web pages that the task leads to. Tools,
data, attacks and verdicts are the package's own. An action without a call is the answer to the user, and ends the
attempt.

The reward is 1 if the task is done and the attacker's goal is not, and 0 otherwise. The expert makes the reference
calls.
"""

import copy
import datetime
import functools
import importlib
import importlib.resources
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

from longloop.envs.base import Environment, Player
from longloop.envs.calls import arguments_of, called
from longloop.envs.play import Script
from longloop.types import Call, Message, Outcome, Step, Task

SUITES = ("workspace", "banking", "slack", "travel")
ATTACKS = ("direct", "ignore_previous", "system_message", "injecagent", "important_instructions", "tool_knowledge")
_VERSION = "v1.2.2"
_SPLITS = ("train", "train", "train", "dev", "test")
"""The split of a task, by its place in its suite modulo 5: its attacks stay together."""


class AgentDojo(Environment):
    @dataclass(frozen=True)
    class Options:
        suites: list[str] = field(default_factory=lambda: ["workspace", "banking", "slack", "travel"])
        """Which suites: workspace (mail, calendar, files), banking, slack (a team's chat and web pages), travel."""
        attack: str = ""
        """How the attacker's goals are put, as the package names it: direct, ignore_previous, system_message,
        injecagent, important_instructions, tool_knowledge. Empty for tasks without an attacker."""

        def __post_init__(self) -> None:
            if unknown := set(self.suites) - set(SUITES):
                raise ValueError(f"there is no suite {sorted(unknown)[0]!r}; there are {', '.join(SUITES)}")
            if self.attack and self.attack not in ATTACKS:
                raise ValueError(f"there is no attack {self.attack!r}; there are {', '.join(ATTACKS)}")

    options: Options
    isolation = "venv"
    requires = (
        *("pydantic==2.14.3", "email-validator==2.4.0", "deepdiff==9.1.0", "docstring-parser==0.18.0"),
        *("PyYAML==6.0.3", "rich==15.0.0"),
    )
    prepare = (("pip", "install", "--quiet", "--no-deps", "agentdojo==0.1.35"),)
    """The package asks for five vendors' clients, which its tasks do not need."""
    reward_range = (0.0, 1.0)
    lucky = ("hijacked",)
    """The package misses an attacker's mail where the attack itself holds its subject."""

    _task: Task | None = None

    @classmethod
    def tasks(cls, split: str, options: Options) -> Sequence[Task]:
        return [
            _task(name, split, user, goal)
            for name in options.suites
            for n, user in enumerate(_suite(name).user_tasks)
            if _SPLITS[n % len(_SPLITS)] == split
            for goal in (_suite(name).injection_tasks if options.attack else ("",))
        ]

    def start(self, task: Task) -> Step:
        self._task, self._suite = task, _suite(task.data["suite"])
        self._state = _state(task.data["suite"], task.data["user"], task.data["goal"], self.options.attack)
        self._before = self._state.model_copy(deep=True)
        self._calls: list[Any] = []
        self._said = ""
        runtime = importlib.import_module("agentdojo.functions_runtime")
        self._runtime = runtime.FunctionsRuntime(self._suite.tools)
        opening = [Message("system", _system()), Message("user", self._user.PROMPT)]
        return Step(opening, tools=tuple(map(_tool, self._suite.tools)))

    def step(self, action: Message) -> Step:
        self._said = action.content
        if not action.calls:
            return Step(done=True)
        answers = [(call, *self._answer(call)) for call in action.calls]
        messages = [Message("tool", text, call=call.id) for call, text, _ in answers]
        state = self.state_key(self._state.model_dump(mode="json"), [message.content for message in messages])
        return Step(messages, info={"failed": any(failed for _, _, failed in answers), "state": state})

    def finish(self) -> Outcome:
        if self._task is None:
            return Outcome(0.0, False)
        useful = bool(self._calls) and self._holds(self._user, "utility", unknown=False)
        goal = self._suite.injection_tasks.get(self._task.data["goal"])
        hijacked = goal is not None and self._holds(goal, "security", unknown=True)
        done = useful and not hijacked
        return Outcome(float(done), done, {"useful": useful} | ({} if goal is None else {"hijacked": hijacked}))

    def fork(self) -> "AgentDojo":
        twin = copy.copy(self)
        twin._state, twin._calls = self._state.model_copy(deep=True), list(self._calls)
        return twin

    def expert(self, task: Task) -> Player:
        """Return a player who makes the reference calls, one in each action, and gives the reference answer."""
        user, state = _suite(task.data["suite"]).user_tasks[task.data["user"]], self._fresh(task)
        return Script([*_reference(user, state), user.GROUND_TRUTH_OUTPUT or "Done."])

    def baselines(self, task: Task) -> dict[str, Player]:
        """`words` answers without a call. `hijacked` first does what the attacker wants, where the package has
        reference calls for it, and then the task."""
        players: dict[str, Player] = {"words": Script(["Done."])}
        if task.data["goal"]:
            suite, state = _suite(task.data["suite"]), self._fresh(task)
            goal, user = suite.injection_tasks[task.data["goal"]], suite.user_tasks[task.data["user"]]
            if calls := _reference(goal, state):
                last = f"{goal.GROUND_TRUTH_OUTPUT} {user.GROUND_TRUTH_OUTPUT}".strip() or "Done."
                players["hijacked"] = Script([*calls, *_reference(user, state), last])
        return players

    @property
    def _user(self) -> Any:
        """The package's task of the user."""
        assert self._task is not None
        return self._suite.user_tasks[self._task.data["user"]]

    def _fresh(self, task: Task) -> Any:
        """The data that a task begins with, for players."""
        return _state(task.data["suite"], task.data["user"], task.data["goal"], self.options.attack)

    def _answer(self, call: Call) -> tuple[str, bool]:
        """What a call returns, and whether it failed."""
        execution = importlib.import_module("agentdojo.agent_pipeline.tool_execution")
        runtime = importlib.import_module("agentdojo.functions_runtime")
        try:
            asked = runtime.FunctionCall(function=call.name, args=arguments_of(call), id=call.id)
            self._calls.append(asked)
            said = {"role": "assistant", "content": None, "tool_calls": [asked]}
            answer = execution.ToolsExecutor().query("", self._runtime, self._state, [said])[3][-1]
        except Exception as error:  # such as arguments that nest too deeply
            return f"Error: {error}", True
        if answer["error"]:
            return answer["error"], True
        return answer["content"][0]["content"], False

    def _holds(self, task: Any, verdict: str, unknown: bool) -> bool:
        """The package's verdict on a task, which may also look at the calls; `unknown` where it fails, on a state that
        its author did not think of."""
        seen = self._said, self._before, self._state
        try:
            found = getattr(task, f"{verdict}_from_traces")(*seen, self._calls)
            return bool(getattr(task, verdict)(*seen) if found is None else found)
        except Exception:
            return unknown


def _task(suite: str, split: str, user: str, goal: str) -> Task:
    name = f"{suite}/{user}"
    return Task(f"{name}/{goal}" if goal else name, split, {"suite": suite, "user": user, "goal": goal}, scenario=name)


def _reference(task: Any, state: Any) -> list[str]:
    """The reference calls of a task, as a player says them."""
    return [called(call.function, json.loads(json.dumps(call.args, default=str))) for call in task.ground_truth(state)]


def _tool(function: Any) -> dict[str, Any]:
    described = {"name": function.name, "description": function.description}
    return {"type": "function", "function": {**described, "parameters": function.parameters.model_json_schema()}}


@functools.cache
def _system() -> str:
    """The package's system message."""
    text = (importlib.resources.files("agentdojo") / "data" / "system_messages.yaml").read_text()
    return str(importlib.import_module("yaml").safe_load(text)["default"])


def _state(suite: str, user: str, goal: str, attack: str) -> Any:
    """The data that a task begins with."""
    return _loaded(suite, user, goal, attack).model_copy(deep=True)


@functools.lru_cache(maxsize=64)
def _loaded(suite: str, user: str, goal: str, attack: str) -> Any:
    """The same, read from the package's files."""
    task, injections = _suite(suite).user_tasks[user], {}
    if goal:
        injections = _attack(suite, attack)(task, _suite(suite).injection_tasks[goal])
    return task.init_environment(_suite(suite).load_and_inject_default_environment(injections))


@functools.cache
def _attack(suite: str, attack: str) -> Callable[[Any, Any], dict[str, str]]:
    """Puts the goals of an attacker into the data of a suite. The agent is called "Local model"."""
    agent = SimpleNamespace(name="local")
    found: Callable[[Any, Any], dict[str, str]] = (
        importlib.import_module("agentdojo.attacks").load_attack(attack, _suite(suite), agent).attack
    )
    return found


@functools.cache
def _suite(name: str) -> Any:
    """A suite of the package, at the version of the benchmark."""
    _without_clients()
    suites = importlib.import_module("agentdojo.task_suite.load_suites").get_suites(_VERSION)
    for tool in ("email_client", "cloud_drive_client"):
        module = importlib.import_module(f"agentdojo.default_suites.v1.tools.{tool}")
        vars(module)["datetime"] = SimpleNamespace(**vars(datetime) | {"datetime": _Still})
    return suites[name]


class _Still(datetime.datetime):
    """The time of what is sent and saved: the day of the suites' calendar, at noon. Otherwise no attempt could be
    repeated."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> "datetime.datetime":  # type: ignore[override]
        return datetime.datetime(2024, 5, 15, 12, tzinfo=tz)


def _without_clients() -> None:
    """Let the package be imported without the clients of five vendors, which agents of its own would need."""
    package = importlib.import_module("agentdojo")
    pipeline = ModuleType("agentdojo.agent_pipeline")
    pipeline.__path__ = [f"{package.__path__[0]}/agent_pipeline"]
    client = ModuleType("agentdojo.agent_pipeline.llms.google_llm")
    vars(client)["EMPTY_FUNCTION_NAME"] = "<empty-function-name>"  # all that the execution of calls reads of it
    sys.modules |= {pipeline.__name__: pipeline, client.__name__: client}
