"""The scenarios of all splits: train, dev and validation in a module for each app, the tests in one for each split."""

from errands.scenarios import calendar, challenge, contacts, mail, normal, notes, phone, shop, todo, wallet

_MODULES = (contacts, mail, phone, calendar, notes, todo, wallet, shop, normal, challenge)
SCENARIOS = [kind for module in _MODULES for kind in module.SCENARIOS]
