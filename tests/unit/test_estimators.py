"""Each estimator against the truth, on a decision process small enough to list every attempt (tests/tabular.py).

The claim tested is always: the mean of the gradients that an algorithm makes of groups, through its own credit,
mini-batch, pack and loss, is its expectation in closed form. The mean is over all groups that can be drawn, each times
its probability, so both sides are exact; the closed form is enumerated here, with its own arithmetic.

Notation: p(x) probability of an attempt, R(x) reward, J = sum p R, |a| tokens, U turns, S(x) = grad log p(x) and
s_t the score of one token, so S = sum of s_t. At theta = psi all ratios are 1 and grad r = r * score.
"""

import asyncio
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from longloop.algos.dapo import Dapo
from longloop.algos.dr_grpo import DrGrpo
from longloop.algos.grpo import Grpo
from longloop.algos.gspo import Gspo
from longloop.algos.loop import Loop
from longloop.algos.ppo import Ppo
from longloop.algos.reinforce import Reinforce
from longloop.algos.rloo import Rloo
from longloop.config import RolloutConfig
from longloop.engines.engine import NativeEngine
from longloop.envs.crossroads import Crossroads
from longloop.model.attention import VarlenPlan
from longloop.rollout.episode import RolloutContext
from longloop.rollout.groups import GroupRollouts
from longloop.tokens.chat import Chat
from longloop.tokens.transcript import Transcript
from longloop.types import Message, Sample, Sampled, SamplingParams, StopReason, Task
from tests.support.samples import learner as tiny_learner
from tests.support.tabular import PATHS, REWARD, STATES, TOKENS, TURNS, Exact, TableLearner, expected
from tests.support.worlds import starts

THETA = np.random.default_rng(0).normal(0, 0.7, (STATES, 2))
"""The policy being trained."""
PSI = THETA + np.random.default_rng(1).normal(0, 0.25, (STATES, 2))
"""Another one that sampled, for the off-policy cases."""
ONCE = {"epochs": 1, "minibatch": 0}
"""One gradient step on all attempts of a step."""

NOW, OLD = Exact(THETA), Exact(PSI)


def assert_unbiased(mean, exact):
    """Equal, up to the float32 of log-probs and advantages."""
    assert off(mean, exact) < 1e-5


def assert_rejected(mean, exact):
    """So far off that it is no matter of rounding."""
    assert off(mean, exact) > 0.05


def off(mean, exact):
    return np.linalg.norm(mean - exact) / np.linalg.norm(exact)


# --- against the gradient of the expected reward itself ---


def test_the_enumeration():
    """Probabilities add up to 1, scores to 0 on average, and autograd agrees with E[R S]."""
    assert len(PATHS) == 13 and NOW.probability.sum() == pytest.approx(1)
    assert NOW.probability @ NOW.scores == pytest.approx(np.zeros(2 * STATES))
    assert (NOW.probability * REWARD) @ NOW.scores == pytest.approx(NOW.gradient_of_reward())
    assert set(TOKENS) == {2, 3, 4, 5} and set(TURNS) == {2, 3}


@pytest.mark.parametrize("algo", [Reinforce(k=3), Rloo(k=2), Rloo(k=3)])
def test_reinforce_and_rloo_are_unbiased(algo):
    """E[(R_k - b) S(x_k)] = grad J for any b that does not depend on x_k, because E[S] = 0."""
    assert_unbiased(expected(algo, TableLearner(THETA), k=algo.k), NOW.gradient_of_reward())


def test_reinforce_is_unbiased_with_one_attempt_at_a_task():
    """Its baseline is that of the whole step."""

    def one_each(groups):
        return [replace(group, trajectories=(t,)) for group in groups for t in group.trajectories]

    mean = expected(Reinforce(k=1), TableLearner(THETA), k=3, prepare=one_each)
    assert_unbiased(mean, NOW.gradient_of_reward())


def test_dr_grpo_is_unbiased_up_to_a_constant():
    """R - mean = (K-1)/K of the leave-one-out advantage, and each token counts 1/divisor."""
    mean = expected(DrGrpo(k=3, divisor=8.0), TableLearner(THETA), k=3)
    assert_unbiased(mean, 2 / 3 * NOW.gradient_of_reward() / 8)


