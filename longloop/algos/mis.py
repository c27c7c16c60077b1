"""MIS: masked importance sampling (verl's rollout correction). What the engine was too unlikely to draw does not count.

    q_u = product over the tokens of turn u of p_learner / p_engine, before the step's first update
    maximize LOOP's objective with the weight of each token times q_u where q_u <= cap and 0 elsewhere

`tis` cuts a large weight to the cap and keeps the token; here it is dropped: engine and learner do not agree about the
state at all.

Differs from the paper: the product is over a turn instead of the whole sequence, where hundreds of turns would leave
nothing (`unit = "trajectory"` is verl's). All else is LOOP's.
"""

from typing import Literal

from longloop.algos.reduce import Unit
from longloop.algos.tis import Tis


class Mis(Tis):
    unit: Unit = "turn"
    beyond: Literal["cap", "drop"] = "drop"
