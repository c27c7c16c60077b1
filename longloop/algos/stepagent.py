"""What both StepAgent methods do first: inspect what an expert does, step by step, and practise it.

    the expert's attempts at n tasks, each cut after every action                    rollout/demonstrations.py
    at every state of the expert's, `practice` actions of the policy's own           rollout/starts.py

Then one compares the two (stepagent_implicit), the other learns to tell them apart (stepagent_inverse).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from longloop.protocols import Rollouts
from longloop.types import Group, Start, StopReason, Task, Trajectory


async def inspected(rollouts: Rollouts, tasks: Sequence[Task], k: int, least_reward: float, seed: int) -> list[Group]:
    """For each demonstration that is worth it, itself and k of the policy's own actions at each of its states."""
    shown = await rollouts.demonstrations(tasks)
    experts = [t for group in shown for t in group.scored if t.reward >= least_reward]
    starts = [Start(t.task, t, turn) for t in experts for turn in range(len(t.turns))]
    acted = iter(await rollouts.play(starts, k, seed, single_action=True))
    own = [Group(expert.task, tuple(t for _ in expert.turns for t in next(acted).trajectories)) for expert in experts]
    return [Group(t.task, (replace(t, attempt=0),)).merged_with(other) for t, other in zip(experts, own, strict=True)]


def states(group: Group) -> Iterator[tuple[Trajectory, list[Trajectory]]]:
    """The expert's attempt up to each of its actions, and the attempts that end with an own one instead."""
    for expert in (t for t in group.trajectories if t.expert):
        for turns in range(1, len(expert.turns) + 1):
            own = [t for t in group.trajectories if t.stop is StopReason.PRACTISED and len(t.turns) == turns]
            if own:
                yield replace(expert, turns=expert.turns[:turns]), own
