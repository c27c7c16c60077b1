"""Environments in worker processes: the same as inline, whatever the number of workers, and nothing left behind."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from errands.env import Errands
from longloop.diagnose import trial
from longloop.envs.crossroads import Crossroads
from longloop.envs.guess import Guess
from longloop.isolation.pool import _BEGIN, _PACKAGE, Pool, Use, WorkerLost
from longloop.isolation.worker import packed
from longloop.types import Action, Call, Message, Step, StopReason, UserError
from tests.support.obedient import Fatal, Obedient, Picky, Rowdy, made, plain, pool, script
from tests.support.worlds import collect, default, rollouts

TASKS = Obedient.tasks("train")


@pytest.fixture
def workers():
    """Pools that are closed at the end."""
    pools: list[Pool] = []

    def make(*arguments: Any, **options: Any) -> Pool:
        pools.append(pool(*arguments, **options))
        return pools[-1]

    yield make
    for one in pools:
        one.close()


def wait_until(true: Callable[[], Any], what: str) -> None:
    """Two minutes, if need be: the watch over workers rests for ten times as long as a look took."""
    end = time.monotonic() + 120
    while not true():
        if time.monotonic() > end:
            pytest.fail(f"{what} does not come true")
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Also a zombie is."""
    return Path(f"/proc/{pid}").exists()


def answers(where: Pool, *words: str) -> list[str]:
    """What the environment answers to words, in one attempt."""

    async def attempt() -> list[str]:
        env = made(where)()
        await env.start(TASKS[0])
        said = [(await env.step(Message("assistant", word))).messages[0].content for word in words]
        await env.finish()
        return said

    return asyncio.run(attempt())


GAMES: list[tuple[type, Any]] = [
    (Obedient, script({})),
    (Guess, lambda session, turn: str(sum(map(ord, session)) % 7 + turn)),
    (Crossroads, lambda session, turn: "lr"[(sum(map(ord, session)) + turn) % 2]),
    (Errands, lambda session, turn: ["print(apis.docs.list_apps())", "1 / 0", "apis.owner.complete_task()"][turn % 3]),
]


@pytest.mark.parametrize(("environment", "say"), GAMES, ids=lambda value: getattr(value, "__name__", ""))
def test_attempts_in_workers_equal_attempts_inline(workers: Any, environment: Any, say: Any) -> None:
    tasks = environment.tasks("train", environment.Options())[:3]
    inline = collect(rollouts(default(environment), say=say, max_turns=4), tasks, k=4)
    isolated = collect(rollouts(made(workers(environment), environment), say=say, max_turns=4), tasks, k=4)
    assert plain(isolated) == plain(inline)
    assert all(t.stop.scored and t.turns for group in inline for t in group.trajectories)


@pytest.mark.parametrize("environment", [Guess, Obedient])
def test_experts_play_beside_their_environment(workers: Any, environment: Any) -> None:
    tasks = environment.tasks("train", environment.Options())[:2]
    inline = asyncio.run(rollouts(default(environment)).demonstrations(tasks))
    isolated = asyncio.run(rollouts(made(workers(environment, 1), environment)).demonstrations(tasks))
    assert plain(isolated) == plain(inline)
    assert all(group.trajectories[0].success for group in inline)


def test_experts_play_in_all_workers_at_once(workers: Any) -> None:
    where = workers(Guess, 2)
    asyncio.run(rollouts(made(where, Guess)).demonstrations(Guess.tasks("train", Guess.Options())[:4]))
    assert len(where.pids) == 2


def test_a_tree_of_copies_grows_in_one_worker(workers: Any) -> None:
    say = GAMES[1][1]
    tasks = Guess.tasks("train", Guess.Options())[:3]
    inline = asyncio.run(rollouts(default(Guess), say=say).trees(tasks, 6, 1.0, 0))
    where = workers(Guess, 1)
    isolated = asyncio.run(asyncio.wait_for(rollouts(made(where, Guess), say=say).trees(tasks, 6, 1.0, 0), 60))
    assert plain(isolated) == plain(inline) and len(inline[0].trajectories) > 1
    assert len(where.pids) == 1


