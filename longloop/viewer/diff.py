"""Two attempts side by side, line by line, with the words that differ marked.

Models can write texts of any length and kind, and finding the smallest difference of two texts takes time that grows
with the square of what differs. So a page has an allowance: of lines and characters that it shows, and of comparisons
that it makes. Beyond the first a text is cut; beyond the second whole passages are marked instead of words.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

LINES, CHARACTERS = 5_000, 300_000
"""How much of each attempt is shown."""
_WORK = 1_000_000
"""Comparisons of two words or lines: about half a second."""


@dataclass(frozen=True)
class Row:
    """A line of two texts side by side, as HTML: the same, changed, or on one side alone."""

    left: Markup | None
    right: Markup | None
    same: bool


class Comparison:
    """Compares the turns of two attempts, one after the other, within one allowance."""

    def __init__(self) -> None:
        self._lines = [LINES, LINES]
        self._characters = [CHARACTERS, CHARACTERS]
        self._work = _WORK
        self.cut = False
        """Something was left out."""
        self.coarse = False
        """Somewhere whole passages are marked."""

    def rows(self, left: str, right: str) -> list[Row]:
        """Two texts, what they share opposite each other."""
        ours, theirs = self._shown(0, left), self._shown(1, right)
        found = []
        for same, mine, yours in self._passages(ours, theirs):
            for row in range(max(len(mine), len(yours))):
                one = mine[row] if row < len(mine) else None
                other = yours[row] if row < len(yours) else None
                found.append(Row(escape(one), escape(other), True) if same else self._changed(one, other))
        return found

    def _shown(self, side: int, text: str) -> list[str]:
        """The lines of a text, as far as they may be shown."""
        lines = []
        for line in text.splitlines():
            shown = line[: self._characters[side]]
            if not self._lines[side] or len(shown) < len(line):
                self.cut = True
            if not self._lines[side] or (line and not shown):
                break
            self._lines[side] -= 1
            self._characters[side] -= len(shown)
            lines.append(shown)
        return lines

    def _changed(self, left: str | None, right: str | None) -> Row:
        """What differs is marked, where there is something on both sides."""
        if left is None or right is None:
            return Row(None if left is None else escape(left), None if right is None else escape(right), False)
        marked = Markup(""), Markup("")
        for same, *both in self._passages(*(re.findall(r"\w+|\W", line) for line in (left, right))):
            kept = Markup("{}" if same else "<mark>{}</mark>")
            marked = tuple(  # type: ignore[assignment]
                so_far + (kept.format("".join(part)) if part else "") for so_far, part in zip(marked, both, strict=True)
            )
        return Row(*marked, False)

    def _passages(self, ours: Sequence[str], theirs: Sequence[str]) -> Iterator[tuple[bool, list[str], list[str]]]:
        """Both sequences in parts, in order: what they share, and between that what differs."""
        x = y = 0
        for i, j, length in [*self._shared(ours, theirs), (len(ours), len(theirs), 0)]:
            if x < i or y < j:
                yield False, list(ours[x:i]), list(theirs[y:j])
            if length:
                yield True, list(ours[i : i + length]), list(theirs[j : j + length])
            x, y = i + length, j + length

    def _shared(self, ours: Sequence[str], theirs: Sequence[str]) -> list[tuple[int, int, int]]:
        """Runs that both have: position in ours, in theirs, and length. Equal beginnings and ends cost no search."""
        shorter = min(len(ours), len(theirs))
        head = next((n for n in range(shorter) if ours[n] != theirs[n]), shorter)
        tail = next((n for n in range(shorter - head) if ours[-1 - n] != theirs[-1 - n]), shorter - head)
        # Whatever the other side does not have at all cannot be shared, and is left out of the search.
        both = {*ours[head : len(ours) - tail]} & {*theirs[head : len(theirs) - tail]}
        mine = [at for at in range(head, len(ours) - tail) if ours[at] in both]
        yours = [at for at in range(head, len(theirs) - tail) if theirs[at] in both]
        number = {value: n for n, value in enumerate(both)}
        pairs = self._search([number[ours[at]] for at in mine], [number[theirs[at]] for at in yours])
        found = [(0, 0, head)] if head else []
        for one, other in ((mine[a], yours[b]) for a, b in pairs):
            i, j, length = found[-1] if found else (-1, -1, 0)
            if (one, other) == (i + length, j + length):
                found[-1] = i, j, length + 1
            else:
                found.append((one, other, 1))
        return [*found, (len(ours) - tail, len(theirs) - tail, tail)] if tail else found

    def _search(self, ours: list[int], theirs: list[int]) -> list[tuple[int, int]]:
        """The longest common subsequence, as pairs of positions (Myers 1986); none when it would take too long.

        `reach[k]` is how far into `ours` one comes on diagonal k, where k fewer of `theirs` are used, with as
        many differences as there were rounds.
        """
        reach, rounds = {1: 0}, list[dict[int, int]]()
        for differences in range(len(ours) + len(theirs) + 1):
            rounds.append(reach)
            before, reach = reach, {}
            for k in range(-differences, differences + 1, 2):
                x = self._entered(before, k, differences)
                y, start = x - k, x
                while x < len(ours) and y < len(theirs) and ours[x] == theirs[y]:
                    x, y = x + 1, y + 1
                reach[k] = x
                self._work -= 2 + x - start
                if x >= len(ours) and y >= len(theirs):
                    return self._traced(rounds, x, y)
            if self._work < 0:
                self.coarse = True
                return []
        return []

    @staticmethod
    def _entered(reach: dict[int, int], k: int, differences: int) -> int:
        """Where a diagonal is entered from the better of its neighbors: by one of theirs, or by one of ours."""
        down = k == -differences or (k != differences and reach[k - 1] < reach[k + 1])
        return reach[k + 1] if down else reach[k - 1] + 1

    def _traced(self, rounds: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
        """The pairs on the way back from the end, in order."""
        pairs = []
        for differences in range(len(rounds) - 1, -1, -1):
            reach, k = rounds[differences], x - y
            entered = self._entered(reach, k, differences)
            while x > entered:
                x, y = x - 1, y - 1
                pairs.append((x, y))
            if entered == reach.get(k + 1):
                y -= 1  # it was one of theirs
            else:
                x -= 1
        return pairs[::-1]
