"""OpenEnv by its wire: servers made with the real package, as processes of their own."""

import asyncio
import signal
import subprocess
import sys
import urllib.error
from pathlib import Path
from types import SimpleNamespace

import pytest

from longloop import build, config
from longloop.diagnose.trial import violations
from longloop.envs import openenv
from longloop.envs.calls import called
from longloop.envs.openenv import _text_field
from longloop.envs.play import Played, Script, play
from longloop.types import Fault, Step, StopReason, Task, UserError

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-agents" / "openenv" / "bin" / "python"
SERVERS = ROOT / "tests" / "support" / "openenv" / "servers.py"


def world(**options: object) -> build.Environments:
    return build.world(config.Config.model_validate({"env": {"name": "openenv", "workers": 1, **options}}))


@pytest.fixture(scope="module")
def addresses():
    """Those of the guessing game, the walk and the notes."""
    if not PYTHON.is_file():
        pytest.skip("needs OpenEnv's own package, in .venv-agents/openenv (make test-all)")
    process = subprocess.Popen([str(PYTHON), str(SERVERS)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ports = process.stdout.readline().split()
        found = [f"http://127.0.0.1:{port}" for port in ports]
        try:
            world(url=found[0]).tasks("train")
        except UserError as error:
            pytest.skip(str(error))
        yield found
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def guess(addresses) -> build.Environments:
    return world(url=addresses[0], shown=["text"])


def played(place: build.Environments, number: int, *actions: str) -> Played:
    return asyncio.run(play(place.make(), place.tasks("train")[number], Script(actions)))


def opened(place: build.Environments) -> Step:
    async def step() -> Step:
        env = place.make()
        await env.ready()
        first = Step.of(await env.start(place.tasks("train")[0]))
        await env.finish()
        return first

    return asyncio.run(step())


def test_words_are_the_action_where_it_has_one_text(guess, addresses):
    won = played(guess, 1, "3", "2", "never said")
    assert [one.content for one in won.messages] == ["guess 1-3", "3", "higher or lower", "2", "right"]
    assert (won.turns, won.outcome.reward, won.outcome.success) == (2, pytest.approx(0.9), False)
    last = world(url=addresses[0], reward="last", about="Say a number.")
    won = played(last, 1, "3", "2")
    assert (won.outcome.reward, won.outcome.success) == (1.0, True)
    assert [one.content for one in won.messages[:2]] == ["Say a number.", '{"text": "guess 1-3", "turn": 0}']
    assert played(last, 1).outcome.reward == 0.0 and played(last, 1, "3").outcome.reward == -0.1


def test_tasks_that_the_server_lists(guess):
    assert guess.tasks("train")[2] == Task("train/2", "train", {"split": "train", "index": 2})
    assert [len(guess.tasks(split)) for split in ("train", "validation")] == [3, 1]
    with pytest.raises(UserError, match="no tasks in the split 'test'"):
        guess.tasks("test")


def test_an_action_with_fields_is_a_tool(addresses):
    place = world(url=addresses[1], shown=["text"], count=2)
    assert [task.data for task in place.tasks("dev")] == [{"seed": 1_000_000}, {"seed": 1_000_001}]
    (tool,) = opened(place).tools
    assert tool["function"]["name"] == "act" and tool["function"]["description"] == "Go somewhere."
    assert tool["function"]["parameters"]["required"] == ["right", "down"]
    assert list(tool["function"]["parameters"]["properties"]) == ["right", "down"]
    walk = [called("act", {"right": right, "down": down}) for right, down in ((1, 2), (1, 0), (0, 0))]
    odd = ["Hello.", called("fly", {}), called("act", {"right": "east", "down": 0})]
    done = played(place, 0, *odd, "\n".join(walk))
    heard = [one.content for one in done.messages if one.role != "assistant"]
    assert heard[:3] == ["You stand at [0, 0].", "Error: call a tool", "Error: there is no tool 'fly'"]
    assert heard[3].startswith("Error: right: Input should be a valid integer")
    assert heard[4:] == [f"You stand at [{x}, 2]." for x in (1, 2, 2)]
    assert done.outcome.reward == 2.0, "two of the three calls were paid"


def test_tools_of_an_environment(addresses):
    place = world(url=addresses[2], count=1)
    first = opened(place)
    assert [tool["function"]["name"] for tool in first.tools] == ["write", "read"]
    assert first.tools[0]["function"]["parameters"]["required"] == ["name", "text"]
    assert first.messages[0].content == "Write a note, then read it."
    write, read = called("write", {"name": "a", "text": "milk"}), called("read", {"name": "a"})
    done = played(place, 0, read, write, f"{read}\n{write}", "never said")
    heard = [one.content for one in done.messages if one.role == "tool"]
    assert "execution_error" in heard[0] and heard[1:] == ["written", "milk"], "the end comes before the last call"
    assert (done.turns, done.outcome.reward, done.outcome.success) == (3, 1.0, True)


def test_tasks_of_a_file_are_what_reset_is_given(addresses, tmp_path):
    (tmp_path / "tasks.jsonl").write_text('{"id": "x", "split": "train", "data": {"index": 1}}\n')
    assert played(world(url=addresses[0], tasks=str(tmp_path / "tasks.jsonl")), 0, "2").outcome.success


def test_a_server_of_its_own_and_what_fails_is_no_reward(addresses):
    """Each worker starts one. An error in the environment, and its death, cost the attempt."""
    place = world(command=[str(PYTHON), str(SERVERS), "{port}"])
    assert played(place, 0, "1").outcome.success
    for said, what in (("crash", "the dice are lost"), ("die", "closed the connection")):
        with pytest.raises(Fault, match=what) as raised:
            asyncio.run(play(place.guarded(60)(), place.tasks("train")[0], Script([said])))
        assert raised.value.stop is StopReason.ENV_ERROR


def test_it_keeps_the_contract(guess):
    assert asyncio.run(violations(guess.guarded(60), guess.tasks("train")[0])) == []


def test_a_server_that_is_full_says_so(addresses):
    async def two() -> None:
        place = world(url=addresses[1], workers=2, count=1)
        first, second = place.make(), place.make()
        await first.ready()
        await first.start(place.tasks("train")[0])
        await second.ready()
        try:
            await second.start(place.tasks("train")[0])
        finally:
            await second.finish()
            await first.finish()

    with pytest.raises(Exception, match=r"set env\.workers"):
        asyncio.run(two())


def test_a_server_that_never_answers_is_killed(monkeypatch):
    begun = []
    monkeypatch.setattr(openenv, "_PATIENCE", 0.2)
    popen = SimpleNamespace(Popen=lambda *arguments: begun.append(subprocess.Popen(*arguments)) or begun[-1])
    monkeypatch.setattr(openenv, "subprocess", popen)
    with pytest.raises(UserError, match="no OpenEnv server"):
        openenv._started("", ("sleep", "{port}"))
    (process,) = begun
    assert process.returncode == -signal.SIGKILL


def test_a_server_that_was_started_ends_as_its_process_exits(tmp_path):
    """Also in the process of longloop itself, with isolation=inline."""
    (tmp_path / "health").write_text("{}")
    code = "import sys; from longloop.envs import openenv; print('at', openenv._started('', tuple(sys.argv[1:])).url)"
    command = [sys.executable, "-u", "-m", "http.server", "{port}", "--bind", "127.0.0.1", "-d", str(tmp_path)]
    with (tmp_path / "output").open("w") as output:
        subprocess.run([sys.executable, "-c", code, *command], stdout=output, stderr=output, cwd=ROOT, check=True)
    (url,) = (line[3:] for line in (tmp_path / "output").read_text().splitlines() if line.startswith("at "))
    with pytest.raises(urllib.error.URLError, match="refused"):
        openenv._Server(url).get("/health")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "either by `url` or by `command`"),
        ({"command": ["python3", "server.py"]}, "write {port}"),
        ({"command": ["no-such-program", "{port}"]}, "on the PATH"),
        ({"command": ["false", "{port}"]}, "ended with code 1"),
        ({"url": "http://127.0.0.1:9"}, "no OpenEnv server"),
    ],
)
def test_bad_options_are_refused(addresses, options, complaint):
    with pytest.raises(UserError, match=complaint):
        world(**options).tasks("train")


@pytest.mark.parametrize(
    ("fields", "required", "found"),
    [
        ({"message": "string"}, [], "message"),
        ({"code": "string", "seconds": "integer"}, ["code"], "code"),
        ({"code": "string", "seconds": "integer"}, [], None),
        ({"row": "integer"}, ["row"], None),
        ({"a": "string", "b": "string"}, ["a", "b"], None),
    ],
)
def test_which_field_is_what_the_agent_says(fields, required, found):
    properties = {name: {"type": kind} for name, kind in fields.items()} | {"metadata": {"type": "object"}}
    assert _text_field({"properties": properties, "required": required}) == found
