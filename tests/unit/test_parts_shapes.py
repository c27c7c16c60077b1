"""Parts that shape advantages, pay rewards and choose tasks, on numbers that were computed by hand."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from longloop.algos.parts.part import Paid
from longloop.algos.parts.rewards import (
    Discounted,
    Economy,
    Effort,
    Explored,
    Judged,
    Rewards,
    Votes,
    difficulty,
    economy,
    effort,
    outcome_key,
)
from longloop.algos.parts.shape import EntropyDown, EntropyUp, Nudge, SemanticEntropy, Shape, TurnEntropy, over_tokens
from longloop.algos.parts.tasks import Bandit, Horizon, InOrder
from longloop.algos.reduce import standardize, to_samples
from longloop.algos.scaling_inter import ScalingInter
from longloop.training import TaskStream
from longloop.types import Group, Message, Now, Sample, Task, Trajectory, Turn, UserError
from tests.support.samples import NOW, TASK, attempt, with_known


def tried(
    key: str | None = "", reward: float = 0.0, said: Sequence[str] = ("", ""), number: int = 0, task: Task = TASK
) -> Trajectory:
    """An attempt that said these things and came to this."""
    made = attempt(reward, [1] * len(said), number)
    turns = tuple(replace(t, action=Message("assistant", text)) for t, text in zip(made.turns, said, strict=True))
    return replace(made, task=task, turns=turns, info={} if key == "" else {"key": key})


def outcomes(*keys: str | None) -> Group:
    return Group(TASK, tuple(tried(key, number=number) for number, key in enumerate(keys)))


def step(groups: Sequence[Group], advantages: Sequence[Sequence[float]], entropies: dict[Any, float]) -> list[Sample]:
    """The samples of a step. `entropies` are those of (group, attempt, turn)'s tokens."""
    return [
        sample.with_columns(entropy=[m * entropies.get((*sample.source, int(u)), 0.0) for u, m in of_turns])
        for index, (group, of_group) in enumerate(zip(groups, advantages, strict=True))
        for t, a in zip(group.scored, of_group, strict=True)
        for sample in to_samples(t, index, a, "token")
        for of_turns in [list(zip(sample.turns, sample.mask, strict=True))]
    ]


def shaped(shape: Shape, samples: Sequence[Sample], groups: Sequence[Group]) -> list[list[float]]:
    """The advantages of each sample's trained tokens."""
    return [s.advantages[s.mask].tolist() for s in shape.shape(samples, groups, NOW)]


def flat(rows: Sequence[Sequence[float]]) -> list[float]:
    return [value for row in rows for value in row]


# -- shapes ------------------------------------------------------------------------------------------------------------


def two_and_one(fresh: Sequence[int] = ()) -> tuple[list[Group], list[Sample]]:
    """Attempts of two turns and one, the first with A = 1 and entropies 0.2 and 0.6, the second with -1 and 1."""
    groups = [Group(TASK, (attempt(1.0, (1, 2), 0, fresh=fresh), attempt(0.0, (3,), 1)))]
    return groups, step(groups, [[1.0, -1.0]], {(0, 0, 0): 0.2, (0, 0, 1): 0.6, (0, 1, 0): 1.0})


def test_turn_entropy_raises_sure_turns_and_centers() -> None:
    groups, samples = two_and_one()
    raw, centered = (shaped(TurnEntropy(center=center), samples, groups) for center in (False, True))
    np.testing.assert_allclose(flat(raw), [1.5801, *[0.9216] * 2, *[-0.5590] * 3], atol=5e-5)
    np.testing.assert_allclose(flat(centered), [0.9325, *[0.2740] * 2, *[-1.2065] * 3], atol=6e-5)
    only = shaped(TurnEntropy(scale=0.0, zeta=0.0), samples, groups)  # A minus its mean over the three turns, 1/3
    np.testing.assert_allclose(flat(only), [2 / 3] * 3 + [-4 / 3] * 3)


