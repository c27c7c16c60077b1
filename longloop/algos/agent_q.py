"""Agent Q (arXiv 2408.07199): DPO on search trees, whose actions the policy itself ranks besides their rewards.

    for each iteration:
        a tree of attempts at each of n tasks                                            rollout/search.py
        at each state with several actions, the policy is shown them and ranks them      ranked
        Q = alpha Q_mc + (1 - alpha) Q_critic,   Q_mc the mean reward of the attempts that took the action,
            Q_critic from 1 for the best of the ranking to 0 for the last
        pairs of actions at one state whose Q differ by more than `gap`
        minimize -log sigmoid(beta (log p/p_ref of the better action - of the worse)), log p_ref as it was logged
            when the action was sampled

Where rewards are rare, most Q_mc are equal: the ranking tells actions apart. alpha = 1, logged = false is tree_dpo.

Differs from the paper: the ranking makes pairs, but the search goes by rewards alone. Actions are those that the tree
tried, not K drawn at once. Pairs are not kept for later iterations (see tree_dpo). alpha is not certain: a model whose
rankings say little learns faster with more weight on rewards (0.8 in the guessing game).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean

from torch import Tensor

from longloop.algos.parts.rollouts import apart, with_sides
from longloop.algos.tree_dpo import TreeDpo, taken_actions
from longloop.protocols import Rollouts, Tasks
from longloop.types import Batch, Group, Message, Now, Start, Trajectory


class AgentQ(TreeDpo):
    alpha: float = 0.5
    """How much rewards count; the ranking counts 1 - alpha."""
    rankings: int = 1
    """Rankings that the policy is asked for at each state."""
    logged: bool = True
    """Whether the reference log-probs are those of the sampling; else they are computed again."""

    @property
    def attempts_per_task(self) -> int:
        return self.k + (self.rankings * (self.k - 1) if self.alpha < 1 else 0)

    @property
    def reads(self) -> tuple[str, ...]:
        return () if self.logged else super().reads

    async def collect(self, rollouts: Rollouts, tasks: Tasks, n: int, now: Now) -> list[Group]:
        groups = await super().collect(rollouts, tasks, n, now)
        if self.alpha == 1:
            return groups
        return await ranked(rollouts, groups, self.rankings, apart(now))

    def q(self, attempts: Sequence[Trajectory], turn: int) -> float:
        critic: float = attempts[0].turns[turn].info.get("critic", 0.5)
        return self.alpha * super().q(attempts, turn) + (1 - self.alpha) * critic

    def reference_logp(self, batch: Batch) -> Tensor:
        return batch.old_N if self.logged else super().reference_logp(batch)


async def ranked(rollouts: Rollouts, groups: Sequence[Group], n: int, seed: int) -> list[Group]:
    """The groups, with `Turn.info["critic"]` at every action that had others beside it: from 1 for the best to 0.

    The policy is asked `n` times for each state; its answers are kept as side rollouts. A state that leaves no room for
    the question has no ranking.
    """
    starts = [
        (index, len(said), _by_text(actions.values(), len(said)))
        for index, group in enumerate(groups)
        for said, actions in taken_actions(group).items()
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


def asking(rollouts: Rollouts, actions: Sequence[Sequence[Trajectory]], turn: int) -> Start:
    """The state, with the question for a ranking at the end of what was read there."""
    one = actions[0][0]
    listed = "\n".join(f"{n}. {some[0].turns[turn].action.content}" for n, some in enumerate(actions, 1))
    question = f"Do not act yet. Rank these actions, the best first, by their numbers alone:\n{listed}"
    *before, last = one.turns[turn].context or (Message("user", ""),)
    context = (*before, replace(last, content=f"{last.content}\n\n{question}"))
    turns = (*one.turns[:turn], replace(one.turns[turn], context=context))
    return Start(one.task, rollouts.retokenize(replace(one, turns=turns)), turn)


def ranks_of(answer: str, n: int) -> list[float]:
    """The score of each of n actions: 1 for the one named first, down to 0. Those not named share what is left."""
    named = list(dict.fromkeys(int(x) for x in re.findall(r"\d{1,9}", answer) if 1 <= int(x) <= n))
    rest = fmean(1 - place / (n - 1) for place in range(len(named), n)) if len(named) < n else 0.0
    return [1 - named.index(number) / (n - 1) if number in named else rest for number in range(1, n + 1)]


def _by_text(actions: Iterable[list[Trajectory]], turn: int) -> list[list[Trajectory]]:
    """In an order that does not depend on that of the attempts."""
    return sorted(actions, key=lambda s: (s[0].turns[turn].action.content, s[0].turns[turn].action_key))
