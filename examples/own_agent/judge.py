"""Scores an attempt of the agent: was the last guess the number?"""

import re

from longloop import Attempt, Outcome


def score(attempt: Attempt) -> Outcome:
    said = [message.content for message in attempt.conversations[0] if message.role == "assistant"]
    found = re.search(r"\d+", said[-1]) if said else None
    right = bool(found) and int(found[0]) == attempt.task.data["number"]
    return Outcome(reward=float(right), success=right)
