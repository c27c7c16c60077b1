"""How an expert goes about an errand: it reads the documentation first, or goes step by step."""

import re
from collections.abc import Sequence
from contextlib import suppress

from errands.apps import BY_NAME, find
from errands.scenario import LOG_IN, Setting, Turns
from errands.written import login_code

_CALLED = re.compile(r"\bapis\.([a-z]+\.[a-z_]+)\(")

_AT_ONCE = 5
"""APIs whose documentation is read in one turn: more would be cut."""


def read_first(turns: Turns, apis: Sequence[str]) -> Turns:
    for start in range(0, len(apis), _AT_ONCE):
        some = apis[start : start + _AT_ONCE]
        thought = "Now I read the rest of it." if start else "First I read the documentation of the APIs that I need."
        yield thought, shows(some)
    yield from turns


def step_by_step(turns: Turns, apis: Sequence[str], setting: Setting) -> Turns:
    """The same turns. Before each comes what it needs and the expert has not seen yet: what an app can do, and how to
    use an API, picked by its sentence for what is asked; and it logs in where it has not been yet."""
    met: set[str] = set()  # apps and APIs
    found = None
    with suppress(StopIteration):
        while True:
            thought, code = next(turns) if found is None else turns.send(found)
            code = LOG_IN.sub("", code)
            new = [api for api in dict.fromkeys(_CALLED.findall(code)) if api in apis and api not in met]
            apps = [app for app in dict.fromkeys(api.partition(".")[0] for api in new) if app not in met]
            for app in apps:
                yield f"I check what the {app} app can do.", f'print(apis.docs.list_apis(app="{app}"))'
            for start in range(0, len(new), _AT_ONCE):
                some = new[start : start + _AT_ONCE]
                yield _picked(some, setting, first=met.isdisjoint(apis)), shows(some)
                met.update(some)
            met.update(apps)
            enter = login_code(*(app for app in apps if BY_NAME[app].login))
            found = (yield thought, f"{enter}\n{code}".strip()) if code.strip() else ""


def shows(apis: Sequence[str]) -> str:
    return "\n".join(f'print(apis.docs.show(api="{api}"))' for api in apis)


def _picked(apis: Sequence[str], setting: Setting, first: bool) -> str:
    """The thought of an agent that picks APIs from the lists: each with its sentence there."""
    said = " and ".join(named(api, setting) for api in apis)
    return f"My task: {setting.instruction} {'First' if first else 'Next'} I need {said}. I read how to use it."


def named(api: str, setting: Setting) -> str:
    """An API with its sentence in the list."""
    sentence = setting.disguise.sentence(api) if setting.disguise else find(api).summary
    return f"{api} ('{sentence.rstrip('.')}')"