def test_turn_entropy_finds_the_next_turn_in_another_stretch() -> None:
    groups, samples = two_and_one(fresh=(1,))
    assert len(samples) == 3
    found = shaped(TurnEntropy(center=False), samples, groups)
    np.testing.assert_allclose(flat(found), [1.5801, *[0.9216] * 2, *[-0.5590] * 3], atol=5e-5)


def test_turn_entropy_leaves_attempts_without_an_advantage_alone() -> None:
    groups, samples = two_and_one()
    flat = [*groups, Group(TASK, (attempt(1.0, (1,), 0), attempt(1.0, (1,), 1)))]
    more = step(flat, [[1.0, -1.0], [0.0, 0.0]], {(0, 0, 0): 0.2, (0, 0, 1): 0.6, (0, 1, 0): 1.0, (1, 0, 0): 9.0})
    assert shaped(TurnEntropy(), more, flat) == [*shaped(TurnEntropy(), samples, groups), [0.0], [0.0]]


def test_turn_entropy_of_one_turn_changes_nothing_but_the_mean() -> None:
    groups = [Group(TASK, (attempt(1.0, (2,), 0),))]
    samples = step(groups, [[0.5]], {(0, 0, 0): 0.7})
    assert shaped(TurnEntropy(center=False), samples, groups) == [[0.5, 0.5]]


@pytest.mark.parametrize(
    ("keys", "alpha", "estimate", "factor"),
    [
        ("aaaa", 1.0, "shannon", 1.0),
        ("abcd", 1.0, "shannon", 0.0),
        ("aabc", 1.0, "shannon", 0.25),
        ("aabc", 1.0, "clusters", 1 - 0.8333),
        ("aabc", 0.5, "shannon", 0.625),
        ((None, None), 1.0, "shannon", 0.0),  # two attempts that came to nothing do not agree
        ("aaaaaaab", 2.0, "clusters", 0.0),  # more than log K: at least 0
    ],
)
def test_semantic_entropy_shrinks_what_disagrees(keys: Any, alpha: float, estimate: Any, factor: float) -> None:
    groups = [outcomes(*keys)]
    samples = step(groups, [[2.0] * len(keys)], {})
    for found in shaped(SemanticEntropy(alpha, estimate), samples, groups):
        np.testing.assert_allclose(found, 2 * factor, atol=1e-4)


def behaving(*first: int, turns: int = 10, reward: float = 1.0) -> Group:
    """Attempts of so many turns that call a tool first at these turns; -1 for never."""
    said = [["call" if u == x else "think" for u in range(turns)] for x in first]
    return Group(TASK, tuple(tried(reward=reward, said=texts, number=n) for n, texts in enumerate(said)))


def nudged(group: Group, advantage: float, **options: float) -> list[float]:
    samples = step([group], [[advantage] * len(group.scored)], {})
    return [found[0] for found in shaped(Nudge(behavior="call", **options), samples, [group])]


def test_nudge_favors_early_behavior_of_successes_within_bounds() -> None:
    np.testing.assert_allclose(nudged(behaving(1, 3), 0.5), [0.7, 0.3])
    np.testing.assert_allclose(nudged(behaving(1, 3, -1), 0.5), [0.7, 0.3, 0.5])  # one never shows it
    np.testing.assert_allclose(nudged(behaving(0, 9), 0.5), [0.85, 0.15])  # at most 0.7 of 0.5
    np.testing.assert_allclose(nudged(behaving(0, 9), -0.5), [-0.15, -0.85])
    assert nudged(behaving(1, 3), 0.0) == [0.0, 0.0]
    assert nudged(behaving(1, 3), 0.5, delta=0.0) == [0.5, 0.5]
    assert nudged(behaving(1, 3, reward=0.9), 0.5) == [0.5, 0.5]  # not successes


