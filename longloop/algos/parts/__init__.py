"""The parts that methods are composed of. Each writes one thing, and has a value at which it does nothing.

    tasks.py      which tasks a step takes, and how long an attempt may be
    rollouts.py   the groups: whose attempts, from where
    rewards.py    what each turn and each attempt is paid
    credit.py     the advantage of each turn
    shape.py      advantages -> advantages
    choose.py     the weights of tokens
    objective.py  the loss of a token
    hold.py       terms added to the loss

and tokens.py (the tokens of a step end to end), proposals.py (actions that the policy ranks).

`longloop.algos.composed` puts them together.
"""
