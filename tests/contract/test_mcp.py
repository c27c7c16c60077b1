"""Tools of MCP servers: the real package on both sides, with a server of ours as a process of its own."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from longloop import build, config
from longloop.diagnose.trial import scores
from longloop.envs.calls import called
from longloop.envs.play import Played, Script, play
from longloop.isolation import virtualenv
from longloop.types import Fault, Step, StopReason, UserError

NOTES = Path(__file__).parents[1] / "support" / "notes"
SERVER = ["python", str(NOTES / "server.py")]


def world(**options: object) -> build.Environments:
    given = {
        "servers": {"notes": SERVER},
        "tasks": str(NOTES / "tasks.jsonl"),
        "judge": "judging:score",
        "folder": str(NOTES / "folder"),
    }
    return build.world(config.Config.model_validate({"env": {"name": "mcp", **given, **options}}))


@pytest.fixture(scope="module", autouse=True)
def installed():
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(NOTES)  # where the judge is found
        try:
            world().tasks("dev")
        except UserError as error:
            pytest.skip(str(error))
        yield


@pytest.fixture(scope="module")
def place() -> build.Environments:
    return world()


def played(place: build.Environments, task: int, *actions: str) -> Played:
    return asyncio.run(play(place.make(), place.tasks("train")[task], Script(actions)))


def test_experts_where_tasks_have_references(place):
    env, task = place.make(), place.tasks("train")[1]
    assert asyncio.run(play(env, task, env.expert(task))).outcome.success
    found = asyncio.run(scores(place.guarded(60), place.tasks("dev")))
    assert list(found) == ["nothing", "words"], "this task has no reference"
    assert found["nothing"].reward == found["words"].reward == 0.0


def test_calls_answers_and_mistakes(place):
    write = called("write_note", {"name": "monday", "text": "milk, eggs"})
    both = f"{called('list_notes', {})}\n{write}"
    odd = [called("fly", {}), called("read_note", {"name": "none"}), called("write_note", {"name": "x"})]
    done = played(place, 0, *odd, both, "Done.")
    answers = [message for message in done.messages if message.role == "tool"]
    assert [answer.content for answer in (answers[0], *answers[3:])] == [
        "Error: there is no tool 'fly'",
        "phone, shopping",
        "written",
    ]
    assert all(answer.content.startswith("Error: ") for answer in answers[1:3])
    assert done.outcome.success and done.turns == 5
    assert sorted(path.name for path in (NOTES / "folder").iterdir()) == ["phone", "shopping"], "a copy was written to"


def test_what_the_agent_is_told(place):
    async def opened() -> Step:
        env = world(servers={"one": SERVER, "two": SERVER}, about="Be quick.").make()
        await env.ready()
        step = Step.of(await env.start(place.tasks("train")[1]))
        await env.finish()
        return step

    step = asyncio.run(opened())
    assert [message.content for message in step.messages] == ["Be quick.", "What is Ada's number? Say only the number."]
    tools = {tool["function"]["name"]: tool["function"] for tool in step.tools}
    names = ("list_notes", "read_note", "write_note", "end")
    assert list(tools) == [f"{server}__{name}" for server in ("one", "two") for name in names]
    assert tools["one__read_note"]["description"] == "Read a note."
    assert tools["two__write_note"]["parameters"]["required"] == ["name", "text"]


def test_a_server_that_ends_is_no_reward(place):
    env, task = place.guarded(30)(), place.tasks("train")[0]
    with pytest.raises(Fault, match="the MCP server has ended") as raised:
        asyncio.run(play(env, task, Script([called("list_notes", {}), called("end", {}), "Done."])))
    assert raised.value.stop is StopReason.ENV_ERROR


def test_a_server_at_an_address(place):
    """It serves all attempts, and its folder is its own."""
    python = str(virtualenv.folder_of("mcp") / "bin" / "python")
    code = (
        "import socket, sys; sys.path.insert(0, sys.argv[1]); from server import server\n"
        "s = socket.socket(); s.bind(('127.0.0.1', 0)); port = s.getsockname()[1]; s.close(); print(port, flush=True)\n"
        "server.run('streamable-http', host='127.0.0.1', port=port)"
    )
    process = subprocess.Popen(
        [python, "-c", code, str(NOTES)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=NOTES / "folder",
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        port = int(process.stdout.readline())
        while "running on" not in process.stderr.readline():
            assert process.poll() is None
        there = world(servers={"notes": f"http://127.0.0.1:{port}/mcp"})
        assert played(there, 1, called("read_note", {"name": "phone"}), "12").outcome.success
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"servers": {}}, "must be set"),
        ({"servers": {"x": ["no-such-program"]}}, "on the PATH"),
        ({"judge": "judging:nobody"}, "env.judge"),
        ({"tasks": "nowhere.jsonl"}, "Cannot read the tasks"),
    ],
)
def test_bad_options_are_refused(options, complaint):
    with pytest.raises(UserError, match=complaint):
        world(**options).tasks("train")


def test_a_task_without_an_instruction_is_refused(tmp_path):
    (tmp_path / "tasks.jsonl").write_text(json.dumps({"id": "1", "split": "train", "data": {}}))
    with pytest.raises(UserError, match='no "instruction"'):
        world(tasks=str(tmp_path / "tasks.jsonl")).tasks("train")


def test_a_server_that_does_not_start_is_named(place):
    broken = world(servers={"broken": [sys.executable, "-c", "raise SystemExit(1)"]})
    with pytest.raises(Fault, match="the MCP server 'broken' could not be reached"):
        asyncio.run(play(broken.guarded(60)(), broken.tasks("train")[0], Script([])))
