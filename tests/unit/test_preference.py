"""Learning from pairs: the loss by hand, which pairs are made, and trees of attempts."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from longloop import api
from longloop.algos.dmpo import Dmpo, phi
from longloop.algos.dpo import Dpo
from longloop.algos.eto import Eto
from longloop.algos.preference import Preference
from longloop.algos.spin import Spin
from longloop.algos.tree_dpo import TreeDpo
from longloop.config import RolloutConfig
from longloop.engines.scripted import ScriptedEngine
from longloop.envs.guess import Guess
from longloop.learners.batching import microbatches
from longloop.rollout.episode import RolloutContext
from longloop.rollout.groups import GroupRollouts
from longloop.store.run import Run
from longloop.store.trajectories import Trajectories
from longloop.training import TaskStream, schedule, summarize
from longloop.types import Group, Now, SamplingParams, StopReason, UserError
from tests.support.helpers import Silent, load_config
from tests.support.samples import (
    NOW,
    TASK,
    assert_close,
    attempt,
    batch,
    first_minibatch,
    gradient,
    learner,
    loss_and_slopes,
)
from tests.support.worlds import CHAT, Env, Log


def with_expert(*rewards: float, expert: float = 1.0) -> Group:
    """Own attempts that were paid so much, and an expert's."""
    own = [attempt(reward, (2, 1), number) for number, reward in enumerate(rewards)]
    return Group(TASK, (replace(attempt(expert, (3,), 9), expert=True), *own))


def numbers(pairs: Any) -> list[tuple[int, int]]:
    """Which attempts were paired."""
    return [(better.attempt, worse.attempt) for better, worse in pairs]


def test_at_the_reference_the_loss_is_log_two_and_its_slope_half_beta() -> None:
    """Three tokens of the better one, two of the worse; one pair."""
    of = batch([0.0] * 5, [1, 1, 1, -1, -1], [1.0] * 5, unit=[0] * 5, reference=[-1.0, -2.0, -0.5, -3.0, -0.1])
    total, slopes = loss_and_slopes(Dpo(beta=0.3), [-1.0, -2.0, -0.5, -3.0, -0.1], of)
    assert total == pytest.approx(math.log(2))
    assert slopes == pytest.approx([-0.15, -0.15, -0.15, 0.15, 0.15])


def test_the_margin_by_hand() -> None:
    """Two pairs: beta ((0.5 - 0.2) - (-0.4)) = 0.07 and beta (0 - 1) = -0.1."""
    of = batch([0.0] * 5, [1, 1, -1, 1, -1], [1.0] * 5, unit=[0, 0, 0, 1, 1], reference=[-1.0] * 5)
    total, slopes = loss_and_slopes(Dpo(beta=0.1), [-0.5, -1.2, -1.4, -1.0, 0.0], of)
    assert total == pytest.approx(math.log(1 + math.exp(-0.07)) + math.log(1 + math.exp(0.1)))
    first, second = 0.1 / (1 + math.exp(0.07)), 0.1 / (1 + math.exp(-0.1))
    assert slopes == pytest.approx([-first, -first, first, -second, second])


def test_phi_by_hand() -> None:
    """gamma = 0.7 and three turns: 1, then 0.7 (1 - 0.49) / (1 - 0.343), then 0.49 (1 - 0.7) / (1 - 0.343)."""
    assert [phi(u, 3, 0.7) for u in range(3)] == pytest.approx([1.0, 0.357 / 0.657, 0.147 / 0.657])
    assert [phi(u, 4, 1.0) for u in range(4)] == [1.0, 0.75, 0.5, 0.25]
    assert [phi(u, 4, 0.999999) for u in range(4)] == pytest.approx([1.0, 0.75, 0.5, 0.25], abs=1e-5)


