"""Scores an attempt of any of the agents: did a call of the tool guess the number?"""

import json

from longloop import Attempt, Outcome


def score(attempt: Attempt) -> Outcome:
    said = [message for talk in attempt.conversations for message in talk if message.role == "assistant"]
    guesses = [json.loads(call.arguments).get("number") for message in said for call in message.calls]
    right = attempt.task.data["number"] in guesses[: attempt.task.data["tries"]]
    return Outcome(reward=float(right), success=right)
