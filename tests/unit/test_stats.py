"""Intervals and tests against numbers that were computed by hand, by enumeration, or by another function of scipy."""

import itertools
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from scipy.stats import binomtest, permutation_test

from longloop.stats import (
    Rate,
    bootstrap_interval,
    change,
    disjoint,
    holm,
    mean_interval,
    paired_change,
    rise_p,
    seed_interval,
    wilson_interval,
)

RATE = Rate("n", "of")


def tasks(*pairs: tuple[int, int]) -> dict[str, Counter[str]]:
    return {str(number): Counter(n=n, of=of) for number, (n, of) in enumerate(pairs)}


def test_wilson_by_hand():
    """z = 1.95996. None of 10: z^2 / (10 + z^2) = 3.8415 / 13.8415. Half of 2: 0.5 -+ 0.5 * z / sqrt(2 + z^2)."""
    assert wilson_interval(0.0, 10) == pytest.approx((0.0, 0.27753), abs=1e-5)
    assert wilson_interval(0.5, 2) == pytest.approx((0.09453, 0.90547), abs=1e-5)
    assert wilson_interval(0.0, 0) == (0.0, 1.0)
    assert wilson_interval(0.0, 10, confidence=0.99) == pytest.approx((0.0, 6.6349 / 16.6349), abs=1e-5)


@pytest.mark.parametrize("successes", range(11))
def test_wilson_is_scipys_where_successes_are_whole(successes):
    other = binomtest(successes, 10).proportion_ci(method="wilson")
    assert wilson_interval(successes / 10, 10) == pytest.approx((other.low, other.high), abs=1e-12)


def test_wilson_of_a_share_of_a_success_lies_between():
    low, high = wilson_interval(0.25, 10)
    assert wilson_interval(0.2, 10)[0] < low < wilson_interval(0.3, 10)[0] and high < wilson_interval(0.3, 10)[1]


def test_disjoint():
    assert disjoint((0.1, 0.2), (0.3, 0.4)) and disjoint((0.3, 0.4), (0.1, 0.2))
    assert not disjoint((0.1, 0.3), (0.3, 0.4)) and not disjoint((0.0, 1.0), (0.3, 0.4))


def test_the_mean_of_halves_by_hand():
    """Of 10 values five are 1: the number of ones in a draw is binomial (10, 1/2), with 2 and 8 as its 2.5% ends."""
    assert mean_interval([0.0, 1.0] * 5) == pytest.approx((0.2, 0.8))
    assert mean_interval([0.25]) == (0.25, 0.25) and mean_interval([]) == (0.0, 0.0)
    assert mean_interval([0.0, 1.0] * 5) == mean_interval([0.0, 1.0] * 5), "seeded"


def test_seeds_by_hand():
    """0.3, 0.4, 0.5: s = 0.1, and t = 4.3027, so 0.2484 to either side. Two seeds give none, nor do equal ones; and no
    share is beyond 0 or 1, as 0.5 -+ 1.2422 would be. Of 12 seeds t is 2.2010."""
    mean, interval = seed_interval([0.3, 0.4, 0.5])
    assert mean == pytest.approx(0.4) and interval == pytest.approx((0.15159, 0.64841), abs=1e-5)
    assert seed_interval([0.0, 0.5, 1.0]) == (0.5, (0.0, 1.0))
    gains = seed_interval([-0.1, 0.0, 0.1], bounds=(-1.0, 1.0))[1]
    assert gains == pytest.approx((-0.24841, 0.24841), abs=1e-5)
    assert seed_interval([0.25, 0.75]) == (0.5, None) and seed_interval([0.5]) == (0.5, None)
    assert seed_interval([0.25, 0.25, 0.25]) == (0.25, None)
    mean, interval = seed_interval([0.4, 0.6] * 6)
    assert interval == pytest.approx((mean - 2.2010 * 0.1 / 11**0.5, mean + 2.2010 * 0.1 / 11**0.5), abs=1e-5)


