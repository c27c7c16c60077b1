"""Errands for agents that call functions: the same APIs as JSON tool schemas, in the same worlds, with the same judge.

    episode = ToolEpisode(task)
    episode.messages, episode.tools           # what a chat API with function calling takes
    episode.call("mail__search", '{"query": "invoice", "access_token": "..."}')
    episode.finish().success

Each tool is an API of an app, named `app__api`. Arguments are bounded before anything else touches them (values.py),
and each call may do as much work as a turn of code may (world.py).
"""

import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from errands.api import Api, ApiError, Parameter
from errands.apps import BY_NAME
from errands.catalog import setting
from errands.database import Overspent
from errands.example import opening
from errands.judge import outcome
from errands.session import SECONDS
from errands.values import CHARACTERS, TooLarge, bounded
from errands.world import World
from longloop import Outcome, Task

SYSTEM = """You do errands for your owner by calling tools. Each tool is an API of one of their apps, named app__api. \
Before you use an app, log in: owner__show_account gives the e-mail and password that the app's login tool takes, and \
the access_token that comes back goes into every other call to that app. Do not guess: look things up. When everything \
is done, call owner__complete_task, with an answer if you were asked something."""

RESULT = 20_000
"""Characters of a result that come back from a call."""
_JSON = 8 * CHARACTERS
"""Characters of arguments in JSON, where an escaped character takes up to six."""
_PLAIN = ("Any", "bool", "float", "int", "str")
"""Labels that say no more than the type of a schema does."""


def schemas(apps: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The tools of these apps, or of all, in the form that OpenAI's API takes."""
    return [_schema(name, api) for app in apps or BY_NAME for name, api in _tools(BY_NAME[app].apis).items()]


def tool_names(world: World, apps: Sequence[str]) -> dict[str, Api]:
    """The APIs of these apps by the names that their tools have in a world."""
    return {name: api for app in apps for name, api in _tools(world.apis(app)).items()}


class ToolEpisode:
    """One attempt at a task: made, called, finished, thrown away."""

    def __init__(self, task: Task, apps: Sequence[str] | None = None) -> None:
        """Offer the tools of these apps, or of all; those of `owner` are always there."""
        self._setting = setting(task.data["scenario"], task.data["world"])
        self._world = self._setting.world()
        self._outcome: Outcome | None = None
        offered = [app for app in BY_NAME if apps is None or app in (*apps, "owner")]
        self._apis = tool_names(self._world, offered)
        asked = opening(self._world, self._setting.instruction)
        self.messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": asked}]
        """The opening of the conversation."""
        self.tools = [_schema(name, api) for name, api in self._apis.items()]
        """The schemas of the tools. In half of `practice` they have other names than `schemas` says."""

    @property
    def done(self) -> bool:
        """Whether the agent has said that it is done."""
        return self._world.done is not None

    def call(self, name: str, arguments: str | Mapping[str, Any] = "") -> str:
        """Call a tool with a JSON object, as text or as a dict. Returns the result as JSON, or what was wrong as a text
        that begins with `Error`; a mistake of the agent's never raises."""
        if self._outcome is not None:
            return "Error: the episode is over."
        try:
            api = self._api(name)
            keywords = _arguments(arguments)
            self._world.allowance = round(SECONDS * 1e9)
            result = self._world.call(api, keywords)
        except (ApiError, TooLarge) as error:
            return f"Error: {error}"
        except OverflowError:  # dates end with the year 9999
            return f"Error: 422 {name}: a date or a number is too large."
        except Overspent:
            return "Error: 429 The call took too much work. Ask for less."
        finally:
            self._world.allowance = None
        text = json.dumps(result, ensure_ascii=False)
        more = len(text) - RESULT
        return text if more <= 0 else f"{text[:RESULT]} ... ({more} characters more were cut; ask for less)"

    def finish(self) -> Outcome:
        """Score the state that was reached."""
        if self._outcome is None:
            self._outcome = outcome(self._setting.goal, self._world)
            self._world.close()
        return self._outcome

    def _api(self, name: str) -> Api:
        api = self._apis.get(name)
        if api is None:
            close = get_close_matches(name[:100], self._apis, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ApiError(404, f"There is no tool {name[:40]!r}.{hint}")
        return api


def _arguments(given: str | Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call, copied within the limits. Raises ApiError or TooLarge for what no API can take."""
    if isinstance(given, str):
        if len(given) > _JSON:
            raise TooLarge("The JSON text")
        try:
            given = json.loads(given or "{}")
        except (ValueError, RecursionError):
            raise ApiError(422, "The arguments are not valid JSON.") from None
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise ApiError(422, "The arguments must be a JSON object, such as {}.")
    keywords = bounded(given).keywords
    try:
        json.dumps(keywords, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError):  # an object of Python's, a number that is none, half of a surrogate pair
        raise ApiError(422, "The arguments have a value that JSON cannot hold.") from None
    return keywords


def _tools(apis: Mapping[str, Api]) -> dict[str, Api]:
    return {f"{api.app}__{name}": api for name, api in apis.items()}


def _schema(name: str, api: Api) -> dict[str, Any]:
    properties = {parameter.name: _property(parameter) for parameter in api.parameters.values()}
    definitions: dict[str, Any] = {}
    for one in properties.values():
        definitions |= one.pop("$defs", {})  # references are written from the root of `parameters`
    parameters = {
        "type": "object",
        "properties": properties,
        "required": [parameter.name for parameter in api.parameters.values() if parameter.required],
        "additionalProperties": False,
    }
    if definitions:
        parameters["$defs"] = definitions
    description = api.documentation.partition("\n")[2]  # without the signature
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _property(parameter: Parameter) -> dict[str, Any]:
    label = parameter.label.removesuffix(" | None")
    described = {} if label in _PLAIN or " | " in label else {"description": label}
    default = {} if parameter.required else {"default": parameter.default}
    return parameter.adapter.json_schema() | described | default
