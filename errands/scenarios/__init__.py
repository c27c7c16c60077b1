"""The scenarios of all splits: train, dev and validation in a module for each app, the tests in one for each split."""

import inspect

from errands.scenario import Scenario
from errands.scenarios import calendar, challenge, contacts, mail, normal, notes, phone, shop, todo, wallet

_MODULES = (contacts, mail, phone, calendar, notes, todo, wallet, shop, normal, challenge)

SCENARIOS: list[type[Scenario]] = [
    kind
    for module in _MODULES
    for kind in vars(module).values()
    if inspect.isclass(kind)
    and issubclass(kind, Scenario)
    and kind.__module__ == module.__name__
    and not inspect.isabstract(kind)
]
"""Every scenario that these modules define, in the order of their definition."""
