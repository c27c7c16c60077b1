"""The scenarios of all splits: train, dev and validation in a module for each app, the tests in one for each split.

What the owner says in them is in the TOML file beside each module: scenario -> several wordings. Its table `apis` lists
those of an expert that reads about them in another order than it calls them.
"""

import inspect
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from errands.scenario import Scenario
from errands.scenarios import calendar, challenge, contacts, mail, normal, notes, phone, shop, todo, wallet
from errands.written import apis_called

_MODULES = (contacts, mail, phone, calendar, notes, todo, wallet, shop, normal, challenge)


def _defined_in(module: ModuleType) -> Iterator[type[Scenario]]:
    """The scenarios of a module, in the order of their definition, with their wordings and the APIs that they need."""
    wordings = tomllib.loads(Path(inspect.getfile(module)).with_suffix(".toml").read_text(encoding="utf-8"))
    in_order = wordings.pop("apis", {})
    for kind in vars(module).values():
        if inspect.isclass(kind) and issubclass(kind, Scenario) and kind.__module__ == module.__name__:
            kind.phrasings = tuple(wordings.pop(kind.name()))
            kind.apis = tuple(in_order.pop(kind.name(), apis_called(kind.solve)))
            yield kind
    assert not (wordings | in_order), f"{module.__name__} has no scenario for {', '.join(wordings | in_order)}"


SCENARIOS: list[type[Scenario]] = [kind for module in _MODULES for kind in _defined_in(module)]
