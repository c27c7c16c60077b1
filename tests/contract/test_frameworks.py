"""Agents of the common frameworks, as they lie in `examples/frameworks`, with the real packages in real processes."""

import asyncio
import importlib.util
import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from longloop.config import RolloutConfig
from longloop.engines.scripted import ScriptedEngine
from longloop.envs.base import Environment
from longloop.envs.judge import Attempt
from longloop.gateway.env import Agent
from longloop.rollout.episode import RolloutContext
from longloop.rollout.groups import GroupRollouts
from longloop.store.trajectories import Trajectories
from longloop.tokens.chat import Chat
from longloop.types import Call, Message, Outcome, SamplingParams, Step, StopReason, Task, Trajectory
from tests.contract.test_agent import trained
from tests.support.tool_templates import tokenizer
from tests.support.worlds import collect

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "frameworks"
PACKAGES = {"openai": "openai", "langgraph": "langgraph", "agents_sdk": "openai-agents", "smolagents": "smolagents"}
"""Agent -> its virtualenv in `.venv-agents`."""
APPEND_ONLY = ("openai", "langgraph", "agents_sdk")

CALLS = {
    "qwen2.5": '<tool_call>\n{"name": "guess", "arguments": {"number": %d}}\n</tool_call>',
    "llama3.1": '{"name": "guess", "parameters": {"number": %d}}',
    "chatml": '```json\n{"name": "guess", "arguments": {"number": %d}}\n```',
}
"""Chat template -> a call as its model writes it."""
TASK = Task("guess", "train", {"number": 3, "highest": 3, "tries": 2})


def command(agent: str) -> list[str]:
    python = ROOT / ".venv-agents" / PACKAGES[agent] / "bin" / "python"
    if not python.exists():
        pytest.skip(f"needs the agents' virtualenvs: {python.parents[1].relative_to(ROOT)} (make test-all)")
    return [str(python), str(EXAMPLES / f"{agent}_agent.py")]


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"frameworks_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass
class Recorded:
    """What an agent asked and how its attempt ended, to be played again without it."""

    steps: list[Step] = field(default_factory=list)
    outcome: Outcome = Outcome(0.0, False)  # noqa: RUF009  (it is frozen)


def attempt(make: Any, template: str) -> Trajectory:
    """Guesses 2, then 3."""
    chat = Chat(tokenizer(template))
    guesses = iter((2, 3))
    engine = ScriptedEngine(None, chat, lambda *_: CALLS[template] % next(guesses))
    limits = RolloutConfig(max_turns=2, turn_tokens=200, context=20_000, step_seconds=60.0)
    ((one,),) = (
        group.trajectories
        for group in collect(
            GroupRollouts(RolloutContext(make, chat, engine, limits, SamplingParams()), "t"), [TASK], 1
        )
    )
    assert one.stop in (StopReason.MAX_TURNS, StopReason.FINISHED), one.error
    return one


@cache
def played(agent: str) -> tuple[Trajectory, Recorded]:
    """An attempt of the agent's with Qwen2.5's template, and what it asked."""
    recorded = Recorded()

    class Watched(Agent):
        async def start(self, task: Task) -> Step:
            recorded.steps.append(await super().start(task))
            return recorded.steps[-1]

        async def step(self, action: Message) -> Step:
            recorded.steps.append(await super().step(action))
            return recorded.steps[-1]

        async def finish(self) -> Outcome:
            recorded.outcome = await super().finish()
            return recorded.outcome

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        options = Agent.Options(command=command(agent), judge="judge:score")
        return attempt(lambda: Watched(options), "qwen2.5"), recorded


class Again(Environment):
    """Asks what an agent asked."""

    def __init__(self, recorded: Recorded) -> None:
        self._outcome, self._steps = recorded.outcome, iter(recorded.steps)

    async def start(self, task: Task) -> Step:
        return next(self._steps)

    async def step(self, action: Message) -> Step:
        return next(self._steps)

    async def finish(self) -> Outcome:
        return self._outcome


