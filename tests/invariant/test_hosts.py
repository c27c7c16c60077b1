"""Environments on other machines of a (fake) Ray cluster: the run is that of one machine, to the bit, whatever comes
and goes."""

import asyncio
import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from longloop import api, build, config
from longloop.config import Config
from longloop.diagnose.cluster import hosts
from longloop.isolation.lending import WorkerLost
from longloop.isolation.proxy import remote
from longloop.types import HostLost, Message, RankLost, UserError
from tests.support import clusters
from tests.support.clusters import MEMORY
from tests.support.helpers import load_config
from tests.support.obedient import Obedient
from tests.support.runs import contents, differences

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'longloop[cluster]'")

from longloop.cluster import hosts as module  # noqa: E402

STEPS = 3
SETTINGS = [
    *(f"steps={STEPS}", "model.lora_rank=4", "algo.lr=0.01", "doctor=false", "learner.memory_check=false"),
    *("eval.every=2", "eval.attempts=2"),
]


class Machines:
    """A cluster: a machine for the first rank, and hosts that come and go."""

    def __init__(self) -> None:
        self.cluster = clusters.cluster()
        self.hosts: list[Any] = []

    async def joined(self, pool: Any) -> None:
        """Add a host, and wait until it has started."""
        node = self.add().node_id
        while node not in pool._sites or not pool._sites[node].ready:
            pool._look()
            await asyncio.sleep(0.1)

    def add(self, workers: int = 2, cores: int = 0) -> Any:
        node = self.cluster.add_node(num_cpus=cores, resources={"env_workers": workers}, object_store_memory=MEMORY)
        self.hosts.append(node)
        return node

    async def lose(self, node: str = "") -> None:
        """The host with this id, or the oldest."""
        lost = next(one for one in self.hosts if not node or one.node_id == node)
        self.hosts.remove(lost)
        self.cluster.remove_node(lost, allow_graceful=False)

    @contextlib.contextmanager
    def head_taken(self) -> Iterator[None]:
        """Without the first machine's core: these machines share an address, and a rank could be put on any of them."""
        taken = ray.util.placement_group([{"CPU": 1, "node:__internal_head__": 0.001}])
        try:
            assert taken.wait(30)
            yield
        finally:
            ray.util.remove_placement_group(taken)


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    made = Machines()
    yield made
    ray.shutdown()
    made.cluster.shutdown()


def config_of(folder: Path, *settings: str) -> Config:
    folder.mkdir(parents=True, exist_ok=True)
    return load_config(folder, *SETTINGS, *settings)


def trained(config: Config, resume: Path | None = None) -> str:
    """Train; return what was printed."""
    printed = io.StringIO()
    api.trained(config, resume, Console(file=printed, width=1000))
    return printed.getvalue()


def after(monkeypatch: pytest.MonkeyPatch, plan: dict[int, Any]) -> list[Any]:
    """Do as planned just before the n-th frame is sent to a host. Returns, as it grows, the host of each frame."""
    sites: list[Any] = []
    exchange = module.HostedWorker.exchange

    async def watched(self: Any, frame: bytes) -> bytes:
        sites.append(self.site)
        for action in plan.pop(len(sites), ()):
            await action()
        return await exchange(self, frame)

    monkeypatch.setattr(module.HostedWorker, "exchange", watched)
    return sites


def test_without_hosts_a_sentence_says_what_is_missing(machines, tmp_path, capsys):
    how = r"machines of a Ray cluster that offer env_workers, and there is none: .* has 1 cores; .*ray start --address="
    hosted = config_of(tmp_path, "env.hosts=true")
    with pytest.raises(UserError, match=f"{how}.*ranks.address"):
        trained(hosted)
    found = hosts(hosted)
    assert found.verdict == "fail" and "there is none" in found.seen and "ray start" in found.advice
    patient = config_of(tmp_path, "env.hosts=true", "ranks.address=auto", "ranks.timeout=1")
    with pytest.raises(UserError, match=r"for 1 s \(ranks.timeout\) none was there, or free") as raised:
        trained(patient)
    assert not isinstance(raised.value, RankLost) and "Waiting 1 s for one" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"leave env.isolation empty"):
        trained(config_of(tmp_path, "env.hosts=true", "env.isolation=inline"))
    assert not (tmp_path / "runs").exists()


def test_a_host_that_cannot_run_the_environment_is_named(machines, tmp_path):
    machines.add()
    with pytest.raises(UserError, match=r"The environment host \S+ \(.*\) cannot be used: guess .* envs install guess"):
        trained(config_of(tmp_path, "env.hosts=true", "env.isolation=venv"))