def test_all_who_need_no_model_play_with_a_single_worker(workers: Any) -> None:
    where = workers(size=1)
    played = asyncio.run(asyncio.wait_for(trial.scores(made(where), TASKS[:2]), 60))
    assert {name: score.rewards for name, score in played.items()} == {
        "expert": [27 / 29, 28 / 29],
        "nothing": [0.0, 1 / 29],
        "zero": [0.0, 1 / 29],
        "one": [3 / 29, 4 / 29],
    }
    assert not asyncio.run(trial.difference(made(where), TASKS[0])) and len(where.pids) == 1


def test_players_who_break_their_environment_do_not_keep_its_worker(workers: Any) -> None:
    """There is one worker: who kept it would have the next one wait for ever."""
    where = workers(Rowdy, 1)
    played = asyncio.run(asyncio.wait_for(trial.scores(made(where, Rowdy), TASKS[:2], patience=5.0), 120))
    assert all(list(score.errors.values()) in ([], [["train-0", "train-1"]]) for score in played.values())
    errors = {name: next(iter(score.errors)) for name, score in played.items() if score.errors}
    assert errors["raises"].startswith("ValueError: no (tests/support/obedient.py:")
    assert errors["hangs"] == "it came to no end in 5 s"
    assert errors.keys() == {"raises", "hangs", "dies"} and "killed by signal 9" in errors["dies"]
    assert played["one"].rewards == [3 / 29, 4 / 29] and played["expert"].rewards == [27 / 29, 28 / 29]


def test_sixteen_attempts_share_one_worker_and_waiting_is_not_counted(workers: Any) -> None:
    """Together they take far longer than an episode may."""
    where = workers(size=1, options={"late": 0.5})
    what = rollouts(
        made(where), say=["late 0", "add 1"], seconds=6.0, step_seconds=6.0, straggler_cutoff=1.0, concurrency=16
    )
    began = time.monotonic()
    stops = [t.stop for group in collect(what, TASKS[:2], k=8) for t in group.trajectories]
    assert stops == [StopReason.FINISHED] * 16
    assert time.monotonic() - began > 6.0, "otherwise this shows nothing"
    assert len(where.pids) == 1


def test_a_cancelled_attempt_gives_its_worker_back(workers: Any) -> None:
    """Cancelled in a step, between steps, and while it waits; the next attempt finds a worker each time."""
    where = workers(size=1)

    async def attempt(hangs: bool, there: asyncio.Event) -> None:
        env = made(where)()
        await env.start(TASKS[0])
        await env.step(Message("assistant", "add 1"))
        there.set()
        if hangs:
            await env.step(Message("assistant", "hang"))
        await asyncio.Event().wait()

    async def cancelled() -> None:
        for hangs in (True, False):
            there, never = asyncio.Event(), asyncio.Event()
            first = asyncio.create_task(attempt(hangs, there))
            await asyncio.wait_for(there.wait(), 60)
            second = asyncio.create_task(attempt(hangs, never))
            await asyncio.sleep(0.1)
            second.cancel()
            first.cancel()
            await asyncio.gather(first, second, return_exceptions=True)
            env = made(where)()
            assert len(await asyncio.wait_for(env.start(TASKS[0]), 60)) == 1 and not never.is_set()
            await env.finish()

    asyncio.run(cancelled())
    assert len(where.pids) == 1


def test_what_was_left_open_in_an_event_loop_that_is_over_does_not_keep_its_worker(workers: Any) -> None:
    where = workers(size=1)

    async def left_open() -> int:
        env = made(where)()
        await env.start(TASKS[0])
        return int((await env.step(Message("assistant", "say pid"))).messages[0].content)

    pids = [asyncio.run(left_open()) for _ in range(3)]
    assert len(set(pids)) == 3 and where.pids == pids[2:]


