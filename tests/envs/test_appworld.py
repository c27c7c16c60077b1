"""AppWorld for real: its engine, apps and evaluator in processes of their own, on the small world that we build."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from longloop.envs import appworld
from longloop.envs.react import react
from longloop.types import UserError

REPOSITORY = Path(__file__).parents[2]
COMPLETE = react("Done.", "apis.supervisor.complete_task()")
ASK = "from longloop.envs.appworld import AppWorld; AppWorld.tasks('train')"
HOST = """
import json, sys, time
from dataclasses import asdict
from longloop.envs import appworld
from longloop.types import Message, Task
appworld._CODE_SECONDS = 2
pipe, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    call, argument = json.loads(line)
    if call == "tasks":
        answer = [asdict(task) for task in appworld.AppWorld.tasks(**argument)]
    elif call == "expert":
        player = appworld.AppWorld().expert(Task(**argument))
        answer = list(iter(lambda: player.act([]), ""))
    elif call == "start":
        env = appworld.AppWorld()
        answer = [asdict(message) for message in env.start(Task(**argument))]
    elif call == "step":
        answer = asdict(env.step(Message("assistant", argument)))
    elif call == "finish":
        answer = asdict(env.finish())
    elif call == "clock":
        answer = time.time()
    print(json.dumps(answer), file=pipe, flush=True)
"""


@pytest.fixture(scope="module")
def python() -> str:
    """The Python that has AppWorld, its apps unpacked."""
    found = os.environ.get("APPWORLD_PYTHON", sys.executable)
    code = "from importlib.util import find_spec; open(find_spec('appworld').origin[:-11] + 'apps/api_lib.py')"
    if subprocess.run([found, "-c", code], capture_output=True).returncode:
        pytest.skip("no AppWorld: `longloop envs install appworld`, and APPWORLD_PYTHON says where its Python is")
    return found


def run(found: str, *arguments: str, root: Path | None = None) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("APPWORLD_ROOT", "LONGLOOP_DATA")}
    given = {"PYTHONPATH": str(REPOSITORY)} | ({"APPWORLD_ROOT": str(root)} if root else {})
    return subprocess.run([found, "-W", "ignore", *arguments], capture_output=True, text=True, env=kept | given)


class Process:
    """One process with AppWorld in it."""

    def __init__(self, found: str, root: Path) -> None:
        given = {**os.environ, "APPWORLD_ROOT": str(root), "PYTHONPATH": str(REPOSITORY)}
        command = [found, "-W", "ignore", "-c", HOST]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=given
        )

    def __call__(self, call: str, argument: Any = None) -> Any:
        assert self.process.stdin and self.process.stdout
        print(json.dumps([call, argument]), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def task(self, name: str) -> dict[str, Any]:
        split = "dev" if name.startswith(("chores", "debts")) else "train"
        return next(task for task in self("tasks", {"split": split}) if task["id"] == name)

    def step(self, code: str) -> str:
        return self("step", react("So.", code))["messages"][0]["content"]

    def play(self, task: dict[str, Any], actions: list[str]) -> tuple[list[str], dict[str, Any]]:
        """All that was seen, and the verdict."""
        seen = [message["content"] for message in self("start", task)]
        for action in actions:
            step = self("step", action)
            seen += [message["content"] for message in step["messages"]]
            if step["done"]:
                break
        return seen, self("finish")


@pytest.fixture(scope="module")
def root(python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("appworld")
    built = run(python, str(REPOSITORY / "recipes/appworld/mini.py"), str(folder))
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def process(python: str, root: Path):
    process = Process(python, root)
    yield process
    process.process.kill()
    process.process.wait()


def failed(outcome: dict[str, Any]) -> list[str]:
    return [test["name"] for test in outcome["info"]["tests"] if not test["passed"]]


def test_three_tasks_to_a_scenario(process: Process):
    train, dev = process("tasks", {"split": "train"}), process("tasks", {"split": "dev"})
    assert [task["id"] for task in dev] == [f"{name}_{n}" for name in ("chores", "debts") for n in (1, 2, 3)]
    assert {task["scenario"] for task in train} == {"alarms", "dues", "guests"} and len(train) == 9
    easy = process("tasks", {"split": "train", "hardest": 1})
    assert {task["scenario"] for task in easy} == {"alarms", "guests"}
    assert process("tasks", {"split": "test_normal"}) == []


@pytest.mark.parametrize("split", ["train", "dev"])
def test_experts_pass_every_test_and_idlers_do_not(process: Process, split: str):
    for task in process("tasks", {"split": split}):
        turns = process("expert", task)
        assert len(turns) >= 4
        _, outcome = process.play(task, turns)
        assert outcome["success"] and outcome["reward"] == 1.0, (task["id"], failed(outcome))
        assert not process.play(task, [])[1]["success"]


def test_what_idlers_get(process: Process):
    """One test of alarms' four holds when nothing is done (nothing else changed), two when that is called complete."""
    alarms, guests = process.task("alarms_2"), process.task("guests_2")
    assert process.play(alarms, [])[1]["reward"] == 1 / 4
    assert process.play(alarms, [COMPLETE])[1]["reward"] == 2 / 4
    assert process.play(guests, [])[1]["reward"] == 1 / 2
    assert process.play(guests, [COMPLETE])[1]["reward"] == 1 / 2  # a question without an answer
    guess = react("A guess.", "apis.supervisor.complete_task(answer=3)")
    assert process.play(guests, [guess])[1]["reward"] == 1 / 2
    right = react("Two said maybe.", "apis.supervisor.complete_task(answer='2')")
    assert process.play(guests, [right])[1]["success"]


