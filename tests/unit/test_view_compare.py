"""Two attempts side by side: what differs is found, and no text keeps the server from answering."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from longloop.store.run import Run
from longloop.types import Group, Message, Task
from longloop.viewer.diff import LINES, Comparison
from longloop.viewer.library import Library
from longloop.viewer.pages import Pages
from tests.support import recorded

SIZE = 500_000


def longest_common(ours: Sequence[str], theirs: Sequence[str]) -> int:
    """By the definition."""
    row = [0] * (len(theirs) + 1)
    for one in ours:
        last = row
        row = [0]
        for column, other in enumerate(theirs):
            row.append(last[column] + 1 if one == other else max(last[column + 1], row[column]))
    return row[-1]


def test_the_smallest_difference_is_found() -> None:
    draw = random.Random(0)
    for _ in range(500):
        ours, theirs = (draw.choices(letters, k=draw.randrange(12)) for letters in ("abcd", "abce"))
        parts = list(Comparison()._passages(ours, theirs))
        assert [x for _, mine, _ in parts for x in mine] == ours and [x for *_, yours in parts for x in yours] == theirs
        assert all((mine == yours) == same for same, mine, yours in parts)
        assert sum(len(mine) for same, mine, _ in parts if same) == longest_common(ours, theirs)


def test_rows_stand_opposite_each_other() -> None:
    rows = Comparison().rows("first\nb <b> c\nend", "b <i> c\nend\nmore")
    assert [(row.left, row.right, row.same) for row in rows] == [
        ("<mark>first</mark>", "<mark>b &lt;i&gt; c</mark>", False),
        ("b &lt;b&gt; c", None, False),
        ("end", "end", True),
        (None, "more", False),
    ]
    (row,) = Comparison().rows("b <b> c", "b <i> c")
    assert (row.left, row.right) == ("b &lt;<mark>b</mark>&gt; c", "b &lt;<mark>i</mark>&gt; c")


def page(folder: Path, left: str, right: str) -> str:
    """The page that compares two attempts whose first turns say this."""
    task = Task("task", "train")
    with Run.create(recorded.settings(folder / "run"), {}) as run:
        made = [recorded.attempt(task, number, True) for number in range(2)]
        said = [
            replace(one, turns=(replace(one.turns[0], action=Message("assistant", text)), *one.turns[1:]))
            for one, text in zip(made, (left, right), strict=True)
        ]
        run.trajectories.write(1, [Group(task, tuple(said))])
    pages = Pages(Library([folder / "run"]))
    return pages.html("/compare", {"left": ["run:step/1/0/0"], "right": ["run:step/1/0/1"]})


def texts(kind: str) -> tuple[str, str]:
    """A megabyte each, of which every part is found in many paths on the other side."""
    draw = random.Random(1)
    if kind == "many lines":
        return "\n".join(draw.choices("ab", k=SIZE)), "\n".join(draw.choices("ab", k=SIZE))
    if kind == "one line":
        return " ".join(draw.choices("ab", k=SIZE)), " ".join(draw.choices("ab", k=SIZE))
    return tuple("\n".join(" ".join(draw.choices("ab", k=50)) for _ in range(SIZE // 50)) for _ in "lr")  # type: ignore


@pytest.mark.parametrize("kind", ["many lines", "one line", "many lines of many words"])
def test_long_texts_are_compared_as_far_as_time_allows(kind: str, tmp_path: Path) -> None:
    html = page(tmp_path, *texts(kind))
    assert "The comparison was shortened: of each attempt, the first 300,000 characters and 5,000 lines" in html
    assert "whole passages are marked, not words" in html
    assert 0 < html.count("<tr class=") <= 2 * LINES and len(html) < 4_000_000


def test_long_texts_that_hardly_differ_are_compared_in_full(tmp_path: Path) -> None:
    lines = [f"line {n}" for n in range(3000)]
    other = [*lines[:1000], "something else", *lines[1001:]]
    html = page(tmp_path, "\n".join(lines), "\n".join(other))
    assert "shortened" not in html and html.count('<tr class="changed">') == 1
    assert "<mark>something</mark> <mark>else</mark>" in html
