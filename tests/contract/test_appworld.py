"""AppWorld for real: its engine, apps and evaluator in workers with their own virtualenv, on a world that we build."""

import asyncio
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from longloop import build
from longloop.config import Config
from longloop.envs.appworld import AppWorld
from longloop.envs.play import Played, Script, answered, play
from longloop.envs.react import react
from longloop.isolation import virtualenv
from longloop.types import Message, Outcome, Task, UserError

REPOSITORY = Path(__file__).parents[2]
COMPLETE = react("Done.", "apis.supervisor.complete_task()")
STUBBORN = react(
    "No.", "while True:\n    try:\n        while True:\n            pass\n    except Exception:\n        pass"
)
"""Code that the library's time limit does not end."""
ASK = "from longloop.envs.appworld import AppWorld; AppWorld.tasks('train', AppWorld.Options())"


@pytest.fixture(scope="module")
def python() -> str:
    try:
        return virtualenv.python("appworld", AppWorld)
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def root(python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("appworld")
    built = run(python, str(REPOSITORY / "recipes/appworld/mini.py"), str(folder))
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def world(root: Path):
    table = {"name": "appworld", "data": str(root), "code_seconds": 4, "workers": 2}
    world = build.world(Config.model_validate({"env": table}))
    yield world
    assert world.pool is not None
    world.pool.close()


def run(python: str, *arguments: str, root: Path | None = None) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("APPWORLD_ROOT", "LONGLOOP_DATA")}
    given = {"PYTHONPATH": str(REPOSITORY)} | ({"APPWORLD_ROOT": str(root)} if root else {})
    return subprocess.run([python, "-W", "ignore", *arguments], capture_output=True, text=True, env=kept | given)


def task_of(world: build.Environments, name: str) -> Task:
    return next(task for split in ("train", "dev") for task in world.tasks(split) if task.id == name)


def turns_of(root: Path, name: str) -> list[str]:
    turns = json.loads((root / "data/tasks" / name / "ground_truth/turns.json").read_text())
    return [react(*turn) for turn in turns]


def judged(world: build.Environments, name: str, actions: Sequence[str]) -> Outcome:
    return asyncio.run(play(world.make(), task_of(world, name), Script(actions))).outcome


def failed(outcome: Outcome) -> list[str]:
    return [test["name"] for test in outcome.info["tests"] if not test["passed"]]


def during(
    world: build.Environments, name: str, act: Callable[[Any, Callable[..., Any]], Coroutine[Any, Any, None]]
) -> Outcome:
    """An attempt by hand: `act` gets the environment, and a way to have code run and see what it printed."""

    async def attempt() -> Outcome:
        env = world.make()
        await answered(env.start(task_of(world, name)))

        async def say(code: str) -> str:
            step = await answered(env.step(Message("assistant", react("So.", code))))
            return step.messages[0].content

        await act(env, say)
        return await answered(env.finish())

    return asyncio.run(attempt())


def test_three_tasks_to_a_scenario(world: build.Environments, root: Path):
    train, dev = world.tasks("train"), world.tasks("dev")
    assert [task.id for task in dev] == [f"{name}_{n}" for name in ("chores", "debts") for n in (1, 2, 3)]
    assert {task.scenario for task in train} == {"alarms", "dues", "guests"} and len(train) == 9
    assert {task.scenario for task in train if task.data["difficulty"] == 1} == {"alarms", "guests"}
    with pytest.raises(UserError, match="no tasks in the split 'test_normal'"):
        world.tasks("test_normal")


@pytest.mark.parametrize("split", ["train", "dev"])
def test_experts_pass_every_test_and_idlers_do_not(world: build.Environments, split: str):
    async def attempt(task: Task) -> Played:
        env: Any = world.make()
        return await play(env, task, env.expert(task))

    for task in world.tasks(split):
        played = asyncio.run(attempt(task))
        assert played.turns >= 4
        assert played.outcome.success and played.outcome.reward == 1.0, (task.id, failed(played.outcome))
        assert not judged(world, task.id, []).success


def test_what_idlers_get(world: build.Environments):
    """One test of alarms' four holds when nothing is done (nothing else changed), two when that is called complete."""
    assert judged(world, "alarms_2", []).reward == 1 / 4
    assert judged(world, "alarms_2", [COMPLETE]).reward == 2 / 4
    assert judged(world, "guests_2", []).reward == 1 / 2
    assert judged(world, "guests_2", [COMPLETE]).reward == 1 / 2  # a question without an answer
    guess = react("A guess.", "apis.supervisor.complete_task(answer=3)")
    assert judged(world, "guests_2", [guess]).reward == 1 / 2
    assert judged(world, "guests_2", [guess.replace("3", "'2'")]).success  # two said maybe


