"""The drills of the practice split."""

from longloop.envs.errands.drill import Drill
from longloop.envs.errands.drills import calendar, contacts, mail, notes, phone, shop, todo, wallet

_MODULES = (contacts, mail, phone, calendar, notes, todo, wallet, shop)
DRILLS: list[type[Drill]] = [kind for module in _MODULES for kind in module.DRILLS]
