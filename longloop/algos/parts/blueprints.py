"""Blueprints: a plan is drawn before an attempt, and plan and attempt are learned apart, in turns."""

from collections.abc import Sequence
from dataclasses import replace

from longloop.algos.parts.rollouts import Ask, Attempts, apart, with_sides
from longloop.algos.parts.tasks import InOrder
from longloop.protocols import Tasks
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

    async def collect(self, ask: Ask) -> list[Group]:
        if not self.plans:
            return await super().collect(ask)
        if not planning(ask.now):
            best = {group.task.id: plan for group in ask.now.past(ask.now.step - 1) if (plan := best_plan(group))}
            return await ask.play([self.following(t, best.get(t.id)) for t in ask.tasks], ask.k, apart(ask.now))
        asked = [Start(task, preface=(Message("user", self.ask),)) for task in ask.tasks]
        planned = await ask.play(asked, self.plans, ask.seed, max_turns=1)
        plans = [[t for t in group.trajectories if t.turns] for group in planned]
        starts = [[self.following(t.task, t) for t in some] for some in plans]
        played = await ask.further(starts, temperatures=(0.0,))
        return [paid_plans(group.task, *both) for group, *both in zip(planned, plans, played, strict=True)]

    def following(self, task: Task, plan: Trajectory | None) -> Start:
        """The task with a plan, where there is one."""
        said = f"{self.follow}\n{plan.action_texts[0]}" if plan else ""
        return Start(task, preface=(Message("user", said),) if plan else ())

    def per_task(self, k: int) -> int:
        return max(k, 2 * self.plans)


def paid_plans(task: Task, plans: Sequence[Trajectory], played: Sequence[Trajectory]) -> Group:
    """Plans with what the attempts that followed them were paid, and these as side rollouts."""
    paid = [
        replace(plan, reward=t.reward, success=t.success, stop=t.stop, error=t.error, info=t.info, unread=())
        for plan, t in zip(plans, played, strict=True)
    ]
    return with_sides(Group(task, tuple(paid)), played)


def best_plan(group: Group) -> Trajectory | None:
    return max(sorted(group.scored, key=lambda t: t.attempt), key=lambda t: t.reward, default=None)
