"""`minibatch = 0`: one gradient step over all that a step gave, divided by the number of its units, by hand."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from longloop.algos.dmpo import Dmpo
from longloop.algos.dpo import Dpo
from longloop.algos.ei import Ei
from longloop.algos.loop import Loop
from longloop.algos.reinforce import Reinforce
from longloop.algos.rloo import Rloo
from longloop.algos.sft import SFT
from longloop.algos.stepagent_implicit import StepAgentImplicit
from longloop.algos.stepagent_inverse import StepAgentInverse
from longloop.training import schedule
from longloop.types import Group, Minibatch, Now, Sample, StopReason
from tests.support.samples import EXPERT, NOW, TASK, assert_close, attempt, gradient, group, learner, own, with_known

UNSCORED = attempt(0.0, (2,), 8, stop=StopReason.TIMEOUT)
EXPERT_WON = replace(attempt(1.0, (3,), 9), expert=True)


class Judge:
    """A learner whose head pays an action its first id, and whose log-probs are those of the sampler."""

    def read(self, samples: list[Sample], *columns: str) -> list[Sample]:
        return with_known(samples, columns, lambda s: {"logprobs": s.logprobs, "reference": s.logprobs})

    def fit(self, *_: Any) -> None: ...

    def judge(self, head: str, samples: list[Sample]) -> list[list[float]]:
        return [[float(sample.ids[sample.mask.argmax()])] for sample in samples]


def batches(algo: Any, groups: list[Group], policy: Any = None) -> list[Minibatch]:
    """What the training loop makes of the groups. The log-probs are made up, so it is not said to be on-policy."""
    config: Any = SimpleNamespace(seed=0, steps=1)
    made = schedule(config, algo, groups, algo.credit(groups, policy or Judge(), NOW), Now(1, 1))
    return [replace(minibatch, on_policy=False) for minibatch in made]


def practised() -> Group:
    """Three states of the expert's: 2 different own actions, 3 of which two are alike, and 2 that are the same."""
    actions = [(1, (9,)), (1, (4,)), (2, (9, 9)), (2, (8,)), (2, (8,)), (3, (2,)), (3, (2,))]
    return Group(TASK, (EXPERT, *(own(10 + n, turns, ids) for n, (turns, ids) in enumerate(actions))))


GROUPS = [group(1.0, 0.0, 0.5, 0.5), group(1.0, 1.0), Group(TASK, (attempt(1.0, (2,), 0), UNSCORED))]
"""Seven scored attempts: LOOP and RLOO keep the two of the first group that have an advantage."""


@pytest.mark.parametrize(
    ("algo", "groups", "units", "norm"),
    [
        pytest.param(Loop(minibatch=0), GROUPS, 2, 7, id="loop"),
        pytest.param(Rloo(minibatch=0), GROUPS, 2, 7, id="rloo"),
        pytest.param(Reinforce(minibatch=0), GROUPS, 7, 7, id="reinforce"),
        # A mean over tokens: two for each of the four successes, and three for the expert's.
        pytest.param(Ei(minibatch=0), GROUPS, 4, 8, id="ei"),
        pytest.param(SFT(minibatch=0), [Group(TASK, (EXPERT_WON,)), *GROUPS], 5, 11, id="sft"),
        # Pairs: the expert's with each of three own that were paid less, of five scored attempts.
        pytest.param(
            Dpo(minibatch=0), [Group(TASK, (EXPERT_WON, *group(0.0, 0.5, 0.5, 1.0).trajectories))], 3, 3, id="dpo"
        ),
        pytest.param(Dmpo(minibatch=0, k=4), [group(0.0, 0.1, 0.2, 0.3)], 6, 6, id="dmpo: six pairs of four"),
        # The expert's action with each own one that is another: 2, 2 and 1.
        pytest.param(StepAgentImplicit(minibatch=0), [practised()], 5, 5, id="stepagent_implicit"),
        # At the third state all are the same: left out, but there.
        pytest.param(StepAgentInverse(minibatch=0), [practised()], 5, 7, id="stepagent_inverse"),
        # And own attempts beside them: two that are compared.
        pytest.param(
            StepAgentInverse(minibatch=0, final=1.0),
            [Group(TASK, (*practised().trajectories, attempt(1.0, (1,), 20), attempt(0.0, (1,), 21)))],
            7,
            9,
            id="stepagent_inverse with attempts",
        ),
    ],
)
def test_all_at_once(algo: Any, groups: list[Group], units: int, norm: int) -> None:
    """As many gradient steps as epochs, each over everything."""
    made = batches(algo, groups)
    assert len(made) == algo.epochs
    if algo.average == "trajectories":
        assert algo.denominator(groups, made[0].samples) == norm
    for minibatch in made:
        assert minibatch.norm == norm and len({sample.unit for sample in minibatch.samples}) == units


@pytest.mark.parametrize(
    ("algo", "groups"),
    [
        (Loop(minibatch=0, epochs=1), GROUPS),
        (Dpo(minibatch=0), [Group(TASK, (EXPERT_WON, *group(0.0, 0.5, 0.5, sizes=(2, 1)).trajectories))]),
        (StepAgentImplicit(minibatch=0), [practised()]),
        (StepAgentInverse(minibatch=0), [practised()]),
    ],
    ids=["loop", "dpo", "stepagent_implicit", "stepagent_inverse"],
)
def test_it_is_the_gradient_of_a_mini_batch_as_large_as_the_step(algo: Any, groups: list[Group]) -> None:
    policy = learner(algo)
    (whole,) = batches(algo, groups, policy)
    (sized,) = batches(replace(algo, minibatch=int(whole.norm)), groups, policy)
    assert sized.norm == whole.norm and {s.unit for s in sized.samples} == {s.unit for s in whole.samples}
    assert_close(gradient(policy, whole, algo.loss)[0], gradient(policy, sized, algo.loss)[0])


def test_leaving_out_what_has_no_advantage_changes_nothing() -> None:
    """LOOP that keeps every attempt divides the same sum by the same number."""
    dropping, keeping = Loop(minibatch=0, epochs=1), Loop(minibatch=0, epochs=1, drop_below=0.0)
    policy = learner(dropping)
    groups = GROUPS[:2]
    (few,), (all_of_them,) = batches(dropping, groups, policy), batches(keeping, groups, policy)
    assert len(few.samples) == 2 and len(all_of_them.samples) == 6 and few.norm == all_of_them.norm == 6
    one, other = (gradient(policy, minibatch, dropping.loss)[0] for minibatch in (few, all_of_them))
    assert_close(one, other)
