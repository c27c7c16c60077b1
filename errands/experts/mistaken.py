"""An expert that makes mistakes, notices and corrects them: it demonstrates what to do after an error.

It picks a wrong API, reads about it, and picks another: at once if the API would change something, otherwise after
trying it in vain. It searches for the wrong thing, or gets the name of a parameter wrong, and then right. And it
forgets to look something up, and does so when it needs it.
"""

import random
import re
from collections.abc import Generator, Sequence
from contextlib import suppress

from errands.apps import BY_NAME, find
from errands.experts.thorough import named, shows
from errands.scenario import LOG_IN, Setting, Turns

Turn = tuple[str, str]
"""A thought and code."""
Mended = Generator[Turn, str, str]
"""The turns of a mistake and what follows from it; what was seen last."""

_READS = re.compile(r'print\(apis\.docs\.show\(api="([\w.]+)"\)\)')
_CALLS = re.compile(r"\bapis\.([a-z]+\.[a-z_]+)\((\w+)?")
_LOOKS = ("list_", "search", "show")


def mistaken(turns: Turns, apis: Sequence[str], setting: Setting, rate: float, rng: random.Random) -> Turns:
    """The same turns, each of which comes, with the given probability, after a mistake in it, if it can have one."""
    seen = forgotten = None
    begun = False  # whether there is anything that the code could take for what is missing
    with suppress(StopIteration):
        while True:
            turn = next(turns) if seen is None else turns.send(seen)
            slip = rng.random() < rate and not forgotten
            called = [call for call in _CALLS.finditer(turn[1]) if call[1] in apis]
            looks = bool(called) and all(call[1].partition(".")[2].startswith(_LOOKS) for call in called)
            read = _READS.fullmatch(turn[1])
            if slip and read and (other := _another(read[1], apis, rng)):
                seen = yield from _wrong_pick(turns, turn, read[1], other, setting)
            elif slip and looks and not begun and rng.random() < 0.3:
                seen, forgotten = "", turn
            elif slip and called and (wrong := _askew(turn[1], called[0], looks, rng)):
                seen = yield from _wrong_words(turn, wrong, looks)
            elif forgotten and (called or "complete_task" in turn[1]):
                seen = yield from _forgot(forgotten, turn, at_once=len(called) != 1 and "answer" not in turn[1])
                forgotten = None
            else:
                seen = yield turn
            begun = begun or bool(called) or bool(read and slip)


def _wrong_pick(turns: Turns, turn: Turn, api: str, other: str, setting: Setting) -> Mended:
    thought, code = turn
    yield thought.replace(named(api, setting), named(other, setting)), shows([other])
    if not _lists(other):
        return (yield f"That does something else. {thought}", code)
    use, once = turns.send("")
    seen = yield use, once.replace(f"apis.{api}(", f"apis.{other}(")
    yield f"{_why(seen)} {thought}", code
    return (yield use, LOG_IN.sub("", once))


def _wrong_words(turn: Turn, wrong: str, looks: bool) -> Mended:
    thought, code = turn
    seen = yield thought, wrong
    if looks or "Traceback" in seen:  # or it went well by chance, and must not be done twice
        seen = yield f"{_why(seen)} {thought}", LOG_IN.sub("", code)
    return seen


def _forgot(forgotten: Turn, turn: Turn, at_once: bool) -> Mended:
    """`at_once`: the turn could do a part of its work, and then do it again."""
    seen = "" if at_once else (yield turn)
    missed = "Traceback" in seen
    yield f"{_why(seen) if missed else 'I forgot something.'} {forgotten[0]}", forgotten[1]
    return (yield turn) if at_once or missed else seen


def _why(seen: str) -> str:
    if "Traceback" in seen:
        return "That did not work."
    return "Nothing was found." if seen.strip() in ("[]", "0") else "That is not what I was looking for."


def _lists(api: str) -> bool:
    """Whether it shows things and can be asked without saying which."""
    needed = {name for name, one in find(api).parameters.items() if one.required}
    return api.partition(".")[2].startswith(_LOOKS[:2]) and needed <= {"access_token"}


def _another(api: str, apis: Sequence[str], rng: random.Random) -> str:
    """One of the same app that is as good to begin with as this one, and that the errand does not need."""
    app = api.partition(".")[0]
    others = [f"{app}.{name}" for name in BY_NAME[app].apis if name not in ("login", "logout")]
    alike = [other for other in others if other not in apis and _lists(other) == _lists(api)]
    return rng.choice(alike) if alike else ""


def _askew(code: str, call: re.Match[str], looks: bool, rng: random.Random) -> str:
    """The code with something wrong in a call: what it searches for, or the name of its first parameter."""
    api, parameter = call.groups()
    if parameter in (None, "access_token"):
        return ""
    if parameter == "query" and looks and rng.random() < 0.5:
        return re.sub(r'query="[^"]*"', f'query="{api.partition(".")[0]}"', code, count=1)
    wrong = parameter.rpartition("_")[2] if "_" in parameter else f"{parameter}_id"
    return "" if wrong in find(api).parameters else f"{code[: call.start(2)]}{wrong}{code[call.end(2) :]}"
