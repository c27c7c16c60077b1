"""Searching: what is found, in which order, and that it is the same in every thread and process."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("bm25s", reason="the package bm25s is not installed")

from longloop.envs.shared.datasets import once
from longloop.envs.shared.search_index import Index, words

DOCUMENTS = ["red mug", "blue mug", "red lamp with red shade", "a box of matches", "red mug"]


def test_rarer_and_repeated_words_weigh_more():
    index = Index(DOCUMENTS)
    assert index.find("red shade", 10)[0] == 2
    assert index.find("matches", 10) == [3]
    assert index.find("blue mug", 10)[0] == 1


def test_equal_documents_stand_in_their_order():
    assert Index(DOCUMENTS).find("red mug", 10)[:2] == [0, 4]
    assert Index(["same"] * 40).find("same", 30) == list(range(30))


def test_only_what_has_a_word_is_found():
    index = Index(DOCUMENTS)
    assert index.find("mug", 10) == [0, 1, 4]
    assert index.find("mug", 2) == [0, 1]
    for nothing in ("", "the of a", "zebra", "!?", "\0"):
        assert index.find(nothing, 10) == []


def test_words_are_folded():
    assert words("The Dresses of Pál Gábor's LADIES") == ["dress", "pal", "gabor", "lady"]
    assert words("boxes glasses status bus gas 18s") == ["box", "glass", "status", "bus", "gas", "18s"]


def test_the_order_does_not_hang_on_the_process():
    """Python's hashes of strings differ from process to process; what is found must not."""
    code = (
        "from longloop.envs.shared.search_index import Index; import random; r = random.Random(1); "
        "w = ['oak', 'elm', 'ash', 'fir', 'yew', 'bay']; "
        "d = [' '.join(r.choices(w, k=4)) for _ in range(200)]; print(Index(d).find(' '.join(w), 200))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True
        )
        for seed in ("1", "2")
    ]
    assert runs[0].returncode == 0, runs[0].stderr
    assert runs[0].stdout == runs[1].stdout and len(eval(runs[0].stdout)) == 200


def test_side_by_side_threads_share_one():
    made: list[int] = []

    @once
    def load(number: int) -> Index:
        made.append(number)
        return Index(DOCUMENTS)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: load(n % 2).find("red mug", 10), range(200)))
    assert sorted(made) == [0, 1]
    assert all(order == found[0] for order in found)
