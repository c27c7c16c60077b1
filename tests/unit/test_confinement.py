"""Hostile environments in workers: what they do to the trainer, to files and to whoever comes next."""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longloop import api, build, config
from longloop.diagnose.preflight import preflight
from longloop.envs.guess import Guess
from longloop.envs.play import Script, Silent, play
from longloop.isolation import confinement, scratch
from longloop.isolation.pool import Pool, WorkerLost
from longloop.registry import ENVS
from longloop.types import Message, Outcome, UserError
from tests.support.helpers import write_config
from tests.support.hostile import Clumsy, Hostile, Writer
from tests.support.obedient import made, pool
from tests.support.worlds import collect, default, rollouts

TASK = Hostile.tasks("train", None)[0]
needs_landlock = pytest.mark.skipif(not confinement.landlock(), reason="this kernel has no Landlock")
needs_scopes = pytest.mark.skipif(
    confinement.landlock() < 6, reason="this kernel's Landlock knows no scopes (Linux 6.12)"
)


@contextlib.contextmanager
def opened(environment: type = Hostile, size: int = 1, **limits: Any) -> Iterator[Pool]:
    where = pool(environment, size, **limits)
    try:
        yield where
    finally:
        where.close()


async def said(env: Any, *words: str) -> list[str]:
    await env.start(TASK)
    return [(await env.step(Message("assistant", word))).messages[0].content for word in words]


def attacks(where: Pool, *words: str, environment: type = Hostile) -> list[str]:
    """What comes of them, in one attempt."""

    async def attempt() -> list[str]:
        env = made(where, environment)()
        answers = await said(env, *words)
        await env.finish()
        return answers

    return asyncio.run(attempt())


@pytest.fixture(scope="module")
def worker() -> Iterator[Pool]:
    with opened() as where:
        yield where


def refused(where: Pool, *words: str) -> None:
    """All of these attacks."""
    outcomes = dict(zip(words, attacks(where, *words), strict=True))
    assert {word for word, answer in outcomes.items() if not answer.startswith("refused: ")} == set(), outcomes


@needs_landlock
def test_the_trainers_memory_is_out_of_reach(worker: Pool) -> None:
    ways = ("read_memory", "write_memory", "read_variables", "trace", "copy_memory")
    assert attacks(worker, "parent") == [str(os.getpid())], "which is the one that is attacked"
    refused(worker, *(f"{way} {os.getpid()}" for way in ways))


@needs_scopes
def test_the_trainer_cannot_be_signalled(worker: Pool) -> None:
    name = f"longloop-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        ours.bind(f"\0{name}")
        refused(worker, f"signal {os.getpid()}", f"signal_group {os.getpid()}", f"send {name}")


def test_the_trainers_limits_cannot_be_changed(worker: Pool) -> None:
    """RLIMIT_CPU of 0 would be its end."""
    if not confinement.seccomp():
        pytest.skip("this kernel has no seccomp filters, or none is written for this machine")
    refused(worker, f"limit {os.getpid()}")
    assert attacks(worker, "limit 0") == ["done"]


@needs_scopes
def test_workers_are_out_of_each_others_reach() -> None:
    async def beside() -> list[str]:
        (victim,) = await asyncio.create_task(said(made(where, Hostile)(), "pid"))
        return await asyncio.create_task(
            said(made(where, Hostile)(), "pid", f"read_memory {victim}", f"signal {victim}")
        )

    with opened(size=2) as where:
        other, *answers = asyncio.run(beside())
        assert len({*where.pids, int(other)}) == 2 and all(answer.startswith("refused: ") for answer in answers)


@needs_landlock
def test_files_outside_the_temporary_folder_are_read_only(worker: Pool, tmp_path: Path) -> None:
    """Those of a run, the shared memory of the machine, what /proc lets one set."""
    kept = tmp_path / "metrics.jsonl"
    kept.write_text("precious")
    outside = ("append", "remove", "rename", "steal", "link", *(["truncate"] if confinement.landlock() >= 3 else []))
    refused(
        worker,
        *(f"{way} {kept}" for way in outside),
        *(f"write {folder}/new" for folder in (tmp_path, "/dev/shm", tempfile.gettempdir(), Path.home())),
        f"write /proc/{os.getpid()}/oom_score_adj",
    )
    assert [path.name for path in tmp_path.iterdir()] == [kept.name] and kept.read_text() == "precious"


