"""Refinements: attempts that were told how an earlier one was judged, learned from as if they had not been told."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from longloop.algos.parts.objective import Objective
from longloop.algos.parts.rollouts import Ask, Attempts, with_sides
from longloop.algos.reduce import probability_ratio
from longloop.protocols import Rollouts
from longloop.types import Batch, Group, Message, Metrics, Scored, Start, Trajectory


class BestRefinement(Attempts):
    """K - 1 attempts, a refinement of each, and of these the best as the K-th: the first that succeeds, or else the one
    that was paid most. The others are side rollouts.

    It is put where it would stand without the critique. The policy did not draw it there, so it is marked as an
    expert's. A critique quotes the last `max_chars` characters of an attempt.
    """

    max_chars: int = 2000

    async def collect(self, ask: Ask) -> list[Group]:
        groups = await super().collect(replace(ask, k=ask.k - 1))
        starts = [[Start(group.task, preface=(self.critique(t),)) for t in group.scored] for group in groups]
        refined = await ask.further(starts)
        return [self.joined(ask.rollouts, *both, ask.k) for both in zip(groups, refined, strict=True)]

    def joined(self, rollouts: Rollouts, group: Group, refined: Sequence[Trajectory], k: int) -> Group:
        """The group with the best refinement, if there is one, and with the others as side rollouts."""
        usable = [t for t in refined if t.stop.scored and t.turns]
        if not usable:
            return with_sides(group, refined)
        best = max(usable, key=lambda t: (t.success, t.reward))  # the first of equals
        answer = replace(as_if_untold(rollouts, best, group.scored[0]), attempt=k - 1)
        return with_sides(
            replace(group, trajectories=(*group.trajectories, answer)), [t for t in refined if t is not best]
        )

    def critique(self, attempt: Trajectory) -> Message:
        """What the verifier found, in words: the verdict, and the tests that failed where it names them."""
        verdict = "It succeeded." if attempt.success else f"It failed, with a score of {attempt.reward:g}."
        tests = attempt.info.get("tests")
        named = [test for test in tests if isinstance(test, dict)] if isinstance(tests, list) else []
        failed = [str(test.get("name")) for test in named if not test.get("passed")]
        wrong = f" What was wrong: {'; '.join(failed)}." if failed else ""
        said = "\n".join(attempt.action_texts)[-self.max_chars :]
        return Message("user", f"An earlier attempt at this task said:\n{said}\n{verdict}{wrong} Do the task again.")

    def per_task(self, k: int) -> int:
        return 2 * (k - 1)


def as_if_untold(rollouts: Rollouts, refined: Trajectory, attempt: Trajectory) -> Trajectory:
    """A refinement with the opening of a plain attempt at the task. What the environment answered stays as it was.

    Where a later turn rewrote history, the ids that it read contain the critique, and all are made anew.
    """
    first, opening = refined.turns[0], attempt.turns[0]
    first = replace(first, context=opening.context, context_ids=opening.context_ids)
    answer = replace(refined, turns=(first, *refined.turns[1:]), expert=True)
    return rollouts.retokenize(answer) if any(turn.restarts_context for turn in answer.turns[1:]) else answer


class Unclipped(Objective):
    """minimize -A r for tokens that the policy drew, and -A p / (p + gamma) for those that it was shown. The slope of
    the second by log p is largest at p = gamma: what is nearly impossible to say is not forced."""

    gamma: float = 0.1
    divisor: float = 1024.0

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        ratio_N = probability_ratio(scored.logp_N - batch.old_N)
        p_N = scored.logp_N.exp()
        gain_N = torch.where(batch.own_N > 0, ratio_N, p_N / (p_N + self.gamma))
        return -(batch.weight_N * (gain_N * batch.adv_N)).sum(), {}
