"""What is said of a policy that fails at everything: by the doctor, during training and at its end."""

HOPELESS = (
    "this model never succeeds here, and where all attempts fare alike there is nothing to learn from. Let it imitate "
    "first (algo.name=sft, with the environment's expert or demos=RUN), give it easier tasks, show a worked example in "
    "the first message, or take another model."
)
TELLING = 64
"""Attempts from which that can be told: a policy that succeeds once in 20 has most likely done so among them."""