def trains_once(one: Trajectory) -> bool:
    """Whether what is trained on is all that was sampled, in its order."""
    sampled = [id for turn in one.turns for id in turn.action_ids.tolist()]
    return sampled == [id for stretch in one.stretches() for id in stretch.ids[stretch.mask].tolist()]


@pytest.mark.parametrize("agent", PACKAGES)
def test_an_agent_as_its_framework_runs_it(agent: str) -> None:
    """It calls its tool twice, is scored by what it called, and every sampled id trains once."""
    one, recorded = played(agent)
    assert (one.reward, one.success, len(one.turns)) == (1.0, True, 2)
    calls = [json.loads(call.arguments) for turn in one.turns for call in turn.action.calls]
    assert calls == [{"number": 2}, {"number": 3}]
    assert "higher" in recorded.steps[1].messages[-1].content, "the tool was run, and the policy reads its answer"
    assert trains_once(one)


@pytest.mark.parametrize("template", CALLS)
@pytest.mark.parametrize("agent", APPEND_ONLY)
def test_no_context_restarts_where_an_agent_only_appends(agent: str, template: str) -> None:
    """The agent has seen the same calls, whatever the template wrote them like, and would ask the same."""
    one, recorded = played(agent)
    if template != "qwen2.5":
        one = attempt(lambda: Again(recorded), template)
    assert len(one.turns) == 2 and len(one.stretches()) == 1 and trains_once(one)


def test_smolagents_retells_its_calls_in_its_own_words() -> None:
    """So each of its calls is a conversation of its own, which the policy reads as it was sent."""
    one, recorded = played("smolagents")
    assert len(one.stretches()) == 2 and one.turns[1].restarts_context
    assert [m.content for m in recorded.steps[1].messages[-1:]] == ["Observation:\nhigher"]


@pytest.mark.parametrize("agent", APPEND_ONLY)
def test_the_openings_of_the_example_are_those_of_the_frameworks(agent: str) -> None:
    """What the small model has seen, and the plain environment says."""
    opening = json.loads((EXAMPLES / "openings.json").read_text())[agent]
    first = played(agent)[1].steps[0]
    assert [[m.role, m.content] for m in first.messages] == opening["messages"]
    assert json.dumps(first.tools) == json.dumps(opening["tools"]), "the order of keys too"


@pytest.mark.parametrize("agent", PACKAGES)
def test_the_plain_environment_says_what_the_framework_says(agent: str) -> None:
    """Message by message, and the context begins anew where it does there."""
    plain = example("plain").GuessWithTool
    one, other = played(agent)[0], attempt(lambda: plain(plain.Options(agent)), "qwen2.5")
    for turn, same in zip(one.turns, other.turns, strict=True):
        assert turn.context == same.context and np.array_equal(turn.context_ids, same.context_ids)
        assert turn.restarts_context == same.restarts_context
    assert (one.reward, one.success) == (other.reward, other.success)


@pytest.mark.parametrize("guesses", [[[3]], [[2], [3]], [[2, 2], [3]], [[1], [2], [3]], [[2, 3]], []])
def test_the_plain_environment_counts_guesses_as_the_judge_does(guesses: list[list[int]]) -> None:
    """The first two, also when one turn has several."""
    said = [
        Message("assistant", "", tuple(Call(f"{n}", "guess", json.dumps({"number": n})) for n in turn))
        for turn in guesses
    ]

    async def outcome() -> Outcome:
        env = example("plain").GuessWithTool(example("plain").GuessWithTool.Options())
        await env.start(TASK)
        for message in said:
            await env.step(message)
        return await env.finish()

    judged = example("judge").score(Attempt(TASK, Path(), (tuple(said),), "", True))
    assert asyncio.run(outcome()) == judged
    assert judged.success == (3 in [n for turn in guesses for n in turn][:2])


