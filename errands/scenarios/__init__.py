"""The scenarios of all splits."""

from errands.scenarios import (
    calendar,
    contacts,
    expenses,
    files,
    mail,
    music,
    notes,
    phone,
    shop,
    todo,
    wallet,
)

_MODULES = (contacts, mail, phone, calendar, notes, todo, files, wallet, expenses, shop, music)
SCENARIOS = [kind for module in _MODULES for kind in module.SCENARIOS]