def test_entropy_up_scales_by_the_z_score_of_the_step() -> None:
    groups = [Group(TASK, (attempt(1.0, (1,), 0), attempt(0.0, (1,), 1)))]
    unlike, alike = ({(0, 0, 0): low, (0, 1, 0): 1.0} for low in (0.0, 1.0))
    found = shaped(EntropyUp(), step(groups, [[1.0, -1.0]], unlike), groups)
    np.testing.assert_allclose(found, [[0.8586], [-1.1414]], atol=5e-5)
    assert shaped(EntropyUp(), step(groups, [[1.0, -1.0]], alike), groups) == [[1.0], [-1.0]]


def test_entropy_down_favors_confident_attempts_of_a_group() -> None:
    groups = [Group(TASK, (attempt(1.0, (1, 1), 0, fresh=(1,)), attempt(0.0, (2,), 1))), outcomes("a", "b")]
    entropies = {(0, 0, 0): 0.1, (0, 0, 1): 0.3, (0, 1, 0): 0.4, (1, 0, 0): 5.0, (1, 1, 0): 5.0}
    samples = step(groups, [[1.0, -1.0], [1.0, 1.0]], entropies)
    found = shaped(EntropyDown(), samples, groups)
    np.testing.assert_allclose(flat(found[:3]), [4 / 3] * 2 + [-2 / 3] * 2)
    np.testing.assert_allclose(found[3:], 1.0)  # equally sure
    three = [outcomes("a", "b", "c")]
    unsure = {(0, a, u): h for a, h in enumerate((0.1, 0.1, 1.3)) for u in (0, 1)}
    found = shaped(EntropyDown(), step(three, [[1.0] * 3], unsure), three)
    np.testing.assert_allclose(found[0], 1.8)
    assert found[2] == [0.0, 0.0]  # more than twice the mean: not below 0


# -- rewards -----------------------------------------------------------------------------------------------------------


def pay(rewards: Rewards, group: Group, memory: dict[str, Any] | None = None, now: int = 1) -> Paid:
    (paid,) = rewards.pay([group], None, Now(now, 10, {} if memory is None else memory))  # type: ignore[arg-type]
    return paid


def test_an_outcome_key_is_the_environments_or_the_last_action() -> None:
    assert outcome_key(tried("42", said=("a", "b"))) == "42"
    assert outcome_key(tried(said=("a", " b "))) == "b"
    assert outcome_key(tried(None, said=("a", "b"))) is None
    assert outcome_key(tried(said=("a", " "))) is None
    assert outcome_key(replace(tried(), turns=())) is None


def test_votes_pay_the_share_or_the_majority() -> None:
    group = outcomes("a", "a", "a", "b")
    assert pay(Votes(), group).outcomes == [0.75, 0.75, 0.75, 0.25]
    np.testing.assert_allclose(standardize(pay(Votes(), group).outcomes), [0.5, 0.5, 0.5, -1.5], atol=1e-4)
    assert pay(Votes("majority"), group).outcomes == [1.0, 1.0, 1.0, 0.0]
    assert pay(Votes("majority"), outcomes("a", "a", "b", "b", "c")).outcomes == [1.0] * 4 + [0.0]
    assert pay(Votes(), outcomes("a", "a", None, None)).outcomes == [0.5, 0.5, 0.0, 0.0]
    for by in ("share", "majority"):
        assert pay(Votes(by), outcomes("a", "b", "c")).outcomes == [0.0] * 3  # type: ignore[arg-type]


def test_votes_do_not_look_at_what_the_environment_paid() -> None:
    group = outcomes("a", "a", "b")
    labeled = Group(
        TASK,
        tuple(
            replace(t, reward=0.3, success=True, turns=tuple(replace(turn, reward=0.2) for turn in t.turns))
            for t in group.trajectories
        ),
    )
    assert pay(Votes(), labeled) == pay(Votes(), group)
    assert pay(Votes(w=0.0), labeled) == pay(Rewards(), labeled)
    np.testing.assert_allclose(pay(Votes(w=0.5), labeled).outcomes, [0.15 + 1 / 3] * 2 + [0.15 + 1 / 6])