def test_a_straggler_is_given_up_and_its_worker_replaced(workers: Any) -> None:
    where = workers()

    def say(session: str, turn: int) -> str:
        return f"hang {'on ' * 50}" if session.endswith("/1") else "add 1"

    group = collect(rollouts(made(where), say=say, straggler_cutoff=0.75, min_scored=3), TASKS[:1], k=4)[0]
    assert group.trajectories[1].stop is StopReason.CANCELLED
    assert [t.stop for t in group.scored] == [StopReason.FINISHED] * 3
    assert answers(where, "add 4") == ["4"]


def test_errors_read_as_they_do_inline(workers: Any) -> None:
    for word in ("raise boom", "exit bye", "nonsense"):
        inline, isolated = (
            collect(rollouts(make, say=[word]), TASKS[:1], k=1)[0].trajectories[0]
            for make in (default(Obedient), made(workers(size=1)))
        )
        assert isolated.stop is StopReason.ENV_ERROR and isolated.error == inline.error
    assert isolated.error.startswith("step() raised AttributeError: 'Obedient' object has no attribute '_nonsense' (")


def test_a_class_that_cannot_be_made(workers: Any) -> None:
    one = collect(rollouts(made(workers(Picky), Picky)), TASKS[:1], k=1)[0].trajectories[0]
    assert (one.stop, one.error) == (StopReason.ENV_ERROR, "the constructor raised UserError: no licence")
    one = collect(rollouts(made(workers(Fatal), Fatal)), TASKS[:1], k=1)[0].trajectories[0]
    assert one.error.endswith("WorkerLost: the worker ended with code 3; its last words: out of luck")
    with pytest.raises(UserError, match="there is no data"):
        workers(Picky).tasks("train")
    with pytest.raises(UserError, match=r"obedient:Fatal does not run in a worker: .* killed by signal 11"):
        workers(Fatal).tasks("train")


def test_what_is_printed_goes_to_the_log(workers: Any) -> None:
    assert answers(workers(), "print x", "add 2", "print y") == ["0", "2", "2"]


