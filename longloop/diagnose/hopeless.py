"""What doctor, training and its summary say of a policy that never succeeds."""

HOPELESS = (
    "this model never succeeds here, and where all attempts fare alike there is nothing to learn from. Let it imitate "
    "first (algo.name=sft, with the environment's expert or demos=RUN), give it easier tasks, show a worked example in "
    "the first message, or take another model."
)
TELLING = 64
"""Attempts needed to say so: among this many, a policy that succeeds once in 20 attempts has most likely done so."""