def test_what_an_environment_needs_goes_on_working(worker: Pool) -> None:
    assert attacks(worker, "work", "write /dev/null", "privileges", "child_privileges") == [
        *("-9 True", "done"),
        *("1 0", "1 0"),
    ]


def test_java_writes_to_the_temporary_folder(worker: Pool) -> None:
    if shutil.which("java") is None:
        pytest.skip("there is no java")
    assert attacks(worker, "java") == ["0 True"]


@needs_landlock
def test_a_class_names_where_else_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "cache" / "mine"
    monkeypatch.setattr(Writer, "writes", (str(inside),))
    with opened(Writer) as where:
        words = f"write {inside}/new", f"write {tmp_path}/new"
        first, second = attacks(where, *words, environment=Writer)
    assert first == "done" and (inside / "new").exists() and "refused" in second
    monkeypatch.setattr(Writer, "writes", (str(inside / "new"),))
    with pytest.raises(UserError, match=r"Writer.writes names .*/new, which is no folder and cannot be made: "):
        pool(Writer)


@needs_landlock
def test_whoever_writes_in_the_wrong_place_is_told_where_to(tmp_path: Path) -> None:
    with opened(Clumsy) as where, pytest.raises(Exception, match="Permission denied") as refusal:
        asyncio.run(play(made(where, Clumsy)(), TASK, Script([f"{tmp_path}/notes"])))
    assert "notes' (tests/support/hostile.py:" in str(refusal.value)
    assert str(refusal.value).endswith(
        "in step). In a worker, files can be written only in the temporary folder and in those that the class names in "
        "`writes`"
    )


def test_temporary_files_have_a_quota() -> None:
    with opened(disk=8) as where:
        assert attacks(where, "grow 8", "grow 9") == ["done", "refused: [Errno 27] File too large"]
        for many in ("fill 2", "fill_unseen 6"):
            with pytest.raises(WorkerLost, match=r"temporary files take more than 8 MB, which is env\.worker_disk"):
                attacks(where, many)


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even what no path reaches; a worker's files go when it does, and a killed trainer's with the next pool."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # or the next pool might be another test's
    with opened(episodes=1) as where:
        (folder,) = map(Path, attacks(where, "bury 30"))
        (next_one,) = attacks(where, "bury 1")
        for _ in range(3000):
            if not folder.exists():
                break
            time.sleep(0.02)
        assert not folder.exists() and folder != Path(next_one)
    assert not folder.parent.exists()
    left = Path(tempfile.mkdtemp(prefix="longloop-workers-"))
    (left / "1").mkdir()
    with opened() as other, opened() as another:
        assert not left.exists() and other._folder.exists() and another._folder.exists()


def test_a_folder_that_cannot_be_looked_into_counts_as_too_much(tmp_path: Path) -> None:
    code = "import os, sys; from tests.support.hostile import Hostile; Hostile(None).bury('30')"
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(tmp_path)}, check=True)
    with pytest.raises(OSError, match="too long"):
        scratch.used(tmp_path, (), 1 << 40)
    scratch.remove(tmp_path)
    assert not tmp_path.exists()


def test_what_an_attempt_patches_is_met_by_the_next_one_in_its_process() -> None:
    """And by nobody with env.worker_episodes = 1: docs/reliability.md says so."""

    async def paid(where: Pool, *words: str) -> float:
        env = made(where, Hostile)()
        await said(env, *words)
        return (await env.finish()).reward

    for episodes, met in ((1, 0.0), (2, 0.5)):
        with opened(episodes=episodes) as where:
            assert asyncio.run(paid(where, "patch 0.5")) == 0.5
            assert asyncio.run(paid(where)) == met


WITHOUT_LANDLOCK = """
import os, sys
from longloop.isolation import confinement
from longloop.diagnose.trial import resident
from tests.support.hostile import Hostile

uid, steps = int(sys.argv[1]), sys.argv[2:]
if uid != os.getuid():
    os.setuid(uid)
    confinement._prctl(4, 1)  # becoming someone else makes a process unreadable; that is not what is tested here
confinement.landlock = lambda: 0
trainer = os.getpid()
if "shield" in steps:
    confinement.shield()
    own = open("/proc/self/status").read(), os.listdir("/proc/self/fd"), resident()
    assert "VmHWM:" in own[0] and all(own)  # what we measure of ourselves
worker = os.fork()
if worker:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]))
confinement._prctl(4, 1)  # as a new program does
if "confine" in steps:
    confinement.confine([], 1 << 20)
taken = 0
for attack in ("read_memory", "write_memory", "trace", "copy_memory"):
    try:
        getattr(Hostile(None), attack)(str(trainer))
        taken += 1
    except OSError:
        pass
os._exit(taken)
"""


