"""More than one process: Ray places the ranks and notices when one is gone, torch.distributed computes between them.

The first rank is the user's process. It runs the training loop as it is, and takes every decision; the others hold the
same weights, engine and environments, and do what they are told (rank.py). They are Ray actors, which the first one
speaks to through its crew (crew.py). Ray is an optional extra: `pip install 'longloop[cluster]'`.
"""
