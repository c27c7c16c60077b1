"""Several ranks in one process: learners with the same weights, each of which computes its block of shares."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from longloop.learners.batching import laid_out
from longloop.learners.local import LocalLearner
from longloop.learners.shares import NOTHING, Microbatch, add_up, deal, in_order


class SimulatedRanks:
    """The first of these learners leads. Their gradients are added up as the exchange does it: in the tree."""

    def __init__(self, learners: Sequence[LocalLearner], shares: int) -> None:
        self.learners, self.shares = learners, shares
        self.computed = [0] * len(learners)
        """Micro-batches that each has computed."""

    def map(self, work: Callable[..., list[Any]], pieces: Sequence[Microbatch], *arguments: object) -> list[Any]:
        dealt = deal([laid_out(piece) for piece in pieces], self.shares)
        size = self.shares // len(self.learners)
        found = []
        for rank, learner in enumerate(self.learners):
            block = [[pieces[n] for n in share] for share in dealt[rank * size : (rank + 1) * size]]
            found += getattr(learner, work.__name__)(block, *arguments)
            self.computed[rank] += sum(map(len, block))
        return in_order(dealt, found)

    def add_up(self) -> None:
        total = add_up(self.learners, lambda one: [p.grad for p in one.parameters.values()])
        for learner in self.learners:
            for parameter, gradient in zip(learner.parameters.values(), total, strict=True):
                parameter.grad = None if gradient is None else gradient.clone()

    def step(self, lr_scale: float | None) -> None:
        for learner in self.learners[1:]:
            learner.clip()
            learner.step(lr_scale)

    def follow(self, heads: bool = False, stored: Mapping[str, Tensor] = NOTHING) -> None:
        for learner in self.learners[1:]:
            for name, module in learner.heads.items():
                module.load_state_dict(self.learners[0].heads[name].state_dict())

    def gather(self) -> Mapping[str, Tensor]:
        return NOTHING

    def seconds(self) -> list[dict[str, float]]:
        return []
