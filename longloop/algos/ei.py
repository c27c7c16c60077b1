"""EI: expert iteration, as LOOP's paper compares it (arXiv 2502.01600, appendix C): the policy imitates its successes.

    for each iteration:
        for each of n tasks: K attempts from the policy                   rollout/groups.py
        keep those with R = 1                                             select
        for 2 epochs, for mini-batches of 32 attempts:                    training.py
            minimize the mean over action tokens of -log p(x_t | ..)      algos/imitation.py

A failure teaches nothing, and a task that always succeeds counts as much as a hard one: very stable, tolerant of stale
data, and sooner over-fitted than LOOP. The actions are the policy's own: the checks of on-policy methods hold.

Differs from the paper: nothing.
"""

from longloop.algos.imitation import Imitation


class Ei(Imitation):
    epochs: int = 2
    minibatch: int = 32

    on_policy = True