def test_variables_are_scrubbed(workers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("A_SECRET", "LONGLOOP_TOKEN", "WANTED", "LONGLOOP_DATA"):
        monkeypatch.setenv(name, "x")
    (seen,) = answers(workers(), "say variables")
    assert "WANTED" in seen and "LONGLOOP_DATA" in seen and "PATH" in seen
    assert "A_SECRET" not in seen and "LONGLOOP_TOKEN" not in seen


def test_a_worker_is_reused_and_replaced_after_so_many_attempts(workers: Any) -> None:
    where = workers(size=1, episodes=3)
    pids = [answers(where, "say pid")[0] for _ in range(7)]
    assert len(set(pids)) == 3 and pids[:3] == pids[:1] * 3 and pids[3:6] == pids[3:4] * 3
    wait_until(lambda: not any(alive(int(pid)) for pid in pids[:6]), "the end of the old ones")


def test_a_worker_that_has_grown_is_replaced(workers: Any) -> None:
    """In the middle of an attempt when it has all that it may have; after the attempt when it has half of it."""
    with pytest.raises(WorkerLost, match=r"the worker used \d+ MB and env.worker_memory is 200"):
        answers(workers(memory=200), "hoard 230", "hang")
    where = workers(size=1, memory=200, options={"late": 1.0})
    first = answers(where, "say pid", "hoard 110", "late 0")[0]
    second = answers(where, "say pid", "hoard 1", "late 0")[0]
    assert first != second == answers(where, "say pid")[0]
    where = workers(size=1, memory=200)
    where._watching = threading.current_thread()  # nobody looks meanwhile
    assert answers(where, "say pid", "hoard 110")[0] != answers(where, "say pid")[0]


def test_a_worker_that_is_just_being_started_is_not_killed_for_the_trainers_memory(
    workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it runs its own program it looks as big as whoever starts it."""
    where = workers(memory=100)
    where._watching = threading.current_thread()  # nobody else looks
    born: list[Any] = []

    def starting(groups: set[int]) -> dict[int, Use]:
        """One is started meanwhile, and what was seen of it is of no use."""
        nothing = dict.fromkeys(groups, Use())
        if threading.current_thread() is not where._watching:
            return nothing  # another test's pool looks
        if not born:
            born.append(where.spawned())
        return nothing | {born[0].pid: Use(bytes=1 << 40)}

    monkeypatch.setattr("longloop.isolation.pool.use_by_group", starting)
    asyncio.run(_ready(where))
    where.look()
    (mine,) = (worker for worker in where._workers if worker is not born[0])
    assert not born[0].big and not mine.big
    where.look()
    assert born[0].big and not born[0].gone(), "one look may still be wrong"
    where.look()
    with pytest.raises(WorkerLost, match="used 1048576 MB"):
        asyncio.run(born[0].call("new", int))


async def _ready(where: Pool) -> None:
    env = made(where)()
    await env.ready()
    await env.finish()


def test_an_attempt_may_use_so_much_cpu(workers: Any) -> None:
    with pytest.raises(WorkerLost, match=r"the attempt used \d+ s of CPU and env.worker_cpu is 1"):
        answers(workers(cpu=1.0), "burn")


def test_a_frame_holds_what_a_step_holds() -> None:
    """The fields of steps, messages and calls, as `asdict` gives them; of other objects, none are guessed."""
    call = Call("1", "guess", '{"n": 2}', "<tool_call>")
    step = Step([Message("tool", "näher", call="1"), Action("assistant", "", (call,), "", "length", 7, 9)], 0.5, True)
    for value in (step, list(step.messages)):
        frame = packed({"id": 1, "value": value})
        plain = asdict(value) if isinstance(value, Step) else [asdict(message) for message in value]
        assert json.loads(frame[4:]) == json.loads(json.dumps({"id": 1, "value": plain}))
        assert int.from_bytes(frame[:4]) == len(frame) - 4
    with pytest.raises(TypeError, match="Path is no JSON value"):
        packed({"value": Path("x")})


def test_protocol_by_hand() -> None:
    """Frames as docs/reliability.md describes them, and an end with the pipe."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-c", _BEGIN, str(_PACKAGE), str(_PACKAGE.parent), str(theirs.fileno()), str(1 << 20)]
    process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), start_new_session=True, stdout=subprocess.DEVNULL)
    theirs.close()
    ours.settimeout(60)

    def ask(**request: Any) -> Any:
        body = json.dumps(request).encode()
        ours.sendall(len(body).to_bytes(4, "big") + body)
        size = int.from_bytes(ours.recv(4, socket.MSG_WAITALL), "big")
        return json.loads(ours.recv(size, socket.MSG_WAITALL))

    load = {"environment": "tests.support.obedient:Obedient", "options": {}, "path": sys.path, "data_limit": 1 << 33}
    assert ask(id=1, call="load", **load) == {"id": 1, "value": None}
    task = ask(id=2, call="tasks", split="train")["value"][5]
    assert task == {"id": "train-5", "split": "train", "data": {"first": 5}, "scenario": ""}
    assert ask(id=3, call="new") == {"id": 3, "value": 1}
    more = {"calls": [], "call": ""}
    opening = {"role": "user", "content": "add to 2"} | more
    action = {"role": "assistant", "content": "add 4"}
    assert ask(id=4, call="start", env=1, task=task) == {"id": 4, "value": [opening]}
    step = ask(id=5, call="step", env=1, action=action)["value"]
    wanted = {"messages": [{"role": "user", "content": "6"} | more], "reward": 0.0, "done": False, "info": {"sum": 6}}
    assert step == wanted | {"rebuild": False, "thread": "", "tools": [], "stop": [], "max_tokens": 0}
    error = ask(id=6, call="step", env=1, action=action | {"content": "raise boom"})
    assert error["error"] == "ValueError" and re.fullmatch(r"boom \(.*obedient.py:\d+, in _raise\)", error["text"])
    assert ask(id=7, call="fork", env=1)["value"] == 2
    assert ask(id=8, call="expert", env=2, task=task)["value"] == 3
    assert ask(id=9, call="baselines", env=2, task=task)["value"] == {"zero": 4, "one": 5}
    assert ask(id=10, call="act", player=5, messages=[opening]) == {"id": 10, "value": "add 1"}
    outcome = {"reward": 6 / 29, "success": False, "info": {"pid": 0}}
    assert ask(id=11, call="finish", env=1) == {"id": 11, "value": outcome}
    assert ask(id=12, call="step", env=1, action=action)["error"] == "KeyError"
    ours.close()
    assert process.wait(60) == -signal.SIGKILL, "by its own hand, with all that it has started"


