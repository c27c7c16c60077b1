"""NAT: negative-aware training (arXiv 2402.11651): failures are learned too, as what to do when asked for a failure.

    for each step:
        the expert's attempts at n tasks, and K of the policy's own             collect
        own ones that failed: retokenize with a note in their opening that asks
            for an incorrect way; successes and the expert's stay as they are
        minimize the mean over action tokens of -log p(x_t | ..)                algos/imitation.py

The note is there in training alone. Learning rate, its schedule (a warm-up over 3% of the run, then a half cosine to
zero), batch, epochs and the lack of weight decay are those of the authors' code.

Differs from the paper: it marks successes with a note too, and asks for them when it measures; here the plain opening
takes that part. Its failures are GPT-3.5's, two for each success; here they are the policy's own, K at each task.
"""

from collections.abc import Sequence
from dataclasses import replace

from longloop.algos.base import with_experts
from longloop.algos.imitation import Scheduled
from longloop.protocols import Rollouts, Tasks
from longloop.types import Group, Now, Trajectory


class Nat(Scheduled):
    epochs: int = 2
    weight_decay: float = 0.0
    note: str = "Do this in a way that is incorrect."
    """What a failed attempt's opening ends with."""

    @property
    def attempts_per_task(self) -> int:
        return self.k + 1

    async def collect(self, rollouts: Rollouts, tasks: Tasks, n: int, now: Now) -> list[Group]:
        groups = await with_experts(rollouts, tasks, n, self.k)
        return [replace(g, trajectories=tuple(self._marked(t, rollouts) for t in g.trajectories)) for g in groups]

    def select(self, group: Group) -> Sequence[Trajectory]:
        return [t for t in group.scored if not t.expert or t.reward >= self.least_reward]

    def _marked(self, t: Trajectory, rollouts: Rollouts) -> Trajectory:
        """A failed attempt of the policy's own with the note in its opening; any other as it is."""
        if not t.stop.scored or t.expert or t.reward >= self.least_reward:
            return t
        opening, *rest = t.turns
        *before, last = opening.context
        asked = replace(last, content=f"{last.content}\n\n{self.note}")
        return rollouts.retokenize(replace(t, turns=(replace(opening, context=(*before, asked)), *rest)))
