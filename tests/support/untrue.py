"""Engines and a method broken on purpose, as plug-ins: the doctor must find each of them out."""

import copy
from dataclasses import dataclass, replace

from longloop.algos.loop import Loop
from longloop.engines.engine import NativeEngine


class Stale(NativeEngine):
    """Samples from the weights that there were when it was made."""

    def __init__(self, policy, chat) -> None:
        super().__init__(copy.deepcopy(policy), chat, slots=16, context=256)


class OneSeed(NativeEngine):
    """Draws the same random numbers for every request."""

    def __init__(self, policy, chat) -> None:
        super().__init__(policy, chat, slots=16, context=256)

    async def sample(self, ids, params, *, session):
        return await super().sample(ids, replace(params, seed=0), session=session)


@dataclass(frozen=True, kw_only=True)
class OffByOne(Loop):
    """Marks the token after the one that was chosen, or the one before."""

    by: int = 1

    def credit(self, groups, learner, now):
        def shifted(column, empty):
            return (empty, *column[:-1]) if self.by == 1 else (*column[1:], empty)

        return [
            replace(
                s,
                mask=shifted(s.mask, 0),
                logprobs=shifted(s.logprobs, 0.0),
                advantages=shifted(s.advantages, 0.0),
                weights=shifted(s.weights, 0.0),
            )
            for s in super().credit(groups, learner, now)
        ]
