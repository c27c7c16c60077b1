"""StepAgent's discriminator: what it learns to tell apart, what it pays, and what it may not touch."""

import math
import random
from dataclasses import replace
from statistics import fmean, pstdev
from typing import Any

import pytest
import torch

from longloop.algos.reduce import last_action, to_samples
from longloop.algos.stepagent import states
from longloop.algos.stepagent_inverse import StepAgentInverse
from longloop.types import Group
from tests.support.samples import EXPERT, NOW, TASK, attempt, first_minibatch, learner, own, sampled, turn, weights


def toy(expert: int, own_action: int) -> list[Group]:
    """Six states of one turn; the expert always says one thing, the agent always another."""
    groups = []
    for n in range(6):
        shown = replace(EXPERT, attempt=0, turns=(turn((1, 10 + n), (expert, 2)),))
        groups.append(Group(TASK, (shown, own(1, 1, (own_action, 2), shown), own(2, 1, (own_action, 2), shown))))
    return groups


def judged(algo: StepAgentInverse, groups: list[Group], model: Any) -> tuple[list[float], list[float]]:
    """What one head, fitted on everything, says of the expert's actions and of the agent's."""
    at = [(0, expert, own) for group in groups for expert, own in states(group)]
    algo.tell_apart(at, model)
    expert = model.judge("discriminator", [last_action(one, 0) for _, one, _ in at])
    agent = model.judge("discriminator", [last_action(one, 0) for _, _, own in at for one in own])
    return [logit for (logit,) in expert], [logit for (logit,) in agent]


def test_the_discriminator_tells_apart_what_differs() -> None:
    """Both sides settle where their smoothed labels are, at log 0.95/0.05 = 2.94; in bfloat16, too."""
    algo = StepAgentInverse(head_lr=1e-2)
    for dtype in ("float32", "bfloat16"):
        expert, agent = judged(algo, toy(5, 6), learner(algo, dtype=dtype))
        assert expert == pytest.approx([math.log(19)] * 6, abs=0.3)
        assert agent == pytest.approx([-math.log(19)] * 12, abs=0.3)


def test_the_discriminator_pays_nothing_for_what_is_the_same() -> None:
    algo = StepAgentInverse(head_lr=1e-2)
    expert, agent = judged(algo, toy(5, 5), learner(algo))
    assert expert + agent == pytest.approx([0.0] * 18, abs=0.05)


def test_the_discriminator_reads_the_last_token_too() -> None:
    """An action that was cut may differ from the expert's in its last token alone, or have only one."""
    algo = StepAgentInverse(head_lr=1e-2)
    shown = replace(EXPERT, attempt=0, turns=(turn((1, 2), (3,)),))
    group = Group(TASK, (shown, own(1, 1, (4,), shown), own(2, 1, (5,), shown)))
    (expert,), agent = judged(algo, [group], learner(algo))
    assert expert > 2 and max(agent) < -2


@pytest.mark.parametrize(("dtype", "lora"), [("float32", 0), ("float32", 2), ("bfloat16", 0)])
def test_training_the_head_leaves_the_policy_alone(dtype: str, lora: int) -> None:
    """To the bit, weight decay included, and before and after an update; its optimizer does not know of it either."""
    algo = StepAgentInverse(weight_decay=0.5, lr=1e-2, kl_guard=1e9)
    model = learner(algo, dtype=dtype, lora=lora)
    groups = [
        replace(group, trajectories=(*group.trajectories, own(3, 1, (7, 8), group.trajectories[0])))
        for group in toy(5, 6)[:2]
    ]
    filled = sampled(groups, model)
    for _ in range(2):
        before, moments = weights(model), {id(p): len(s) for p, s in model.optimizer.state.items()}
        module = {name: p.clone() for name, p in model.policy.module.named_parameters()}
        minibatch = first_minibatch(algo, filled, model)
        moved = {name for name, old in before.items() if not torch.equal(old, model.parameters[name])}
        assert moved and all(name.startswith("discriminator_head.") for name in moved)
        assert all(torch.equal(module[name], p) for name, p in model.policy.module.named_parameters())
        assert {id(p): len(s) for p, s in model.optimizer.state.items()} == moments
        assert all(p.grad is None for p in model.parameters.values())
        head = {name: p.clone() for name, p in model.parameters.items() if name.startswith("discriminator_head.")}
        assert not model.update(minibatch, algo.loss).stop
        assert all(torch.equal(head[name], model.parameters[name]) for name in head), "and the other way round"


def test_how_work_is_cut_up_does_not_matter() -> None:
    algo = StepAgentInverse(head_lr=1e-2)
    whole = judged(algo, toy(5, 6), learner(algo))
    pieces = judged(algo, toy(5, 6), learner(algo, micro_tokens=1))
    assert whole[0] == pytest.approx(pieces[0], abs=1e-3) and whole[1] == pytest.approx(pieces[1], abs=1e-3)


def test_an_attempt_is_judged_action_by_action() -> None:
    """Several actions in one pass are what each is by itself, at the end of its own beginning."""
    algo = StepAgentInverse()
    model = learner(algo)
    whole = attempt(1.0, (2, 3, 1), fresh=(2,))
    alone = [last_action(replace(whole, turns=whole.turns[:n]), 0) for n in (1, 2, 3)]
    together = [logit for logits in model.judge("discriminator", to_samples(whole, 0, 0.0, 1.0)) for logit in logits]
    assert together == pytest.approx(
        [logit for logits in model.judge("discriminator", alone) for logit in logits], abs=1e-4
    )
    assert len(set(together)) == 3


def wide(policy: Any, seed: int) -> torch.nn.Module:
    """A head of a thousand units, which learns what it was shown by heart."""
    torch.manual_seed(seed)
    width = policy.module.config.hidden_size
    return torch.nn.Sequential(torch.nn.Linear(width, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1))


def test_a_head_that_learns_by_heart_still_tells_good_actions_from_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    """The expert's actions begin with 5, and so does one of three own ones at a state; all of them end in noise.

    Fitted on them, the head pays each own action what its label says, -2.94. Held out, it pays what it understood.
    """
    monkeypatch.setattr("longloop.learners.local._head", wide)
    chance = random.Random(0)
    groups = []
    for n in range(12):
        task = replace(TASK, id=f"task {n}")
        said = [tuple(chance.randrange(10, 45) for _ in range(2)) for _ in range(4)]
        shown = replace(EXPERT, task=task, attempt=0, turns=(turn((1, 2 + n), (5, *said[0])),))
        own_ones = [own(1 + a, 1, (first, *said[1 + a]), shown) for a, first in enumerate((5, 6, 7))]
        groups.append(Group(task, (shown, *(replace(one, task=task) for one in own_ones))))
    algo = StepAgentInverse(head_lr=1e-2)
    model = learner(algo)
    _, by_heart = judged(algo, groups, model)
    assert by_heart == pytest.approx([-math.log(19)] * 36, abs=0.1), "this head is wide enough"
    paid = {sample.source: sample.columns["logged"][-1] for sample in algo.credit(groups, model, NOW)}
    good, bad = ([paid[place, n] for place in range(12) for n in which] for which in ((1,), (2, 3)))
    assert fmean(good) > fmean(bad) + 1
    assert pstdev(paid.values()) > 0.5