def test_half_done_gets_its_share(process: Process):
    chores, dues = process.task("chores_1"), process.task("dues_2")
    turns = process("expert", chores)
    _, outcome = process.play(chores, [*turns[:-2], COMPLETE])  # all but the file's deletion
    assert outcome["reward"] == 3 / 4 and failed(outcome) == ["The file is gone."]
    _, outcome = process.play(chores, turns[:-1])  # cut off before saying so
    assert outcome["reward"] == 3 / 4 and failed(outcome) == ["The task was completed, without an answer."]
    turns = process("expert", dues)
    first = turns[-2].replace("owed.items()", "list(owed.items())[:1]")
    assert first != turns[-2]
    _, outcome = process.play(dues, [*turns[:-2], first, COMPLETE])
    assert outcome["reward"] == 3 / 5 and not outcome["success"]


def test_whoever_does_more_than_was_asked_fails(process: Process):
    task = process.task("debts_1")
    turns = process("expert", task)
    alarm = react("Also an alarm.", "print(apis.phone.create_alarm(time='05:00', access_token=phone))")
    _, outcome = process.play(task, [*turns[:-1], alarm, turns[-1]])
    assert outcome["reward"] == 4 / 5 and failed(outcome) == ["Nothing else was changed."]


def test_unsafe_hung_and_malformed_code_is_answered(process: Process, tmp_path: Path):
    task = process.task("alarms_1")
    process("start", task)
    assert process.step("import subprocess").endswith("module is not allowed: subprocess.")
    assert "not allowed" in process.step(f"import os\nos.system('touch {tmp_path}/a')")
    assert "disabled" in process.step(f"print(vars(builtins)['op' + 'en']('{tmp_path}/b', 'w'))")
    assert not list(tmp_path.iterdir())
    assert "timed out after 2 seconds" in process.step("kept = 7\nwhile True:\n    pass")
    assert process.step("print(kept)") == "7"  # the session goes on
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
        assert answer in process.step(code), code
    for text in ("", "I would rather not.", "```", "Action: look\r\n", "Thought: none\n```python\n"):
        step = process("step", text)
        assert not step["done"] and step["messages"][0]["content"]
    for action in process("expert", task):  # and it can still be done
        done = process("step", action)["done"]
    assert done and process("finish")["success"]


def test_long_output_is_cut_at_a_line(process: Process):
    process("start", process.task("alarms_1"))
    seen = process.step("for number in range(10_000):\n    print(number)")
    lines = seen.splitlines()
    assert len(seen) < 9100 and lines[:-1] == [str(n) for n in range(len(lines) - 1)]
    total = len("\n".join(map(str, range(10_000))))
    assert lines[-1].startswith(f"[{total - len(chr(10).join(lines[:-1]))} more characters")
    assert len(process.step("print('long' * 10_000)")) < 9100
    process("finish")


def test_the_clock_stands_still_only_during_an_attempt(process: Process):
    process("start", process.task("alarms_1"))
    assert process("clock") == process("clock") == 1777626000  # 2026-05-01 09:00
    process("finish")
    assert abs(process("clock") - time.time()) < 3600


def test_attempts_at_one_task_in_two_processes_do_not_meet_and_are_the_same(process: Process, python: str, root: Path):
    other = Process(python, root)
    task = process.task("debts_2")
    turns = [*process("expert", task)[:1], react("I look.", "print(phone, apis.supervisor.show_active_task())")]
    seen = [process("start", task), *(process("step", turn) for turn in turns)]
    assert [other("start", task), *(other("step", turn) for turn in turns)] == seen
    for action in process("expert", task)[1:]:
        process("step", action)
    assert process("finish")["reward"] == 1.0
    assert other("finish")["reward"] == 1 / 5
    rest = process("expert", task)
    assert process.play(task, rest) == other.play(task, rest)
    other.process.kill()
    other.process.wait()


def test_data_of_another_version_is_refused(python: str, root: Path, tmp_path: Path):
    specs = json.loads((root / "data/tasks/alarms_1/specs.json").read_text())
    (tmp_path / "data/datasets").mkdir(parents=True)
    (tmp_path / "data/datasets/train.txt").write_text("alarms_1\n")
    (tmp_path / "data/tasks/alarms_1").mkdir(parents=True)
    (tmp_path / "data/tasks/alarms_1/specs.json").write_text(json.dumps({**specs, "db_version": "0.0.9"}))
    said = run(python, "-c", ASK, root=tmp_path).stderr
    assert "is of version 0.0.9, and appworld 0.1.3.post1 needs 0.1.0" in said and "appworld download data" in said


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


def test_the_parent_never_imports_it():
    assert "appworld" not in sys.modules
    with pytest.raises(UserError, match="has no AppWorld data"):
        appworld.AppWorld.tasks("train", data="/nowhere")
