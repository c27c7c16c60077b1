"""Scores an attempt of any of the agents: did a call of the tool guess the number?"""

import json

from longloop import Attempt, Call, Outcome


def score(attempt: Attempt) -> Outcome:
    said = [message for talk in attempt.conversations for message in talk if message.role == "assistant"]
    guesses = [_number(call) for message in said for call in message.calls]
    right = attempt.task.data["number"] in guesses[: attempt.task.data["tries"]]
    return Outcome(reward=float(right), success=right)


def _number(call: Call) -> object:
    """The number that a call names; None where it names none, whatever a model has written there."""
    try:
        return json.loads(call.arguments)["number"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
