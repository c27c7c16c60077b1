"""Samples -> mini-batches (one gradient step each) -> micro-batches (one forward pass each).

The one denominator is fixed here, on the mini-batch, before anything is split: how a mini-batch is cut into
micro-batches changes memory and speed and never the gradient. Sequences lie end to end, without padding. Attempts at
one task begin with the same tokens, their *opening*: in a micro-batch it lies once, and the rest of each follows it.

Shapes: T tokens of a micro-batch, N of them trained on.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longloop.types import Batch, Ids, Minibatch, Sample, SampleSource, UserError

_LEAST = 64
"""Tokens from which on an opening is shared, when two or more samples of a micro-batch have it. Attention copies its
keys and values for each of them and, on a CPU, needs masks: for the smallest model there, that costs as much as some
tens of tokens computed again. Larger models and GPUs would gain earlier, but little from so few tokens."""


def minibatches(
    samples: Sequence[Sample],
    size: int,
    *,
    average: Literal["trajectories", "tokens"],
    whole_units: bool,
    step: int,
    epoch: int,
    seed: int,
    denominator: int = 0,
) -> Iterator[Minibatch]:
    """Shuffled units (`Sample.unit`: trajectories, or pairs of them), `size` at a time, or all at once if it is 0.

    The denominator of a mean over units is `size` itself, even for the last, shorter mini-batch: a unit counts the same
    wherever it falls, and leaving out one without advantage changes nothing. When all are taken at once, there is no
    size to go by: `denominator` says how many units there were, those left out among them (`Algorithm.denominator`).
    A mean over tokens is divided by the mini-batch's own.
    """
    by_unit: dict[tuple[int, ...], list[Sample]] = {}
    for sample in samples:
        if not sample.mask.any():
            where = f"attempt {sample.source.attempt} of group {sample.source.group}"
            raise UserError(f"credit() made a sample of {where} that trains no token. Leave it out.")
        by_unit.setdefault(sample.unit, []).append(sample)
    order = sorted(by_unit)
    random.Random(f"{seed}/{step}/{epoch}").shuffle(order)
    denominator = size or denominator or len(order)
    size = size or len(order)
    for start in range(0, len(order), size):
        chosen = [sample for key in order[start : start + size] for sample in by_unit[key]]
        norm = denominator if average == "trajectories" else sum(sample.action_tokens for sample in chosen)
        first = epoch == 0 and start == 0
        yield Minibatch(chosen, float(norm), step, first, whole_units=whole_units)


def microbatches(samples: Sequence[Sample], budget: int, whole_units: bool) -> list[list[Sample]]:
    """Pieces of at most `budget` tokens (or one sample, or one whole unit, if that alone is longer).

    Samples with one opening stay together where they fit, for it counts once in each micro-batch. Otherwise they are
    sorted by length, so that many of one length come together: their attention is one kernel call.
    """
    pieces: list[list[Sample]] = []
    if whole_units:
        together: dict[tuple[int, ...], list[Sample]] = {}
        for sample in sorted(samples, key=lambda sample: (sample.source, sample.stretch)):
            together.setdefault(sample.unit, []).append(sample)
        pieces = list(together.values())
    else:
        pieces = [[sample] for sample in samples]
    pieces.sort(key=lambda piece: (sum(len(s.ids) for s in piece), piece[0].source, piece[0].stretch))
    alike: dict[bytes | int, list[list[Sample]]] = {}
    for number, piece in enumerate(pieces):
        alike.setdefault(_opening(piece[0]) or number, []).append(piece)
    return _joined((part for group in alike.values() for part in _joined(group, budget)), budget)


def laid_out(piece: Sequence[Sample]) -> int:
    """The tokens of a micro-batch, an opening that samples share counted once."""
    return _tokens(piece, set())


def _joined(pieces: Iterable[list[Sample]], budget: int) -> list[list[Sample]]:
    """Neighbours put together as long as they are laid out in at most `budget` tokens."""
    joined: list[list[Sample]] = []
    laid: set[bytes] = set()
    room = 0
    for piece in pieces:
        if _tokens(piece, laid) > room:
            joined.append([])
            laid = set()
            room = budget
        room -= _tokens(piece, laid)
        joined[-1] += piece
        laid |= {_opening(sample) for sample in piece}
    return joined


def _tokens(samples: Sequence[Sample], laid: set[bytes]) -> int:
    """What these samples add to a micro-batch that has some openings already.

    Using one again counts a sixteenth of it: attention makes a copy of its keys and values, and the memory of a
    micro-batch must stay within that of as many tokens that share nothing.
    """
    laid = set(laid)
    tokens = 0
    for sample in samples:
        opening = _opening(sample)
        tokens += len(sample.ids) - (_length(opening) * 15 // 16 if opening in laid else 0)
        laid.add(opening)
    return tokens


def _opening(sample: Sample) -> bytes:
    """What a sample may share with others: the ids before its first action, or none if they are too few.

    Except the last: at that token the first action is scored, and if samples read one hidden state there, threads would
    add up its gradient in any order.
    """
    length = int(sample.mask.argmax()) - 1
    return sample.ids[:length].tobytes() if length >= _LEAST else b""


def _length(opening: bytes) -> int:
    """The tokens of an opening."""
    return len(opening) // np.dtype(np.int64).itemsize


@dataclass(frozen=True)
class PackedBatch:
    """A micro-batch as tensors. Hidden states are needed `at_N`, at the positions whose next token is trained on."""

    ids_T: Tensor
    position_T: Tensor
    lengths: list[int]
    """Of the parts that the row consists of: shared openings, what follows them, and samples that share nothing."""
    after: list[int]
    """For each part the number of the opening that it follows, or -1."""
    at_N: Tensor
    target_N: Tensor
    batch: Batch


def pack(samples: Sequence[Sample], step: int, device: torch.device) -> PackedBatch:
    """Lay samples end to end and pick out the tokens that are trained on."""
    parts, after, part_of = _lay_out(samples)
    first = [len(parts[part]) if part >= 0 else 0 for part in after]
    starts = [0, *accumulate(map(len, parts))]
    chosen = [np.flatnonzero(sample.mask) for sample in samples]
    at = [i + starts[part] - first[part] - 1 for i, part in zip(chosen, part_of, strict=True)]
    turn_of: dict[tuple[SampleSource, int], int] = {}
    unit_of: dict[tuple[int, ...], int] = {}
    turn: list[int] = []
    unit: list[int] = []
    for sample, i in zip(samples, chosen, strict=True):
        turn += [turn_of.setdefault((sample.source, number), len(turn_of)) for number in sample.turns[i].tolist()]
        unit += [unit_of.setdefault(sample.unit, len(unit_of))] * len(i)

    def flat(columns: Iterable[NDArray[Any]]) -> Tensor:
        picked = [values[i] for values, i in zip(columns, chosen, strict=True)]
        return torch.tensor(np.concatenate(picked), dtype=torch.float32, device=device)

    batch = Batch(
        old_N=flat(sample.logprobs for sample in samples),
        adv_N=flat(sample.advantages for sample in samples),
        weight_N=flat(sample.weights for sample in samples),
        own_N=flat(np.full(len(sample.ids), sample.own) for sample in samples),
        turn_N=torch.tensor(turn, dtype=torch.long, device=device),
        unit_N=torch.tensor(unit, dtype=torch.long, device=device),
        turns=len(turn_of),
        units=len(unit_of),
        step=step,
        columns={
            name: flat(sample.columns[name] for sample in samples)
            for name in sorted(set.intersection(*(set(sample.columns) for sample in samples)))
        },
    )
    position = [np.arange(begin, begin + len(part)) for begin, part in zip(first, parts, strict=True)]
    return PackedBatch(
        torch.tensor(np.concatenate(parts), device=device),
        torch.tensor(np.concatenate(position), device=device),
        list(map(len, parts)),
        after,
        torch.tensor(np.concatenate(at), device=device),
        torch.tensor(np.concatenate([s.ids[i] for s, i in zip(samples, chosen, strict=True)]), device=device),
        batch,
    )


def _lay_out(samples: Sequence[Sample]) -> tuple[list[Ids], list[int], list[int]]:
    """The parts of the row, shared openings first; for each the one that it follows, or -1; and each sample's part."""
    openings = [_opening(sample) for sample in samples]
    shared = sorted((opening for opening, count in Counter(openings).items() if opening and count > 1), key=len)
    number = {opening: part for part, opening in enumerate(shared)}
    parts: list[Ids] = [np.frombuffer(opening, np.int64) for opening in shared]
    after = [-1] * len(parts)
    follows = [number.get(opening, -1) for opening in openings]
    rests = [sample.ids[len(parts[part]) if part >= 0 else 0 :] for sample, part in zip(samples, follows, strict=True)]
    part_of = [0] * len(samples)
    # Parts of one length lie together: their attention is one kernel call.
    for n in sorted(range(len(samples)), key=lambda n: (len(rests[n]), len(samples[n].ids))):
        part_of[n] = len(parts)
        parts.append(rests[n])
        after.append(follows[n])
    return parts, after, part_of
