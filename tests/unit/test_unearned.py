"""Reward that rises without success: found where it was put, and not found where it was not."""

import random
from collections import Counter

from longloop.analysis.outcomes import breakdown
from longloop.analysis.tally import Tally, merged
from longloop.analysis.unearned import find, windows


def test_steps_are_cut_into_windows():
    steps = dict.fromkeys(range(1, 11), Tally())
    assert windows(steps, 3) == [(1, 2, 3), (4, 5, 6, 7), (8, 9, 10)]
    assert windows(dict.fromkeys([4, 9]), 8) == [(4,), (9,)] and windows({}) == []


def a_tally(rng, tasks, success, passes, kinds=2, attempts=4):
    """Attempts that succeed with one chance and, when they fail, pass the first of two tests with another."""
    found = Tally()
    for task in tasks:
        kind = task % kinds
        sums = Counter(attempts=attempts)
        for _ in range(attempts):
            right = rng.random() < (success[kind] if isinstance(success, tuple) else success)
            half = rng.random() < (passes[kind] if isinstance(passes, tuple) else passes)
            sums["success"] += right
            sums["reward"] += 1.0 if right else 0.5 * half
            sums["tested/the note is kept"] += 1
            sums["unearned/the note is kept"] += half and not right
            sums["tested/the answer is right"] += 1
        found.tasks[str(task)] = sums
        found.properties[str(task)] = {"scenario": (f"kind {kind}",)}
    return found


def a_run(seed, success, passes, steps=12):
    """Evaluations at both ends and training between them; the chances go from one end to the other."""
    rng = random.Random(seed)

    def between(ends, share):
        return tuple(a + (b - a) * share for a, b in zip(*ends, strict=True))

    ends = [tuple(one) if isinstance(one[0], tuple) else ((one[0],) * 2, (one[1],) * 2) for one in (success, passes)]
    evaluations = {
        step: a_tally(rng, range(60), *(between(end, share) for end in ends)) for step, share in ((0, 0), (steps, 1))
    }
    training = {
        step: a_tally(rng, range(100 * step, 100 * step + 8), *(between(end, step / steps) for end in ends))
        for step in range(1, steps + 1)
    }
    return training, evaluations


def test_found_when_half_is_paid_for_more_and_more_often():
    found, tests = find(*a_run(0, success=(0.2, 0.2), passes=(0.2, 0.8)))
    where = [rise.where for rise in found]
    assert "evaluation after step 12" in where and any(name.startswith("training, step") for name in where)
    assert "scenario kind 0, in evaluation" in where and "scenario kind 1, in evaluation" in where
    whole = next(rise for rise in found if rise.where == "evaluation after step 12")
    assert whole.reward.difference > 0.15 and whole.reward.interval[0] > 0 and whole.chance < 0.05
    assert whole.success.interval[0] < 0 < whole.success.interval[1]
    assert {test.name for test in tests} == {"the note is kept"}, "the other is never passed for nothing"
    assert tests[0].passed.difference > 0.2 and {test.where for test in tests} >= {"evaluation"}


def test_only_the_scenario_that_is_gamed_is_named():
    found, _ = find(*a_run(1, success=((0.3, 0.3), (0.3, 0.3)), passes=((0.1, 0.5), (0.9, 0.5))))
    assert any("kind 0" in rise.where for rise in found) and not any("kind 1" in rise.where for rise in found)


def test_not_found_when_success_rises_too():
    assert find(*a_run(2, success=(0.1, 0.7), passes=(0.3, 0.3)))[0] == []
    assert find(*a_run(3, success=(0.1, 0.6), passes=(0.2, 0.8)))[0] == [], "nor when both do"


def test_not_found_where_reward_is_success():
    assert find(*a_run(4, success=(0.2, 0.4), passes=(0.0, 0.0))) == ([], [])


def test_nothing_is_said_of_an_expert_or_of_too_few():
    training, _ = a_run(5, success=(0.2, 0.2), passes=(0.0, 1.0))
    assert find(training, {})[0] != []
    for tally in training.values():
        tally.expert = True
    assert find(training, {}) == ([], [])
    few = {step: a_tally(random.Random(step), range(5), 0.2, float(step > 0)) for step in (0, 9)}
    assert find({}, few) == ([], []) == find({}, {})


def test_it_does_not_cry_wolf():
    """Sixty runs in which nothing changes, with some ten comparisons each: no more than chance allows, 5% of runs. More
    than eight of sixty would be less than once in 2,000 times."""
    alarms = [find(*a_run(seed, success=(0.3, 0.3), passes=(0.4, 0.4), steps=6)) for seed in range(100, 160)]
    assert sum(bool(found) for found, _ in alarms) <= 8
    assert sum(bool(tests) for _, tests in alarms) <= 8


def test_tasks_are_not_gone_through_for_every_value_of_theirs():
    """200 scenarios of 600 tasks."""
    gone_through = 0

    class Watched(dict):
        def items(self):
            nonlocal gone_through
            gone_through += 1
            return super().items()

    evaluations = {step: a_tally(random.Random(step), range(600), 0.3, 0.5, kinds=200) for step in (0, 9)}
    for one in evaluations.values():
        one.tasks = Watched(one.tasks)
    find({}, evaluations)
    by = breakdown(merged(list(evaluations.values())), evaluations[0], evaluations[9])
    assert len(by["scenario"]) == 200 and gone_through < 30
