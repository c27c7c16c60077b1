"""A careless expert: knows how, but leaves things out and stops too early. What a novice is taught by."""

import random

from longloop.envs.errands.scenario import Turns


def careless(turns: Turns, rate: float, rng: random.Random) -> Turns:
    """The same turns, each of which is, with the given probability, left out or taken for the last one."""
    seen = ""
    begun = False
    while True:
        try:
            thought, code = turns.send(seen) if begun else next(turns)
        except StopIteration:
            return
        begun, last = True, "complete_task" in code
        slip = rng.random() < rate and not last
        if slip and rng.random() < 0.5:
            yield "That should be all.", "apis.owner.complete_task()"
            return
        seen = "" if slip else (yield thought, code)
