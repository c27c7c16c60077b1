"""The user's own agent, in real processes: it trains like any environment, and a bad one costs its attempt."""

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longloop import api, config
from longloop.engines.scripted import ScriptedEngine
from longloop.envs.judge import outcome_of
from longloop.gateway.env import Agent
from longloop.isolation.environments import Environments
from longloop.isolation.pool import Pool
from longloop.store.run import Run
from longloop.store.trajectories import Trajectories
from longloop.types import Outcome, Sampled, StopReason, Task, Trajectory, UserError
from tests.support.helpers import GUESS, Silent
from tests.support.worlds import CHAT, collect, rollouts

AGENTS = Path(__file__).parents[1] / "support" / "agents"
PYTHON = [sys.executable, "-S"]
NAUGHTY = [*PYTHON, str(AGENTS / "naughty.py")]
FUNCTIONS = "tests.support.agents.functions"


@pytest.fixture(params=["inline", "process"])
def world(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Makes the environments of some options, in this process or in workers."""
    pools: list[Pool] = []

    def make(**options: Any) -> Environments:
        chosen = Agent.Options(**{"command": NAUGHTY, "tasks": "none"} | options)
        if request.param == "inline":
            return Environments(Agent, chosen)
        limits = {"size": 2, "memory": 2000, "disk": 200, "cpu": 60.0, "episodes": 100}
        pools.append(Pool(Agent, chosen, python=sys.executable, path=sys.path, **limits))
        return Environments(Agent, chosen, pools[-1])

    yield make
    for pool in pools:
        pool.close()


def attempts(where: Environments, *tasks: Task | str, k: int = 1, **limits: Any) -> list[Trajectory]:
    """An attempt at each task; a text is the mode of the naughty agent."""
    some = [Task(f"{n}", "train", {"mode": t}) if isinstance(t, str) else t for n, t in enumerate(tasks)]
    what = rollouts(where.make, say=["hi"], **{"step_seconds": 20.0, "max_turns": 3} | limits)
    return [t for group in collect(what, some, k) for t in group.trajectories]


def test_an_attempt_ends_with_its_agent_which_reports(world: Any) -> None:
    one, *others = attempts(world(), "plain", k=3)
    assert (one.stop, one.reward, one.success, one.error) == (StopReason.FINISHED, 1.0, True, "")
    assert one.info == {"says": "the agent"}
    assert [(t.stop, t.reward) for t in others] == [(StopReason.FINISHED, 1.0)] * 2
    (turn,) = one.turns
    assert (turn.context[0].content, turn.action.content) == ("go", "hi")


BAD = {
    "die": (StopReason.ENV_ERROR, "ended with code 3; its last words: ValueError: the model said nonsense"),
    "kill itself": (StopReason.ENV_ERROR, "the agent was killed by signal 9"),
    "end at once": (StopReason.ENV_ERROR, "ended before it asked anything; its last words: no model needed"),
    "hang": (StopReason.TIMEOUT, "took longer than 3 s"),
    "say nothing": (StopReason.ENV_ERROR, "without an outcome"),
}


def test_a_bad_agent_costs_its_attempt_and_nothing_more(world: Any) -> None:
    """All at once, beside as many good ones; but who hangs is waited for alone, for a short time."""
    asked = [name for name in BAD if name != "hang"]
    found = attempts(world(), *asked, *["plain"] * len(BAD), concurrency=4)
    good = found[len(asked) :]
    assert [(one.stop, one.reward) for one in good] == [(StopReason.FINISHED, 1.0)] * len(BAD)
    hung = attempts(world(), "hang", step_seconds=3.0)
    for name, one in zip([*asked, "hang"], [*found[: len(asked)], *hung], strict=True):
        stop, text = BAD[name]
        assert one.stop is stop and text in one.error, one.error
        assert one.reward == 0.0
    assert found[0].info == {"output": "a traceback\nValueError: the model said nonsense\n"}, "kept without a score"


def test_nothing_that_an_agent_started_survives_it(world: Any) -> None:
    (one,) = attempts(world(judge=f"{FUNCTIONS}:looks"), "leave a child")
    assert one.stop is StopReason.FINISHED, one.error
    child = one.info["files"]["child.json"]
    for _ in range(3000):
        try:
            if "\nState:\tZ" in Path(f"/proc/{child}/status").read_text():
                return
        except OSError:  # it is gone
            return
        time.sleep(0.02)
    pytest.fail("the agent's child lives on")


def test_a_flood_of_output_and_calls(world: Any) -> None:
    """100 calls at once where 3 are left: two are answered, the others are told that it is over."""
    (one,) = attempts(world(), "flood")
    assert (one.stop, one.reward, len(one.turns)) == (StopReason.MAX_TURNS, 1.0, 3), one.error
    assert len(one.stretches()) == len({turn.thread for turn in one.turns}) == 3, "each call is its own conversation"


def test_forged_keys_and_refused_calls(world: Any) -> None:
    (one,) = attempts(world(judge=f"{FUNCTIONS}:looks"), "forge")
    assert one.info["files"]["statuses.json"] == [401, 401, 400]
    assert len(one.turns) == 1


def test_a_call_is_refused_while_the_policy_thinks_about_another(world: Any) -> None:
    """The policy thinks until the agent has been refused."""
    heard: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as bound:
        bound.settimeout(30)

        class Thinks(ScriptedEngine):
            async def sample(self, *arguments: Any, **more: Any) -> Sampled:
                heard.append(more["session"])
                for _ in range(2 if len(heard) == 2 else 0):  # when it begins to think, and when it may end
                    (await asyncio.to_thread(bound.accept))[0].close()
                return await super().sample(*arguments, **more)

        task = Task("t", "train", {"mode": "ask meanwhile", "thinking": bound.getsockname()[1]})
        played = rollouts(world(judge=f"{FUNCTIONS}:looks").make, max_turns=3)
        played.context = replace(played.context, engine=Thinks(None, CHAT, ["hi"]))
        ((one,),) = [group.trajectories for group in collect(played, [task], 1)]
    assert one.info["files"]["statuses.json"] == [401]
    assert (one.stop, len(one.turns)) == (StopReason.FINISHED, 2), one.error


def test_an_agent_that_goes_on_after_its_end_is_scored_and_killed(world: Any) -> None:
    (one,) = attempts(world(judge=f"{FUNCTIONS}:looks"), "go on and on", max_turns=2)
    assert (one.stop, one.reward) == (StopReason.MAX_TURNS, 0.25)
    assert one.info["files"]["statuses.json"] == [400, 410, 410] and one.info["finished"] is False


def test_an_agent_that_is_cut_off_without_a_judge_has_earned_nothing(world: Any) -> None:
    (one,) = attempts(world(), "go on and on", max_turns=1)
    assert (one.stop, one.reward, one.info) == (StopReason.MAX_TURNS, 0.0, {"cut": True})


def test_an_agent_cannot_pay_itself(world: Any) -> None:
    """Neither with its key nor by writing where a report would lie: with a judge, only the judge is heard."""
    (one,) = attempts(world(judge=f"{FUNCTIONS}:looks"), "pay itself")
    assert (one.stop, one.reward, one.success) == (StopReason.FINISHED, 0.25, False)
    assert one.info["files"]["statuses.json"] == [403, 403]


def test_what_an_agent_is_told_and_what_only_the_judge(world: Any, tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text('"from the template"')
    secret = {"mode": "plain", "judge": {"answer": 42}, "answers": ["42"]}
    os.environ["SECRET_OF_THE_TRAINER"] = "1"
    try:
        task = Task("t", "train", secret)
        (one,) = attempts(world(judge=f"{FUNCTIONS}:looks", folder=str(tmp_path)), task)
    finally:
        del os.environ["SECRET_OF_THE_TRAINER"]
    seen = one.info["files"]["seen.json"]
    assert seen["task"] == {"mode": "plain"}, "what the agent could print, the policy could read"
    assert {"OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"} <= set(seen["variables"])
    assert not {"SECRET_OF_THE_TRAINER", "LONGLOOP_OUTCOME", "LONGLOOP_OUTCOME_KEY"} & set(seen["variables"])
    assert seen["files"] == ["notes.json"] and one.info["files"]["notes.json"] == "from the template"
    assert one.info["secret"] == {"answer": 42} and one.info["said"] == [["go", "hi"]]
    assert [path.name for path in tmp_path.iterdir()] == ["notes.json"], "each attempt has a copy"


def test_a_judge_that_is_a_program_reports_with_its_own_key(world: Any) -> None:
    where = world(judge=[*PYTHON, str(AGENTS / "judge.py")])
    good = Task("t", "train", {"mode": "pay itself", "judge": 42})
    silent = Task("u", "train", {"mode": "no verdict"})
    failed = Task("v", "train", {"mode": "no verdict", "code": 2})
    one, two, three = attempts(where, good, silent, failed)
    assert (one.stop, one.reward, one.success) == (StopReason.FINISHED, 0.75, False), one.error
    assert one.info == {"said": [["go", "hi"]], "secret": 42, "files": ["seen.json", "statuses.json"]}
    for other in (two, three):
        assert other.stop is StopReason.ENV_ERROR and "the judge does not know" in other.error


@pytest.mark.parametrize(
    ("judge", "error"), [("raises", "cannot tell"), ("wrong", "must report a reward"), ("pays", "")]
)
def test_judges(world: Any, judge: str, error: str) -> None:
    (one,) = attempts(world(judge=f"{FUNCTIONS}:{judge}"), "plain")
    if error:
        assert one.stop is StopReason.ENV_ERROR and error in one.error
    else:
        assert (one.reward, one.success) == (1.0, True)


def test_an_agent_that_is_a_function(world: Any) -> None:
    task = Task("t", "train", {"question": "why?", "answers": ["because"]})
    (one,) = attempts(world(command=[], agent=f"{FUNCTIONS}:solve"), task)
    assert (one.stop, one.reward, one.success) == (StopReason.FINISHED, 0.5, False), one.error
    assert one.info == {"said": "hi", "data": ["question"], "python": 3}
    assert one.turns[0].context[0].content == "t: why?"
    (two,) = attempts(world(command=[], agent=f"{FUNCTIONS}:number"), task)
    assert (two.reward, two.success) == (1.0, True)
    (three,) = attempts(world(command=[], agent=f"{FUNCTIONS}:nothing"), task)
    assert three.stop is StopReason.ENV_ERROR and "without an outcome" in three.error


@pytest.mark.parametrize("report", ["{", '"good"', '{"reward": "1"}', '{"reward": NaN}', "[]"])
def test_a_report_that_makes_no_sense(world: Any, report: str) -> None:
    (one,) = attempts(world(), Task("t", "train", {"mode": "nonsense", "report": report}))
    assert one.stop is StopReason.ENV_ERROR and "the agent" in one.error, one.error


def test_outcomes() -> None:
    assert outcome_of(1, "x") == Outcome(1.0, True) and outcome_of(False, "x") == Outcome(0.0, False)
    assert outcome_of({"reward": 0.5, "success": True, "info": {"a": 1}}, "x") == Outcome(0.5, True, {"a": 1})
    assert outcome_of(Outcome(0.1, False), "x") == Outcome(0.1, False)


def test_tasks_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    lines = [{"id": "a", "split": "train", "data": {"x": 1}, "scenario": "s"}, {"id": "b", "split": "dev"}]
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    options = Agent.Options(command=NAUGHTY, tasks=str(file))
    assert Agent.tasks("train", options) == [Task("a", "train", {"x": 1}, "s")]
    assert Agent.tasks("dev", options) == [Task("b", "dev")] and Agent.tasks("test", options) == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tasks": ""}, "env.tasks must name a file"),
        ({"tasks": "nowhere.jsonl"}, "Cannot read the tasks in nowhere.jsonl"),
        ({"judge": "nowhere:judge"}, "No module named 'nowhere'"),
        ({"judge": f"{FUNCTIONS}:absent"}, "absent"),
        ({"judge": FUNCTIONS}, "module:function"),
        ({"command": ["no-such-program"]}, "There is no program 'no-such-program'"),
    ],
)
def test_mistakes_show_before_the_first_attempt(options: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError, match=text):
        Agent.tasks("train", Agent.Options(**{"command": NAUGHTY, "tasks": "x"} | options))


def test_a_line_that_is_no_task_is_named(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text('{"id": "a", "split": "train"}\n{"id": "b"}\n')
    with pytest.raises(UserError, match="line 2, is no task"):
        Agent.tasks("train", Agent.Options(command=NAUGHTY, tasks=str(tmp_path / "tasks.jsonl")))


def test_tasks_may_hold_any_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some characters end a line for Python, though not in JSON; and the file is UTF-8, whatever the locale says."""
    said = "one\u2028two\u2029three\x85four é"
    line = json.dumps({"id": "a", "split": "train", "data": {"said": said}}, ensure_ascii=False)
    (tmp_path / "tasks.jsonl").write_bytes(f"{line}\r\n\n{line}\n".encode())
    monkeypatch.setattr("io.text_encoding", lambda encoding, level=2: encoding or "latin-1")
    tasks = Agent.tasks("train", Agent.Options(command=NAUGHTY, tasks=str(tmp_path / "tasks.jsonl")))
    assert [task.data for task in tasks] == [{"said": said}] * 2


def test_tasks_in_another_encoding_are_refused(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_bytes('{"id": "é", "split": "train"}'.encode("latin-1"))
    with pytest.raises(UserError, match=r"tasks\.jsonl: it is not UTF-8 .*Save it as UTF-8"):
        Agent.tasks("train", Agent.Options(command=NAUGHTY, tasks=str(tmp_path / "tasks.jsonl")))


@pytest.mark.parametrize("options", [{}, {"command": ["a"], "agent": "b:c"}])
def test_the_agent_is_named_once(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="either by `command` or by `agent`"):
        Agent.Options(**options)


def trained(folder: Path, name: str, text: str, *overrides: str) -> tuple[Run, list[dict[str, Any]]]:
    path = folder / f"{name}.toml"
    path.write_text(text)
    settings = config.load(path, [f"folder={folder / 'runs'}", f"name={name}", *overrides])
    parts, report = api.prepared(settings), Silent()
    with Run.create(settings, {}) as run:
        asyncio.run(api.run_loop(parts, run, report))
    return run, report.steps


@pytest.mark.parametrize("isolation", ["inline", "process"])
def test_training_through_an_agent_is_training_in_the_environment(isolation: str, tmp_path: Path) -> None:
    """The guessing game, once as an environment and once inside an agent that only knows an API: the same ids, the same
    log-probs, the same rewards and the same updates, to the bit. So an agent learns as much per attempt."""
    tasks = [
        {"id": f"guess-{n}-of-3", "split": split, "data": {"number": n, "highest": 3, "tries": 2}}
        for split in ("train", "dev")
        for n in (1, 2, 3)
    ]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    command = json.dumps([*PYTHON, str(AGENTS / "guesser.py")])
    _, plain = trained(tmp_path, "plain", GUESS)
    agent = [f"env.command={command}", f"env.tasks={tmp_path / 'tasks.jsonl'}", f"env.isolation={isolation}"]
    text = GUESS.replace('name = "guess"\nhighest = 3\ntries = 2\n', 'name = "agent"\n')
    _, through = trained(tmp_path, "agent", text, *agent)
    assert sum(step["updates"] for step in through) > 0
    for ours, theirs in zip(through, plain, strict=True):
        assert ours["success"] == theirs["success"] and ours["update"] == theirs["update"]
        assert not ours["updates"] or ours["update"]["ratio_gap"] < 1e-4
    for step in (1, 2, 3):
        one, other = (Trajectories(tmp_path / "runs" / name / "trajectories").read(step) for name in ("agent", "plain"))
        for group, twin in zip(one, other, strict=True):
            assert [t.reward for t in group.trajectories] == [t.reward for t in twin.trajectories]
            for t, u in zip(group.trajectories, twin.trajectories, strict=True):
                assert [turn.context for turn in t.turns] == [turn.context for turn in u.turns]
                assert len(t.stretches()) == len(u.stretches()) <= 1, "no context restarts"
                for stretch, same in zip(t.stretches(), u.stretches(), strict=True):
                    assert np.array_equal(stretch.ids, same.ids) and np.array_equal(stretch.logprobs, same.logprobs)