@pytest.mark.parametrize(
    ("fewest", "calls", "factors"),
    [(2, (1, 2, 3, 4, 8), (0.8660, 1, 0.9511, 0.8660, 0.5878)), (0, (0, 1, 2, 4), (1, 0.8660, 0.7071, 0.5))],
)
def test_economy(fewest: int, calls: Sequence[int], factors: Sequence[float]) -> None:
    np.testing.assert_allclose([economy(m, fewest, 4.0) for m in calls], factors, atol=5e-5)


def calling(*calls: tuple[int, float]) -> Group:
    """Attempts of so many turns each, and what they were paid."""
    return Group(TASK, tuple(tried(reward=r, said=["call"] * m, number=n) for n, (m, r) in enumerate(calls)))


def test_economy_is_measured_by_the_fewest_calls_of_a_success_so_far() -> None:
    memory: dict[str, Any] = {}
    paid = [pay(Economy(), calling((2, 0.5), (3, 0.0)), memory).outcomes]  # never solved: paid in full
    paid.append(pay(Economy(), calling((4, 1.0), (2, 0.0), (4, 1.0)), memory).outcomes)
    memory = json.loads(json.dumps(memory))
    paid.append(pay(Economy(), calling((2, 1.0), (4, 1.0), (1, -1.0)), memory).outcomes)  # the new fewest is 2
    paid.append(pay(Economy(), calling((8, 1.0), (3, 1.0)), memory).outcomes)
    assert paid[:2] == [[0.5, 0.0], [1.0, 0.0, 1.0]]
    np.testing.assert_allclose(paid[2], [1.0, 0.8660, -1.0], atol=5e-5)
    np.testing.assert_allclose(paid[3], [0.5878, 0.9511], atol=5e-5)


def test_economy_counts_what_is_named_a_call_and_can_count_half() -> None:
    said = (("call call", "think"), ("think",), ("call", "think"))
    group = Group(TASK, tuple(tried(reward=1.0, said=texts, number=n) for n, texts in enumerate(said)))
    np.testing.assert_allclose(pay(Economy(calls="call"), group).outcomes, [0.7071, 1.0, 0.8660], atol=5e-5)
    np.testing.assert_allclose(pay(Economy(w=0.5, calls="call"), group).outcomes, [0.8536, 1.0, 0.9330], atol=5e-5)
    assert pay(Economy(w=0.0), group) == pay(Rewards(), group)


def test_a_discounted_outcome_is_paid_to_every_turn() -> None:
    group = Group(TASK, (tried(reward=1.0, said="abc", number=0), tried(reward=0.0, said="ab", number=1)))
    paid = pay(Discounted(0.5), group)
    whole = [[*turns[:-1], turns[-1] + outcome] for turns, outcome in zip(paid.turns, paid.outcomes, strict=True)]
    assert whole == [[0.25, 0.5, 1.0], [0.0, 0.0]]
    assert pay(Discounted(0.0), group) == pay(Rewards(), group)
    assert pay(Discounted(), Group(TASK, (replace(tried(), turns=()),))).turns == [[]]
    short, long = (tried(reward=1.0, said=["a"] * n, number=n) for n in (2, 6))
    means = [fmean([*turns[:-1], 1.0]) for turns in pay(Discounted(), Group(TASK, (short, long))).turns]
    assert means[0] > means[1]


def conversed(*exchanges: tuple[str, str], answers: Sequence[str] = ()) -> Group:
    """One success whose turns heard and said these things."""
    made = attempt(1.0, [1] * len(exchanges))
    turns: list[Turn] = [
        replace(turn, context=(Message("user", heard),), action=Message("assistant", said))
        for turn, (heard, said) in zip(made.turns, exchanges, strict=True)
    ]
    task = Task("asked", "train", {"answers": list(answers)})
    return Group(task, (replace(made, task=task, turns=tuple(turns)),))


