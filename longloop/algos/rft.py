"""RFT: rejection-sampling fine-tuning (LOOP's appendix, arXiv 2502.01600; StepAgent's baseline, arXiv 2411.03817).

    for each round:
        for each of n tasks: K attempts, each at a temperature of its own    rollout/groups.py
        the expert's attempts beside them, if asked for                      rollout/demonstrations.py
        keep those with R = 1, one of those that say the same                select
        for many epochs:                                                     training.py
            minimize the mean over action tokens of -log p(x_t | ..)         algos/imitation.py

The paper has one round of the model as it was before training (`steps = 1`, `tasks_per_step` all tasks), twenty
temperatures from 0.05 to 1.0, and 100 epochs of which the 30th was the best on dev. `with_expert` makes it StepAgent's.

Differs from the paper: it tries each task at each temperature until it succeeds or eight hours are over; here, once, so
that a step's cost is known. Of successes that say the same, one is learned. lr and mini-batches, not given, are LOOP's.
"""

from collections.abc import Sequence

from longloop.algos.imitation import Imitation
from longloop.protocols import Rollouts, Tasks
from longloop.types import Group, Now, Start, Trajectory, UserError


class Rft(Imitation):
    k: int = 20
    epochs: int = 30
    minibatch: int = 32
    coldest: float = 0.05
    """Temperature of a task's first attempt ..."""
    hottest: float = 1.0
    """... and of its last; the others lie evenly between."""
    with_expert: bool = False
    """Learn from the expert's attempts as well."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.coldest <= self.hottest:
            raise UserError(
                f"algo.coldest = {self.coldest} and algo.hottest = {self.hottest}: temperatures go up from the first, "
                "and none is below 0."
            )

    @property
    def attempts_per_task(self) -> int:
        return self.k + self.with_expert

    @property
    def temperatures(self) -> list[float]:
        step = (self.hottest - self.coldest) / max(1, self.k - 1)
        return [self.coldest + step * number for number in range(self.k)]

    async def collect(self, rollouts: Rollouts, tasks: Tasks, n: int, now: Now) -> list[Group]:
        first = tasks.taken
        some = tasks.take(n)
        own = await rollouts.play([Start(task) for task in some], self.k, seed=first, temperatures=self.temperatures)
        shown = await rollouts.demonstrations(some) if self.with_expert else [Group(task, ()) for task in some]
        return [one.merged_with(other) for one, other in zip(own, shown, strict=True)]

    def select(self, group: Group) -> Sequence[Trajectory]:
        distinct: dict[tuple[str, ...], Trajectory] = {}
        for trajectory in super().select(group):
            distinct.setdefault(trajectory.action_texts, trajectory)
        return list(distinct.values())