def test_the_bootstrap_agrees_with_the_normal_law():
    """Half of 100 tasks: the standard error is 0.05, that of a difference of two such halves 0.0707."""
    half = tasks(*[(0, 1), (1, 1)] * 50)
    assert bootstrap_interval(RATE, half) == pytest.approx((0.402, 0.598), abs=0.015)
    assert bootstrap_interval(RATE, half, half) == pytest.approx((-0.139, 0.139), abs=0.015)
    assert bootstrap_interval(RATE, half) == bootstrap_interval(RATE, half), "seeded"


def test_tasks_count_by_their_attempts():
    """One task with 9 of 9, one with 0 of 1: drawn are both or one twice, so the ends are 0 and 1, the mean is 9/10."""
    assert bootstrap_interval(RATE, tasks((9, 9), (0, 1))) == (0.0, 1.0)
    many = tasks(*[(9, 9), (0, 1)] * 200)
    low, high = bootstrap_interval(RATE, many)
    assert 0.87 < low < 0.9 < high < 0.93


def test_pairing_removes_what_differs_between_tasks():
    """Every task does one more: certain when paired, which says nothing; drowned in the tasks' differences when not."""
    before, after = tasks(*[(0, 1), (9, 1)] * 10), tasks(*[(1, 1), (10, 1)] * 10)
    assert bootstrap_interval(RATE, after, before, paired=True) is None
    low, high = bootstrap_interval(RATE, after, before)
    assert low < -1 and high > 3
    almost = tasks(*[(1, 1), (10, 1)] * 9, (1, 1), (9, 1))
    assert bootstrap_interval(RATE, almost, before, paired=True) == pytest.approx((0.85, 1.0))


def test_no_interval_where_it_would_feign_certainty():
    assert bootstrap_interval(RATE, tasks((1, 2))) is None, "one task"
    assert bootstrap_interval(RATE, tasks((1, 2)), tasks((0, 2), (1, 2))) is None, "one task on a side"
    assert bootstrap_interval(RATE, tasks((0, 2), (0, 2))) is None, "never"
    assert bootstrap_interval(RATE, tasks((2, 2), (2, 2))) is None, "always"
    nothing = [(0, 0)] * 16
    assert bootstrap_interval(RATE, tasks((0, 1), (1, 1), *nothing)) is None, "13% of draws have neither"
    assert bootstrap_interval(RATE, tasks((0, 1), (1, 1), (0, 1), (1, 1), *nothing)) is not None


def test_a_task_that_only_one_side_has_takes_no_part_in_a_paired_change():
    """Of five tasks the last two, of which one was done, were spoiled afterwards."""
    before, after = tasks((1, 1), (0, 1), (0, 1), (1, 1), (0, 1)), tasks((1, 1), (0, 1), (1, 1))
    found = change(RATE, before, after, paired=True)
    assert (found.first, found.last, found.difference) == (1 / 3, 2 / 3, 1 / 3) and found.tasks == 3
    assert found.interval == bootstrap_interval(RATE, after, before, paired=True) == (0, 1)
    assert change(RATE, before, after, paired=False).difference == 2 / 3 - 2 / 5
    assert change(RATE, before, before, paired=True).tasks is None, "all are scored both times"
    assert change(RATE, {"a": before["0"]}, {"b": before["1"]}, paired=True).difference is None


def test_draws_in_pieces_are_the_same_draws(monkeypatch):
    half = tasks(*[(0, 1), (1, 3)] * 50)
    whole = bootstrap_interval(RATE, half)
    monkeypatch.setattr("longloop.stats._NUMBERS_AT_ONCE", 1000)
    assert bootstrap_interval(RATE, half) == pytest.approx(whole)


