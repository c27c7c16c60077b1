"""Who is compared with whom where attempts share a beginning: StepAgent's practised actions, and trees of attempts."""

from dataclasses import replace
from typing import Any

import pytest

from longloop.algos.stepagent import states
from longloop.algos.stepagent_inverse import StepAgentInverse, halves
from longloop.algos.tree_dpo import TreeDpo
from longloop.types import Group, Sample, StopReason, Trajectory
from tests.support.samples import EXPERT, NOW, TASK, attempt, own, turn


class Judge:
    """A learner whose head gives every action the number of its first token."""

    def __init__(self) -> None:
        self.fitted: list[Any] = []
        self.judged: list[Any] = []

    def fit(self, head: str, *given: Any) -> None:
        assert head == "discriminator"
        self.fitted.append(given)

    def judge(self, head: str, samples: Any) -> list[list[float]]:
        assert head == "discriminator"
        self.judged.append(samples)
        rows = []
        for s in samples:
            turns = dict.fromkeys(t for t, chosen in zip(s.turns, s.mask, strict=True) if chosen)
            firsts = [next(i for i, t in enumerate(s.turns) if t == n and s.mask[i]) for n in turns]
            rows.append([float(s.ids[i]) for i in firsts])
        return rows


OTHER = replace(TASK, id="another")
ELSEWHERE = Group(OTHER, (replace(EXPERT, task=OTHER), own(1, 1, (4,)), own(2, 1, (4,))))
"""The other half of the demonstrations; its own actions are equal, so nothing is learned from them."""


def credited(algo: StepAgentInverse, *groups: Group) -> list[Sample]:
    return algo.credit(groups, Judge(), NOW)  # type: ignore[arg-type]


def test_a_practised_action_counts_as_one_whatever_its_length() -> None:
    """At the expert's second state: actions of one, two and four tokens, paid 3, 4 and 2 (of at most 3.5)."""
    practised = Group(TASK, (EXPERT, own(1, 2, (3,)), own(2, 2, (4, 9)), own(3, 2, (2, 9, 9, 9))))
    samples = credited(StepAgentInverse(most=3.5), practised, ELSEWHERE)
    assert [sum(s.weights) for s in samples] == pytest.approx([1.0] * 3)
    assert [s.action_tokens for s in samples] == [1, 2, 4]
    assert [s.advantages[-1] for s in samples] == pytest.approx([3 - 2.75, 3.5 - 2.5, 2 - 3.25])
    assert [s.columns["logged"][-1] for s in samples] == [3.0, 3.5, 2.0]
    assert all((s.advantages != 0).tolist() == s.mask.tolist() for s in samples)
    assert [s.columns["logged"][-1] for s in credited(StepAgentInverse(most=1.0), practised, ELSEWHERE)] == [1.0] * 3


def test_states_where_all_say_the_same_teach_nothing() -> None:
    group = Group(TASK, (EXPERT, own(1, 1, (4,)), own(2, 1, (4,)), own(3, 2, (4, 1)), own(4, 2, (4, 2))))
    assert [s.source for s in credited(StepAgentInverse(), ELSEWHERE, group)] == [(1, 3), (1, 4)]


def test_an_attempt_alone_is_not_compared() -> None:
    alone = replace(ELSEWHERE, trajectories=(*ELSEWHERE.trajectories, attempt(1.0, (1, 2), 3)))
    shown = (EXPERT, own(1, 1, (4,)), own(2, 1, (4,)))
    two = Group(TASK, (*shown, attempt(1.0, (1, 2), 3), attempt(0.0, (2,), 4)))
    samples = credited(StepAgentInverse(final=1.0), alone, two)
    assert [s.source for s in samples] == [(1, 3), (1, 4)]
    assert [sum(s.weights) for s in samples] == pytest.approx([1.0, 1.0])
    assert not credited(StepAgentInverse(final=0.0), alone, two)


def test_the_discriminator_is_shown_both_sides() -> None:
    """Smoothed labels; at each state the own actions together count as much as the expert's."""
    judge = Judge()
    group = Group(TASK, (EXPERT, own(1, 1, (4,)), own(2, 1, (5,)), own(3, 3, (6,))))
    at = [(0, expert, others) for expert, others in states(group)]
    StepAgentInverse(smoothing=0.2, head_lr=0.5, head_steps=7).tell_apart(at, judge)  # type: ignore[arg-type]
    ((samples, targets, weights, lr, steps),) = judge.fitted
    assert targets == pytest.approx((0.9, 0.1, 0.1, 0.9, 0.1)) and weights == pytest.approx((1, 0.5, 0.5, 1, 1))
    assert (lr, steps, len(samples)) == (0.5, 7, 5)