def test_failed_attempts_do_not_bias():
    """RLOO with one attempt in four spoilt by its environment still has the gradient of J."""
    mean = expected(Rloo(k=4), TableLearner(THETA), k=4, failed=1)
    assert_unbiased(mean, NOW.gradient_of_reward())


def test_importance_sampling_is_unbiased():
    """LOOP with a trajectory ratio, sampled from psi, no clipping: E_psi[p/q (R - b) S] = E[(R - b) S] = grad J."""
    algo = Loop(k=3, ratio="trajectory", clip=1e6, **ONCE)
    mean = expected(algo, TableLearner(THETA, sampler=PSI), k=3)
    assert_unbiased(mean, NOW.gradient_of_reward())
    # and it is the ratio that does it: the gradient of the policy that sampled is another one
    assert_rejected(mean, OLD.gradient_of_reward())


# --- LOOP at ratio 1, against its own expectation ---

# The baseline is independent of x_k, with mean J: E[A_k f(x_k)] = sum p(x) (R(x) - J) f(x). Where E[f] is not 0
# (1/|a| goes with the attempt), J does not drop out: these are not gradients of J.
CENTRED = NOW.probability * (REWARD - NOW.expected_reward)
LOOP_TRUTH = {
    # 1/|a| sum of A grad r_t = A S / |a|
    "token": CENTRED @ (NOW.scores / TOKENS[:, None]),
    # 1/U sum of A grad r_u, and the turns' scores add up to S: A S / U
    "turn": CENTRED @ (NOW.scores / TURNS[:, None]),
    # A grad r = A S: this one is grad J
    "trajectory": NOW.gradient_of_reward(),
}


@pytest.mark.parametrize("ratio", LOOP_TRUTH)
def test_loop_on_policy(ratio):
    mean = expected(Loop(k=3, ratio=ratio, **ONCE), TableLearner(THETA), k=3)
    assert_unbiased(mean, LOOP_TRUTH[ratio])
    for other in LOOP_TRUTH.keys() - {ratio}:
        assert_rejected(mean, LOOP_TRUTH[other])


# --- methods whose advantages mix the attempts of a group: all K-tuples of attempts ---


def tuples(sampler, k):
    """Every K-tuple of paths [M, K], its probability [M], and the rewards [M, K]."""
    index = np.stack(np.meshgrid(*[np.arange(len(PATHS))] * k, indexing="ij"), axis=-1).reshape(-1, k)
    return index, sampler.probability[index].prod(axis=1), REWARD[index]


def standardised(rewards):
    """(R - mean) / (std + 1e-6) of each row."""
    return (rewards - rewards.mean(1, keepdims=True)) / (rewards.std(1, ddof=1, keepdims=True) + 1e-6)


def loo(rewards):
    k = rewards.shape[1]
    return k / (k - 1) * (rewards - rewards.mean(1, keepdims=True))


def expectation(sampler, k, advantages, upward, downward):
    """E[1/K sum over k of A_k f(x_k)], where f is `upward` [P, C] for A_k > 0 and `downward` for the others."""
    index, probability, rewards = tuples(sampler, k)
    a = advantages(rewards)[..., None]
    per_attempt = np.where(a > 0, a * upward[index], a * downward[index])
    return probability @ per_attempt.mean(axis=1)


def surrogate(unit, low, high):
    """Gradients of an attempt's mean clipped ratio at theta, sampled from psi: for A > 0 and for A < 0, [P, C] each.

    min(rA, clip(r) A) has the slope A grad r unless r > high (A > 0) or r < low (A < 0); grad r = r * score.
    """
    upward, downward = [], []
    for path in PATHS:
        tokens = [(d,) for d in path.decisions]
        units = {"token": tokens, "turn": path.turns}.get(unit, [tuple(path.decisions)])
        gradients = []
        for decisions in units:
            root = len(decisions) if unit == "root" else 1  # GSPO: the |a|-th root
            r = np.exp(sum(NOW.logp(d) - OLD.logp(d) for d in decisions) / root)
            gradients.append((r, r * sum(map(NOW.score, decisions)) / root))
        upward.append(sum(g * (r <= high) for r, g in gradients) / len(units))
        downward.append(sum(g * (r >= low) for r, g in gradients) / len(units))
    return np.array(upward), np.array(downward)


