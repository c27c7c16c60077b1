"""A careless expert: knows how, but leaves things out and stops too early. What a novice is taught by."""

import random
from contextlib import suppress

from errands.scenario import Turns


def careless(turns: Turns, rate: float, rng: random.Random) -> Turns:
    """The same turns, each of which is, with the given probability, left out or taken for the last one. Whoever cannot
    complete the task, as what it needs for that was left out, completes it without."""
    seen = ""
    begun = slipped = False
    with suppress(StopIteration):
        while True:
            thought, code = turns.send(seen) if begun else next(turns)
            begun, last = True, "complete_task" in code
            slip = rng.random() < rate and not last
            slipped = slipped or slip
            if slip and rng.random() < 0.5:
                break
            seen = "" if slip else (yield thought, code)
    if slipped:
        yield "That should be all.", "apis.owner.complete_task()"