def test_judgments_are_paid_when_right_and_cost_when_wrong() -> None:
    group = conversed(
        ("Who?", "Search[x]"),
        ("It was Ada Lovelace.", "JUDGE(useful), so Search[y]"),
        ("Nothing about adam.", "Judge: not useful. Search[z]"),
        ("Nothing about him.", "JUDGE(useful)"),
        ("Nothing about him.", "JUDGE(not useful)"),  # judged already
        ("So it was ADA, Lovelace!", "judge[not]"),
        ("More?", "Finish[Ada]"),
        answers=["Ada"],
    )
    paid = pay(Judged(), group)
    np.testing.assert_allclose(paid.turns[0], [0, 0.1, 0.1, -0.1, 0, -0.1, 0])
    assert paid.outcomes == [1.0]
    np.testing.assert_allclose(pay(Judged(), group, now=6).turns[0], [0, 0.05, 0.05, -0.05, 0, -0.05, 0])
    assert pay(Judged(scale=0.0), group).turns[0] == [0.0] * 7
    assert pay(Judged(scale=1.0), group).turns[0] == [0.0, 0.125, 0.125, -0.125, 0.0, -0.125, 0.0]


def test_different_queries_that_ran_are_paid() -> None:
    group = conversed(
        ("How many?", "```sql\nSELECT 1\n```"),
        ("1", "```sql\nselect  1\n```"),  # the same again
        ("1", "```sql\nSELEC 2\n```"),
        ("Error: no such word", "I look at another table."),
        ("What?", "```sql\nSELECT 3\n```"),
        ("3", "```sql\nSELECT 4\n```"),  # the last is the result, not a query on the way
    )
    assert pay(Explored(), group).turns == [[0.1, 0.0, 0.0, 0.0, 0.1, 0.0]]
    assert pay(Explored(scale=0.0), group) == pay(Rewards(), group)


@pytest.mark.parametrize("many", [1, 5, 6, 50])
def test_turns_are_never_paid_more_in_total_than_the_limit(many: int) -> None:
    queries = conversed(*((f"{n}", f"```sql\nSELECT {n}\n```") for n in range(many + 1)))
    judged = conversed(*((f"Ada, {n}", "JUDGE(useful)") for n in range(many)), answers=["Ada"])
    for paid in (pay(Explored(), queries), pay(Judged(), judged)):
        assert math.fsum(paid.turns[0]) == pytest.approx(min(0.5, 0.1 * many))
        assert paid.outcomes[0] > math.fsum(paid.turns[0])


@pytest.mark.parametrize(
    ("level", "success", "n", "target", "extra"),
    [
        ("easy", True, 20, 10, -0.5),  # the penalty 7.5 / 3.5 is more than the cap
        ("easy", True, 11, 10, 0.0),
        ("easy", True, 1, 10, 0.0),
        ("easy", True, 12.5, 10, -0.5 * 0.25 / 3.5),  # 1 beyond the margin: 1 / (2 * 2)
        ("medium", True, 6.5, 10, -0.5 * (1 / 6) / 5.5),
        ("hard", True, 6.5, 10, 0.0),  # at the lower edge of the margin, 3.5
        ("hard", True, 9.5, 10, 0.6 * (2 / (1 + math.exp(-1)) - 1)),
        ("hard", True, 5.5, 10, -0.6 * 0.5 * (1 / 8) / 7.5),
        ("easy", False, 10, 10, 0.0),
        ("easy", False, 13.5, 10, 0.5 * 0.6 * (2 / (1 + math.exp(-1)) - 1)),
        ("hard", False, 16.5, 10, 0.6 * (2 / (1 + math.exp(-1)) - 1)),
    ],
)
def test_effort(level: str, success: bool, n: float, target: float, extra: float) -> None:
    assert effort(level, success, n, target, 0.5) == pytest.approx(extra)
    assert effort(level, success, n, target, 0.0) == 0.0


