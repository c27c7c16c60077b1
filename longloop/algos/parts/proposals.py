"""Proposals: the actions that were taken at a state, ranked by the policy itself."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from longloop.algos.parts.rollouts import with_sides
from longloop.protocols import Rollouts
from longloop.types import Group, Message, Start, Trajectory

Proposals = dict[tuple[int, ...], list[Trajectory]]
"""Actions at a state, with the attempts that took them."""


async def ranked(
    rollouts: Rollouts, groups: Sequence[Group], proposals: Sequence[Sequence[tuple[int, Proposals]]], n: int, seed: int
) -> list[Group]:
    """The groups, with `Turn.info["critic"]` at every action that had others beside it: from 1 for the best to 0.

    `proposals` are those of each group, with the turn at which they were made. The policy is asked `n` times for each
    state; its answers are kept as side rollouts. A state that leaves no room for the question has no ranking.
    """
    starts = [
        (index, turn, _by_text(actions, turn))
        for index, some in enumerate(proposals)
        for turn, actions in some
        if len(actions) > 1
    ]
    asked = [asking(rollouts, ordered, turn) for _, turn, ordered in starts]
    played = await rollouts.play(asked, n, seed, single_action=True) if asked else []
    sides: dict[int, list[Trajectory]] = defaultdict(list)
    scores: dict[tuple[int, int, int], float] = {}
    for (index, turn, ordered), answers in zip(starts, played, strict=True):
        sides[index] += answers.trajectories
        ranks = [ranks_of(t.turns[-1].action.content, len(ordered)) for t in answers.trajectories]
        for number, attempts in enumerate(ordered if ranks else ()):
            scores |= {(index, t.attempt, turn): fmean(one[number] for one in ranks) for t in attempts}

    def told(index: int, t: Trajectory) -> Trajectory:
        turns = (
            replace(turn, info={**turn.info, "critic": scores[index, t.attempt, u]})
            if (index, t.attempt, u) in scores
            else turn
            for u, turn in enumerate(t.turns)
        )
        return replace(t, turns=tuple(turns))

    return [
        with_sides(replace(group, trajectories=tuple(told(index, t) for t in group.trajectories)), sides[index])
        for index, group in enumerate(groups)
    ]


def asking(rollouts: Rollouts, proposals: Sequence[Sequence[Trajectory]], turn: int) -> Start:
    """The state, with the question for a ranking at the end of what was read there."""
    one = proposals[0][0]
    listed = "\n".join(f"{n}. {some[0].turns[turn].action.content}" for n, some in enumerate(proposals, 1))
    question = f"Do not act yet. Rank these actions, the best first, by their numbers alone:\n{listed}"
    *before, last = one.turns[turn].context or (Message("user", ""),)
    context = (*before, replace(last, content=f"{last.content}\n\n{question}"))
    turns = (*one.turns[:turn], replace(one.turns[turn], context=context))
    return Start(one.task, rollouts.retokenize(replace(one, turns=turns)), turn)


def ranks_of(answer: str, n: int) -> list[float]:
    """The score of each of n proposals: 1 for the one named first, down to 0. Those not named share what is left."""
    named = list(dict.fromkeys(int(x) for x in re.findall(r"\d{1,9}", answer) if 1 <= int(x) <= n))
    rest = fmean(1 - place / (n - 1) for place in range(len(named), n)) if len(named) < n else 0.0
    return [1 - named.index(number) / (n - 1) if number in named else rest for number in range(1, n + 1)]


def _by_text(actions: Proposals, turn: int) -> list[list[Trajectory]]:
    """In an order that does not depend on that of the attempts."""
    return sorted(actions.values(), key=lambda s: (s[0].turns[turn].action.content, s[0].turns[turn].action_key))
