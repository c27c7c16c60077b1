"""SFT-GT: imitation of solutions without interaction, a baseline of LOOP's appendix (arXiv 2502.01600).

    the expert's attempts at n tasks, every reply of the environment
        replaced by "Execution successful."                            collect
    minimize the mean over action tokens of -log p(x_t | ..)           algos/imitation.py

The agent never sees what came of an action. In the paper it collapses (6.2% of the tasks): it forgets to look.

Differs from the paper: it cuts the scripts that come with AppWorld into statements, with their comments as thoughts;
here a turn is what the expert says in one. Learning rate, batch and schedule, which it does not give, are `sft`'s.
"""

from dataclasses import replace

from longloop.algos.sft import SFT
from longloop.protocols import Rollouts, Tasks
from longloop.types import Group, Now, Trajectory

REPLY = "Execution successful."


class SftGt(SFT):
    async def collect(self, rollouts: Rollouts, tasks: Tasks, n: int, now: Now) -> list[Group]:
        shown = await rollouts.demonstrations(tasks.take(n))
        return [
            replace(group, trajectories=tuple(rollouts.retokenize(_unanswered(t)) for t in group.trajectories))
            for group in shown
        ]


def _unanswered(trajectory: Trajectory) -> Trajectory:
    """The opening stays; what the environment said to an action is one message that says nothing."""
    turns = (
        replace(turn, context=tuple(replace(message, content=REPLY) for message in turn.context[:1]))
        for turn in trajectory.turns[1:]
    )
    return replace(trajectory, turns=(*trajectory.turns[:1], *turns))