def test_a_paired_change_by_hand():
    """Five of ten tasks rise by 1. Their number in a draw is binomial (10, 1/2): below 2 in 1.07% and below 3 in 5.5%
    of all draws, so 2 and 8 are the ends. All five signs are equal in 2 of 32 flips: p = 0.0625."""
    before = {str(n): 0.0 for n in range(10)}
    after = {str(n): float(n < 5) for n in range(10)}
    change = paired_change(before, after | {"only here": 1.0})
    assert change is not None
    assert change.difference == 0.5 and change.interval == pytest.approx((0.2, 0.8))
    assert change.p == 0.0625 and change.verdict == "no clear change"

    more = paired_change(before, {str(n): float(n < 7) for n in range(10)})
    assert more is not None and more.p == 2 / 2**7 and more.verdict == "better"
    less = paired_change({str(n): float(n < 7) for n in range(10)}, before)
    assert less is not None and less.difference == -0.7 and less.verdict == "worse"
    assert paired_change(before, {"another": 1.0}) is None


@pytest.mark.parametrize(("count", "verdict"), [(20, "better"), (5, "no clear change"), (1, "no clear change")])
def test_a_few_tasks_show_nothing_and_all_tasks_much(count, verdict):
    """Where all tasks change alike there is no interval, but a verdict: of 20 signs, of 5, or of one."""
    names = [str(n) for n in range(count)]
    change = paired_change(dict.fromkeys(names, 0.0), dict.fromkeys(names, 1.0))
    assert change is not None and change.interval is None and change.verdict == verdict


FIRST = np.array([[0.1], [0.5], [0.2], [0.9], [0.3], [0.0]])
LAST = np.array([[0.4], [0.6], [0.9], [0.8], [0.7], [0.2]])


def test_p_is_that_of_all_permutations():
    """Against every one of them, enumerated."""
    gain = (LAST - FIRST)[:, 0]
    signs = np.array(list(itertools.product([-1, 1], repeat=6)))
    exact = ((signs @ gain) >= gain.sum() - 1e-9).mean()
    assert rise_p(FIRST, LAST, paired=True)[0] == pytest.approx(exact, abs=0.01)
    rows = np.concatenate([LAST, FIRST])[:, 0]
    sums = np.array([sum(some) for some in itertools.combinations(rows, 6)])
    assert rise_p(FIRST, LAST, paired=False)[0] == pytest.approx((sums >= LAST.sum() - 1e-9).mean(), abs=0.015)
    assert rise_p(FIRST, FIRST, paired=True)[0] == 1.0, "nothing rose"
    assert rise_p(LAST, FIRST, paired=False)[0] > 0.9, "it fell"


@pytest.mark.parametrize("paired", [True, False])
def test_p_is_scipys(paired):
    data = (LAST - FIRST,) if paired else (LAST, FIRST)
    other = permutation_test(
        data,
        lambda *sides, axis: sides[0].mean(axis) - (0 if paired else sides[1].mean(axis)),
        permutation_type="samples" if paired else "independent",
        vectorized=True,
        alternative="greater",
        n_resamples=np.inf,
    )
    assert rise_p(FIRST, LAST, paired)[0] == pytest.approx(other.pvalue[0], abs=0.015)


def test_p_does_not_depend_on_how_many_are_permuted_at_a_time(monkeypatch):
    rng = np.random.default_rng(1)
    first, last = rng.random((40, 2)), rng.random((50, 2)) + 0.1
    whole = rise_p(first, last, paired=False)
    monkeypatch.setattr("longloop.stats._NUMBERS_AT_ONCE", 1000)
    assert rise_p(first, last, paired=False) == pytest.approx(whole, abs=0.02)


def test_holm_by_hand():
    """0.01 x 3, 0.03 x 2, and the third no smaller than the second."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0] and holm([]) == []


def test_scipy_is_loaded_only_when_it_is_needed():
    code = "import sys, longloop.cli.main, longloop.stats, longloop.build; print('scipy' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
