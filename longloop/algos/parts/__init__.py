"""The parts that methods are composed of. Each writes one thing, and has a value at which it does nothing.

`longloop.algos.composed` names the slots and puts the parts together. Each slot has a file here; what side rollouts say
of states is in branches.py, what heads say of them in critic.py, whatever slot it fills. tokens.py has the tokens of a
step end to end.
"""