def test_a_fork_that_has_imported_the_framework_runs_the_script_as_it_is(tmp_path: Path) -> None:
    """In its folder, with its variables and its output; its exit code is told, and it ends with who started it."""
    warm, path = str(ROOT / "recipes" / "frameworks" / "warm.py"), str(tmp_path / "socket")
    script, alive = tmp_path / "script.py", tmp_path / "alive"
    script.write_text(
        "import os, sys, time\n"
        "print(os.getcwd(), os.environ['WORD'], __name__, 'fractions' in sys.modules, flush=True)\n"
        "if os.environ['WORD'] == 'stay':\n"
        f"    open({str(alive)!r}, 'w').write(str(os.getpid()))\n"
        "    time.sleep(600)\n"
        "sys.exit(7)\n"
    )
    run = [sys.executable, "-S", warm, "run", path, str(script)]
    serve = [sys.executable, warm, "serve", path, "import fractions"]
    with subprocess.Popen(serve, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None and server.stdout.readline() == b"ready\n"
        done = subprocess.run(run, env={"WORD": "go"}, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (7, f"{tmp_path} go __main__ True\n"), done.stderr
        with subprocess.Popen(run, env={"WORD": "stay"}, cwd=tmp_path, stdout=subprocess.DEVNULL) as staying:
            while not alive.exists() or not alive.read_text():
                time.sleep(0.01)
            staying.kill()
        while (Path("/proc") / alive.read_text()).exists():
            time.sleep(0.01)
        server.communicate(timeout=60)
    assert server.returncode == 0, "it ends with its standard input"


def test_training_through_a_framework_is_training_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that calls a tool, once inside an agent with OpenAI's client and once in a plain environment: the same
    ids, log-probs, rewards and updates, to the bit."""
    python = json.dumps(command("openai"))
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example("small_model").make(tmp_path / "model", ["openai"], steps=60)
    text = (EXAMPLES / "agent.toml").read_text()
    short = [
        f"model.path={tmp_path / 'model'}",
        "seed=3",  # at which attempts at a task differ
        "steps=2",
        "tasks_per_step=1",
        "algo.k=3",
        "eval.tasks=1",
        "doctor=false",
    ]
    options = [f"env.command={python}", f"env.tasks={EXAMPLES / 'tasks.jsonl'}"]
    _, through = trained(tmp_path, "agent", text, *short, *options, "env.isolation=inline")
    table = text[text.index("[env]") : text.index("[model]")]
    _, plain = trained(tmp_path, "plain", text.replace(table, '[env]\nname = "plain:GuessWithTool"\n'), *short)
    assert sum(step["updates"] for step in through) > 0
    for ours, theirs in zip(through, plain, strict=True):
        assert ours["reward"] == theirs["reward"] and ours["update"] == theirs["update"]
        assert not ours["updates"] or ours["update"]["ratio_gap"] < 1e-4
    for step in (1, 2):
        one, other = (Trajectories(tmp_path / "runs" / name / "trajectories").read(step) for name in ("agent", "plain"))
        for group, twin in zip(one, other, strict=True):
            for t, u in zip(group.trajectories, twin.trajectories, strict=True):
                for stretch, same in zip(t.stretches(), u.stretches(), strict=True):
                    assert np.array_equal(stretch.ids, same.ids) and np.array_equal(stretch.logprobs, same.logprobs)


@pytest.mark.parametrize(
    "arguments", ['{"number": "three"}', "null", "[2]", '{"number": 1e999}', "{", "{}", "[" * 9999]
)
def test_what_a_model_may_write_into_a_call_ends_nothing(arguments: str) -> None:
    """It guesses nothing, for the plain environment as for the judge."""
    call = Call("guess", arguments, "c")

    async def guess() -> tuple[Step, Outcome]:
        env = example("plain").GuessWithTool(example("plain").GuessWithTool.Options())
        await env.start(TASK)
        return await env.step(Message("assistant", "", calls=(call,))), await env.finish()

    step, outcome = asyncio.run(guess())
    assert [message.content for message in step.messages] == ["number?"] and not outcome.success
    said = Message("assistant", "", calls=(call,))
    judged = example("judge").score(SimpleNamespace(task=TASK, conversations=[[said]]))
    assert not judged.success
