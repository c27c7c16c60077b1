"""The parts that methods are composed of. Each writes one thing, and has a value at which it does nothing.

`longloop.algos.composed` names the slots and puts the parts together. Each slot has a file here; branches.py and
critic.py hold the rewards and credits that come from side rollouts and from heads. tokens.py (the tokens of a step end
to end) and proposals.py (actions that the policy ranks) are what parts are written with.
"""
