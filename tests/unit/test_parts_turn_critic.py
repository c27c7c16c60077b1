"""ArCHer's critic: by hand on a chain, and against the enumerated values of crossroads."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from longloop import api
from longloop.algos.archer import Archer
from longloop.algos.parts.critic import TurnCritic, places
from longloop.algos.parts.rollouts import Ask, FreshActions
from longloop.envs.crossroads import ROADS, Crossroads
from longloop.store.run import Run
from longloop.types import Group, Message, Now, Sample, Start, StopReason, Task, Trajectory, Turn
from tests.support.helpers import Silent, load_config, train
from tests.support.runs import contents
from tests.support.samples import attempt, learner, mixed_groups

GAMMA = 0.9
RIGHT = {"oak": 0.75, "elm": 0.25, "ash": 0.5, "fir": 1.0}
"""How often the policy as it is goes right."""
IDS = {name: number for number, name in enumerate([*ROADS, "l", "r"], 3)}


def q(fork: str, way: str) -> float:
    following = ROADS[fork]["lr".index(way)]
    return GAMMA * v(following) if isinstance(following, str) else following


def v(fork: str) -> float:
    return (1 - RIGHT[fork]) * q(fork, "l") + RIGHT[fork] * q(fork, "r")


def walked(forks: Sequence[str], ways: Sequence[str], reward: float, number: int, stop: StopReason) -> Trajectory:
    turns = tuple(
        Turn((), [1, IDS[fork], 2], Message("assistant", way), [IDS[way]], [-0.5])
        for fork, way in zip(forks, ways, strict=True)
    )
    return Trajectory(Task("crossroads", "train"), number, turns, reward, reward == 1.0, stop)


def every_path() -> Group:
    paths = [walked(*path, n, StopReason.FINISHED) for n, path in enumerate(Crossroads.paths())]
    return Group(paths[0].task, tuple(paths))


def fresh() -> list[Group]:
    """Four actions at each fork, as often to the right as the policy goes there."""
    groups = {}
    for forks, ways, _ in Crossroads.paths():
        for u, fork in enumerate(forks):
            acted = ["r" if n < 4 * RIGHT[fork] else "l" for n in range(4)]
            groups[forks[: u + 1]] = Group(
                Task("crossroads", "train"),
                tuple(
                    replace(walked(forks[: u + 1], [*ways[:u], way], 0.0, n, StopReason.PRACTISED), side=True)
                    for n, way in enumerate(acted)
                ),
            )
    return list(groups.values())


def test_the_critic_reaches_the_enumerated_values_from_attempts_of_another_policy() -> None:
    """Stored: every path once. What the policy would do now is another thing, and its values are what is learned."""
    part = TurnCritic(gamma=GAMMA, replay=1, lr=3e-3, steps=600)
    model = learner(Archer())
    stored = every_path()
    now = Now(2, 9, past=lambda step: [stored])
    groups = fresh()
    assert part.credit(groups, part.rewards.pay(groups, model, now), model, now) == [None] * len(groups)
    at = places([(t, 0) for t in stored.trajectories])
    read = model.read(at.samples, "q_1", "q_2", "v_1", "v_2")
    turns = [(fork, way) for forks, ways, _ in Crossroads.paths() for fork, way in zip(forks, ways, strict=True)]
    for j in (1, 2):
        q_N, v_N = (np.concatenate([s.columns[f"{head}_{j}"][s.mask] for s in read]) for head in "qv")
        assert q_N[at.action_U] == pytest.approx([q(*turn) for turn in turns], abs=0.03)
        assert v_N[at.state_U] == pytest.approx([v(fork) for fork, _ in turns], abs=0.03)
    advantages = part.advantages(stored.trajectories, model)
    assert [a for t in stored.trajectories for a in advantages[id(t)]] == pytest.approx(
        [q(*turn) - v(turn[0]) for turn in turns], abs=0.04
    )


class Said:
    """A learner whose heads, and their slow copies, say what the test tells them."""

    def __init__(self, heads: Mapping[str, Sequence[float]]) -> None:
        said = {name: torch.tensor(values) for name, values in heads.items()}
        self.heads = {name: said[name] for name in TurnCritic.heads}
        self.slow = {name: said[f"slow_{name}"] for name in TurnCritic.heads}

    def fit_heads(self, samples: Any, loss: Callable[..., torch.Tensor], lr: float, steps: int, slow: float) -> None:
        self.loss = loss(self.heads, self.slow)


def everywhere(values: Sequence[float]) -> dict[str, Sequence[float]]:
    return {f"{slow}{name}": values for name in TurnCritic.heads for slow in ("", "slow_")}


def test_the_chain_by_hand() -> None:
    """Two turns, gamma 0.5, paid 1 at the end: at V = (0.5, 1) = Q nothing is left to learn, and each error counts."""
    one = attempt(1.0, (1, 1))
    part = TurnCritic(gamma=0.5)
    settled = everywhere([0.5, 0.5, 1.0, 1.0])  # positions: state, action, state, action

    def error(**other: Sequence[float]) -> float:
        said = Said(settled | other)
        part.train([(one, [0.0, 1.0])], [], [], said)  # type: ignore[arg-type]
        return said.loss.item()

    assert error() == 0.0
    assert error(q_1=[9.0, 0.9, 9.0, 0.8]) == pytest.approx((0.4**2 + 0.2**2) / 2), "a mean over turns"
    assert error(v_2=[0.3, 9.0, 1.0, 9.0]) == pytest.approx(0.2**2 / 2)
    assert error(slow_v_1=[9.0, 9.0, 0.6, 9.0]) == pytest.approx(0.2**2 / 2), "only the state that follows counts"
    assert error(slow_q_2=[9.0, 0.5, 9.0, 0.0]) == pytest.approx(1 / 2)


def test_stored_turns_teach_q_and_fresh_actions_teach_v() -> None:
    """Positions: the stored attempt's state and action, then those of the fresh action's last turn."""
    part = TurnCritic(gamma=0.5)

    def error(own: Sequence[Any], earlier: Sequence[Any], **heads: Sequence[float]) -> float:
        said = Said(everywhere([0.0] * 4) | heads)
        part.train(own, earlier, [attempt(0.0, (1, 1), 7)], said)  # type: ignore[arg-type]
        return said.loss.item()

    one = (attempt(0.0, (1,)), [0.0])
    assert error([], [one], v_1=[5.0, 5.0, 0.5, 5.0]) == pytest.approx(0.25), "an old action says nothing of V"
    assert error([one], [], v_1=[0.5, 5.0, 0.0, 5.0]) == pytest.approx(0.25 / 2), "one of this step does"
    assert error([], [one], q_1=[5.0, 0.5, 5.0, 5.0]) == pytest.approx(0.25), "nobody was paid for a fresh action"


def test_q_is_read_behind_an_action_and_v_before_it() -> None:
    """Also where history was rewritten, and at the end, where nothing follows."""
    trajectory = mixed_groups()[0].trajectories[2]  # turns of 1, 2, 1 tokens; the last begins a stretch
    at = places([(trajectory, 0)])
    first, last = at.samples
    contexts = [len(turn.context_ids) for turn in trajectory.turns]
    assert np.flatnonzero(first.mask).tolist() == [
        contexts[0], contexts[0] + 1, contexts[0] + 1 + contexts[1], contexts[0] + 1 + contexts[1] + 2,
    ]  # fmt: skip
    assert np.flatnonzero(last.mask).tolist() == [contexts[2], contexts[2] + 1] and len(last.ids) == contexts[2] + 2
    assert at.state_U.tolist() == [0, 2, 4] and at.action_U.tolist() == [1, 3, 5]
    fresh = places([(trajectory, 2)])
    assert len(fresh.samples) == 1 and fresh.state_U.tolist() == [0] and fresh.action_U.tolist() == [1]


def test_slow_copies_go_a_share_of_the_way_and_the_policy_stays() -> None:
    """With a share of 1 they say what the heads said after the step before, with one of 0 what these said at first."""
    model = learner(Archer())
    at = places([(mixed_groups()[0].trajectories[0], 0)])
    before = {name: p.detach().clone() for name, p in model.parameters.items()}

    def said(slow: float) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        heads, copies = [], []

        def loss(now: Mapping[str, torch.Tensor], slowly: Mapping[str, torch.Tensor]) -> torch.Tensor:
            heads.append(now["q_1"].detach())
            copies.append(slowly["q_1"])
            return ((now["q_1"] - 1) ** 2).mean()

        model.fit_heads(at.samples, loss, 1e-2, 4, slow)
        return heads, copies

    heads, copies = said(1.0)
    assert all(torch.equal(copy, head) for head, copy in zip(heads, copies, strict=True)) and heads[3].min() > 0
    again, copies = said(0.0)
    assert all(not copy.any() for copy in copies), "heads begin at 0, and anew in every fit"
    assert all(torch.equal(one, other) for one, other in zip(heads, again, strict=True))
    _, copies = said(0.25)
    assert 0 < copies[3].max() < heads[3].max()
    policy = [name for name in before if "_head." not in name]
    assert policy and all(torch.equal(before[name], model.parameters[name]) for name in policy)


def test_fitted_heads_read_hidden_states_as_they_are() -> None:
    """They are fitted to standardized ones; what `read` says afterwards is what the last loss saw, but for a step."""
    model = learner(Archer())
    at = places([(mixed_groups()[0].trajectories[0], 0)])
    seen = []

    def loss(now: Mapping[str, torch.Tensor], slowly: Mapping[str, torch.Tensor]) -> torch.Tensor:
        seen.append(now["v_2"].detach().numpy())
        return ((now["v_2"] - torch.arange(4.0)) ** 2).mean()

    model.fit_heads(at.samples, loss, 1e-2, 300, 0.1)
    (read,) = model.read(at.samples, "v_2")
    assert read.columns["v_2"][read.mask] == pytest.approx(seen[-1], abs=0.05)
    assert seen[-1] == pytest.approx(np.arange(4.0), abs=0.1)


def test_the_advantage_is_of_the_smaller_q_over_the_smaller_v() -> None:
    """One turn: its state is read first, then its action."""
    said = {"q_1": [9.0, 0.8], "q_2": [9.0, 0.6], "v_1": [0.1, 9.0], "v_2": [0.4, 9.0]}

    class Reader:
        def read(self, samples: Sequence[Sample], *columns: str) -> list[Sample]:
            (one,) = samples
            rows = {name: np.zeros(len(one.ids)) for name in columns}
            for name, row in rows.items():
                row[one.mask] = said[name]
            return [one.with_columns(**rows)]

    one = attempt(1.0, (1,))
    assert TurnCritic().advantages([one], Reader())[id(one)] == pytest.approx([0.6 - 0.1])  # type: ignore[arg-type]


def test_without_steps_there_is_no_critic() -> None:
    part, one = TurnCritic(gamma=0.5, steps=0), attempt(1.0, (1, 1, 1))
    group = Group(one.task, (one,))
    nobody: Any = None
    assert part.credit([group], part.rewards.pay([group], nobody, Now(1, 1)), nobody, Now(1, 1)) == [[[0.25, 0.5, 1.0]]]


def test_without_a_critic_nothing_is_drawn_for_it() -> None:
    past = Now(2, 9, past=lambda step: [Group(Task("old", "train"), (attempt(1.0, (1, 1)),))])
    drawn = [len(Archer(critic_steps=steps, states=2).parts.rollouts.starts(past)) for steps in (0, 1)]  # type: ignore[attr-defined]
    assert drawn == [0, 2]


def test_an_attempt_without_a_turn_has_no_advantages() -> None:
    """The opening may fill the context."""
    part = TurnCritic(steps=2)
    one = attempt(1.0, (1, 2))
    group = Group(one.task, (replace(one, attempt=1, turns=(), stop=StopReason.CONTEXT_FULL), one))
    model = learner(Archer())
    (found,) = part.credit([group], part.rewards.pay([group], model, Now(1, 1)), model, Now(1, 1))
    assert found is not None and [len(turns) for turns in found] == [0, 2]


class Acting:
    def __init__(self) -> None:
        self.starts: Sequence[Start] = ()

    async def play(self, starts: Sequence[Start], k: int, seed: int, **options: Any) -> list[Group]:
        if not options.get("single_action"):
            return [Group(start.task, ()) for start in starts]
        self.starts = starts
        return [Group(s.task, (Trajectory(s.task, 0, s.turns, 0.0, False, StopReason.PRACTISED),)) for s in starts]


def test_states_are_drawn_from_the_steps_before() -> None:
    asked = []

    def past(step: int) -> list[Group]:
        asked.append(step)
        return [every_path()]

    rollouts = Acting()
    part = FreshActions(replay=2, states=5)
    tasks = [Task("crossroads", "train")]
    groups = asyncio.run(part.collect(Ask(rollouts, tasks, 3, 0, 0, Now(5, 9, past=past))))  # type: ignore[arg-type]
    assert asked == [3, 4] and len(rollouts.starts) == 5 and len(groups) == 6
    assert all(t.side for group in groups[1:] for t in group.trajectories)
    chosen = [(s.recorded.action_texts, s.turn) for s in rollouts.starts if s.recorded]
    again = [(s.recorded.action_texts, s.turn) for s in part.starts(Now(5, 9, past=past)) if s.recorded]
    later = [(s.recorded.action_texts, s.turn) for s in part.starts(Now(6, 9, past=past)) if s.recorded]
    assert chosen == again != later
    assert not part.starts(Now(1, 9, past=past)) and not FreshActions(states=0).starts(Now(5, 9, past=past))


@pytest.mark.parametrize(
    "settings",
    [
        ["algo.name=archer", "algo.critic_steps=5", "algo.states=6", "algo.replay=2"],
        ["algo.name=himac", "algo.plans=3", "rollout.context=256"],
        ["algo.name=riskpo", "algo.bundle=2"],
    ],
)
def test_a_resumed_run_is_the_run_that_was_not_stopped(settings: list[str], tmp_path: Path) -> None:
    """What was stored, or remembered, before the stop is learned from, or followed, after it."""
    _, whole, steps = train(tmp_path, *settings, "steps=4", "name=whole", "seed=1")
    assert any(step["update"] for step in steps[2:]) and all(step["groups"] == 3 for step in steps)
    _, stopped, _ = train(tmp_path, *settings, "steps=3", "name=stopped", "seed=1")
    with Run.reopen(stopped.folder) as run:
        parts = api.prepared(load_config(tmp_path, *settings, "steps=4", "name=stopped", "seed=1"))
        asyncio.run(api.run_loop(parts, run, Silent()))
    a, b = contents(whole.folder), contents(stopped.folder)
    same = [name for name in a if not name.startswith(("metrics", "evaluations"))]
    assert len(same) > 4 and [name for name in same if a[name] != b[name]] == []


def test_one_fresh_action_at_each_state_drawn() -> None:
    """And nothing from a state that left no room for one."""

    class Acts:
        def __init__(self) -> None:
            self.asked: list[tuple[int, int]] = []

        async def play(self, starts: Sequence[Start], k: int, seed: int, **how: Any) -> list[Group]:
            if how.get("single_action"):
                self.asked.append((len(starts), k))
                return [Group(start.task, (attempt(0.0),) if n else ()) for n, start in enumerate(starts)]
            return [Group(start.task, ()) for start in starts]

    stored, rollouts = Group(Task("old", "train"), (attempt(1.0, (1, 1, 1)),)), Acts()
    now = Now(2, 9, past=lambda step: [stored])
    tasks = [Task("new", "train")]
    groups = asyncio.run(FreshActions(1, 2).collect(Ask(rollouts, tasks, 3, 0, 0, now)))  # type: ignore[arg-type]
    assert rollouts.asked == [(2, 1)] and [len(group.trajectories) for group in groups] == [0, 1]


@pytest.mark.parametrize("step", range(2, 7))
def test_the_states_drawn_lie_in_the_order_in_which_they_were_met(step: int) -> None:
    stored = Group(Task("old", "train"), (attempt(1.0, (1,) * 8),))
    turns = [start.turn for start in FreshActions(1, 5).starts(Now(step, 9, past=lambda _: [stored]))]
    assert len(turns) == 5 and turns == sorted(turns)
