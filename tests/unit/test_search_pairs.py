"""MCTS-IPL and Agent Q: PUCT by hand, visits, smoothed labels, rankings, and what the losses must not depend on."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from longloop.algos.agent_q import AgentQ, asking, ranked, ranks_of
from longloop.algos.mcts_ipl import MctsIpl, visits
from longloop.algos.preference import Preference
from longloop.algos.tree_dpo import TreeDpo, taken_actions
from longloop.learners.batching import pack
from longloop.types import Group, Message, Now, Sample, Sampled, SamplingParams, StopReason, Trajectory, Turn
from tests.support.samples import (
    NOW,
    TASK,
    assert_close,
    batch,
    first_minibatch,
    gradient,
    learner,
    loss_and_slopes,
    sampled,
)
from tests.support.worlds import CHAT, Log
from tests.unit.test_tree import New, Path, paid_by_number, rollouts, said


class Sure(New):
    """Says these words, one after the other, at every state, each with a log-prob of its own."""

    def __init__(self, **logprobs: float) -> None:
        super().__init__("".join(logprobs))
        self._logprobs = logprobs

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
        one = await super().sample(ids, params, session=session)
        word = CHAT.decode(one.ids.tolist())
        return replace(one, logprobs=[self._logprobs[word], *[0.0] * (len(one.ids) - 1)])


def puct(world: Any, engine: Any, k: int, explore: float = 1.0) -> Group:
    what = rollouts(world, engine)
    (group,) = asyncio.run(asyncio.wait_for(what.trees([TASK], k, explore, seed=0, puct=True), 60))
    return group


def counted(group: Group) -> dict[str, int]:
    return {text: visits([t]) for text, t in zip(said(group), group.trajectories, strict=True)}


# -- the search --------------------------------------------------------------------------------------------------------


def test_visits_go_where_the_reward_is() -> None:
    """One turn, "a" pays 1 and "b" nothing. p = 1: after each once, Q + c sqrt(N) / (1 + n) is 1 + sqrt(2) / 2 for "a"
    against sqrt(2) / 2; "b" is due when sqrt(N) / 2 exceeds 1 + sqrt(N) / N, first at N = 8: 1.414 against 1.354."""
    log = Log()
    world = lambda: Path(log, 1, lambda words: float(words == ("a",)))  # noqa: E731
    assert counted(puct(world, New("ab"), 8)) == {"a": 7, "b": 1}
    assert counted(puct(world, New("ab"), 9)) == {"a": 7, "b": 2}
    assert counted(puct(world, New("ab"), 40, explore=0.0)) == {"a": 39, "b": 1}, "c = 0: greedy on Q"
    assert log.live == 0, "every environment was finished"


def test_the_prior_is_the_policys_own() -> None:
    """Both pay the same. An action is two tokens, the second with log-prob 0: p = exp(log p / 2^1.25)."""
    world = lambda: Path(Log(), 1, lambda _: 0.5)  # noqa: E731
    likely, unlikely = math.log(0.9), math.log(0.1)
    assert len(CHAT.action_ids("a")) == 2
    p = [math.exp(x / 2**1.25) for x in (likely, unlikely)]
    n = [1, 1]
    for total in range(2, 20):
        bonus = [p[i] * math.sqrt(total) / (1 + n[i]) for i in (0, 1)]
        n[bonus.index(max(bonus))] += 1
    assert counted(puct(world, Sure(a=likely, b=unlikely), 20)) == dict(zip("ab", n, strict=True)) and n[0] > 2 * n[1]


def test_the_prior_of_a_later_action_is_its_own() -> None:
    """At every state "a" is likely and "b" not; with equal pay "a" is visited more after "b" as well."""
    world = lambda: Path(Log(), 2, lambda _: 0.5)  # noqa: E731
    found = counted(puct(world, Sure(a=math.log(0.9), b=math.log(0.1)), 40))
    assert found["aa"] > 2 * found["ab"] and found["ba"] > 2 * found["bb"]


def test_every_visit_counts_on_the_way_and_nothing_is_played_for_one_again() -> None:
    """Two turns: six different attempts at most, two from the root and two more from each of its children."""
    log = Log()
    group = puct(lambda: Path(log, 2, lambda words: float(words == ("b", "c"))), New(), 50)
    found = counted(group)
    assert len(found) == 6 and sum(found.values()) == 50 and log.steps == 2 * 2 + 4 * 1
    assert max(found, key=lambda text: found[text]) == "bc"
    taken = taken_actions(group)
    roots = {CHAT.decode(list(key)): visits(some) for key, some in taken[()].items()}
    assert sum(roots.values()) == 50 and roots["b"] > 4 * roots["a"]


def test_a_repeated_attempt_is_a_visit_and_a_failed_one_is_not() -> None:
    same = puct(lambda: Path(Log(), 1, lambda _: 1.0), New("a"), 6)
    assert counted(same) == {"a": 6}

    class Fails(Path):
        async def step(self, action: Message) -> Any:
            raise ValueError("boom")

    failed = puct(lambda: Fails(Log(), 1, lambda _: 1.0), New(), 6)
    assert {t.stop for t in failed.trajectories} == {StopReason.ENV_ERROR} and visits(failed.trajectories) == 0


def test_without_puct_nothing_is_visited_twice() -> None:
    log = Log()
    what = rollouts(lambda: Path(log, 4, paid_by_number(0.4, 0.6, 0.0)), lambda session, _: session[-1])
    (group,) = asyncio.run(what.trees([TASK], 3, 0.0, seed=0))
    assert all("visits" not in t.info for t in group.trajectories)


# -- pairs and labels --------------------------------------------------------------------------------------------------


def acted(number: int, reward: float, n: int, *actions: int, critics: Sequence[float] = ()) -> Trajectory:
    """An attempt that took these actions of one token, and was visited n times."""
    turns = tuple(
        Turn(
            (Message("user", f"turn {u}"),),
            (5 + u, 6),
            Message("assistant", str(action)),
            (action,),
            (-1.0 - 0.1 * action,),
            info={"critic": critics[u]} if u < len(critics) else {},
        )
        for u, action in enumerate(actions)
    )
    return Trajectory(TASK, number, turns, reward, reward == 1.0, StopReason.FINISHED, info={"visits": n})


TREE = Group(
    TASK,
    (acted(0, 1.0, 6, 10, 20), acted(1, 0.0, 3, 10, 21), acted(2, 0.0, 3, 11, 20), acted(3, 0.5, 1, 11, 22)),
)
"""Q and N: 6/9 of 9 for action 10 at the root, 0.125 of 4 for 11; after 10, 1 of 6 and 0 of 3; after 11, 0 and 0.5."""


def labels(algo: MctsIpl, group: Group = TREE) -> list[tuple[tuple[int, ...], tuple[int, ...], float]]:
    def path(t: Trajectory) -> tuple[int, ...]:
        return tuple(int(turn.action_ids[0]) for turn in t.turns)

    return sorted((path(better), path(worse), better.info["noise"]) for better, worse in algo.pairs(group))


def test_a_pair_is_smoothed_by_the_visits_of_its_worse_action() -> None:
    assert labels(MctsIpl()) == [
        ((10,), (11,), pytest.approx(4 / 13)),
        ((10, 20), (10, 21), pytest.approx(3 / 9)),
        ((11, 22), (11, 20), 0.5),  # the worse has three of four visits
    ]
    assert [noise for *_, noise in labels(MctsIpl(smooth=0.0))] == [0, 0, 0]
    assert len(labels(MctsIpl(gap=0.6))) == 1
    nine = Group(TASK, (acted(0, 1.0, 9, 10), acted(1, 0.0, 3, 11)))
    assert labels(MctsIpl(), nine) == [((10,), (11,), 0.25)]
    three = Group(TASK, (*nine.trajectories, acted(2, 0.5, 4, 12)))
    assert labels(MctsIpl(), three) == labels(MctsIpl(), nine), "the best and the worst alone"
    assert labels(MctsIpl(), Group(TASK, TREE.trajectories[::-1])) == labels(MctsIpl())


@pytest.mark.parametrize(("noise", "slope"), [(0.0, -0.05), (0.25, -0.025), (0.5, 0.0)])
def test_the_smoothed_loss_by_hand(noise: float, slope: float) -> None:
    """beta = 0.1: at D = 0 log 2 and (1/2 - s) beta; at D = 0.7 the two terms are those of +-0.07."""
    of = batch([0.0] * 2, [1, -1], [1.0] * 2, unit=[0, 0], reference=[-1.0, -2.0])
    of = replace(of, columns={**of.columns, "noise": torch.full((2,), noise)})
    total, slopes = loss_and_slopes(MctsIpl(), [-1.0, -2.0], of)
    assert total == pytest.approx(math.log(2)) and slopes == pytest.approx([slope, -slope])
    total, _ = loss_and_slopes(MctsIpl(), [-0.5, -2.2], of)
    low, high = math.log(1 + math.exp(-0.07)), math.log(1 + math.exp(0.07))
    assert total == pytest.approx((1 - noise) * low + noise * high)


# -- rankings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "n", "scores"),
    [
        ("2, 1", 2, [0.0, 1.0]),
        ("3 > 1 > 2", 3, [0.5, 0.0, 1.0]),
        ("the best is 2", 3, [0.25, 1.0, 0.25]),  # the others share 1/2 and 0
        ("2 2 1 9", 2, [0.0, 1.0]),
        ("0, 9, 2 and 1", 2, [0.0, 1.0]),
        ("7: 2", 3, [0.25, 1.0, 0.25]),
        ("I cannot say", 3, [0.5, 0.5, 0.5]),
    ],
)
def test_a_ranking_is_read_from_the_numbers_in_an_answer(answer: str, n: int, scores: list[float]) -> None:
    assert ranks_of(answer, n) == pytest.approx(scores)


def test_the_policy_is_asked_at_every_state_with_several_actions() -> None:
    """It always says "2": of the actions in the order of their texts, the second is the best."""
    asked: list[str] = []

    class Ranks(New):
        async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
            asked.append(CHAT.decode(list(ids)))
            two = CHAT.action_ids("2")
            return Sampled(two, (0.0,) * len(two), "stop")

    log = Log()
    grown = rollouts(lambda: Path(log, 2, lambda words: float(words == ("b", "a"))), New("ab"))
    (group,) = asyncio.run(grown.trees([TASK], 9, 1.0, seed=0))
    assert sorted(said(group)) == ["aa", "ab", "ba", "bb"]
    what = rollouts(lambda: Path(log, 2, lambda _: 0.0), Ranks())
    (told,) = asyncio.run(ranked(what, [group], 3, seed=-5))
    assert len(asked) == 9 and all("1. a\n2. b" in text for text in asked)
    for t in told.scored:
        assert [turn.info["critic"] for turn in t.turns] == [float(turn.action.content == "b") for turn in t.turns]
    answers = [t for t in told.trajectories if t.side]
    assert len(answers) == 9 and {t.stop for t in answers} == {StopReason.PRACTISED} and len(told.scored) == 4
    assert [t.attempt for t in told.trajectories] == list(range(13))
    assert len(told.policy_trajectories) == 4, "nothing is learned from an answer"


def test_the_question_stands_behind_what_was_read_and_an_only_action_is_not_asked_about() -> None:
    class Same:
        def retokenize(self, trajectory: Trajectory) -> Trajectory:
            return trajectory

    one, other = acted(4, 1.0, 1, 10), acted(5, 0.0, 1, 11)
    heard = Message("user", "You are here.")
    told = replace(one, turns=(replace(one.turns[0], context=(Message("system", "Go."), heard)),))
    start = asking(Same(), [[told], [other]], 0)  # type: ignore[arg-type]
    assert start.recorded is not None and start.recorded.attempt == 4
    first, last = start.recorded.turns[0].context
    assert first.content == "Go." and last.content.startswith("You are here.\n\nDo not act yet.")
    unheard = replace(one, turns=(replace(one.turns[0], context=()),))
    silent = asking(Same(), [[unheard], [other]], 0).recorded  # type: ignore[arg-type]
    assert silent is not None and silent.turns[0].context[0].content.startswith("\n\nDo not act yet.")
    nobody: Any = None
    group = Group(TASK, (one,))
    assert asyncio.run(ranked(nobody, [group], 3, seed=0)) == [group]
    assert (
        visits([replace(one, info={}), replace(other, info={"visits": 3})]) == 4 and MctsIpl().needs_reference is True
    )


def test_q_is_a_mixture_of_rewards_and_rankings() -> None:
    group = Group(TASK, (acted(0, 1.0, 1, 10, critics=[0.0]), acted(1, 0.0, 1, 11, critics=[1.0])))

    def best(alpha: float, gap: float = 0.2) -> list[int]:
        return [int(better.turns[0].action_ids[0]) for better, _ in AgentQ(alpha=alpha, gap=gap).pairs(group)]

    assert best(1.0) == [10] and best(0.0) == [11] and best(0.5) == [] and best(0.55) == []
    assert best(0.7) == [10] and best(0.3) == [11]
    some = group.trajectories[:1]
    assert AgentQ(alpha=0.25).q(some, 0) == pytest.approx(0.25)
    assert AgentQ(alpha=0.25).q([acted(0, 1.0, 1, 10)], 0) == pytest.approx(0.25 + 0.75 / 2), "without a ranking"
    assert AgentQ(k=12).attempts_per_task == 23 and AgentQ(k=12, alpha=1.0).attempts_per_task == 12


def test_the_reference_is_what_was_logged_and_takes_no_pass() -> None:
    class NoPass:
        def read(self, *_: Any) -> Any:
            raise AssertionError("no pass is needed")

    algo = AgentQ(alpha=1.0)
    samples = algo.credit([TREE], NoPass(), NOW)  # type: ignore[arg-type]
    assert len(samples) == 6
    for sample in samples:
        of = pack([sample], 1, torch.device("cpu")).batch
        np.testing.assert_allclose(algo.reference_logp(of).numpy(), sample.logprobs[sample.mask], rtol=1e-6)
        assert sample.logprobs[sample.mask].tolist() == [-1.0 - 0.1 * int(sample.ids[sample.mask][0])]


# -- what they reduce to, and must not depend on -----------------------------------------------------------------------


def slope(algo: Preference, groups: Sequence[Group], micro_tokens: int = 10**6, noise: float = 0.0) -> Any:
    policy = learner(algo, micro_tokens=micro_tokens)
    minibatch = first_minibatch(replace(algo, epochs=1, minibatch=0), sampled(groups, policy, shift=0.3), policy)
    chance = np.random.default_rng(0)

    def disturbed(s: Sample) -> Sample:
        off = noise * ~s.mask
        columns = {name: x + off * chance.normal(size=len(x)) for name, x in s.columns.items()}
        return replace(s, columns=columns, advantages=s.advantages + off, weights=s.weights + off)

    return gradient(policy, replace(minibatch, samples=[disturbed(s) for s in minibatch.samples]), algo.loss)[0]


@pytest.mark.parametrize(
    ("neutral", "reduced"),
    [
        (AgentQ(alpha=1.0, logged=False), TreeDpo()),
        (MctsIpl(smooth=0.0, gap=0.2), type("FromTheStart", (TreeDpo,), {"needs_reference": True})()),
    ],
)
def test_the_neutral_setting_is_dpo_on_trees(neutral: Preference, reduced: Preference) -> None:
    """Two actions at every state, each visited once: best and worst are all there is."""
    once = Group(TASK, tuple(replace(t, info={}) for t in TREE.trajectories))
    one, other = slope(neutral, [once]), slope(reduced, [once])
    assert any(x.any() for x in one.values()) and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("algo", [MctsIpl(), AgentQ(alpha=0.7), AgentQ(alpha=0.7, logged=False)])
def test_neither_the_cut_nor_the_order_nor_the_environments_tokens_matter(algo: Preference) -> None:
    groups = [TREE, Group(TASK, (acted(4, 0.0, 2, 12), acted(5, 1.0, 5, 13)))]
    whole = slope(algo, groups)
    assert_close(whole, slope(algo, groups, micro_tokens=1))
    disturbed = slope(algo, groups, noise=1.0)
    assert all(torch.equal(whole[name], disturbed[name]) for name in whole)
    turned = [Group(g.task, g.trajectories[::-1]) for g in groups[::-1]]

    def pairs(some: Sequence[Group]) -> Any:
        samples = algo.credit(some, learner(algo), Now(1, 9))
        return sorted(
            (s.ids.tolist(), s.advantages.tolist(), s.source.attempt, s.unit) for s in samples if s.mask.any()
        )

    assert [one[:2] for one in pairs(groups)] == [one[:2] for one in pairs(turned)]
