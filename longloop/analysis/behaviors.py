"""How an agent behaves in an attempt: the five behaviors that LOOP changed, and what patterns find besides.

From LOOP's analysis (arXiv 2502.01600, 5.5 and A.1), for agents that write a thought and Python in every turn:

- look-ups: calls that read the documentation of one API, per attempt. Listing what there is does not count.
- crowded turns: the share of turns that open more than one Python cell. An agent that writes the second before the
  first has run plans without looking.
- assumptions: the words assume, assumed and assuming in what the agent writes, per attempt.
- placeholders: "dummy" in what the agent writes, per attempt: a value made up for one that should have been found.
- giving up: a turn that fails opens every API it calls; a later turn that works closes those it calls. Counted is the
  share of opened APIs that are still open at the end.

A turn fails when what came back matches the pattern `failure` (rules.py). Where nothing is stored of what came back, a
turn worked if it ended the episode, and counts as neither otherwise. A call counts once where it is written, however
often it ran. Needs the text of stored trajectories, no tokens and no model.
"""

import ast
import re
import threading
import warnings
from collections import Counter
from collections.abc import Sequence

from longloop.analysis.rules import PATTERNS, Pattern, Rules
from longloop.envs.react import action_of, code_of
from longloop.stats import Rate
from longloop.store.trajectories import StoredTrajectory
from longloop.types import Message, StopReason

_CALL = re.compile(r"\bapis\.(\w+)\.(\w+)\s*\(")
_CELL = re.compile(r"```[ \t]*(?:python|py)3?\b", re.IGNORECASE)
_PARSING = threading.Lock()
"""Before Python 3.13 threads that parse at the same time disturb each other (python/cpython#106905)."""


def behaviors(rules: Rules) -> tuple[Rate, ...]:
    """LOOP's five, what every agent can do, the environment's own patterns, and how long attempts are."""
    own = [pattern for name, pattern in rules.patterns.items() if name not in PATTERNS]
    return (
        _rate(rules.patterns["lookups"]),
        Rate("crowded", "turns", "turns of several cells", code=True),
        _rate(rules.patterns["assumptions"]),
        _rate(rules.patterns["placeholders"]),
        Rate("given_up", "failed", "failed APIs given up", code=True),
        _rate(rules.patterns["failure"]),
        Rate("repeated", "turns", "turns said before"),
        *(_rate(pattern) for pattern in own),
        Rate("turns", "attempts", "turns / attempt"),
        Rate("tokens", "attempts", "tokens / attempt"),
    )


def count(attempt: StoredTrajectory, rules: Rules) -> Counter[str]:
    """The sums of one attempt."""
    turns = attempt.turns
    sums = Counter(attempts=1, turns=len(turns), heard=0, coded=0, failed=0, crowded=0, repeated=0)
    sums.update({name: 0 for name in rules.patterns})
    unsettled: set[str] = set()
    before: set[str] = set()
    for turn, back in zip(turns, answers(attempt), strict=True):
        action = turn.action
        code = code_of(action)
        called = calls(code)
        cells = len(_CELL.findall(action))
        done = " ".join((code if cells or called else action_of(action) or action).split())
        sums["heard"] += back is not None
        sums["coded"] += cells > 0 or bool(called)
        sums["crowded"] += cells > 1
        sums["repeated"] += done in before
        sums["tokens"] += turn.action_tokens
        before.add(done)
        matches = {name: _matches(pattern, action, back or [], called) for name, pattern in rules.patterns.items()}
        for name, pattern in rules.patterns.items():
            sums[name] += bool(matches[name]) if pattern.turns else matches[name]
        if matches["failure"]:
            sums["failed"] += len(set(called) - unsettled)
            unsettled.update(called)
        elif back is not None or (turn is turns[-1] and attempt.stop == StopReason.FINISHED):
            unsettled.difference_update(called)
    sums["given_up"] = len(unsettled)
    return sums


def answers(attempt: StoredTrajectory) -> list[list[str] | None]:
    """What came back from each turn; None where nothing is stored of it: at the end of a conversation, but for the
    messages that an attempt with a single one did not read any more."""
    talks = attempt.conversations
    found = [back for talk in talks for back in (*(_new(turn.context) for turn in talk[1:]), None)]
    if len(talks) == 1 and attempt.unread:
        found[-1] = _new(attempt.unread)
    return found


def _new(messages: Sequence[Message]) -> list[str]:
    """The messages since the agent's last: where an environment writes the conversation anew, those before are old."""
    said = max((at for at, message in enumerate(messages, 1) if message.role == "assistant"), default=0)
    return [message.content for message in messages[said:]]


def calls(code: str) -> list[str]:
    """The APIs that code calls, as app.api. In text that is not Python, what looks like a call."""
    if "apis" not in code:
        return []
    try:
        with _PARSING, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the agent's escapes are its own affair
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [f"{app}.{api}" for app, api in _CALL.findall(code)]
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(value=ast.Name(id="apis"), attr=app), attr=api)):
                found.append(f"{app}.{api}")
    return found


def _rate(pattern: Pattern) -> Rate:
    of = "attempts" if not pattern.turns else "heard" if pattern.where == "heard" else "turns"
    return Rate(pattern.name, of, pattern.title, code=pattern.where == "called")


def _matches(pattern: Pattern, action: str, back: list[str], called: list[str]) -> int:
    if pattern.where == "called":
        return sum(bool(pattern.regex.fullmatch(api)) for api in called)
    return sum(len(pattern.regex.findall(text)) for text in ([action] if pattern.where == "said" else back))
