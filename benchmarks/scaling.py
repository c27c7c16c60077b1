"""How a LOOP step would scale to many cards: a simulation, from single-card times and stated bandwidths.

Nothing here was run on several cards. Replicas as longloop builds them: every rank plays whole groups, gradients are
added between neighbors level by level, the leader alone hands out work and keeps the trajectories. A step is

    collect   the slowest rank: its tokens at the card's rate, with attempts of uneven length
    update    scoring and epochs; micro-batches are dealt to ranks, the one with most of them decides
    exchange  the sum of gradients: log2(cards) levels, NVLink inside a machine, InfiniBand beyond
    leader    what one process does for all: it unpacks, judges, packs and writes every attempt

    python benchmarks/scaling.py
"""

import math
import random
from dataclasses import dataclass
from statistics import fmean

MACHINE = 8  # cards of a machine
NVLINK, INFINIBAND = 450e9, 50e9  # bytes/s of a card in each direction [data sheets of H200 and of 400 Gb/s adapters]
GROUPS, K, TOKENS, ACTIONS = 5, 6, 4000, 0.2  # per card and step: LOOP's 40 tasks x 6 on eight; benchmarks/update.py's
SPREAD = 0.5  # of the logarithm of an attempt's length [assumed]; beyond twice the 90% quantile it is abandoned
EPOCHS, MINIBATCHES, MICRO = 2, 2, 8192  # mini-batches grow with the cards; tokens of a micro-batch
UNPACK, PACK, WRITE = 0.23e-3, 0.35e-3, 0.73e-3  # CPU seconds of the leader for an attempt [benchmarks/ranks.py]
CALL = 1e-3  # seconds of the leader for a call to a rank [assumed]
DRAWS = 200


@dataclass(frozen=True)
class Model:
    name: str
    sampled: float
    """Action tokens a second."""
    trained: float
    """Tokens a second of an update with recomputed activations."""
    summed: float
    """Bytes of gradients that are added up, float32."""
    fits: bool = True
    """Whether a card of 141 GB holds a replica."""


MODELS = [
    Model("7B, LoRA r=16", 4060, 9472, 4 * 40.4e6),
    Model("7B, all weights", 4060, 9472 * 6 / 8, 4 * 7.6e9),
    Model("32B, LoRA r=16", 1620, 2130, 4 * 134e6),
    Model("32B, all weights", 1620, 2130 * 6 / 8, 4 * 32.8e9, fits=False),
]
ASSUMED = f"""\
Measured on one H200: sampling (7B: agents' load, benchmarks/agent_load.py; 32B: decoding, batch 64, context 2,000, so
too fast for agents) and updates with adapters. Measured on a CPU: what the leader does for an attempt.
Assumed: with all weights an update does 8/6 of the work and sampling is as fast; lengths of attempts are lognormal
({SPREAD}); one scoring pass, a third of an epoch; {CALL * 1e3:g} ms of the leader for a call; nothing hides a transfer;
NVLink {NVLINK / 1e9:g} and InfiniBand {INFINIBAND / 1e9:g} GB/s a card and direction, machines of {MACHINE}.
Load: {GROUPS} groups of {K} for each card, {TOKENS:,} tokens, {ACTIONS:.0%} of them actions;
{EPOCHS} epochs of {MINIBATCHES} updates.
A replica that trains all weights of 7B needs 139 GiB (two bytes for weights, sixteen for the rest, activations): more
than an H200 has. Its rows stand for sharded moments, with whole gradients exchanged, as ranks do today.
"""


def step(model: Model, cards: int, groups: int) -> dict[str, float]:
    """Seconds of the parts of a step with so many groups in all."""
    draw = random.Random(0)
    cutoff = 2 * math.exp(SPREAD * 1.2816)  # of the median length
    mean = math.exp(SPREAD**2 / 2)
    slowest = []
    for _ in range(max(1, DRAWS // cards)):
        ranks = [0.0] * cards
        for _ in range(groups):  # to the rank that has least; it is told as attempts end, so about by length
            lengths = (min(draw.lognormvariate(0, SPREAD), cutoff) / mean for _ in range(K))
            ranks[ranks.index(min(ranks))] += sum(lengths) * TOKENS * ACTIONS
        slowest.append(max(ranks))
    pieces = math.ceil(groups * K * TOKENS / MINIBATCHES / MICRO)
    mine = math.ceil(pieces / cards) * (groups * K * TOKENS / MINIBATCHES / pieces)  # tokens of the busiest rank
    levels = math.log2(cards)
    near = min(levels, math.log2(MACHINE))
    once = model.summed * (near / NVLINK + (levels - near) / INFINIBAND)
    calls = CALL * (cards - 1) * MINIBATCHES * (EPOCHS * 3 + 1)  # gradients, sum, step; scores
    return {
        "collect": fmean(slowest) / model.sampled,
        "update": MINIBATCHES * mine * (EPOCHS + 1 / 3) / model.trained,
        "exchange": once * EPOCHS * MINIBATCHES,
        "leader": groups * K * (WRITE + (UNPACK + (EPOCHS + 1) * PACK if cards > 1 else 0.0)) + calls,
    }


def table(title: str, groups_of: dict[int, int], weak: bool) -> None:
    print(f"\n{title}\n\n| | cards | s a step | collect | update | exchange | leader | faster by | of ideal |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for model in MODELS:
        if not model.fits:
            print(f"| {model.name} | | does not fit on one card: needs shards | | | | | | |")
            continue
        one = sum(step(model, 1, groups_of[1]).values())
        for cards, groups in groups_of.items():
            parts = step(model, cards, groups)
            gain = one / sum(parts.values()) * (cards if weak else 1)
            cells = " | ".join(f"{seconds:.1f}" for seconds in (sum(parts.values()), *parts.values()))
            print(f"| {model.name} | {cards} | {cells} | {gain:.2f}x | {gain / cards:.0%} |")


def stops(model: Model) -> str:
    """Where half of the cards' time is lost, and to what."""
    one, cards = step(model, 1, GROUPS), 1
    while True:
        parts = step(model, cards, GROUPS * cards)
        if sum(parts.values()) > 2 * sum(one.values()):
            lost = max(parts, key=lambda name: parts[name] - one[name])
            return f"{model.name}: below half of ideal at {cards} cards; what grew most is {lost}."
        cards *= 2


if __name__ == "__main__":
    print(ASSUMED)
    table("Weak scaling: five groups for each card", {n: GROUPS * n for n in (1, 8, 32, 256)}, weak=True)
    table("Strong scaling: LOOP's 40 groups", dict.fromkeys((1, 8, 32), 40), weak=False)
    print("", *(stops(model) for model in MODELS if model.fits), sep="\n")