def test_a_worker_on_a_host_is_a_worker_like_any_other(machines, tmp_path):
    """What the environment raises, how it dies, hangs, lies and prints; copies, experts, limits, and being replaced."""
    settings = ["env={name='tests.support.obedient:Obedient', hosts=true, worker_episodes=2, worker_memory=1000}"]
    world = build.world(load_config(tmp_path, *settings))
    make = lambda: remote(Obedient)(world.pool)  # noqa: E731
    tasks = world.tasks("train")
    assert len(tasks) == 25

    async def said(*words: str, deadline: float = 60.0) -> str:
        env = make()
        await env.start(tasks[1])
        try:
            async with asyncio.timeout(deadline):
                for word in words:
                    step = await env.step(Message("assistant", word))
            return step.messages[0].content
        finally:
            with contextlib.suppress(Exception):
                await env.finish()

    async def main() -> None:
        assert await said("add 4", "add 5") == "10"
        first = await said("say pid")
        assert first != await said("say pid"), "after two attempts it is replaced"
        with pytest.raises(Exception, match="out of balance") as raised:
            await said("raise out of balance")
        assert type(raised.value).__name__ == "ValueError"
        with pytest.raises(WorkerLost, match="the worker was killed by signal 9"):
            await said("kill")
        with pytest.raises(WorkerLost, match="makes no sense: ValueError: it wrote something that is no frame"):
            await said("garbage")
        with pytest.raises(WorkerLost, match="makes no sense: TypeError: done is 'yes'"):
            await said("lie 0")
        env = make()
        await env.start(tasks[1])
        pid, child = map(int, (await env.step(Message("assistant", "spawn"))).messages[0].content.split())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await env.step(Message("assistant", "hang"))
        with contextlib.suppress(WorkerLost):
            await env.finish()
        while _runs(pid) or _runs(child):
            await asyncio.sleep(0.05)
        env = make()
        await env.start(tasks[1])
        copy = await env.fork()
        await copy.step(Message("assistant", "add 7"))
        assert await env.expert(tasks[1]).act([]) == "add 9"
        assert ((await env.finish()).reward, (await copy.finish()).reward) == (1 / 29, 8 / 29)
        assert (await asyncio.gather(*(said("add 1", "late 0") for _ in range(6)))) == ["2"] * 6

    try:
        asyncio.run(asyncio.wait_for(main(), 120))
        assert world.pool.size == 2
        assert hosts(load_config(tmp_path, *settings)).numbers == {"hosts": 1, "workers": 2}
    finally:
        world.close()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_hosts_come_and_go_and_the_run_is_the_undisturbed_one(machines, tmp_path, monkeypatch):
    """One of two is lost while it plays, another joins, then all are lost, and the run ends; when there is one again,
    it goes on."""
    trained(config_of(tmp_path / "alone"))
    undisturbed = tmp_path / "alone" / "runs" / "test"
    assert any(step.get("trained_tokens") for step in contents(undisturbed)["metrics"].values())

    while len(machines.hosts) < 2:
        machines.add()
    pools, made = list[Any](), build._host_pool
    monkeypatch.setattr(build, "_host_pool", lambda *arguments: pools.append(made(*arguments)) or pools[-1])

    async def in_a_hurry() -> None:  # to start, a host may need more
        pools[0]._config = pools[0]._config.model_copy(update={"timeout": 2.0})

    async def joined() -> None:
        await machines.joined(pools[0])

    plan = {40: [machines.lose], 80: [joined], 160: [in_a_hurry, machines.lose, machines.lose]}
    sites = after(monkeypatch, plan)
    hosted = config_of(tmp_path / "hosted", "env.hosts=true", "ranks.timeout=100")
    folder = tmp_path / "hosted" / "runs" / "test"
    with pytest.raises(RankLost, match=r"All environment hosts are lost\. .* for 2 s .*--resume") as lost:
        trained(hosted)
    assert lost.value.exit_status == 3 and not isinstance(lost.value, HostLost)
    log = (folder / "logs" / "train.log").read_text()
    assert log.count("Lost the environment host") == 3 and "waiting 2 s for another" in log
    # Whether Ray notices the first loss before or after the next host has joined is its own affair.
    assert re.search(r"What it played is played again; [24] workers are left", log)
    assert re.search(r"2 workers; [46] in all", log)
    assert len(set(sites)) == 3, "the one that joined was used"

    machines.add(3)
    trained(api.resumed_config(folder, []), folder)
    assert differences(folder, undisturbed) == []
    assert len(set(sites)) == 4


QUICKSTART = [
    *("steps=2", "tasks_per_step=2", "algo.k=4", "algo.minibatch=4", "model.lora_rank=4", "rollout.max_turns=3"),
    *("eval.tasks=2", "eval.attempts=1", "env.per_scenario=2", "doctor=false", "learner.memory_check=false"),
]


def second_rank() -> str:
    """The machine on which it is."""
    made = [one for one in ray.util.placement_group_table().values() if one["state"] == "CREATED"]
    found: str = next(one["bundles_to_node_id"][1] for one in made if len(one["bundles"]) == 2)
    return found


def test_the_quick_start_on_three_machines_of_which_one_is_lost(machines, tmp_path, monkeypatch):
    """Two machines have a rank's core and a host each. That of the second rank is lost while attempts are played, after
    the first step; there is a new one, and the run goes on by itself. It is the run of one process."""
    alone = config.load(Path("quickstart"), [f"folder={tmp_path}", "name=alone", *QUICKSTART])
    trained(alone)
    while machines.hosts:
        asyncio.run(machines.lose())
    for _ in range(2):
        machines.add(4, cores=1)
    exchange, folder, lost = module.HostedWorker.exchange, tmp_path / "three", list[str]()

    async def watched(self: Any, frame: bytes) -> bytes:
        if (folder / "checkpoints" / "000001").exists() and not lost:
            lost.append(second_rank())
            machines.add(4, cores=1)
            await machines.lose(lost[0])
        return await exchange(self, frame)

    monkeypatch.setattr(module.HostedWorker, "exchange", watched)
    several = ["name=three", "ranks.count=2", "env.hosts=true", "ranks.address=auto", "ranks.restarts=1"]
    with machines.head_taken():
        said = trained(config.load(Path("quickstart"), [f"folder={tmp_path}", *QUICKSTART, *several]))
    assert lost and "Restart 1 of 1, from the last checkpoint" in said
    assert differences(folder, tmp_path / "alone") == []
    steps = contents(folder)["metrics"]
    assert len(steps) == 3 and any(step.get("trained_tokens") for step in steps.values())