def test_a_call_that_does_not_exist_ends_the_worker(workers: Any) -> None:
    async def ask() -> None:
        worker, _ = await workers().new()
        await worker.call("_kept", lambda value: value)

    with pytest.raises(WorkerLost, match="ended with code 1; its last words: ValueError: no such call: '_kept'"):
        asyncio.run(ask())


@pytest.mark.parametrize("answer", [{}, {"id": 2}, [], {"id": 2, "value": {"messages": [1], "done": True}}])
def test_an_answer_that_makes_no_sense_ends_the_worker(answer: Any, tmp_path: Path) -> None:
    """Frames all of them, but not answers."""
    from longloop.isolation.pool import LocalWorker
    from longloop.isolation.proxy import _step

    async def ask() -> None:
        worker = LocalWorker(sys.executable, os.environ, tmp_path)
        worker._pipe.close()
        worker._pipe, theirs = socket.socketpair()
        worker._pipe.setblocking(False)
        worker._requests = 1
        theirs.sendall(packed(answer))
        try:
            await worker.call("step", _step)
        finally:
            assert worker.gone(30)

    with pytest.raises(WorkerLost, match="makes no sense"):
        asyncio.run(asyncio.wait_for(ask(), 60))


TRAINER = """
import asyncio, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs these tests in the background has it ignored
from longloop.types import Message
from tests.support.obedient import Obedient, made, pool

async def attempt():
    env = made(where)()
    await env.start(Obedient.tasks("train")[0])
    told = await env.step(Message("assistant", "spawn"))
    with open(sys.argv[1], "w") as file:
        file.write(told.messages[0].content)
    if sys.argv[2] == "idle":
        await asyncio.sleep(3600)
    await env.step(Message("assistant", "hang"))

where = pool()
asyncio.run(attempt())
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("when", ["in a step", "idle"])
def test_workers_die_with_the_trainer(how: signal.Signals, when: str, tmp_path: Path) -> None:
    """With a child that a worker has started."""
    file = tmp_path / "pids"
    trainer = subprocess.Popen([sys.executable, "-c", TRAINER, str(file), when], stderr=subprocess.DEVNULL)
    wait_until(lambda: file.exists() and file.read_text(), "the worker's note")
    pids = [int(pid) for pid in file.read_text().split()]
    assert len(pids) == 2 and all(map(alive, pids))
    trainer.send_signal(how)
    trainer.wait(60)
    wait_until(lambda: not any(map(_runs, pids)), "the end of the worker and its child")


def _runs(pid: int) -> bool:
    """Whoever inherits an orphan in this container may be slow to bury it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_forgotten_pool_ends_its_workers() -> None:
    where = pool()
    (pid,) = map(int, answers(where, "say pid"))
    assert where.pids == [pid]
    del where
    wait_until(lambda: not alive(pid), "the end of the worker")


def test_a_look_that_fails_is_not_the_last(workers: Any) -> None:
    """A machine that has no files left for the watch still has limits when it has some again. Each time it is told, if
    anybody hears it."""
    looks, told = list[str](), list[str]()

    def fails() -> None:
        looks.append("failed")
        raise OSError(24, "Too many open files", f"/proc/{len(looks)}")

    def looked() -> None:
        looks.append("looked")

    def deaf(text: str) -> None:
        told.append(text)
        raise BrokenPipeError

    where = workers(size=1)
    where.look = looked
    where.spawned()
    for hears in (told.append, deaf, told.append):
        where.tell, where.look = hears, fails
        before = len(looks)
        wait_until(lambda: looks[before:].count("failed") > 1, "the second look that fails")  # noqa: B023
        where.look = looked
        wait_until(lambda: looks[-1] == "looked", "a look that does not fail")
    assert [text for text in told if "not watched" in text and "Too many open files" in text] == told and len(told) == 3
