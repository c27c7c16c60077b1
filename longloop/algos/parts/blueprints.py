"""Blueprints: a plan is drawn before an attempt, and plan and attempt are learned apart, in turns."""

from collections.abc import Sequence
from dataclasses import replace

from longloop.algos.parts.rollouts import Attempts, apart, with_sides
from longloop.algos.parts.tasks import InOrder
from longloop.protocols import Rollouts, Tasks
from longloop.types import Group, Message, Now, Start, Task, Trajectory


def planning(now: Now) -> bool:
    """Whether this step learns to plan: every other does, beginning with the first."""
    return now.step % 2 == 1


class EveryTwice(InOrder):
    """Each task in two steps: the next of the stream to plan for, then the same ones to act on the plans."""

    def take(self, tasks: Tasks, n: int, now: Now) -> list[Task]:
        before = [] if planning(now) else [group.task for group in now.past(now.step - 1)]
        return before or tasks.take(n)


class Blueprints(Attempts):
    """HiMAC's: in one step `plans` plans for each task, each carried out once at temperature 0, and in the next K
    attempts that follow the plan which was paid most, the first of equals. With plans = 0, K attempts.

    A plan is a record of one turn that has the reward of the attempt which followed it; that attempt is a side rollout.
    """

    plans: int = 8
    ask: str = "First plan: list the sub-goals, one a line."
    follow: str = "Follow this plan:"

    async def collect(
        self, rollouts: Rollouts, tasks: Sequence[Task], k: int, seed: int, max_turns: int, now: Now
    ) -> list[Group]:
        if not self.plans:
            return await super().collect(rollouts, tasks, k, seed, max_turns, now)
        if not planning(now):
            best = {group.task.id: plan for group in now.past(now.step - 1) if (plan := best_plan(group))}
            starts = [self.following(task, best.get(task.id)) for task in tasks]
            return await rollouts.play(starts, k, apart(now), max_turns=max_turns)
        asked = [Start(task, preface=(Message("user", self.ask),)) for task in tasks]
        planned = await rollouts.play(asked, self.plans, seed, max_turns=1)
        plans = [[t for t in group.trajectories if t.turns] for group in planned]
        starts = [self.following(t.task, t) for some in plans for t in some]
        groups = await rollouts.play(starts, 1, apart(now), temperatures=(0.0,), max_turns=max_turns) if starts else []
        played = iter(groups)
        return [
            paid_plans(group.task, [(t, next(played).trajectories[0]) for t in some])
            for group, some in zip(planned, plans, strict=True)
        ]

    def following(self, task: Task, plan: Trajectory | None) -> Start:
        """The task with a plan, where there is one."""
        said = f"{self.follow}\n{plan.action_texts[0]}" if plan else ""
        return Start(task, preface=(Message("user", said),) if plan else ())

    def per_task(self, k: int) -> int:
        return max(k, 2 * self.plans)


def paid_plans(task: Task, carried_out: Sequence[tuple[Trajectory, Trajectory]]) -> Group:
    """Plans with what the attempts that followed them were paid, and these as side rollouts."""
    plans = [
        replace(plan, reward=t.reward, success=t.success, stop=t.stop, error=t.error, info=t.info, unread=())
        for plan, t in carried_out
    ]
    return with_sides(Group(task, tuple(plans)), [t for _, t in carried_out])


def best_plan(group: Group) -> Trajectory | None:
    return max(sorted(group.scored, key=lambda t: t.attempt), key=lambda t: t.reward, default=None)
