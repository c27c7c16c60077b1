"""Critique-GRPO's refinements: which becomes the K-th attempt, what it reads there, and how it is learned from."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from longloop.algos.critique_grpo import CritiqueGrpo
from longloop.algos.parts.objective import Unclipped
from longloop.algos.parts.rollouts import Ask, BestRefinement, as_if_untold
from longloop.config import RolloutConfig
from longloop.envs.crossroads import Crossroads
from longloop.rollout.episode import RolloutContext
from longloop.rollout.groups import GroupRollouts
from longloop.types import Group, Now, Sampled, SamplingParams, StopReason, Task, Trajectory
from tests.support.samples import NOW, attempt, batch, learner, loss_and_slopes
from tests.support.worlds import CHAT

TASK = Task("crossroads", "train")


class Listens:
    """Goes left, but right where it has read a critique."""

    def __init__(self) -> None:
        self.read = list[str]()

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
        text = CHAT.decode(list(ids))
        self.read.append(text)
        said = CHAT.action_ids("r" if "earlier attempt" in text else "l")
        return Sampled(said, [-0.5] * len(said), "stop")

    def forget(self, session: str) -> None: ...

    def release(self) -> None: ...


def collected(engine: Any, k: int = 4) -> Group:
    limits = RolloutConfig(turn_tokens=8, max_turns=8, context=2048)
    context = RolloutContext(lambda: Crossroads(Crossroads.Options()), CHAT, engine, limits, SamplingParams())
    rollouts = GroupRollouts(context, "test", abandon=False)
    (group,) = asyncio.run(asyncio.wait_for(BestRefinement().collect(Ask(rollouts, [TASK], k, 0, 0, Now(1, 9))), 60))
    return group


def test_a_refinement_joins_the_group_as_if_it_had_not_been_told() -> None:
    engine = Listens()
    group = collected(engine)
    *plain, refined = group.scored
    assert [t.action_texts for t in plain] == [("l", "l")] * 3 and [t.expert for t in plain] == [False] * 3
    assert (refined.attempt, refined.expert, refined.action_texts, refined.reward) == (3, True, ("r", "r"), 1.0)
    assert refined.turns[0].context == plain[0].turns[0].context
    assert refined.turns[0].context_ids.tolist() == plain[0].turns[0].context_ids.tolist()
    assert refined.turns[1].context[-1].content == "ash", "what the environment answered stays"
    assert [t.action_texts for t in group.sides] == [("r", "r")] * 2 and group.policy_trajectories == tuple(plain)
    assert len({t.attempt for t in group.trajectories}) == 6 == BestRefinement().per_task(4)
    told = [text for text in engine.read if "earlier attempt" in text]
    assert "said:\nl\nl\nit failed, with a score of 0.2. do the task again." in told[0]


def test_it_is_learned_from_beside_the_others() -> None:
    algo = CritiqueGrpo(k=4, divisor=2.0)
    samples = algo.credit([collected(Listens())], learner(algo), NOW)
    assert [s.own for s in samples] == [True, True, True, False]
    assert [s.advantages[s.mask][0] for s in samples] == pytest.approx([-0.2, -0.2, -0.2, 0.6])
    assert {w for s in samples for w in s.weights[s.mask]} == {0.5}
    assert "attempt" not in CHAT.decode(samples[-1].ids.tolist())


@pytest.mark.parametrize(
    ("rewards", "best"), [((0.25, 1.0, 1.0), 1), ((0.25, 0.75, 0.5), 1), ((0.0, 0.0, 0.0), 0), ((), None)]
)
def test_which_one_is_the_best(rewards: Sequence[float], best: int | None) -> None:
    """The first that succeeds, or else that which was paid most."""
    own = Group(TASK, (attempt(0.0, (2,), 0),))
    refined = [attempt(reward, (1, n + 1), n) for n, reward in enumerate(rewards)]
    joined = BestRefinement().joined(None, own, refined, 2)  # type: ignore[arg-type]
    assert [t.turns[1:] for t in joined.scored[1:]] == ([] if best is None else [refined[best].turns[1:]])
    assert len(joined.sides) == max(0, len(rewards) - 1)


def test_a_refinement_that_failed_or_said_nothing_is_not_the_best() -> None:
    refined = [
        replace(attempt(1.0, (1,), 0), stop=StopReason.ENV_ERROR),
        replace(attempt(1.0, (), 1), stop=StopReason.CONTEXT_FULL),
        attempt(0.5, (1, 1), 2),
    ]
    joined = BestRefinement().joined(None, Group(TASK, (attempt(0.0),)), refined, 2)  # type: ignore[arg-type]
    assert [t.reward for t in joined.scored] == [0.0, 0.5] and len(joined.trajectories) == 4


def test_a_success_counts_more_than_a_higher_reward() -> None:
    refined = [replace(attempt(2.0, (1, 1), 0), success=False), attempt(1.0, (1, 2), 1)]
    joined = BestRefinement().joined(None, Group(TASK, (attempt(0.0),)), refined, 2)  # type: ignore[arg-type]
    assert joined.scored[1].reward == 1.0


def test_the_critique_says_what_the_verifier_said() -> None:
    tests = [
        "no test",
        {"name": "the letter was sent", "passed": False},
        {"name": "nothing else changed", "passed": True},
    ]
    failed = replace(attempt(0.5), info={"tests": tests})
    assert "What was wrong: the letter was sent. Do" in BestRefinement().critique(failed).content
    assert "It succeeded. Do" in BestRefinement().critique(attempt(1.0)).content
    assert (
        "It failed, with a score of 0." in BestRefinement().critique(replace(attempt(0.0), info={"tests": 3})).content
    )
    turn = attempt(0.0).turns[0]
    long = replace(turn, action=replace(turn.action, content="x" * 50 + "y"))
    for most, said in ((4, "xxxy"), (0, ""), (99, "x" * 50 + "y")):
        assert f"said:\n{said}\nIt" in BestRefinement(most).critique(replace(failed, turns=(long,))).content


def test_where_history_was_rewritten_all_ids_are_made_anew() -> None:
    class Anew:
        def retokenize(self, trajectory: Trajectory) -> Trajectory:
            return replace(trajectory, error="anew")

    plain = attempt(0.0, (1, 1), 0)
    anew: Any = Anew()
    assert as_if_untold(anew, attempt(1.0, (1, 1), 1), plain).error == ""
    again = as_if_untold(anew, attempt(1.0, (1, 1, 1), 1, fresh=(0,)), plain)
    assert again.error == "" and len(again.turns) == 3, "the first turn is replaced anyway"
    assert again.turns[0].action_ids.tolist() == attempt(1.0, (1, 1, 1), 1).turns[0].action_ids.tolist()
    assert as_if_untold(anew, attempt(1.0, (1, 1, 1), 1, fresh=(2,)), plain).error == "anew", "one is enough"
    rewritten = as_if_untold(anew, attempt(1.0, (1, 1), 1, fresh=(1,)), plain)
    assert rewritten.error == "anew" and rewritten.expert


def test_the_slope_of_a_shown_token() -> None:
    """p gamma / (p + gamma)^2, largest at p = gamma; a drawn token has its ratio."""
    probabilities = torch.tensor([0.01, 0.1, 0.9]).log().tolist()
    shown = batch(probabilities, [1.0] * 3, [1.0] * 3)
    _, slopes = loss_and_slopes(Unclipped(), probabilities, replace(shown, own_N=torch.zeros(3)))
    assert slopes == pytest.approx([-0.0826, -0.25, -0.09], abs=1e-4)
    old = batch([-1.0, -1.0], [0.5, -2.0], [1.0, 0.25])
    total, slopes = loss_and_slopes(Unclipped(), [0.0, -3.0], old)
    e = 2.718281828
    assert slopes == pytest.approx([-0.5 * e, 0.5 * e**-2], rel=1e-5) and total == pytest.approx(sum(slopes), rel=1e-5)