def test_half_done_gets_its_share(world: build.Environments, root: Path):
    turns = turns_of(root, "chores_1")
    outcome = judged(world, "chores_1", [*turns[:-2], COMPLETE])  # all but the file's deletion
    assert outcome.reward == 3 / 4 and failed(outcome) == ["The file is gone."]
    outcome = judged(world, "chores_1", turns[:-1])  # cut off before saying so
    assert outcome.reward == 3 / 4 and failed(outcome) == ["The task was completed, without an answer."]
    turns = turns_of(root, "dues_2")
    first = turns[-2].replace("owed.items()", "list(owed.items())[:1]")
    assert first != turns[-2]
    outcome = judged(world, "dues_2", [*turns[:-2], first, COMPLETE])  # one of two was asked
    assert outcome.reward == 3 / 5 and not outcome.success


def test_whoever_does_more_than_was_asked_fails(world: build.Environments, root: Path):
    turns = turns_of(root, "debts_1")
    alarm = react("Also an alarm.", "print(apis.phone.create_alarm(time='05:00', access_token=phone))")
    outcome = judged(world, "debts_1", [*turns[:-1], alarm, turns[-1]])
    assert outcome.reward == 4 / 5 and failed(outcome) == ["Nothing else was changed."]


def test_unsafe_hung_and_malformed_code_is_answered(world: build.Environments, root: Path, tmp_path: Path):
    async def act(env: Any, say: Callable[..., Any]) -> None:
        assert (await say("import subprocess")).endswith("module is not allowed: subprocess.")
        assert "not allowed" in await say(f"import os\nos.system('touch {tmp_path}/a')")
        assert "disabled" in await say(f"print(vars(builtins)['op' + 'en']('{tmp_path}/b', 'w'))")
        assert "timed out after 4 seconds" in await say("kept = 7\nwhile True:\n    pass")
        assert await say("print(kept)") == "7"  # the session goes on
        for code, answer in {
            "raise KeyboardInterrupt": "KeyboardInterrupt",
            "raise SystemExit": "Execution failed",
            "exit()": "not allowed",
            "print(chr(0xd800))": "UnicodeEncodeError",
            "print(": "was never closed",
            "1 / 0": "ZeroDivisionError",
            "apis.phone.fly()": "No API named 'fly'",
            "apis.phone.show_alarms()": "401",
            "input()": "not allowed",
            "": "No code",
            "\x00": "null bytes",
        }.items():
            assert answer in await say(code), code
        for text in ("", "I would rather not.", "```", "Action: look\r\n", "Thought: none\n```python\n"):
            step = await env.step(Message("assistant", text))
            assert not step.done and step.messages[0].content
        for action in turns_of(root, "alarms_1"):  # and it can still be done
            step = await env.step(Message("assistant", action))
        assert step.done

    assert during(world, "alarms_1", act).success
    assert not list(tmp_path.iterdir())


def test_a_killed_trainer_leaves_nothing_that_runs(root: Path):
    """Also while an agent's code runs, when the library has taken `os.kill` and its like from the whole process."""
    trainer = f"""
import asyncio, os
from longloop import build
from longloop.config import Config
from longloop.types import Message
world = build.world(Config.model_validate({{"env": {{"name": "appworld", "data": {str(root)!r}, "workers": 1}}}}))
async def attempt():
    env = world.make()
    await env.start(world.tasks("train")[0])
    asyncio.get_running_loop().call_later(2, lambda: print(*world.pool.pids, flush=True))
    await env.step(Message("assistant", {STUBBORN!r}))
asyncio.run(attempt())
"""
    given = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen([sys.executable, "-c", trainer], stdout=subprocess.PIPE, text=True, env=given)
    assert process.stdout
    worker = int(process.stdout.readline())
    process.kill()
    process.wait()
    ended = select.poll()
    ended.register(os.pidfd_open(worker), select.POLLIN)
    assert ended.poll(30_000)


