"""The parts that methods are composed of, a file for each slot of `longloop.algos.composed`. Each writes one thing, and
has a value at which it does nothing.
"""
