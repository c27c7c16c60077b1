"""Samples -> mini-batches (one gradient step each) -> micro-batches (one forward pass each).

The one denominator is fixed here, on the mini-batch, before anything is split: how a mini-batch is cut into
micro-batches changes memory and speed and never the gradient. Sequences lie end to end, without padding.

Shapes: T tokens of a micro-batch, N of them action tokens.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from longloop.types import Batch, Minibatch, Sample


def minibatches(
    samples: Sequence[Sample],
    size: int,
    *,
    average: Literal["trajectories", "tokens"],
    whole_trajectories: bool,
    step: int,
    epoch: int,
    seed: int,
) -> Iterator[Minibatch]:
    """Shuffled trajectories, `size` at a time.

    The denominator of a mean over trajectories is `size` itself, even for the last, shorter mini-batch: a trajectory
    counts the same wherever it falls, and leaving out one without advantage changes nothing.
    """
    by_trajectory: dict[tuple[int, int], list[Sample]] = {}
    for sample in samples:
        by_trajectory.setdefault(sample.trajectory, []).append(sample)
    order = sorted(by_trajectory)
    random.Random(f"{seed}/{step}/{epoch}").shuffle(order)
    for start in range(0, len(order), size):
        chosen = [sample for key in order[start : start + size] for sample in by_trajectory[key]]
        norm = size if average == "trajectories" else sum(sample.action_tokens for sample in chosen)
        first = epoch == 0 and start == 0
        yield Minibatch(chosen, float(norm), step, first, whole_trajectories=whole_trajectories)


def microbatches(samples: Sequence[Sample], budget: int, whole_trajectories: bool) -> list[list[Sample]]:
    """Pieces of at most `budget` tokens (or one sample, or one whole trajectory, if that alone is longer).

    Sorted by length, so that sequences of one length lie together: their attention is one kernel call.
    """
    pieces: list[list[Sample]] = []
    if whole_trajectories:
        together: dict[tuple[int, int], list[Sample]] = {}
        for sample in samples:
            together.setdefault(sample.trajectory, []).append(sample)
        pieces = list(together.values())
    else:
        pieces = [[sample] for sample in samples]
    pieces.sort(key=lambda piece: (sum(len(s.ids) for s in piece), piece[0].trajectory, piece[0].stretch))
    micro: list[list[Sample]] = []
    room = 0
    for piece in pieces:
        tokens = sum(len(sample.ids) for sample in piece)
        if tokens > room:
            micro.append([])
            room = budget
        micro[-1] += piece
        room -= tokens
    return micro


@dataclass(frozen=True)
class Packed:
    """A micro-batch as tensors. Hidden states are needed `at_N`, the places whose next token is an action token."""

    ids_T: Tensor
    position_T: Tensor
    lengths: list[int]
    at_N: Tensor
    target_N: Tensor
    batch: Batch


def pack(samples: Sequence[Sample], step: int, device: torch.device) -> Packed:
    """Lay samples end to end and pick out their action tokens."""
    columns: dict[str, list[float]] = {name: [] for name in ("old", "adv", "weight", "reference", "returns")}
    ids: list[int] = []
    position: list[int] = []
    at: list[int] = []
    turn_of: dict[tuple[tuple[int, int], int], int] = {}
    traj_of: dict[tuple[int, int], int] = {}
    turn: list[int] = []
    traj: list[int] = []
    for sample in samples:
        start = len(ids)
        ids += sample.ids
        position += range(len(sample.ids))
        chosen = [i for i, is_action in enumerate(sample.mask) if is_action]
        at += [start + i - 1 for i in chosen]
        turn += [turn_of.setdefault((sample.trajectory, sample.turns[i]), len(turn_of)) for i in chosen]
        traj += [traj_of.setdefault(sample.trajectory, len(traj_of))] * len(chosen)
        for name, column in zip(
            columns,
            (sample.logprobs, sample.advantages, sample.weights, sample.reference, sample.returns),
            strict=True,
        ):
            if column:
                columns[name] += [column[i] for i in chosen]

    def floats(name: str) -> Tensor:
        return torch.tensor(columns[name], dtype=torch.float32, device=device)

    ids_T = torch.tensor(ids, device=device)
    at_N = torch.tensor(at, device=device)
    batch = Batch(
        old_N=floats("old"),
        adv_N=floats("adv"),
        weight_N=floats("weight"),
        turn_N=torch.tensor(turn, device=device),
        traj_N=torch.tensor(traj, device=device),
        turns=len(turn_of),
        trajectories=len(traj_of),
        step=step,
        reference_N=floats("reference") if columns["reference"] else None,
        returns_N=floats("returns") if columns["returns"] else None,
    )
    return Packed(
        ids_T,
        torch.tensor(position, device=device),
        [len(s.ids) for s in samples],
        at_N,
        ids_T[at_N + 1],
        batch,
    )
