"""An expert who makes mistakes, sees them and mends them: from it can be learnt what to do after an error.

It picks an API that is not the right one, reads about it, and picks another: at once if it would have changed
something, or else when it has looked with it in vain. And it gets the name of a parameter wrong, and then right.
"""

import random
import re
from collections.abc import Sequence
from contextlib import suppress

from longloop.envs.errands.apps import BY_NAME, find
from longloop.envs.errands.scenario import LOG_IN, Setting, Turns, named, shows

_READS = re.compile(r'print\(apis\.docs\.show\(api="([\w.]+)"\)\)')
_UNLIKE = "That is not what I look for."
_CALLS = re.compile(r"\bapis\.([a-z]+\.[a-z_]+)\((\w+)?")


def mistaken(turns: Turns, apis: Sequence[str], setting: Setting, rate: float, rng: random.Random) -> Turns:
    """The same turns, each of which comes, with the given probability, after a mistake in it, if it can have one."""
    seen = None
    with suppress(StopIteration):
        while True:
            thought, code = next(turns) if seen is None else turns.send(seen)
            slip = rng.random() < rate
            read = _READS.fullmatch(code)
            other = _another(read[1], apis, rng) if slip and read else ""
            wrong = _askew(code, apis, rng) if slip and not read else ""
            if read and other:
                yield thought.replace(named(read[1], setting), named(other, setting)), shows([other])
                why, then = "That would do something else.", None
                if _looks(other):
                    then, once = turns.send("")
                    why = _disappointed((yield then, once.replace(f"apis.{read[1]}(", f"apis.{other}(")))
                seen = yield f"{why} {thought}", code
                if then:
                    seen = yield then, LOG_IN.sub("", once)
            elif wrong:
                seen = yield thought, wrong
                why = _disappointed(seen)
                if why != _UNLIKE or _only_looks(code, apis):
                    seen = yield f"{why} {thought}", LOG_IN.sub("", code)
            else:
                seen = yield thought, code


def _disappointed(seen: str) -> str:
    if "Traceback" in seen:
        return "That did not work."
    return "There is nothing." if seen.strip() in ("[]", "0") else _UNLIKE


def _looks(api: str) -> bool:
    """Whether it shows things and can be asked without saying which."""
    needed = {name for name, one in find(api).parameters.items() if one.required}
    return api.partition(".")[2].startswith(("list_", "search")) and needed <= {"access_token"}


def _only_looks(code: str, apis: Sequence[str]) -> bool:
    used = [call[1].partition(".")[2] for call in _CALLS.finditer(code) if call[1] in apis]
    return all(name.startswith(("list_", "search", "show")) for name in used)


def _another(api: str, apis: Sequence[str], rng: random.Random) -> str:
    """One of the same app that is as good to begin with as this one, and that the errand does not need."""
    app = api.partition(".")[0]
    others = [f"{app}.{name}" for name in BY_NAME[app].apis if name not in ("login", "logout")]
    alike = [other for other in others if other not in apis and _looks(other) == _looks(api)]
    return rng.choice(alike) if alike else ""


def _askew(code: str, apis: Sequence[str], rng: random.Random) -> str:
    """The code with something wrong in what is called first: what it searches for, or the name of a parameter."""
    call = next((call for call in _CALLS.finditer(code) if call[1] in apis), None)
    if not call or call[2] in (None, "access_token"):
        return ""
    if call[2] == "query" and _only_looks(code, apis) and rng.random() < 0.5:
        return re.sub(r'query="[^"]*"', f'query="{call[1].partition(".")[0]}"', code, count=1)
    wrong = call[2].rpartition("_")[2] if "_" in call[2] else f"{call[2]}_id"
    known = find(call[1]).parameters
    return "" if wrong in known else f"{code[: call.start(2)]}{wrong}{code[call.end(2) :]}"