class Known:
    """A learner that says these entropies of every attempt's tokens."""

    def __init__(self, *entropies: Sequence[float]) -> None:
        self.entropies = entropies

    def read(self, samples: Sequence[Sample], *columns: str) -> list[Sample]:
        def known(sample: Sample) -> dict[str, Any]:
            values = np.zeros(len(sample.ids))
            values[sample.mask] = self.entropies[sample.source.attempt]
            return {"entropy": values}

        return with_known(samples, columns, known)


def test_effort_counts_hesitant_windows_against_the_mean_of_its_difficulty() -> None:
    group = Group(TASK, (attempt(1.0, (8,), 0), attempt(1.0, (8,), 1), attempt(0.0, (4, 4), 2)))
    assert difficulty(group) == "easy"
    calm, upset = [0.0] * 8, [1.0] * 8
    memory: dict[str, Any] = {"Effort": {"threshold": 0.7}}
    (paid,) = Effort().pay([group], Known(calm, upset, [1.0, 0, 0, 0, 1.0, 1, 1, 1]), Now(1, 1, memory))  # type: ignore[arg-type]
    assert memory["Effort"]["threshold"] == pytest.approx(0.99 * 0.7 + 0.01 * 1.0)
    target = (0 + 8 + 4) / 3  # a window ends with its turn: of the third only the second turn's four count
    assert paid.outcomes == pytest.approx([1.0, 1.0 + effort("easy", True, 8, target, 0.5), 0.0])
    assert paid.outcomes[1] < 0.9


def test_effort_keeps_its_threshold_from_step_to_step() -> None:
    group = Group(TASK, (attempt(1.0, (2,), 0), attempt(0.0, (2,), 1)))
    memory: dict[str, Any] = {}
    for number, entropy in enumerate((1.0, 3.0)):
        Effort(decay=0.9).pay([group], Known([entropy] * 2, [entropy] * 2), Now(number + 1, 5, memory))  # type: ignore[arg-type]
        memory = json.loads(json.dumps(memory))
    assert memory["Effort"]["threshold"] == pytest.approx(1.2)


# -- tasks -------------------------------------------------------------------------------------------------------------


def known(sizes: Sequence[float], attempts: int) -> dict[str, Any]:
    return {"taken": 0, "attempts": attempts, "sizes": list(sizes)}


def test_the_bandit_prefers_what_it_learns_from_and_what_it_does_not_know() -> None:
    memory = {"a": known([0.4, 0.6], 60), "b": known([0.8], 40)}
    bounds = [0.8890, 1.2745, 3.0381]
    chances = Bandit(temperature=1.0).chances(["a", "b", "c"], memory)
    total = sum(map(math.exp, bounds))
    np.testing.assert_allclose(list(chances.values()), [math.exp(b) / total for b in bounds], atol=1e-4)
    assert Bandit().chances(["a", "b", "c"], memory)["c"] > 0.999
    np.testing.assert_allclose(list(Bandit(1e9).chances(["a", "b", "c"], memory).values()), 1 / 3)


TASKS = [Task(f"{s}{n}", "train", scenario=s) for s in "ab" for n in range(5)]


def test_the_bandit_goes_through_a_source_before_it_repeats_and_can_be_resumed() -> None:
    def taken(resumed: bool) -> list[str]:
        memory: dict[str, Any] = {"Bandit": {"a": known([0.9] * 9, 9), "b": known([0.1] * 9, 9)}}
        stream = TaskStream(TASKS, 3)
        found = []
        for number in range(6):
            found += [task.id for task in Bandit(temperature=0.4).take(stream, 5, Now(number + 1, 9, memory))]
            if resumed:
                memory, count = json.loads(json.dumps(memory)), stream.taken
                stream = TaskStream(TASKS, 3)
                stream.taken = count
        assert stream.taken == 30
        return found

    found = taken(False)
    assert found == taken(True)
    counts = {source: [one for one in found if one[0] == source] for source in "ab"}
    assert len(counts["a"]) > len(counts["b"]) > 0
    for ids in counts.values():
        for first in range(0, len(ids) - 4, 5):
            assert len(set(ids[first : first + 5])) == 5