def rwnorm(rewards):
    """Leave-one-out over the standard deviation of a population."""
    return loo(rewards) / (rewards.std(1, ddof=0, keepdims=True) + 1e-6)


@pytest.mark.parametrize(
    ("algo", "advantages"),
    [
        (Loop(k=3, normalize=True, **ONCE), rwnorm),
        (Grpo(k=3, kl=0.0), standardised),
        (Gspo(k=3, **ONCE), standardised),
    ],
    ids=["rwnorm", "grpo", "gspo"],
)
def test_standardised_advantages_on_policy(algo, advantages):
    """At ratio 1 all three are 1/|a| sum of A s_t (GSPO: grad s = S/|a|) with an A that is divided by a std."""
    token_mean = NOW.scores / TOKENS[:, None]
    exact = expectation(NOW, 3, advantages, token_mean, token_mean)
    mean = expected(algo, TableLearner(THETA), k=3)
    assert_unbiased(mean, exact)
    assert_rejected(mean, expectation(NOW, 3, loo, token_mean, token_mean))


@pytest.mark.parametrize(
    ("algo", "advantages", "pieces"),
    [
        (Loop(k=2, clip=0.1, **ONCE), loo, ("token", 1 / 1.1, 1.1)),
        (Loop(k=2, clip=0.1, ratio="turn", **ONCE), loo, ("turn", 1 / 1.1, 1.1)),
        (Loop(k=2, clip=0.1, ratio="trajectory", **ONCE), loo, ("trajectory", 1 / 1.1, 1.1)),
        (Grpo(k=2, kl=0.0, clip=0.1), standardised, ("token", 0.9, 1.1)),
        (Gspo(k=2, clip_low=0.03, clip_high=0.04, **ONCE), standardised, ("root", 0.97, 1.04)),
    ],
    ids=["loop-token", "loop-turn", "loop-trajectory", "grpo", "gspo"],
)
def test_off_policy_with_clipping(algo, advantages, pieces):
    """Sampled from psi, evaluated at theta, with clips that do fire: the exact expectation of the clipped gradient."""
    exact = expectation(OLD, 2, advantages, *surrogate(*pieces))
    unclipped = expectation(OLD, 2, advantages, *surrogate(pieces[0], 0, np.inf))
    assert np.linalg.norm(exact - unclipped) > 0.1 * np.linalg.norm(exact)
    mean = expected(algo, TableLearner(THETA, sampler=PSI), k=2)
    assert_unbiased(mean, exact)
    assert_rejected(mean, unclipped)


def test_grpo_with_a_penalty():
    """kl > 0 adds E[1/|a| sum of -kl grad k3_t], grad k3 = (1 - e^d) s_t with d = log p_ref - log p."""
    kl, reference = 0.5, Exact(PSI)
    penalty = np.array(
        [
            sum((1 - np.exp(reference.logp(d) - NOW.logp(d))) * NOW.score(d) for d in path.decisions) / tokens
            for path, tokens in zip(PATHS, TOKENS, strict=True)
        ]
    )
    token_mean = NOW.scores / TOKENS[:, None]
    free = expectation(NOW, 3, standardised, token_mean, token_mean)
    mean = expected(Grpo(k=3, kl=kl), TableLearner(THETA, reference=PSI), k=3)
    assert_unbiased(mean, free - kl * NOW.probability @ penalty)
    assert_rejected(mean, free)


