"""What doctor, training and its summary say of a policy, or of an expert, that never succeeds."""

from typing import Any

HOPELESS = (
    "this model never succeeds here, and where all attempts fare alike there is nothing to learn from. Let it imitate "
    "first (algo.name=sft, with the environment's expert or demos=RUN), give it easier tasks, show a worked example in "
    "the first message, or take another model."
)
NO_EXAMPLE = (
    "no demonstration succeeds here, so there is none to learn from. `longloop show` has the expert's attempts; where "
    "they are cut short, raise rollout.max_turns, rollout.turn_tokens or rollout.context."
)
TELLING = 64
"""Attempts needed to say so: among this many, a policy that succeeds once in 20 attempts has most likely done so."""


def why(steps: list[dict[str, Any]]) -> str:
    """Of steps without any success, by their metrics: what stands in the way."""
    shown = all("demonstrations" in step and step["demonstrations"] == step["attempts"] for step in steps)
    return NO_EXAMPLE if shown else HOPELESS