def test_with_one_source_the_tasks_come_in_the_streams_order() -> None:
    tasks = [Task(f"{n}", "train") for n in range(7)]
    bandit = Bandit().take(TaskStream(tasks, 5), 20, Now(1, 9, {}))
    assert bandit == TaskStream(tasks, 5).take(20)


def test_the_bandit_notes_every_scored_attempt_of_a_source() -> None:
    groups = [
        Group(TASKS[0], (attempt(1.0, (1, 3), 0, fresh=(1,)), attempt(0.0, (2,), 1), attempt(0.0, (2,), 2))),
        Group(TASKS[5], (attempt(1.0, (1,), 0), attempt(1.0, (1,), 1))),
    ]
    samples = step(groups, [[[0.4, 0.8], -0.5, 0.0], [0.0, 0.0]], {})  # type: ignore[list-item]
    left = [s for s in samples if s.advantages.any()]
    memory: dict[str, Any] = {}
    Bandit().learn(groups, left, Now(1, 9, memory))
    assert memory["Bandit"]["a"]["sizes"] == pytest.approx([0.7, 0.5, 0.0])  # (0.4 + 3 * 0.8) / 4
    assert Counter({s: one["attempts"] for s, one in memory["Bandit"].items()}) == {"a": 3, "b": 2}
    Bandit(window=4).learn(groups, left, Now(2, 9, memory))
    assert memory["Bandit"]["a"]["sizes"] == pytest.approx([0.0, 0.7, 0.5, 0.0])
    assert memory["Bandit"]["a"]["attempts"] == 6


def test_the_horizon_follows_from_the_step() -> None:
    horizon = Horizon((10, 20, 30), 100)
    assert [horizon.max_turns(Now(s, 999)) for s in (1, 100, 101, 200, 201, 999)] == [10, 10, 20, 20, 30, 30]
    assert Horizon().max_turns(Now(7, 9)) == 0
    assert {Horizon((4,), 2).max_turns(Now(s, 9)) for s in range(1, 10)} == {4}
    for wrong in ({"rounds": [0]}, {"every": 0}):
        with pytest.raises(UserError, match="at least 1"):
            ScalingInter(**wrong)  # type: ignore[arg-type]


# -- at their edges ----------------------------------------------------------------------------------------------------


def test_shapes_at_their_edges() -> None:
    both = [Group(TASK, (attempt(1.0, (1, 1), 0),))]
    paid_late = step(both, [[[0.0, 1.0]]], {(0, 0, 0): 0.2, (0, 0, 1): 0.6})  # type: ignore[list-item]
    assert shaped(TurnEntropy(scale=0.0, zeta=0.0), paid_late, both) == [[-0.5, 0.5]]  # one turn's advantage is enough
    even = step(both, [[0.0]], {})
    assert TurnEntropy().shape(even, both, NOW) == even and EntropyUp().shape([], [], NOW) == []
    for shape in (TurnEntropy(), EntropyUp()):
        (found,) = shape.shape(paid_late, both, NOW)
        assert not found.advantages[~found.mask].any()
    assert not over_tokens(paid_late[0], {}).any()
    assert shaped(EntropyDown(), step(both, [[2.0]], {}), both) == [[2.0, 2.0]]  # no entropy, nothing to compare


def test_entropy_up_divides_by_the_unbiased_deviation() -> None:
    groups = [Group(TASK, (attempt(1.0, (1, 1, 1), 0),))]
    samples = step(groups, [[1.0]], {(0, 0, 1): 1.0, (0, 0, 2): 2.0})
    assert shaped(EntropyUp(0.5), samples, groups) == [[0.5, 1.0, 1.5]]
    alone = [Group(TASK, (attempt(1.0, (1,), 0),))]
    assert shaped(EntropyUp(), step(alone, [[2.0]], {(0, 0, 0): 3.0}), alone) == [[2.0]]


