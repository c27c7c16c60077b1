"""A gradient is added up from a fixed number of shares in a fixed tree, so the number of ranks is no part of it.

A sum of floats depends on its order. So a mini-batch's micro-batches are dealt to `ranks.shares` shares, whatever the
number of ranks; the gradients of a share's micro-batches are added one after another, and those of the shares in pairs:

    shares      0   1   2   3   4   5   6   7
    1 rank       \\ /     \\ /     \\ /     \\ /        a rank adds up a block of neighboring shares: a subtree
    2 ranks        \\   /           \\   /
    4 ranks          +               +               above it, the ranks exchange their sums (cluster/exchange.py)
                          \\      /
                             +

While a share is computed, one sum waits at each level below it: log2(shares) times the bytes of a gradient. For
adapters that is little. Where all weights are trained it would be too much: each rank then has one share, and the sum
of two ranks differs from that of one in the last bits. Each then optimizes a slice of the weights (slices.py).
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, TypeVar

from torch import Tensor

from longloop.learners.batching import laid_out
from longloop.types import Sample

Microbatch = list[Sample]
Gradients = list[Tensor | None]
"""Of each parameter, None where there is none: a tensor without a gradient has no step."""
NOTHING: Mapping[str, Tensor] = MappingProxyType({})
R = TypeVar("R")
S = TypeVar("S")


class Ranks(Protocol):
    """All ranks of a run, as the learner of the first sees them. Each holds the same weights."""

    def map(self, work: Callable[..., list[R]], pieces: Sequence[Microbatch], *arguments: object) -> list[R]:
        """What `work` returns for each piece. It is a method of the learner, and is called on each rank with that
        rank's shares, lists of micro-batches, and the arguments; it returns one result for each micro-batch."""
        ...

    def add_up(self) -> None:
        """Leave the sum of all ranks' gradients in the parameters of each; of a tensor that one rank optimizes
        (slices.py), in that one's alone."""
        ...

    def step(self, lr_scale: float | None) -> None:
        """Let the others clip their gradient, which is this rank's, and take the step that this one has taken; with
        None they drop it. Then all have the same weights again."""
        ...

    def follow(self, heads: bool = False, stored: Mapping[str, Tensor] = NOTHING) -> None:
        """Let the others take over this rank's trained weights and moments, or only its heads. `stored` are the
        optimizer's tensors that other ranks hold, as they were gathered."""
        ...

    def gather(self) -> Mapping[str, Tensor]:
        """The optimizer's tensors that this rank does not hold, in the machine's memory."""
        ...

    def seconds(self) -> list[dict[str, float]]:
        """What each rank has spent its time on since last asked, where there are several: `collect`, attempts;
        `update`, passes of the learner; `wait`, for others at either."""
        ...


class OneRank:
    """The only rank of a run. `shares` is a power of two."""

    def __init__(self, shares: int) -> None:
        self._shares = shares

    def map(self, work: Callable[..., list[R]], pieces: Sequence[Microbatch], *arguments: object) -> list[R]:
        dealt = deal([laid_out(piece) for piece in pieces], self._shares)
        return in_order(dealt, work([[pieces[n] for n in share] for share in dealt], *arguments))

    def add_up(self) -> None: ...

    def step(self, lr_scale: float | None) -> None: ...

    def follow(self, heads: bool = False, stored: Mapping[str, Tensor] = NOTHING) -> None: ...

    def gather(self) -> Mapping[str, Tensor]:
        return NOTHING

    def seconds(self) -> list[dict[str, float]]:
        return []


def deal(tokens: Sequence[int], shares: int) -> list[list[int]]:
    """Return the numbers of the pieces in each share, by the tokens of each piece.

    The pieces are dealt to two halves, from the longest to the shortest, each to the half that has fewer tokens yet;
    and so is each half. So any block of 1/n of the shares gets about 1/n of the tokens, even if there are fewer pieces
    than shares.
    """

    def dealt(numbers: Sequence[int], shares: int) -> list[list[int]]:
        if shares == 1:
            return [sorted(numbers)]
        halves: tuple[list[int], list[int]] = ([], [])
        sums = [0, 0]
        for number in numbers:
            lighter = sums.index(min(sums))
            halves[lighter].append(number)
            sums[lighter] += tokens[number]
        return [share for half in halves for share in dealt(half, shares // 2)]

    return dealt(sorted(range(len(tokens)), key=lambda number: -tokens[number]), shares)


def in_order(dealt: Sequence[Sequence[int]], results: Sequence[R]) -> list[R]:
    """Return results, which lie share after share, in the order of the pieces."""
    numbers = [number for share in dealt for number in share]
    return [result for _, result in sorted(zip(numbers, results, strict=True), key=lambda pair: pair[0])]


def add_up(shares: Sequence[S], gradients: Callable[[S], Gradients]) -> Gradients:
    """Compute the gradients of the shares, from the first to the last, and add them up in the tree."""
    if len(shares) == 1:
        return gradients(shares[0])
    half = len(shares) // 2
    first = add_up(shares[:half], gradients)
    return [plus(a, b) for a, b in zip(first, add_up(shares[half:], gradients), strict=True)]


def plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """Add b to a, in place. What is missing is not a zero, which would change the sign of a zero."""
    return b if a is None else a if b is None else a.add_(b)


def waiting_sums(shares: int) -> int:
    """The most sums that wait while a share is computed: one for each level of the tree."""
    return shares.bit_length() - 1