def test_long_output_is_cut_at_a_line(world: build.Environments):
    async def act(env: Any, say: Callable[..., Any]) -> None:
        seen = await say("for number in range(10_000):\n    print(number)")
        lines = seen.splitlines()
        assert len(seen) < 9100 and lines[:-1] == [str(n) for n in range(len(lines) - 1)]
        left = len("\n".join(map(str, range(10_000)))) - len("\n".join(lines[:-1]))
        assert lines[-1].startswith(f"[{left} more characters")
        assert len(await say("print('long' * 10_000)")) < 9100
        assert await say("print(datetime.datetime.now())") == "2026-05-01 09:00:00"

    during(world, "alarms_1", act)


def test_attempts_at_one_task_in_two_workers_do_not_meet_and_are_the_same(world: build.Environments, root: Path):
    assert world.pool is not None
    task, turns = task_of(world, "debts_2"), turns_of(root, "debts_2")
    looks = react("I look.", "print(phone, apis.supervisor.show_active_task())")  # a token, which is drawn at random

    async def attempts() -> tuple[Played, Played, Played]:
        lazy = play(world.make(), task, Script([turns[0], looks]))
        return tuple(
            await asyncio.gather(lazy, *(play(world.make(), task, Script([turns[0], looks, *turns[1:]])) for _ in "12"))
        )

    lazy, one, other = asyncio.run(attempts())
    assert len(world.pool.pids) == 2
    assert one == other and one.outcome.success and lazy.outcome.reward == 1 / 5
    assert one.messages[: len(lazy.messages)] == lazy.messages


def test_code_that_cannot_be_interrupted_costs_its_worker_and_no_more(world: build.Environments, root: Path):
    """The other worker, which the test before this one has started, plays on."""
    assert world.pool is not None
    pids: list[int] = []

    async def attempt() -> None:
        env = world.make()
        await answered(env.start(task_of(world, "alarms_1")))
        pids.extend(world.pool.pids)
        async with asyncio.timeout(6):  # longer than code may take
            await answered(env.step(Message("assistant", STUBBORN)))

    with pytest.raises(TimeoutError):
        asyncio.run(attempt())
    assert len(set(pids) - set(world.pool.pids)) == 1
    assert judged(world, "alarms_1", turns_of(root, "alarms_1")).success


def test_the_clock_goes_on_and_nothing_is_left_and_data_of_another_version_is_refused(
    python: str, root: Path, tmp_path: Path
):
    """In one process, because to import the library takes most of the time."""
    specs = json.loads((root / "data/tasks/alarms_1/specs.json").read_text())
    old, scratch = tmp_path / "old", tmp_path / "scratch"
    scratch.mkdir()
    (old / "data/datasets").mkdir(parents=True)
    (old / "data/datasets/train.txt").write_text("alarms_1\n")
    (old / "data/tasks/alarms_1").mkdir(parents=True)
    (old / "data/tasks/alarms_1/specs.json").write_text(json.dumps({**specs, "db_version": "0.0.9"}))
    code = f"""
import os, tempfile, time
tempfile.tempdir = {str(scratch)!r}
from longloop.envs.appworld import AppWorld
env = AppWorld(AppWorld.Options())
env.start(AppWorld.tasks("train", AppWorld.Options())[0])
frozen = time.time()
env.finish()
print(frozen, time.time() - os.stat("/proc/self").st_mtime)
AppWorld.tasks("train", AppWorld.Options(data={str(old)!r}))
"""
    said = run(python, "-c", code, root=root)
    frozen, since = map(float, said.stdout.split())
    assert frozen == 1777626000 and abs(since) < 600
    assert not list(scratch.glob("*/experiments/outputs/longloop/tasks/*"))
    refusal = said.stderr.splitlines()[-1]
    assert (
        "is of version 0.0.9, and appworld 0.1.3.post1 needs 0.1.0" in refusal and "appworld download data" in refusal
    )


def test_missing_data_says_where_it_is_looked_for(tmp_path: Path):
    assert "It is not said where AppWorld's data is" in run(sys.executable, "-c", ASK).stderr
    said = run(sys.executable, "-c", ASK, root=tmp_path).stderr
    assert f"{tmp_path} has no AppWorld data" in said and "mini.py" in said


def test_a_python_without_appworld_says_how_to_get_one(tmp_path: Path):
    (tmp_path / "data/tasks").mkdir(parents=True)
    (tmp_path / "data/datasets").mkdir()
    (tmp_path / "data/datasets/train.txt").write_text("")
    without = f"import sys; sys.modules['appworld'] = None; {ASK}"
    assert "`longloop envs install appworld` builds it" in run(sys.executable, "-c", without, root=tmp_path).stderr


def test_the_trainer_never_imports_it():
    assert "appworld" not in sys.modules
