"""The drills of the practice split: for each app what is called by its name, then what is chosen by a condition."""

from longloop.envs.errands.drill import Drill
from longloop.envs.errands.drills import calendar, contacts, mail, notes, payments, phone, purchases, shop, todo, wallet

_MODULES = (contacts, mail, phone, calendar, notes, todo, wallet, shop, payments, purchases)
DRILLS: list[type[Drill]] = [kind for module in _MODULES for kind in module.DRILLS]