def test_dapo():
    """E[sum over the group of A_k S(x_k) / sum of |a_k|], a mean over the group's tokens, where rewards differ."""
    index, probability, rewards = tuples(NOW, 3)
    informative = probability * (rewards.min(axis=1) < rewards.max(axis=1))
    token_sums = (standardised(rewards)[..., None] * NOW.scores[index]).sum(axis=1)
    table = TableLearner(THETA)
    mean = expected(Dapo(k=3), table, k=3)
    assert_unbiased(mean, informative @ (token_sums / TOKENS[index].sum(axis=1)[:, None]))
    # it is not the mean of attempts' means
    token_mean = NOW.scores / TOKENS[:, None]
    assert_rejected(mean, expectation(NOW, 3, standardised, token_mean, token_mean))
    # equal groups are left out, they do not count as zeros
    differ, equal = table.group([0, 5, 9]), table.group([0, 0, 0])
    assert table.gradient(Dapo(k=3), [equal]) is None
    assert_unbiased(table.gradient(Dapo(k=3), [differ, equal]), table.gradient(Dapo(k=3), [differ]))


@pytest.mark.parametrize(
    "algo",
    [
        *(Rloo(k=3), DrGrpo(k=3, divisor=8.0), Grpo(k=3, kl=0.5), Gspo(k=3, **ONCE)),
        *(Ppo(k=3, warmup=0, **ONCE), Loop(k=3, **ONCE), Loop(k=3, ratio="turn", **ONCE)),
        *(Loop(k=3, ratio="trajectory", **ONCE), Loop(k=3, normalize=True, **ONCE)),
    ],
    ids=lambda algo: type(algo).__name__,
)
def test_an_update_on_many_groups_is_the_mean_of_updates_on_each(algo):
    """So the mean over single groups is the mean over mini-batches of any size.

    DAPO's is over their tokens instead, and REINFORCE's baseline over their attempts.
    """
    value = np.random.default_rng(2).uniform(0.1, 0.9, STATES)
    table = TableLearner(THETA, sampler=PSI, reference=PSI, value=value)
    drawn = np.random.default_rng(3).choice(len(PATHS), p=OLD.probability, size=(12, 3)).tolist()
    groups = [table.group(paths) for paths in drawn]
    alone = [table.gradient(algo, [group]) for group in groups]
    assert len({len({PATHS[path].reward for path in paths}) for paths in drawn}) > 1, "equal rewards, and others"
    together = table.gradient(algo, groups)
    assert_unbiased(together, sum(gradient for gradient in alone if gradient is not None) / len(groups))


def test_ppo():
    """gamma = lambda = 1: E[1/|a| sum of (R - V_t) s_t] for the policy, -w E[1/|a| sum of (V_t - R)] for the values."""
    value = np.random.default_rng(2).uniform(0.1, 0.9, STATES)
    policy, head = np.zeros(2 * STATES), np.zeros(STATES)
    for path, p, tokens in zip(PATHS, NOW.probability, TOKENS, strict=True):
        for state, choice in path.decisions:
            policy += p / tokens * (path.reward - value[state]) * NOW.score((state, choice))
            head[state] += p / tokens * (path.reward - value[state])
    algo = Ppo(k=2, warmup=0, value_weight=0.5, **ONCE)
    mean = expected(algo, TableLearner(THETA, value=value), k=2)
    assert_unbiased(mean, np.concatenate([policy, 0.5 * head]))
    assert_unbiased(mean[: 2 * STATES], policy)


# --- estimators that are wrong, which the same test must reject ---


def zero_for_failed(groups):
    """As if an environment's failure were a reward of 0."""
    return [
        replace(g, trajectories=tuple(replace(t, stop=StopReason.FINISHED) for t in g.trajectories)) for g in groups
    ]


def test_wrong_estimators_are_rejected():
    truth = NOW.gradient_of_reward()
    table = TableLearner(THETA)
    # failed attempts trained on and compared with, at reward 0: 2/3 of the gradient
    assert_rejected(expected(Rloo(k=3), table, k=3, failed=1, prepare=zero_for_failed), truth)
    # a mean over tokens where the truth is a sum
    assert_rejected(expected(Loop(k=2, **ONCE), table, k=2), truth)
    # a baseline that includes the attempt itself
    assert_rejected(expected(DrGrpo(k=2, divisor=1.0), table, k=2), truth)
    # importance ratios left out
    off_policy = TableLearner(THETA, sampler=PSI)
    assert_rejected(expected(Rloo(k=2), off_policy, k=2), truth)


