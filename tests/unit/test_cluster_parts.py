"""The parts of a run on several ranks, each by itself and without Ray: a rank, sums between processes."""

import asyncio
import contextlib
import json
import math
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import yaml

from longloop import api, build
from longloop import config as configs
from longloop.cluster import crew
from longloop.cluster.crew import Crew, Member
from longloop.cluster.exchange import Exchange
from longloop.cluster.placement import WORKERS, Asked, asked, inventory, placed
from longloop.cluster.rank import Rank
from longloop.config import RanksConfig
from longloop.diagnose import cluster
from longloop.learners.shares import add_up
from longloop.memory import exhausted
from longloop.rollout.episode import Record
from longloop.store.lineage import lineage
from longloop.types import RankLost, Start, StopReason, UserError
from longloop.version import __version__
from tests.support.gloo import together
from tests.support.helpers import load_config
from tests.support.processes import ROOT
from tests.support.ranks import SimulatedRanks
from tests.support.samples import NOW, learner, make, mixed_groups, sampled, weights

# --- A rank, in this process: Ray only carries its methods' arguments and results.


@pytest.fixture
def rank(tmp_path):
    config = load_config(tmp_path, "model.lora_rank=4", "ranks.shares=2", "rollout.max_turns=2", "env.tries=2")
    made = Rank(1)
    threads = torch.get_num_threads()
    make_parts = pickle.loads(pickle.dumps((build.rank_parts, config, lineage(config))))
    host, pid = made.build(lambda *which: make_parts[0](*make_parts[1:], *which), threads)
    assert host and pid
    yield made, api.prepared(config)
    made.close()


def test_an_attempt_is_the_same_on_any_rank(rank):
    other, parts = rank
    limits, sampling = parts.rollouts.context.limits, parts.rollouts.context.sampling
    groups = asyncio.run(parts.rollouts.play([Start(parts.tasks[0])], 2, seed=7))

    async def elsewhere() -> list[Any]:
        start = Start(parts.tasks[0])
        return [await other.attempt(limits, sampling, start, n, f"0/train/7/{n}") for n in range(2)]

    for here, there in zip(groups[0].trajectories, asyncio.run(elsewhere()), strict=True):
        assert [turn.action_key for turn in there.turns] == [turn.action_key for turn in here.turns]
        assert [t.action_logprobs.tolist() for t in there.turns] == [t.action_logprobs.tolist() for t in here.turns]
        assert (there.reward, there.stop) == (here.reward, here.stop)
    other.release()


def test_a_rank_abandons_what_grows_beyond_the_cutoff(rank):
    other, parts = rank
    limits, sampling = parts.rollouts.context.limits, parts.rollouts.context.sampling

    async def main() -> Any:
        other.abandon_beyond(0.0)
        return await other.attempt(limits, sampling, Start(parts.tasks[0]), 0, "session")

    assert asyncio.run(main()).stop is StopReason.CANCELLED
    other.release()
    assert other._cutoff == math.inf and not other._playing
    one = asyncio.run(other.attempt(limits, sampling, Start(parts.tasks[0]), 0, "session"))
    assert one.stop is not StopReason.CANCELLED


def test_a_cutoff_reaches_attempts_that_wait(rank):
    """As the leader's own: an attempt is cancelled though its engine or environment has not answered."""
    other, _ = rank

    async def main() -> bool:
        record = Record(lambda: other._cutoff)
        record.turns = [sampled(mixed_groups(), learner(make("loop")))[0].trajectories[0].turns[0]]
        task = asyncio.create_task(asyncio.sleep(60))
        other._playing[task] = record
        other.abandon_beyond(1.0)
        await asyncio.wait([task])
        del other._playing[task]
        return task.cancelled() and record.abandoned

    assert asyncio.run(main())


# --- Heads are fitted once, and given to all.


def test_heads_that_the_first_rank_fits_are_everyones():
    algo = make("ppo", k=3)
    team = [learner(algo, lora=4, shares=2, seed=seed) for seed in (0, 1)]
    team[0].ranks = SimulatedRanks(team, 2)
    samples = make("loop", k=3).credit(sampled(mixed_groups(), team[0]), team[0], NOW)
    team[0].fit_heads(samples, lambda said, slow: (said["value"] ** 2).sum(), lr=0.1, steps=2, slow=0.5)
    heads = [[p for name, p in weights(one).items() if name.startswith("value_head")] for one in team]
    assert all(torch.equal(a, b) for a, b in zip(*heads, strict=True))


# --- Sums between processes.