def test_dmpo_with_unit_weights_is_dpo(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same pair, the same gradient."""
    monkeypatch.setattr("longloop.algos.dmpo.phi", lambda *_: 1.0)
    better, worse = attempt(1.0, (2, 3), 0), attempt(0.0, (4,), 1)
    one, other = Dmpo(), Dpo(minibatch=32)
    policy = learner(other)
    dmpo = gradient(policy, first_minibatch(one, [Group(TASK, (better, worse))], policy), one.loss)[0]
    dpo = gradient(
        policy, first_minibatch(other, [Group(TASK, (replace(better, expert=True), worse))], policy), other.loss
    )[0]
    assert_close(dmpo, dpo)


def test_dmpo_weighs_the_tokens_of_a_turn_alike() -> None:
    algo = Dmpo()
    (sample,) = algo.to_samples(attempt(1.0, (2, 1)), 0)
    weights = [w for w, chosen in zip(sample.weights, sample.mask, strict=True) if chosen]
    assert weights == pytest.approx([1.0, 1.0, phi(1, 2, 0.7)])


@pytest.mark.parametrize(
    ("algo", "wanted"),
    [
        (Dpo(), [(9, 0), (9, 2)]),  # what was paid as much as the expert is left out
        (Spin(), [(9, 0), (9, 1), (9, 2)]),  # the expert is always the better one
        (Eto(), [(9, 0), (9, 2)]),
        (Dmpo(), [(1, 0), (2, 0), (1, 2)]),  # own attempts alone
        (Dmpo(gap=0.6), [(1, 0)]),
    ],
)
def test_which_attempts_are_paired(algo: Preference, wanted: list[tuple[int, int]]) -> None:
    assert numbers(algo.pairs(with_expert(0.0, 1.0, 0.5))) == wanted


def test_eto_learns_from_who_was_paid_more() -> None:
    """Own attempts beat a poor expert; ties are dropped; a long own one that is the worse is cut, an expert's never."""
    assert numbers(Eto().pairs(with_expert(0.75, 0.5, 0.0, expert=0.5))) == [(0, 9), (9, 2)]
    long = attempt(0.0, (1,) * 12, 0)
    ((better, worse),) = Eto().pairs(Group(TASK, (replace(attempt(1.0, (3,), 9), expert=True), long)))
    assert len(better.turns) == 1 and worse.turns == long.turns[:6]
    poor = replace(attempt(0.0, (1,) * 12, 9), expert=True)
    ((better, worse),) = Eto().pairs(Group(TASK, (poor, attempt(1.0, (3,), 0))))
    assert len(better.turns) == 1 and worse.turns == poor.turns


def test_eto_is_stricter_after_its_first_iteration() -> None:
    of = [batch([0.0] * 2, [1, -1], [1.0] * 2, unit=[0, 0], step=step, reference=[-1.0] * 2) for step in (1, 2)]
    assert [loss_and_slopes(Eto(), [-1.0, -1.0], each)[1][0] for each in of] == pytest.approx([-0.05, -0.25])
    assert [Eto().lr_scale(Now(step, 3)) for step in (1, 2, 3)] == [1.0, 0.5, 0.5]


@pytest.mark.parametrize(
    ("algo", "wanted"),
    [
        # twenty updates of one pair: the middle of the first lies 1/40 into the iteration, that of the third 5/40
        (Eto(), [0.25, 0.75, *[1.0] * 18]),
        (Dmpo(), [0.25, 0.75, *[1.0] * 18]),
        (Spin(), [0.25, 0.75, *[(39 - 2 * n) / 36 for n in range(2, 20)]]),  # then (1 - n/20 - 1/40) / 0.9
        (Dpo(), [1.0] * 20),
    ],
)
def test_the_learning_rate_within_an_iteration(algo: Any, wanted: list[float]) -> None:
    """ETO and DMPO warm up over the first tenth of an iteration's updates; SPIN then goes down to zero."""
    algo = replace(algo, epochs=1, minibatch=1)
    better = replace(attempt(1.0, (3,), 1), expert=not isinstance(algo, Dmpo))
    groups = [Group(TASK, (better, attempt(0.0, (2,), 0)))] * 20
    samples = algo.credit(groups, learner(algo), NOW)
    updates = list(schedule(SimpleNamespace(seed=0, steps=1), algo, groups, samples, Now(1, 1)))  # type: ignore[arg-type]
    assert [update.lr_scale for update in updates] == pytest.approx(wanted)


@pytest.mark.parametrize("algo", [Dpo(), Spin(), Eto()])
def test_equal_actions_unscored_attempts_and_missing_experts_make_no_pairs(algo: Preference) -> None:
    policy = learner(algo)
    same = attempt(0.5, (2, 1), 0)
    assert algo.credit([Group(TASK, (replace(same, attempt=9, reward=1.0, expert=True), same))], policy, NOW) == []
    broken = attempt(0.0, (2,), 1, stop=StopReason.ENV_ERROR)
    assert algo.credit([Group(TASK, (replace(attempt(1.0), expert=True), broken))], policy, NOW) == []
    assert algo.credit([Group(TASK, (attempt(1.0), attempt(0.0, number=1)))], policy, NOW) == []


def test_a_pair_stays_together_and_counts_as_one() -> None:
    """However small the micro-batches; the better one in two stretches."""
    algo = Dpo(minibatch=2)
    policy = learner(algo)
    split = replace(attempt(1.0, (2, 3), 9, fresh=(1,)), expert=True)
    groups = [Group(TASK, (split, attempt(0.0, (4,), 0), attempt(0.25, (1, 1), 1)))]
    samples = algo.credit(groups, policy, NOW)
    assert [(s.pair, s.source, s.stretch) for s in samples] == [
        *((0, (0, 9), 0), (0, (0, 9), 1), (0, (0, 0), 0)),
        *((1, (0, 9), 0), (1, (0, 9), 1), (1, (0, 1), 0)),
    ]
    pieces = microbatches(samples, 1, whole_units=True)
    assert [{s.pair for s in piece} for piece in pieces] in ([{0}, {1}], [{1}, {0}])
    minibatch = first_minibatch(algo, groups, policy)
    assert minibatch.norm == 2.0 and len(minibatch.samples) == 6
    grads, metrics = gradient(policy, minibatch, algo.loss)
    assert metrics["loss"] == pytest.approx(math.log(2), abs=1e-6) and metrics["settled"] < 1
    small = learner(algo, micro_tokens=1)
    assert_close(gradient(small, minibatch, algo.loss)[0], grads)


def gained(algo: Any, samples: Any, before: Any, after: Any) -> float:
    """What the better one gained in log-prob, minus what the worse one did; of one pair, by hand."""
    return sum(
        side * weight * (new - old)
        for sample, olds, news in zip(samples, before, after, strict=True)
        for side, weight, old, new in zip(sample.advantages, sample.weights, olds, news, strict=True)
    )


@pytest.mark.parametrize("lora", [0, 2])
def test_dpo_compares_with_the_policy_before_training(lora: int) -> None:
    """In the second iteration the margin is what the first one gained, and beta has an effect at its first update."""
    algo = Dpo(lr=1e-2, minibatch=1, beta=0.5)
    policy = learner(algo, lora=lora)
    groups = [Group(TASK, (replace(attempt(1.0, (2, 3), 9), expert=True), attempt(0.0, (4,), 0)))]
    samples = algo.credit(groups, policy, NOW)
    before = policy.logprobs(samples)
    assert not policy.update(first_minibatch(algo, groups, policy), algo.loss).stop
    minibatch = first_minibatch(algo, groups, policy, step=2)
    gain = gained(algo, samples, before, policy.logprobs(samples))
    assert gain > 0.1
    for beta in (0.5, 2.0):
        _, metrics = gradient(policy, minibatch, Dpo(beta=beta).loss)
        assert metrics["margin"] == pytest.approx(beta * gain, rel=1e-3)
        assert metrics["loss"] == pytest.approx(math.log(1 + math.exp(-beta * gain)), rel=1e-3)


@pytest.mark.parametrize("algo", [Spin(), Eto(), Dmpo(), TreeDpo()])
def test_the_second_epoch_has_a_margin(algo: Any) -> None:
    """Where the reference is renewed in every iteration, an iteration has further updates, at which beta counts."""
    algo = replace(algo, lr=1e-2)
    policy = learner(algo)
    expert = not isinstance(algo, Dmpo | TreeDpo)
    better, worse = replace(attempt(1.0, (3,), 9), expert=expert), attempt(0.0, (2,), 0)
    groups = [Group(TASK, (better, worse))]
    samples = algo.credit(groups, policy, NOW)
    before = policy.logprobs(samples)
    updates = list(schedule(SimpleNamespace(seed=0, steps=1), algo, groups, samples, Now(1, 1)))  # type: ignore[arg-type]
    assert len(updates) == 3
    assert policy.update(updates[0], algo.loss).metrics["margin"] == pytest.approx(0, abs=1e-6)
    gain = gained(algo, samples, before, policy.logprobs(samples))
    assert abs(gain) > 0.01
    for beta in (0.1, 1.0):
        metrics = gradient(policy, updates[1], replace(algo, beta=beta).loss)[1]
        assert metrics["margin"] == pytest.approx(beta * gain, rel=1e-3)


def test_the_gradient_is_that_of_the_definition() -> None:
    """At the reference: beta / 2 times the difference of the two attempts' log-prob gradients."""
    algo = Dpo(beta=0.2, minibatch=1)
    policy = learner(algo)
    better, worse = replace(attempt(1.0, (2, 3), 9), expert=True), attempt(0.0, (4,), 0)
    minibatch = first_minibatch(algo, [Group(TASK, (better, worse))], policy)
    grads, _ = gradient(policy, minibatch, algo.loss)

    def difference(scored: Any, of: Any) -> Any:
        return -0.1 * (of.adv_N * scored.logp_N).sum(), {}

    assert_close(gradient(policy, minibatch, difference)[0], grads)


def test_the_expert_is_beside_the_own_attempts(tmp_path: Any) -> None:
    """With numbers of their own, and told apart when they are read again; and it is not counted as a success."""
    setting = RolloutContext(
        lambda: Guess(Guess.Options(3, 2)),
        CHAT,
        ScriptedEngine(None, CHAT, ["1", "1"]),
        RolloutConfig(max_turns=2),
        SamplingParams(),
    )
    tasks = TaskStream(Guess.tasks("train", Guess.Options(3, 2)), seed=0)
    groups = asyncio.run(Dpo(k=2).collect(GroupRollouts(setting, "test"), tasks, 3, NOW))
    assert [[t.attempt for t in group.trajectories] for group in groups] == [[0, 1, 2]] * 3
    assert all(group.expert is not None and group.expert.reward == 1.0 for group in groups)
    assert sorted(t.reward for group in groups for t in group.policy_trajectories) == [0, 0, 0, 0, 1, 1]
    assert tasks.taken == 3
    stored = Trajectories(tmp_path)
    stored.write(1, groups, Dpo().credit(groups, learner(Dpo()), NOW))
    assert stored.read(1) == groups


def test_the_experts_success_is_not_the_policys() -> None:
    spoiled = replace(attempt(0.0, (2,), 0), stop=StopReason.ENV_ERROR)
    expert = replace(attempt(1.0, (3,), 9), expert=True, success=True)
    practised = replace(attempt(0.0, (2,), 0), stop=StopReason.PRACTISED)
    tried = [Group(TASK, (expert, replace(attempt(0.0, (2,), 1), success=False))), Group(TASK, (expert, spoiled))]
    assert summarize(tried, [], [])["success"] == 0.0
    assert summarize([Group(TASK, (expert, practised))], [], [])["success"] == 1.0


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("dmpo", "Step 1: no two attempts at a task differ enough to form a pair, so there was nothing to learn."),
        ("ei", "Step 1: no attempt was paid algo.least_reward or more, so there was nothing to imitate."),
        ("loop", "Step 1: at every task all attempts were paid the same, so there was nothing to learn."),
    ],
)
def test_a_step_that_teaches_nothing_says_so(method: str, sentence: str, tmp_path: Any) -> None:
    """No try, no reward."""
    settings = load_config(
        tmp_path, f"algo.name={method}", "steps=1", "env.highest=999", "tasks_per_step=2", "eval.tasks=2"
    )
    report = Silent()
    with Run.create(settings, {}) as run:
        asyncio.run(api.run_loop(api.prepared(settings), run, report))
    assert sentence in report.notes and report.steps[-1]["updates"] == 0