# --- the engine samples what the model says ---


def test_the_engine_samples_the_models_own_probabilities():
    """Chi-square, 99.9%: 1500 walks of the tiny transformer against path probabilities that are scored, not sampled.

    One token a turn; r goes right, any of the other tokens left. What follows depends on the very token, so the left
    of the first fork is summed over all of them.
    """
    model = tiny_learner(Loop())
    policy = model.policy
    chat = Chat(policy.tokenizer, policy.end_ids)
    (right,) = chat.encode("r")
    lean_right(policy, chat, right)

    def sees(*acted):
        """The token ids in front of the model after these actions."""
        transcript, place = Transcript(chat), Crossroads(Crossroads.Options())
        messages = asyncio.run(place.start(Task("t", "train")))
        for token in acted:
            transcript.receive(messages)
            step = asyncio.run(place.step(transcript.act(Sampled((token,), (0.0,), "length"))))
            messages = step.messages
        transcript.receive(messages)
        return tuple(transcript.ids)

    def chance(acted, token):
        ids = (*sees(*acted), token)
        blank = (0.0,) * len(ids)
        mask = (0,) * (len(ids) - 1) + (1,)
        return np.exp(model.logprobs([Sample(ids, mask, blank, (0,) * len(ids), blank, blank)])[0][-1])

    lefts = [token for token in range(len(policy.tokenizer)) if token != right]
    p_left = {token: chance((), token) for token in lefts}
    p_right = chance((), right)
    assert sum(p_left.values()) + p_right == pytest.approx(1, abs=1e-5)
    elm = {token: chance((token,), right) for token in lefts}
    fir = {token: chance((token, right), right) for token in lefts}
    ash = chance((right,), right)
    expected = {
        "ll": sum(p_left[t] * (1 - elm[t]) for t in lefts),
        "lrl": sum(p_left[t] * elm[t] * (1 - fir[t]) for t in lefts),
        "lrr": sum(p_left[t] * elm[t] * fir[t] for t in lefts),
        "rl": p_right * (1 - ash),
        "rr": p_right * ash,
    }
    walks = 1500
    assert min(expected.values()) * walks > 50  # large enough for chi-square

    limits = RolloutConfig(turn_tokens=1, concurrency=64)
    setting = RolloutContext(
        lambda: Crossroads(Crossroads.Options()), chat, NativeEngine(policy, chat, slots=64), limits, SamplingParams()
    )
    (group,) = asyncio.run(GroupRollouts(setting, "test", abandon=False).play(starts([Task("t", "train")]), walks, 0))

    def chi_square(counts, probabilities):
        assert counts.keys() <= probabilities.keys()
        return sum((counts[key] - walks * p) ** 2 / (walks * p) for key, p in probabilities.items())

    def path(trajectory):
        return "".join("r" if turn.action_key == (right,) else "l" for turn in trajectory.turns)

    paths = Counter(map(path, group.trajectories))
    assert chi_square(paths, expected) < 18.47  # 99.9% point with 4 degrees of freedom
    assert chi_square(paths, dict.fromkeys(expected, 1 / 5)) > 18.47  # and the test can tell
    # the first tokens themselves, all 50 of them: 99.9% point with 49 degrees of freedom
    first = Counter(t.turns[0].action_ids[0] for t in group.trajectories)
    everything = p_left | {right: p_right}
    assert len(everything) == 50 and chi_square(first, everything) < 85.35
    assert chi_square(first, dict.fromkeys(lefts, (1 - p_right) / 49) | {right: p_right}) > 85.35


@torch.no_grad()
def lean_right(policy, chat, right):
    """Make r about as likely as all other tokens together, so that every path is common, and those differ more."""
    ids = torch.tensor(chat.encode(chat.render([Message("user", "oak")])))
    hidden = policy.hidden(ids, torch.arange(len(ids)), VarlenPlan([len(ids)]))[-1]
    head = policy.module.get_output_embeddings().weight
    head *= 4
    head[right] += 4 * hidden / hidden.norm() ** 2