def _added_up(exchange: Exchange) -> Any:
    """Adds up four gradients; the second parameter has one on rank 2 alone, the third nowhere."""
    parameters = [torch.nn.Parameter(torch.zeros(3)) for _ in range(3)]
    parameters[0].grad = torch.tensor(NUMBERS[exchange.rank])
    if exchange.rank == 2:
        parameters[1].grad = torch.tensor([-0.0, 1.0, math.nan])
    exchange.add_up(parameters)
    copied = torch.full((2,), float(exchange.rank + 1))
    exchange.copy([copied])
    return [None if p.grad is None else p.grad.numpy().tobytes() for p in parameters], copied.tolist()


NUMBERS = [[2.0**24, 0.1, -0.0], [1.0, 0.7, -0.0], [1.0, -0.3, -0.0], [1.0, 1e-9, -0.0]]


def test_four_processes_add_up_as_one_does():
    (expected,) = add_up(NUMBERS, lambda numbers: [torch.tensor(numbers)])
    assert expected is not None and expected[0] == 2.0**24 + 2  # one after another it would be 2^24
    alone = torch.tensor([-0.0, 1.0, math.nan]).numpy().tobytes()
    for sums, copied in together(4, _added_up):
        assert sums == [expected.numpy().tobytes(), alone, None]
        assert copied == [1.0, 1.0]


# --- What a cluster has.


class FakeRay:
    """A cluster of two machines, of which one has cards, and one that is gone."""

    def __init__(self, here: str = "10.0.0.1") -> None:
        self.util = SimpleNamespace(get_node_ip_address=lambda: here)

    def nodes(self) -> list[dict[str, Any]]:
        def node(name: str, number: int, alive: bool, **has: float) -> dict[str, Any]:
            address = f"10.0.0.{number}"
            resources = has | {f"node:{address}": 1.0}
            return {
                "NodeManagerHostname": name,
                "NodeManagerAddress": address,
                "Alive": alive,
                "Resources": resources,
            }

        return [
            node("a", 1, True, CPU=32.0, GPU=4.0),
            node("b", 2, True, CPU=3.0),
            node("c", 3, False, CPU=99.0, GPU=8.0),
        ]

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 35.0, "GPU": 4.0}

    def available_resources(self) -> dict[str, float]:
        return {"CPU": 30.0}


def test_what_ranks_ask_for_and_what_there_is():
    assert asked(FakeRay(), "") == asked(FakeRay(), "cuda") == Asked(cards=1)
    assert asked(FakeRay(), "cpu") == Asked(cards=0)
    assert Asked(1).fits(FakeRay()) == (4, "room for 4") and Asked(0).fits(FakeRay("10.0.0.2")) == (35, "room for 35")
    assert Asked(1).words(8) == "8 ranks with a card and a core each"
    assert inventory(FakeRay()) == (
        "a (10.0.0.1) has 4 cards and 32 cores; b (10.0.0.2) has 3 cores; 30 cores of all that are free"
    )
    with pytest.raises(UserError, match="every rank takes its own"):
        asked(FakeRay(), "cuda:1")


def test_the_first_rank_needs_room_on_this_machine(tmp_path, monkeypatch):
    """Here without a card, on a cluster with four: the run would wait, and end without a word of the reason."""
    ray, there = FakeRay("10.0.0.2"), "no room on this machine (10.0.0.2), where the first rank has to be"
    assert Asked(1).fits(ray) == (0, there)
    monkeypatch.setattr(cluster, "connected", lambda config: contextlib.nullcontext(ray))
    found = cluster.ranks(load_config(tmp_path, "ranks.count=2"))
    assert found.verdict == "fail" and there in found.seen and "Start the run on a machine" in found.advice
    with pytest.raises(UserError) as raised, placed(ray, RanksConfig(count=2), Asked(1), print):
        pass
    assert f"and the cluster has {there}: a (10.0.0.1) has 4 cards" in str(raised.value)


class TaskError(Exception):
    """As Ray's: what a rank raised, without the rank's traceback."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause


@pytest.mark.parametrize(
    ("doing", "lower"),
    [
        ("playing attempts", "Lower rollout.concurrency"),
        ("computing gradients", "Lower rollout.context or learner.micro_tokens"),
    ],
)
def test_a_rank_whose_card_is_full_is_named_with_what_it_did(monkeypatch, doing, lower):
    """And not the first rank's card, nor what the first rank did."""
    errors = SimpleNamespace(RayTaskError=TaskError, RayActorError=type("Died", (Exception,), {}))
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(exceptions=errors))
    monkeypatch.setitem(sys.modules, "ray.exceptions", errors)
    monkeypatch.setattr(exhausted, "_held", lambda: ": of 80.0 GiB this process holds 70.0")
    crew, one = Crew.__new__(Crew), Member(1, None, "on vm (process 7)")
    with pytest.raises(UserError) as raised, exhausted.told(Path("runs/a")), crew._unwrapped(one, doing):
        raise TaskError(torch.OutOfMemoryError("CUDA out of memory."))
    said = f"The card of rank 1 on vm (process 7) ran out of memory while {doing}. {lower}"
    assert str(raised.value).startswith(said) and "`longloop train --resume runs/a`" in str(raised.value)


