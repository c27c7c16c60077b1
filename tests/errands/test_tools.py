"""Errands through function calls: schemas, a scripted agent, hostile arguments, and the verdicts of code."""

import json
import random
import re
from typing import Any

import pytest

from errands.apps import APPS
from errands.env import Errands
from errands.tools import RESULT, ToolEpisode, schemas
from longloop.envs.react import code_of, react
from longloop.types import Message, Outcome, Task

TASKS = Errands.tasks("train", Errands.Options(per_scenario=1))


class Agent:
    """Stands for `apis` in an expert's code, and does all of it by calling tools."""

    def __init__(self, episode: ToolEpisode, app: str = "") -> None:
        self._episode, self._app = episode, app

    def __getattr__(self, name: str) -> Any:
        if not self._app:
            return Agent(self._episode, name)

        def call(**arguments: Any) -> Any:
            answer = self._episode.call(f"{self._app}__{name}", json.dumps(arguments))
            assert not answer.startswith("Error"), answer
            return json.loads(answer)

        return call


def expert_code(task: Task) -> list[str]:
    """What the expert does in each turn."""
    expert = Errands(Errands.Options()).expert(task)
    turns = iter(lambda: expert.act([Message("user", "")]), "")
    return [code_of(turn) for turn in turns]


def with_tools(task: Task, turns: list[str]) -> Outcome:
    episode = ToolEpisode(task)
    names: dict[str, Any] = {"apis": Agent(episode), "print": lambda *_: None}
    for code in turns:
        exec(code, names)
    return episode.finish()


def with_code(task: Task, turns: list[str]) -> Outcome:
    env = Errands(Errands.Options())
    env.start(task)
    for code in turns:
        env.step(Message("assistant", react("Next.", code)))
    return env.finish()


def task_named(scenario: str) -> Task:
    return next(task for task in TASKS if task.data["scenario"] == scenario)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_every_train_task_can_be_done_with_tools_alone(task: Task) -> None:
    outcome = with_tools(task, expert_code(task))
    assert outcome.success and outcome.reward == 1.0


def test_tools_have_the_names_of_the_task() -> None:
    """In half of practice the APIs are called otherwise."""
    renamed = 0
    usual = {tool["function"]["name"] for tool in schemas()}
    for task in Errands.tasks("practice", Errands.Options(per_scenario=1))[::97]:
        assert with_tools(task, expert_code(task)).success, task.id
        renamed += {tool["function"]["name"] for tool in ToolEpisode(task).tools} != usual
    assert renamed > 2


@pytest.mark.parametrize("scenario", ["mail-to-relation", "code-from-mail", "note-into-list", "split-with-flatmates"])
def test_a_state_is_judged_as_if_it_were_reached_by_code(scenario: str) -> None:
    """All that the expert does, and only the beginning of it, with and without saying that it is done."""
    task = task_named(scenario)
    turns = expert_code(task)
    seen = set()
    for end in range(len(turns) + 1):
        for last in ([], ["apis.owner.complete_task(answer='?')"] if end < len(turns) else []):
            outcome = with_tools(task, turns[:end] + last)
            assert outcome == with_code(task, turns[:end] + last)
            seen.add(outcome.reward)
    assert min(seen) == 0.0 and max(seen) == 1.0


def test_an_episode_begins_as_one_with_code_does() -> None:
    for task in TASKS[:5]:
        system, asked = ToolEpisode(task).messages
        assert (system["role"], asked["role"]) == ("system", "user") and "owner__complete_task" in system["content"]
        assert asked["content"] == Errands(Errands.Options(example=False)).start(task)[-1].content


def test_an_episode_ends_when_the_agent_says_so() -> None:
    episode = ToolEpisode(TASKS[0])
    assert not episode.done
    assert json.loads(episode.call("owner__complete_task")) == {"message": "The task is completed."}
    assert episode.done and "409" in episode.call("owner__show_time")
    outcome = episode.finish()
    assert outcome.reward == 0.0 and not outcome.success and outcome is episode.finish()
    assert episode.call("owner__show_time") == "Error: the episode is over."