@pytest.mark.parametrize("uid", {os.getuid(), os.getuid() or 65534})
def test_without_landlock_the_trainers_memory_is_still_out_of_reach(uid: int) -> None:
    """Root's as well, who needs a capability that the worker has dropped."""

    def taken(*steps: str) -> int:
        return subprocess.run([sys.executable, "-c", WITHOUT_LANDLOCK, str(uid), *steps]).returncode

    if not taken():
        pytest.skip("this machine lets no process look into another anyway")
    assert taken() == 4 and taken("confine", "shield") == 0


@pytest.mark.parametrize(
    ("version", "open_"),
    [(0, "write to your files and send signals"), (2, "empty your files and send"), (4, "could send signals"), (6, "")],
)
def test_what_a_kernel_cannot_do_is_said(version: int, open_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement, "landlock", lambda: version)
    monkeypatch.setattr(confinement, "seccomp", lambda: True)
    assert open_ in confinement.unprotected() and bool(open_) == bool(confinement.unprotected())


def paid(make: Any, reward: str) -> tuple[str, float, str]:
    """How an attempt ends that is paid this much."""
    one = collect(rollouts(make, say=[f"pay {reward}"], max_turns=1), [TASK], k=1)[0].trajectories[0]
    return str(one.stop), one.reward, one.error


def test_a_reward_outside_the_declared_range_is_refused(worker: Pool) -> None:
    """Wherever the environment lives; the trainer looks, not the worker."""
    for make in (default(Hostile), made(worker, Hostile)):
        assert paid(make, "1.0") == ("max_turns", 1.0, "")
        for reward in ("555", "-0.1"):
            stop, given, error = paid(make, reward)
            assert (stop, given) == ("env_error", 0.0)
            assert error.endswith(f"finish() returned the reward {reward}, but reward_range says 0 to 1")


def test_experts_trees_and_players_without_a_model_are_held_to_the_range_too() -> None:
    class Generous(Guess):
        def finish(self) -> Any:  # type: ignore[override]
            return Outcome(555.0, True)

    tasks = Guess.tasks("train", Guess.Options())[:1]
    what = rollouts(default(Generous), say=["1"])
    for found in (what.demonstrations(tasks), what.trees(tasks, 2, 1.0, 0)):
        for trajectory in asyncio.run(found)[0].trajectories:
            assert (str(trajectory.stop), trajectory.reward) == ("env_error", 0.0) and "555" in trajectory.error
    with pytest.raises(TypeError, match="returned the reward 555, but reward_range says 0 to 1"):
        asyncio.run(play(Generous(Guess.Options()), tasks[0], Silent()))


def test_without_a_declared_range_any_finite_reward_is_taken() -> None:
    class Free(Hostile):
        reward_range = None  # type: ignore[assignment]

    assert paid(default(Free), "555")[:2] == ("max_turns", 555.0)


@pytest.mark.parametrize("declared", [(1.0, 0.0), (0.0,), 1.0, ("low", "high"), (0.0, float("nan"))])
def test_a_range_that_is_none_is_refused(declared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Writer, "reward_range", declared, raising=False)
    with pytest.raises(UserError, match=r"Writer\.reward_range is .*it must be the lowest and the highest reward"):
        build.world(config.resolve({"env": {"name": "tests.support.hostile:Writer"}}, "test"))


def test_all_environments_that_pay_up_to_one_say_so() -> None:
    declared = {name: getattr(build.named({"name": name}, ENVS, "env"), "reward_range", None) for name in ENVS}
    assert {name for name, one in declared.items() if one is None} == {
        "gymnasium",
        "agent",
        "mcp",
        "openenv",
        "verifiers",
    }
    assert all(one in (None, (0.0, 1.0)) for one in declared.values())


def test_a_run_says_what_its_kernel_leaves_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement, "unprotected", lambda: "This kernel leaves it open.")
    told: list[str] = []
    for isolation in ("inline", "process"):
        parts = api.prepared(
            config.load(write_config(tmp_path), [f"env.isolation={isolation}", "env.workers=1", "doctor=false"])
        )
        asyncio.run(
            preflight(parts.config, parts.world, parts.rollouts, parts.algo, parts.learner, parts.tasks, told.append)
        )
        if parts.world.pool:
            parts.world.pool.close()
    assert told == ["warning (workers): This kernel leaves it open."]