def test_semantic_entropy_of_one_attempt_and_of_attempts_that_came_to_nothing() -> None:
    assert SemanticEntropy().disagreement(outcomes("a")) == 0.0
    # clusters of 2, 1 and 1: (log 2 / 2 + log 4 / 2) / log 4
    assert SemanticEntropy().disagreement(outcomes("a", "a", None, None)) == pytest.approx(0.75)


def test_rewards_at_their_edges() -> None:
    assert outcome_key(tried(said=("a", "b", "c"))) == "c"
    assert pay(Votes(), outcomes(None, None)).outcomes == [0.0, 0.0]
    one_of_two = conversed(("It was Ada.", "JUDGE(useful)"), answers=["Grace", "Ada"])
    assert pay(Judged(), one_of_two).turns == [[0.1]]
    fenced = conversed(("", "```SQL\nSELECT 1```"), ("1", "```sql\nselect 1\n```"), ("1", "Done."))
    assert pay(Explored(), fenced).turns == [[0.1, 0.0, 0.0]]  # the same query, whatever is around it


@pytest.mark.parametrize(
    ("rewards", "level"),
    [
        ((1, 1, 0), "easy"),
        ((1, 0), "medium"),
        ((1, 0, 0), "medium"),
        ((1, 0, 0, 0), "hard"),
        ((0, 0), "hard"),
        ((), "hard"),
    ],
)
def test_difficulty(rewards: Sequence[float], level: str) -> None:
    assert difficulty(Group(TASK, tuple(attempt(r, (1,), n) for n, r in enumerate(rewards)))) == level


def test_effort_where_the_penalty_is_linear() -> None:
    assert effort("medium", True, 3.5, 10, 0.5) == pytest.approx(-0.5 * (4 - 1.5) / 5.5)  # 4 beyond the margin of 2.5


def test_effort_looks_at_windows_and_what_is_above_the_threshold() -> None:
    group = Group(TASK, (attempt(1.0, (20,), 0), attempt(1.0, (20,), 1)))
    memory: dict[str, Any] = {"Effort": {"threshold": 0.6}}
    pairs = Known([1.0, 1.0, 0.0, 0.0] * 5, [0.0] * 20)  # of each pair one window of two is full
    (paid,) = Effort(window=2, decay=1.0).pay([group], pairs, Now(1, 1, memory))  # type: ignore[arg-type]
    assert paid.outcomes == pytest.approx([1 + effort("easy", True, 5, 2.5, 0.5), 1.0]) and paid.outcomes[0] < 0.92
    uneven = Group(TASK, (attempt(1.0, (8,), 0), attempt(1.0, (2,), 1)))
    (paid,) = Effort().pay([uneven], Known([1.0] * 8, [1.0] * 2), Now(1, 1, {}))  # type: ignore[arg-type]
    assert paid.outcomes == [1.0, 1.0]  # all are at the threshold, none above


@pytest.mark.parametrize("seed", range(4))
def test_the_bandit_shuffles_by_seed_source_and_epoch(seed: int) -> None:
    def drawn(seed: int) -> tuple[str, list[str], list[str]]:
        ids = [task.id for task in Bandit(1e9).take(TaskStream(TASKS, seed), 40, Now(1, 9, {}))]
        of_a, of_b = ([one[1:] for one in ids if one[0] == source] for source in "ab")
        return "".join(one[0] for one in ids), of_a, of_b

    (sources, of_a, of_b), (others, other_a, _) = drawn(seed), drawn(seed + 10)
    assert sources != others and of_a[:5] != other_a[:5]
    assert len(set(of_a[:5])) == 5 and of_a[:10] != of_a[:5] * 2 and of_a[:10] != of_b[:10]


def test_a_cold_bandit_takes_the_best_source() -> None:
    memory = {"a": known([0.4, 0.6], 60), "b": known([0.8], 40)}
    assert Bandit(1e-4).chances(["a", "b", "c"], memory)["c"] == 1.0
    assert InOrder().max_turns(NOW) == 0
