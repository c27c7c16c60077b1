"""Workers that come and go, without any: who gets in, and what becomes of an attempt whose machine is lost."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from longloop import api
from longloop.envs.guess import Guess
from longloop.isolation.lending import Gate
from longloop.rollout.replica import until_played
from longloop.types import HostLost, RankLost, Start, StopReason
from tests.support.helpers import load_config
from tests.support.saboteurs import Unlucky

# --- The gate.


def test_a_gate_lets_in_by_the_order_of_coming_and_follows_its_size():
    async def main() -> None:
        gate = Gate(1)
        first, second, third, fourth = (gate.turn() for _ in range(4))
        assert [turn.done() for turn in (first, second, third, fourth)] == [True, False, False, False]
        gate.leave()
        assert second.done() and not third.done()
        gate.size = 3
        gate.look()
        assert third.done() and fourth.done()
        gate.size = 1  # two too many are inside
        fifth = gate.turn()
        gate.leave()
        gate.leave()
        assert not fifth.done()
        gate.leave()
        assert fifth.done()

    asyncio.run(main())


def test_whoever_gives_up_leaves_no_gap():
    """Waiting, or let in and cancelled before it could notice."""

    async def main() -> None:
        gate = Gate(1)
        first, second, third, fourth = (gate.turn() for _ in range(4))
        gate.give_up(second)
        gate.leave()
        assert first.done() and not second.done() and third.done()
        gate.give_up(third)
        assert fourth.done()
        fifth, sixth = gate.turn(), gate.turn()
        fifth.cancel()  # as a task that waits for it does
        gate.leave()
        gate.give_up(fifth)
        assert sixth.done()

    asyncio.run(main())


# --- Attempts whose machine is lost.


def collected(tmp_path, monkeypatch, *settings: str) -> list[Any]:
    """What the attempts of a collection did, to the bit."""
    monkeypatch.setattr(Unlucky, "actions", 0)
    parts = api.prepared(load_config(tmp_path, "env.name=tests.support.saboteurs:Unlucky", *settings))
    groups = asyncio.run(parts.rollouts.play([Start(task) for task in parts.tasks[:3]], 4, seed=7))
    return [
        (t.task.id, t.attempt, t.reward, t.stop, t.error, [(turn.action_key, turn.context) for turn in t.turns])
        for group in groups
        for t in group.trajectories
    ]


def test_attempts_whose_machine_is_lost_are_played_again_and_are_the_same(tmp_path, monkeypatch):
    undisturbed = collected(tmp_path, monkeypatch)
    actions = Unlucky.actions
    monkeypatch.setattr(Unlucky, "at", (1, 5, actions - 1))
    assert collected(tmp_path, monkeypatch) == undisturbed
    assert Unlucky.actions > actions and all(stop.scored for _, _, _, stop, *_ in undisturbed)


def test_stragglers_are_abandoned_though_their_machine_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(Unlucky, "at", (3,))
    cut = collected(tmp_path, monkeypatch, "rollout.straggler_cutoff=0.1", "rollout.min_scored=1")
    monkeypatch.setattr(Unlucky, "at", ())
    assert cut == collected(tmp_path, monkeypatch, "rollout.straggler_cutoff=0.1", "rollout.min_scored=1")


def test_what_takes_three_machines_down_is_not_tried_on_a_fourth(tmp_path, monkeypatch):
    monkeypatch.setattr(Unlucky, "doomed", True)
    with pytest.raises(HostLost, match="Lost the environment host vm"):
        collected(tmp_path, monkeypatch)
    tries: list[int] = []

    async def play() -> int:
        tries.append(len(tries))
        if len(tries) < 3:
            raise HostLost("again")
        return len(tries)

    assert asyncio.run(until_played(play)) == 3
    tries.clear()

    async def doomed() -> int:
        tries.append(0)
        raise HostLost("again")

    with pytest.raises(HostLost):
        asyncio.run(until_played(doomed))
    assert len(tries) == 3


def test_an_environment_that_no_machine_has_is_no_fault_of_its_own(tmp_path, monkeypatch):
    """When all machines are gone, the attempt does not end as one of a broken environment: the run does."""
    parts = api.prepared(load_config(tmp_path))

    async def ready(self: Any) -> None:
        raise RankLost("All environment hosts are lost.")

    monkeypatch.setattr(Guess, "ready", ready)
    with pytest.raises(RankLost, match="All environment hosts"):
        asyncio.run(parts.rollouts.play([Start(parts.tasks[0])], 1, seed=1))


def test_a_machine_that_is_lost_while_an_attempt_is_cleaned_up_costs_nothing(tmp_path, monkeypatch):
    """A straggler, whose verdict nobody asks for."""

    async def finish(self: Any) -> Any:
        raise HostLost("Lost the environment host vm: it died.")

    parts = api.prepared(load_config(tmp_path))
    monkeypatch.setattr(Guess, "finish", finish)
    from longloop.rollout.episode import Record
    from longloop.rollout.replica import LocalReplica

    record = Record(lambda: 0.0)
    start = Start(parts.tasks[0])
    one = asyncio.run(LocalReplica().attempt(parts.rollouts.context, start, 0, "session", record))
    assert one.stop is StopReason.CANCELLED and record.abandoned


def test_demonstrations_are_played_again_too(tmp_path, monkeypatch):
    parts = api.prepared(load_config(tmp_path, "env.name=tests.support.saboteurs:Unlucky"))
    monkeypatch.setattr(Unlucky, "actions", 0)
    monkeypatch.setattr(Unlucky, "at", (1,))
    (group,) = asyncio.run(parts.rollouts.demonstrations(parts.tasks[:1]))
    assert group.trajectories[0].stop.scored and Unlucky.actions > 1
    assert replace(group.trajectories[0], turns=()).expert