def test_each_half_is_judged_by_a_head_fitted_on_the_other() -> None:
    """Two demonstrations, then one whose states are divided. A single state has no other half."""
    here = Group(TASK, (EXPERT, own(1, 1, (4,)), own(2, 1, (5,))))
    there = Group(OTHER, (replace(EXPERT, task=OTHER), own(1, 2, (6,)), own(2, 2, (7,)), own(3, 2, (8,))))
    one = Group(TASK, (*here.trajectories, own(3, 2, (6,)), own(4, 2, (7,)), own(5, 2, (8,))))
    for groups in ([here, there], [there, here], [one]):
        judge = Judge()
        assert len(StepAgentInverse().credit(groups, judge, NOW)) == 5  # type: ignore[arg-type]
        judged, fitted = (
            [{s.ids[-1] for s in samples if s.source[1] != EXPERT.attempt} for samples in of]
            for of in (judge.judged, [samples for samples, *_ in judge.fitted])
        )
        assert sorted(map(sorted, judged)) == [[4, 5], [6, 7, 8]]
        assert fitted == judged[::-1], "never what it was fitted on"
    assert credited(StepAgentInverse(), here) == []
    judge = Judge()
    assert len(StepAgentInverse().credit([ELSEWHERE, there], judge, NOW)) == 3  # type: ignore[arg-type]
    assert len(judge.fitted) == len(judge.judged) == 1, "nothing of the other half is compared"


def test_halves_are_of_what_was_shown() -> None:
    """A group without practised states counts for neither half, whatever its name; who asks for it is told 0."""
    first, last = (Group(task, (EXPERT, own(1, 1, (4,)))) for task in (TASK, OTHER))
    for name in range(12):
        empty = Group(replace(TASK, id=f"empty {name}"), (EXPERT,))
        half = halves([first, empty, last])
        assert {half(0, ()), half(2, ())} == {0, 1} and half(1, ()) == 0


def test_halves_are_the_same_on_every_machine() -> None:
    """Of a single demonstration, whose states are divided, and of several."""
    shown = replace(EXPERT, turns=tuple(turn((40 + n,), (n,)) for n in range(8)))
    group = Group(TASK, (shown, *(own(1 + n, 1 + n, (9,), shown) for n in range(8))))
    half = halves([group])
    met = [(*(x for n in range(number) for x in (40 + n, n)), 40 + number) for number in range(8)]
    assert [half(0, state) for state in met] == [0, 0, 1, 1, 0, 0, 1, 1] and half(0, (99,)) == 0
    several = [Group(replace(TASK, id=f"task {n}"), group.trajectories) for n in range(8)]
    half = halves(several)
    assert [half(place, ()) for place in range(8)] == [0, 0, 1, 0, 1, 0, 1, 1]


# --- trees ---


def walk(number: int, reward: float, *actions: int) -> Trajectory:
    turns = tuple(turn((40 + place,), (action,)) for place, action in enumerate(actions))
    return Trajectory(TASK, number, turns, reward, False, StopReason.FINISHED)


def pairs(algo: TreeDpo, *walks: Trajectory) -> list[tuple[list[int], list[int]]]:
    """The actions of the better and of the worse one of each pair."""
    made = algo.pairs(Group(TASK, walks))
    return [tuple([t.action_ids[0] for t in one.turns] for one in pair) for pair in made]  # type: ignore[misc]


def test_the_better_action_is_the_one_whose_attempts_were_paid_more() -> None:
    """At the root action 1 has Q = (1 + 0) / 2, action 2 has 0.25; after 1, action 4 has 1 and 5 has 0."""
    walks = walk(0, 1.0, 1, 4), walk(1, 0.0, 1, 5), walk(2, 0.25, 2, 6)
    assert pairs(TreeDpo(gap=0.2), *walks) == [([1], [2]), ([1, 4], [1, 5])]
    assert pairs(TreeDpo(gap=0.2), *reversed(walks)) == [([1], [2]), ([1, 4], [1, 5])]
    assert pairs(TreeDpo(gap=0.25), *walks) == [([1, 4], [1, 5])], "a difference of just the gap is too little"
    assert pairs(TreeDpo(gap=1.0), *walks) == []


def test_experts_and_unscored_attempts_are_no_branches() -> None:
    broken = replace(walk(1, 0.0, 2), stop=StopReason.ENV_ERROR)
    assert pairs(TreeDpo(), walk(0, 1.0, 1), broken, replace(walk(2, 0.0, 3), expert=True)) == []