class Choices(Env):
    """Two turns; a reward of 1 for "b" and then "a". Keeps account of its copies."""

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self.said: list[str] = []

    async def step(self, action: Any) -> Any:
        self.log.steps += 1
        self.said.append(action.content)
        return await super().step(action)

    async def finish(self) -> Any:
        outcome = await super().finish()
        return replace(outcome, reward=float(self.said == ["b", "a"]), success=self.said == ["b", "a"])

    def fork(self) -> "Choices":
        copy = Choices(self.log)
        copy.turns, copy.said = self.turns, list(self.said)
        return copy


def tree(make: Callable[[], Any], attempts: int, say: Callable[[str, int], str]) -> Group:
    setting = RolloutContext(make, CHAT, ScriptedEngine(None, CHAT, say), RolloutConfig(max_turns=4), SamplingParams())
    return asyncio.run(GroupRollouts(setting, "test").trees([TASK], attempts, 1.0, seed=0))[0]


def alternately(session: str, turn: int) -> str:
    """ "a" and "b" in turn from attempt to attempt, and the other way round after every second."""
    number = int(session.rsplit("/", 1)[1])
    return "ab"[(number + number // 2) % 2]


def test_a_tree_tries_everything_there_is_to_try_and_plays_no_turn_twice() -> None:
    """Two actions in each of two turns; when all four ways were gone, nothing new is left."""
    log = Log()
    group = tree(lambda: Choices(log), 30, alternately)
    said = [tuple(turn.action.content for turn in t.turns) for t in group.trajectories]
    assert sorted(said) == [("a", "a"), ("a", "b"), ("b", "a"), ("b", "b")], "each way once"
    assert all(t.reward == (s == ("b", "a")) for s, t in zip(said, group.trajectories, strict=True))
    assert [t.attempt for t in group.trajectories] == list(range(len(said)))
    assert len(log.started) == 2 and log.steps == 2 * 2 + 6 * 1, "two from the start; six from a copy, one turn each"
    assert log.live == 0, "every copy was finished"


def test_a_policy_that_always_says_the_same_is_not_asked_for_ever() -> None:
    group = tree(lambda: Choices(Log()), 30, lambda *_: "a")
    assert 1 <= len(group.trajectories) < 30


def test_pairs_are_made_where_attempts_part() -> None:
    """After "b", "a" is worth 1 and "b" nothing; "b" first is worth a half, "a" first nothing."""
    group = tree(lambda: Choices(Log()), 30, alternately)
    pairs = [[[turn.action.content for turn in side.turns] for side in pair] for pair in TreeDpo(gap=0.2).pairs(group)]
    assert sorted(pairs) == [[["b"], ["a"]], [["b", "a"], ["b", "b"]]]
    assert len(list(TreeDpo(gap=0.6).pairs(group))) == 1
    algo = TreeDpo()
    samples = algo.credit([group], learner(algo), NOW)
    for sample in samples:
        trained = {turn for turn, chosen in zip(sample.turns, sample.mask, strict=True) if chosen}
        assert trained == {max(sample.turns)}, "only the turn in which the two differ"


def test_a_tree_needs_an_environment_that_can_be_copied() -> None:
    with pytest.raises(UserError, match=r"Env has no fork\(\)"):
        tree(lambda: Env(Log()), 3, lambda *_: "a")


def test_a_broken_copy_costs_its_attempt_and_nothing_else() -> None:
    class Breaks(Choices):
        def fork(self) -> "Choices":
            raise RuntimeError("no copy today")

    group = tree(lambda: Breaks(Log()), 3, alternately)
    assert [t.stop for t in group.trajectories] == [StopReason.ENV_ERROR] * 3