def test_only_what_is_offered_can_be_called() -> None:
    episode = ToolEpisode(TASKS[0], apps=["mail"])
    assert {tool["function"]["name"].partition("__")[0] for tool in episode.tools} == {"mail", "owner"}
    assert episode.call("wallet__login", {}).startswith("Error: 404 There is no tool 'wallet__login'.")
    assert json.loads(episode.call("owner__show_account", {"app": "mail"})).keys() == {"email", "password"}


# --- schemas ---


def assert_is_schema(schema: Any, definitions: dict[str, Any]) -> None:
    """A JSON Schema of the words that ours use."""
    words = {
        "type",
        "description",
        "default",
        "title",
        "enum",
        "pattern",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
    }
    words |= {"exclusiveMinimum", "minItems", "maxItems", "items", "anyOf", "properties", "required", "$ref", "$defs"}
    assert isinstance(schema, dict) and schema.keys() <= words | {"additionalProperties"}, schema
    if "type" in schema:
        assert schema["type"] in ("object", "array", "string", "integer", "number", "boolean", "null")
    if "pattern" in schema:
        re.compile(schema["pattern"])
    if "$ref" in schema:
        assert schema["$ref"].removeprefix("#/$defs/") in definitions
    for inner in (*schema.get("anyOf", ()), *schema.get("properties", {}).values(), *schema.get("$defs", {}).values()):
        assert_is_schema(inner, definitions)
    if "items" in schema:
        assert_is_schema(schema["items"], definitions)
    assert set(schema.get("required", ())) <= schema.get("properties", {}).keys()


def test_every_api_has_a_schema() -> None:
    made = {tool["function"]["name"]: tool for tool in schemas()}
    assert list(made) == [f"{app.name}__{api}" for app in APPS for api in app.apis]
    json.dumps(list(made.values()), allow_nan=False)
    for name, tool in made.items():
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name), "what OpenAI's API takes"
        assert tool.keys() == {"type", "function"} and tool["type"] == "function"
        function = tool["function"]
        assert function.keys() == {"name", "description", "parameters"} and len(function["description"]) <= 1024
        assert_is_schema(function["parameters"], function["parameters"].get("$defs", {}))
        assert function["parameters"]["type"] == "object"
    assert schemas(["mail"]) == [tool for name, tool in made.items() if name.startswith("mail__")]
    parameters = made["contacts__add"]["function"]["parameters"]
    assert parameters["properties"]["birthday"] == {
        "type": "string",
        "description": "YYYY-MM-DD",
        "default": "1990-01-01",
    }
    assert "access_token" in parameters["required"] and "birthday" not in parameters["required"]
    shares = made["expenses__add_expense"]["function"]["parameters"]
    assert shares["$defs"]["Share"]["required"] == ["email", "amount"]


# --- what an agent gets wrong ---


def shared(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value] * 10
    return value


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("{", "422 The arguments are not valid JSON."),
        ("[" * 100_000, "422 The arguments are not valid JSON."),
        ('{"answer": ' + "9" * 5000 + "}", "422 The arguments are not valid JSON."),
        ("[1]", "422 The arguments must be a JSON object"),
        ("null", "422 The arguments must be a JSON object"),
        ({1: 2}, "422 The arguments must be a JSON object"),
        ('{"answer": "' + "x" * 1_000_000 + '"}', "The JSON text is too large"),
        ('{"answer": "' + "x" * 60_000 + '"}', "answer is too large"),
        ({"answer": shared(9)}, "answer is too large"),
        ({"answer": 10**200_000}, "answer is too large"),
        ('{"answer": ' + "[" * 30 + "]" * 30 + "}", "answer is too large"),
        ('{"answer": "\\ud800"}', "422 The arguments have a value that JSON cannot hold."),
        ('{"answer": NaN}', "422 The arguments have a value that JSON cannot hold."),
        ({"answer": {1, 2}}, "422 The arguments have a value that JSON cannot hold."),
        ({"answer": print}, "422 The arguments have a value that JSON cannot hold."),
        ({"answer": 1, "extra": 2}, "422 owner.complete_task has no parameter 'extra'."),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, str) else None,
)
def test_hostile_arguments_are_refused(arguments: Any, sentence: str) -> None:
    episode = ToolEpisode(TASKS[0])
    answer = episode.call("owner__complete_task", arguments)
    assert answer.startswith("Error: ") and sentence in answer and len(answer) < 500
    assert not episode.done, "nothing has happened"
    assert not episode.call("owner__complete_task", '{"answer": "an answer"}').startswith("Error")


