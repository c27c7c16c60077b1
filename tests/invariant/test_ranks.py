"""Several ranks, in real processes that Ray starts: the run of one rank, to the bit, whatever dies on the way."""

import io
import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from torch.distributed.distributed_c10d import _set_pg_timeout

from longloop import api
from longloop.cluster.crew import Crew, Member
from longloop.config import Config, RanksConfig
from longloop.diagnose.cluster import ranks
from longloop.engines.engine import NativeEngine
from longloop.memory.exhausted import told
from longloop.store.run import Run
from longloop.store.run_reader import load_run
from longloop.types import RankLost, UserError
from tests.support import clusters
from tests.support.clusters import MEMORY
from tests.support.helpers import load_config
from tests.support.runs import contents, differences

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'longloop[cluster]'")

STEPS = 4
SETTINGS = [
    *(f"steps={STEPS}", "model.lora_rank=4", "algo.lr=0.01", "algo.minibatch=4", "learner.micro_tokens=20"),
    *("eval.every=2", "eval.attempts=2", "doctor=false", "learner.memory_check=false", "ranks.shares=4"),
    "algo.max_grad_norm=0.01",  # every gradient is clipped
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A machine for the first rank, and one with room for three others."""
    made = clusters.cluster()
    made.second = made.add_node(num_cpus=3, object_store_memory=MEMORY)
    yield made
    ray.shutdown()
    made.shutdown()


def sabotaged(folder: Path, *plan: str) -> list[str]:
    """Settings by which the other ranks do as planned, one after another: `collect-KILL`, `update-SLOW`."""
    place = folder / "plan"
    place.mkdir(parents=True)
    for number, phase in enumerate(plan):
        (place / f"{number}-{phase}").touch()
    return [
        *("env.name=tests.support.saboteurs:RankSabotagedGuess", "algo.name=tests.support.saboteurs:RankSabotagedLoop"),
        *(f"{table}.{setting}" for table in ("env", "algo") for setting in (f"leader={os.getpid()}", f"plan={place}")),
    ]


def config_of(folder: Path, *settings: str) -> Config:
    folder.mkdir(parents=True, exist_ok=True)
    return load_config(folder, *SETTINGS, *settings)


class Printed:
    """What runs have printed."""

    def __init__(self) -> None:
        self._file = io.StringIO()

    def run(self, config: Config, resume: Path | None = None) -> None:
        api.trained(config, resume, Console(file=self._file, width=1000))

    def __str__(self) -> str:
        return self._file.getvalue()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one rank."""
    folder = tmp_path_factory.mktemp("undisturbed")
    Printed().run(config_of(folder, *sabotaged(folder)))
    return folder / "runs" / "test"


def process_of(member: Member) -> int:
    return int(member.where.split()[-1].rstrip(")"))


def assert_same(one: Path, other: Path) -> None:
    assert len(contents(one)["metrics"]) == STEPS + 1
    assert any(step["trained_tokens"] for step in contents(one)["metrics"].values() if "trained_tokens" in step)
    assert differences(one, other) == []


def test_killed_again_and_again_and_resumed_on_another_number(cluster, undisturbed, tmp_path, monkeypatch):
    """On two ranks the second is killed as it plays, then as it computes log-probs, then gradients; each time the run
    goes on by itself. Then it is killed while the first one saves, and no restart is left. Four finish the run."""
    plan = sabotaged(tmp_path, "collect-KILL", "credit-KILL", "update-KILL")
    members, save = list[Any](), Run.save

    def join(crew: Crew, learner: Any) -> None:
        real_join(crew, learner)
        members[:] = crew.others

    def saves(self: Run, step: int, *arguments: Any) -> None:
        if step == 2:
            os.kill(process_of(members[0]), signal.SIGKILL)
        save(self, step, *arguments)

    real_join = Crew.join
    monkeypatch.setattr(Crew, "join", join)
    monkeypatch.setattr(Run, "save", saves)
    said = Printed()
    with pytest.raises(RankLost, match=r"Lost rank 1 on .* died while playing attempts .*--resume") as lost:
        said.run(config_of(tmp_path, *plan, "ranks.count=2", "ranks.restarts=3"))
    assert lost.value.exit_status == 3
    deaths = re.findall(
        r"Lost rank 1 on \S+ \(process \d+\): it died while ([a-z -]+) \(.* Restart (\d) of 3", str(said)
    )
    assert deaths == [("playing attempts", "1"), ("computing log-probs", "2"), ("computing gradients", "3")]
    folder = tmp_path / "runs" / "test"
    log = (folder / "logs" / "train.log").read_text()
    assert "step 2/4" in log and "step 3/4" not in log
    assert json.loads((folder / "run.json").read_text())["status"] == "failed"
    assert [path.name for path in sorted((folder / "checkpoints").iterdir())] == ["000001", "000002"]

    said.run(api.resumed_config(folder, ["ranks.count=4", "ranks.restarts=0"]), folder)
    assert len(members) == 3 and "from step 3: ranks.count = 4 (was 2)" in str(said)
    assert_same(folder, undisturbed)
    times = {line["step"]: line.get("ranks") for line in load_run(folder).metrics}
    assert [len(times[step]) for step in range(1, STEPS + 1)] == [2, 2, 4, 4]
    assert [one["collect"] > 0 for one in times[4]] == [True, True, True, False], "there are three tasks"
    assert all(times[3][n]["update"] + times[4][n]["update"] > 0 and times[4][n]["wait"] >= 0 for n in range(4))


FULL = [  # in every step some attempts succeed, so that something is learned
    *("model.lora_rank=0", "algo.lr=0.001", "save.keep=9", "eval.every=0"),
    *("env.highest=9", "rollout.turn_tokens=1", "algo.k=24", "algo.minibatch=16", "learner.micro_tokens=60"),
]


def stored(run: Path, step: int) -> dict[str, torch.Tensor]:
    """Weights, moments and float32 weights in a checkpoint."""
    folder = run / "checkpoints" / f"{step:06d}"
    return {name: x for path in sorted(folder.rglob("*.safetensors")) for name, x in load_file(path).items()}


def test_all_weights_are_optimized_in_slices_on_any_number_of_ranks(cluster, tmp_path):
    """One rank, and two of which one is lost, resumed on four, on one and on two: the same attempts and, up to the
    rounding of a sum, the same weights and moments. Who loses a rank and goes on with as many has the same bits."""
    alone, apart, whole = tmp_path / "alone", tmp_path / "apart", tmp_path / "whole"
    for folder, count in ((alone, 1), (whole, 2)):
        Printed().run(config_of(folder, *sabotaged(folder), *FULL, f"ranks.count={count}"))
    said = Printed()
    plan = sabotaged(apart, "update-KILL")
    said.run(config_of(apart, *plan, *FULL, "ranks.count=2", "ranks.restarts=1"))
    assert "died while computing gradients" in str(said)
    one, two, again = (folder / "runs" / "test" for folder in (alone, whole, apart))
    assert differences(again, two) == []
    for count in (4, 1):
        other = tmp_path / str(count)
        shutil.copytree(again, other)
        for step in (3, 4):
            shutil.rmtree(other / "checkpoints" / f"{step:06d}")
        said.run(api.resumed_config(other, [f"ranks.count={count}"]), other)
        assert_close(other, one)
    assert_close(two, one)


def assert_close(run: Path, other: Path) -> None:
    """The same attempts; weights and moments to 1e-6."""
    mine, theirs = contents(run), contents(other)
    for step in range(1, STEPS + 1):
        assert mine["metrics"][step]["trained_tokens"] > 0
        assert mine[f"trajectories/{step:06d}.jsonl"] == theirs[f"trajectories/{step:06d}.jsonl"]
        weights = stored(run, step)
        for name, x in stored(other, step).items():
            torch.testing.assert_close(weights[name], x, rtol=0, atol=1e-6, msg=f"{name}, step {step}")


SHARDED = [*FULL, "model.lora_rank=4", "ranks.shard=2"]


def test_one_copy_of_the_weights_on_two_ranks(cluster, tmp_path, monkeypatch):
    """The other rank, which holds half of the model, is killed in a pass of the engine, hangs in one, and is killed in
    a gradient. The run goes on each time, and ends on four ranks with two copies. It has the attempts of one rank, and
    weights that differ because a sum of two halves is rounded differently."""
    alone, apart = tmp_path / "alone", tmp_path / "apart"
    Printed().run(config_of(alone, *sabotaged(alone), *FULL, "model.lora_rank=4"))
    members, passes, deaths = list[Any](), [0], [(2, signal.SIGKILL), (4, signal.SIGSTOP)]

    def join(crew: Crew, learner: Any) -> None:
        real_join(crew, learner)
        assert crew._exchange is not None and crew._exchange.shards is not None
        crew._config = crew._config.model_copy(update={"timeout": 6.0})
        _set_pg_timeout(timedelta(seconds=3), crew._exchange.shards._group)
        members[:] = crew.others

    def obey(engine: NativeEngine, order: Any) -> Any:
        passes[0] += order is not None
        if members and deaths and order is not None and passes[0] >= deaths[0][0]:
            os.kill(process_of(members[0]), deaths.pop(0)[1])
        return real_obey(engine, order)

    real_join, real_obey = Crew.join, NativeEngine.obey
    monkeypatch.setattr(Crew, "join", join)
    monkeypatch.setattr(NativeEngine, "obey", obey)
    said = Printed()
    plan = sabotaged(apart, "update-KILL")
    said.run(config_of(apart, *plan, *SHARDED, "steps=2", "ranks.count=2", "ranks.restarts=3", "ranks.timeout=100"))
    assert not deaths and not list((apart / "plan").iterdir())
    first, second, third = re.findall(r"Lost rank 1 on \S+ \(process \d+\): it (.*) Restart \d of 3", str(said))
    assert re.match("died while playing attempts", first)
    assert re.match("has given no sign of life for 6 s .* while playing attempts", second)
    assert re.match("died while computing gradients", third)

    run = apart / "runs" / "test"
    said.run(api.resumed_config(run, ["steps=4", "ranks.count=4"]), run)
    assert len(members) == 3
    assert_close(run, alone / "runs" / "test")


def test_room_for_ranks_is_found_out_before_anything_waits(cluster, tmp_path):
    enough, more = (config_of(tmp_path, f"ranks.count={count}", "ranks.shares=8") for count in (4, 8))
    found = ranks(enough)
    assert found.verdict == "pass" and "4 ranks with a core each" in found.seen and "has 3 cores" in found.seen
    found = ranks(more)
    assert found.verdict == "fail" and "room for 4" in found.seen
    with pytest.raises(UserError, match=r"8 ranks with a core each, .* the cluster has room for 4: .* has 1 cores"):
        Printed().run(more)
    patient = config_of(tmp_path, "ranks.count=8", "ranks.shares=8", "ranks.address=auto", "ranks.timeout=1")
    said = Printed()
    with pytest.raises(UserError, match=r"after 1 s \(ranks.timeout\) there was no room for them: .* has 3 cores"):
        said.run(patient)
    assert "Waiting 1 s for more" in str(said)
    assert not (tmp_path / "runs").exists()


def test_what_a_rank_raises_is_raised_with_its_name(cluster):
    class Clumsy:  # local, so that its process need not import this module
        def fall(self) -> None:
            raise ValueError("out of balance")

        def fill(self) -> None:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    actor = ray.remote(num_cpus=0)(Clumsy).remote()
    crew = Crew.__new__(Crew)
    crew._ray, crew._config, crew._doing = ray, RanksConfig(count=2), "computing gradients"
    with pytest.raises(ValueError, match="out of balance") as raised:
        crew._get({actor.fall.remote(): Member(1, actor, "on vm (process 7)")})
    assert raised.value.__notes__ == ["(on rank 1 on vm (process 7), computing gradients)"]
    with (
        pytest.raises(UserError, match=r"card of rank 1 on vm \(process 7\) ran out of memory while computing gra"),
        told(),
    ):
        crew._get({actor.fill.remote(): Member(1, actor, "on vm (process 7)")})


def test_a_machine_is_lost_and_a_rank_hangs(cluster, undisturbed, tmp_path, monkeypatch):
    """Both ranks are placed on the second machine. It is lost, and the run goes on by itself on a third. There the
    other rank takes longer than `ranks.timeout` for a gradient, which is no reason to give it up. Then it hangs as
    gradients are to be added up, and it is given up."""

    def join(crew: Crew, learner: Any) -> None:
        crew._get(crew._built)
        crew._config = crew._config.model_copy(update={"timeout": 5.0})  # to start, it may need more
        real_join(crew, learner)
        joined.append(psutil.Process(process_of(crew.others[0])))

    def lost(self: Run, step: int, *arguments: Any) -> None:
        save(self, step, *arguments)
        if step == 1:
            cluster.add_node(num_cpus=3, object_store_memory=MEMORY)
            cluster.remove_node(cluster.second, allow_graceful=False)
            psutil.wait_procs(joined, timeout=60)  # it ends soon after its machine's raylet

    def hangs(crew: Crew) -> None:
        if crew._config.count == 2 and not stopped:
            stopped.append(process_of(crew.others[0]))
            os.kill(stopped[0], signal.SIGSTOP)
        add_up(crew)

    stopped, joined = list[int](), list[psutil.Process]()
    save, add_up, real_join = Run.save, Crew.add_up, Crew.join
    monkeypatch.setattr(Crew, "join", join)
    monkeypatch.setattr(Run, "save", lost)
    monkeypatch.setattr(Crew, "add_up", hangs)
    said = Printed()
    plan = sabotaged(tmp_path, "update-SLOW")
    said.run(config_of(tmp_path, *plan, "ranks.count=2", "ranks.restarts=2", "ranks.timeout=100"))
    assert not list((tmp_path / "plan").iterdir())
    first, second = re.findall(r"Lost rank 1 on \S+ \(process \d+\): it (.*) Restart \d of 2", str(said))
    assert re.match("(died|has given no sign of life for 5 s).*", first)
    assert re.match("has given no sign of life for 5 s .* while adding up gradients", second)
    assert_same(tmp_path / "runs" / "test", undisturbed)
    assert not psutil.pid_exists(stopped[0])
