"""tau-bench: customers of a shop or an airline, served by calling functions, by the rules of the house.

The package (Yao et al. 2024, arXiv 2406.12045) is not on PyPI: `env.folder` is a clone of its repository. The customer
is a language model, which knows what it wants and says it little by little. It is asked at an endpoint with OpenAI's
API, `env.user_url`; the package asks through litellm, which is replaced here by one request over HTTP. Rules, tools,
tasks, the customer's prompts and the reward are the package's own.

An action without a call is said to the customer. The attempt is over when the customer has nothing more to say, or when
the agent hands over to a person; it is paid 1 if the data are then as they should be, and what should be told was told.
"""

import functools
import importlib
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

from longloop.envs.base import Environment
from longloop.envs.calls import arguments_of
from longloop.types import Call, Message, Outcome, Step, Task, UserError

_TRIES = 4
"""How often the customer's endpoint is asked before the attempt is given up."""


class TauBench(Environment):
    @dataclass(frozen=True)
    class Options:
        folder: str = ""
        """A clone of github.com/sierra-research/tau-bench."""
        domain: Literal["retail", "airline"] = "retail"
        """The shop, with training tasks of its own, or the airline, which has a test split only."""
        user_url: str = ""
        """The address of the endpoint that plays the customer, such as `http://127.0.0.1:8000/v1`."""
        user_model: str = ""
        """The model's name there."""
        user_key: str = "TAU_USER_KEY"
        """The environment variable with the endpoint's key: TAU_USER_KEY or OPENAI_API_KEY."""
        user_strategy: str = "llm"
        """How the package lets it play: llm, react, verify or reflection."""
        user_seconds: float = 60.0
        """How long to wait for an answer of the customer's."""

        def __post_init__(self) -> None:
            if not (self.folder and self.user_url and self.user_model):
                raise ValueError("name the clone (`folder`), and who plays the customer (`user_url`, `user_model`)")
            if self.user_key not in TauBench.variables:
                raise ValueError(f"`user_key` is one of {', '.join(TauBench.variables)}, which workers get")
            object.__setattr__(self, "folder", str(Path(self.folder).absolute()))  # workers have a folder of their own

    options: Options
    isolation = "venv"
    requires = ("pydantic==2.14.3",)
    variables = ("TAU_USER_KEY", "OPENAI_API_KEY")
    reward_range = (0.0, 1.0)
    deterministic = False

    _reward = 0.0

    @classmethod
    def tasks(cls, split: str, options: Options) -> Sequence[Task]:
        if options.domain == "airline" and split != "test":
            return []
        return [
            Task(f"{options.domain}/{split}/{n}", split, {"index": n})
            for n in range(len(_env(options, split, customer=False).tasks))
        ]

    def start(self, task: Task) -> Step:
        self._env = _env(self.options, task.split, customer=True)
        opened = self._env.reset(task_index=task.data["index"])
        return Step(
            [Message("system", self._env.wiki), Message("user", opened.observation)], tools=self._env.tools_info
        )

    def step(self, action: Message) -> Step:
        if not action.calls:
            found = self._act("respond", {"content": action.content})
            return Step([] if found.done else [Message("user", found.observation)], done=found.done)
        messages, failed = [], False
        for call in action.calls:
            text, done = self._answer(call)
            if done:
                return Step(done=True)
            messages.append(Message("tool", text, call=call.id))
            failed = failed or text.startswith(("Error: ", "Unknown action "))
        return Step(messages, info={"failed": failed})

    def finish(self) -> Outcome:
        return Outcome(self._reward, self._reward > 1 - 1e-6)

    def _answer(self, call: Call) -> tuple[str, bool]:
        """What a call returns, and whether it ends the conversation."""
        if call.name == "respond":  # the package's name for words to the customer, which are no tool
            return "Unknown action respond", False
        try:
            found = self._act(call.name, arguments_of(call))
        except ValueError as error:
            return f"Error: {error}", False
        return found.observation, found.done

    def _act(self, name: str, arguments: dict[str, Any]) -> Any:
        action = importlib.import_module("tau_bench.types").Action(name=name, kwargs=arguments)
        found = self._env.step(action)
        self._reward = float(found.reward) if found.done else 0.0
        return found


@functools.cache
def _env(options: TauBench.Options, split: str, customer: bool) -> Any:
    """The package's environment for a split; it is used for one attempt after the other."""
    if not (Path(options.folder) / "tau_bench").is_dir():
        raise UserError(
            f"env.folder = {options.folder!r} is no clone of tau-bench: there is no folder tau_bench in it. Get one: "
            "`git clone https://github.com/sierra-research/tau-bench`."
        )
    if options.folder not in sys.path:
        sys.path.insert(0, options.folder)
    sys.modules["litellm"] = _Litellm(options)
    envs = importlib.import_module("tau_bench.envs")
    made = None
    while made is None:
        with suppress(IndexError):  # it draws a task to begin with, and one time in many draws one too far
            made = envs.get_env(options.domain, user_strategy="human", user_model="", task_split=split)
    if customer:
        users = importlib.import_module("tau_bench.envs.user")
        strategy = users.UserStrategy(options.user_strategy)
        made.user = users.load_user(user_strategy=strategy, model=options.user_model, provider="openai")
    return made


class _Litellm(ModuleType):
    """What the package uses of litellm: one function, which asks an endpoint with OpenAI's API."""

    def __init__(self, options: TauBench.Options) -> None:
        super().__init__("litellm")
        self._options = options

    def completion(self, *, messages: Sequence[Any], **_: Any) -> Any:
        """The customer's next message, as litellm would return it."""
        body = {"model": self._options.user_model, "messages": [_plain(message) for message in messages]}
        message = self._asked(body)["choices"][0]["message"]
        said = {"role": "assistant", "content": message["content"] or ""}
        choice = SimpleNamespace(message=SimpleNamespace(**said, model_dump=lambda: dict(said)))
        return SimpleNamespace(choices=[choice], _hidden_params={"response_cost": 0.0})

    def _asked(self, body: dict[str, Any]) -> Any:
        options = self._options
        headers = {
            "content-type": "application/json",
            "authorization": f"Bearer {os.environ.get(options.user_key, '')}",
        }
        url = f"{options.user_url.rstrip('/')}/chat/completions"
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        for tried in range(1, _TRIES + 1):
            try:
                with urllib.request.urlopen(request, timeout=options.user_seconds) as reply:
                    return json.load(reply)
            except urllib.error.HTTPError as error:
                said = f"{error.code} {error.read(300).decode(errors='replace')}"
                if tried == _TRIES or (error.code < 500 and error.code != 429):
                    raise RuntimeError(f"the customer's endpoint {url} refused: {said}") from None
            except OSError as error:
                if tried == _TRIES:
                    raise RuntimeError(f"the customer's endpoint {url} does not answer: {error}") from None
            time.sleep(0.5 * 2**tried)


def _plain(message: Any) -> Any:
    return message if isinstance(message, dict) else {"role": message.role, "content": message.content}