@pytest.mark.parametrize("name", ["", "mail", "mail.search", "mail__serch", "__init__", "x" * 10**6, "\ud800"])
def test_a_tool_that_is_not_there(name: str) -> None:
    answer = ToolEpisode(TASKS[0]).call(name, "{}")
    assert answer.startswith("Error: 404 There is no tool") and len(answer) < 200
    answer.encode()
    assert ("Did you mean 'mail__search'?" in answer) == (name in ("mail__serch", "mail.search"))


def test_no_arguments_whatever_raise() -> None:
    rng = random.Random(0)
    values = [
        None,
        True,
        0,
        -1,
        5,
        2**70,
        1e300,
        0.001,
        "",
        "x",
        "\x00",
        "2026-02-30",
        "a@b.c",
        [],
        ["a@b.c"],
        {},
        [[]],
    ]
    episode = ToolEpisode(TASKS[0])
    tokens = {}
    for app in (app.name for app in APPS if app.login):
        account = episode.call("owner__show_account", {"app": app})
        tokens[app] = json.loads(episode.call(f"{app}__login", account))["access_token"]
    answered = 0
    for tool in episode.tools * 3:
        function = tool["function"]
        app = function["name"].partition("__")[0]
        if app == "owner" or function["name"].endswith(("__login", "__logout")):
            continue
        given = {name: rng.choice(values) for name in function["parameters"]["properties"] if rng.random() < 0.8}
        answer = episode.call(function["name"], given | ({"access_token": tokens[app]} if app in tokens else {}))
        answered += not answer.startswith("Error")
        assert answer.startswith("Error: ") or json.loads(answer) is not ...
    assert answered > 20
    assert 0.0 <= episode.finish().reward < 1.0


def test_long_results_are_cut() -> None:
    episode = ToolEpisode(TASKS[0])
    token = json.loads(episode.call("files__login", episode.call("owner__show_account", {"app": "files"})))
    folder = json.loads(episode.call("files__list_folders", token))[0]["path"]
    made = json.loads(episode.call("files__create", token | {"folder": folder, "name": "long.txt"}))
    for _ in range(6):
        assert "Written" in episode.call("files__append", token | made | {"text": "x" * 4000})
    answer = episode.call("files__show", token | made)
    assert RESULT < len(answer) < RESULT + 100 and answer.endswith("characters more were cut; ask for less)")


def test_a_date_beyond_all_dates_is_the_agents_mistake() -> None:
    """An event that ends when the year 9999 does, and the free times of that day."""
    episode = ToolEpisode(TASKS[0])
    account = json.loads(episode.call("owner__show_account", {"app": "calendar"}))
    token = json.loads(episode.call("calendar__login", {"email": account["email"], "password": account["password"]}))[
        "access_token"
    ]
    late = {"access_token": token, "title": "New Year", "start": "9999-12-31 23:00", "minutes": 60}
    assert "event_id" in episode.call("calendar__create", late)
    said = episode.call("calendar__list_free_times", {"access_token": token, "day": "9999-12-31"})
    assert said == "Error: 422 calendar__list_free_times: a date or a number is too large."