def test_without_ray_a_sentence_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'longloop\[cluster\]', or set ranks.count=1"):
        api.train(load_config(tmp_path, "ranks.count=2"), progress=False)
    assert not (tmp_path / "runs").exists()


def test_one_rank_loads_neither_ray_nor_a_process_group(tmp_path):
    loaded = set(sys.modules)
    api.train(load_config(tmp_path, "steps=1", "model.lora_rank=4", "doctor=false"), progress=False)
    assert not {name for name in set(sys.modules) - loaded if name.partition(".")[0] == "ray"}
    assert not dist.is_initialized()


def test_counts_and_shares_are_powers_of_two(tmp_path):
    for settings, words in (
        (["ranks.count=3"], "'ranks.count' in .*: Input should be a power of two"),
        (["ranks.shares=12"], "'ranks.shares' in .*: Input should be a power of two"),
        (["ranks.count=16"], "'ranks.shares' in .*: Input should be at least ranks.count, which is 16, but it is 8"),
    ):
        with pytest.raises(UserError, match=words):
            load_config(tmp_path, *settings)
    assert load_config(tmp_path, "ranks.count=16", "ranks.shares=16").ranks == replace_count(16)


def replace_count(count: int) -> RanksConfig:
    return RanksConfig(count=count, shares=count)


# --- The recipe for Kubernetes, as far as it can be tried without it.


def test_the_job_for_kubernetes_asks_for_what_its_config_needs(tmp_path):
    recipe = ROOT / "recipes" / "kubernetes"
    job, stored = yaml.safe_load_all((recipe / "rayjob.yaml").read_text())
    spec = job["spec"]["rayClusterSpec"]
    (tmp_path / "config.toml").write_text(stored["data"]["config.toml"])
    (tmp_path / "longloop").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "longloop").chmod(0o755)

    def entered() -> list[str]:
        """What the job's command calls longloop with."""
        command = job["spec"]["entrypoint"].replace("/config/", f"{tmp_path}/").replace("/runs", str(tmp_path))
        told = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        return subprocess.run(command, shell=True, env=told, capture_output=True, text=True, check=True).stdout.split()

    train, path, *settings = entered()
    config = configs.load(Path(path), settings)
    (tmp_path / config.name).mkdir()
    (tmp_path / config.name / "run.json").touch()
    assert train == "train" and entered() == ["train", "--resume", f"{config.folder}/{config.name}"]

    cards, hosts = spec["workerGroupSpecs"]
    pods = [(spec["headGroupSpec"], 1), (cards, cards["replicas"])]
    limits = [(group["template"]["spec"]["containers"][0]["resources"]["limits"], many) for group, many in pods]
    assert sum(int(one["nvidia.com/gpu"]) * many for one, many in limits) == config.ranks.count
    assert config.ranks.address == "auto" and build.isolation(config.env)[0].hosts
    offered = json.loads(json.loads(hosts["rayStartParams"]["resources"]))  # KubeRay puts it into a shell's command
    assert offered[WORKERS] >= config.ranks.players
    (pinned,) = re.findall(r"^ray==(.*)$", (ROOT / "constraints.txt").read_text(), re.M)
    assert spec["rayVersion"] == pinned and f"rayproject/ray:{pinned}-" in (recipe / "Dockerfile").read_text()
    images = re.findall("image: (.*)", (recipe / "rayjob.yaml").read_text())
    assert len(images) == 3 and {*images} == {f"REGISTRY/longloop:{__version__}"}


# --- cards ---


def test_a_run_shows_the_cards_again_when_it_ends(monkeypatch):
    """Ray counts the cards that a process may see: a restart would find one, of however many there are."""
    monkeypatch.setattr(crew, "_card", "")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for shown in (None, "4,5,6"):
        if shown:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
        with pytest.raises(RankLost), crew._cards_shown_again():
            crew._take_card("5")
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "5"
            raise RankLost("lost")
        assert os.environ.get("CUDA_VISIBLE_DEVICES") == shown


def test_a_process_keeps_to_the_card_that_it_has_used(monkeypatch):
    monkeypatch.setattr(crew, "_card", "")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    crew._take_card("2")
    crew._take_card("3")  # it has used none yet
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    crew._take_card("3")
    with pytest.raises(UserError, match="gives it card 2: start it anew"):
        crew._take_card("2")
