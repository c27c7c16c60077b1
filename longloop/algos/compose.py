"""Compose: a method put together in the config, from the parts of all the others.

    [algo]
    name = "compose"
    advantages = "anchors w=0.5"
    shape = ["turn_entropy"]
    objective = "clipped low=0.8 high=1.28"
    hold = ["kl coefficient=0.01"]

A part is written as its name and its settings; what is left out is LOOP's.

Differs from the paper: there is none. Two parts that both scale advantages by entropy are refused.
"""

import inspect
from collections.abc import Sequence
from dataclasses import MISSING, fields
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, get_args, get_type_hints

from longloop.algos import parts as package
from longloop.algos.composed import Composed, Parts
from longloop.algos.parts.part import Part, snake
from longloop.config import nearest, override
from longloop.types import UserError

SLOTS: dict[str, type[Part]] = {slot: (*get_args(kind), kind)[0] for slot, kind in get_type_hints(Parts).items()}
"""What a part must be to fill a slot."""


class Compose(Composed):
    tasks: str = "in_order"
    """Which tasks a step takes."""
    rollouts: str = "attempts"
    """Whose attempts, and where they begin."""
    rewards: str = "rewards"
    """What turns and attempts are paid."""
    advantages: str = "leave_one_out"
    """The advantage of each turn: the slot `credit`."""
    shape: Sequence[str] = ()
    """Advantages into advantages."""
    choose: Sequence[str] = ("drop_small",)
    """The weights of tokens, and what is left out."""
    objective: str = "clipped"
    """The loss of a token."""
    hold: Sequence[str] = ()
    """Terms added to the loss."""

    def compose(self) -> Parts:
        made: dict[str, Any] = {}
        for slot in SLOTS:
            text = getattr(self, "advantages" if slot == "credit" else slot)
            made[slot] = made_of(slot, text) if isinstance(text, str) else tuple(made_of(slot, one) for one in text)
        return Parts(**made)


def made_of(slot: str, text: str) -> Any:
    """The part that a text such as `anchors w=0.5` stands for."""
    name, *settings = text.split()
    where = "algo." + ("advantages" if slot == "credit" else slot)
    known = {snake(kind.__name__): kind for kind in kinds(slot)}
    if name not in known:
        raise UserError(
            f"{where}: there is no part {name!r}.{nearest(name, known)} The parts are {', '.join(sorted(known))}."
        )
    kind = known[name]
    options = {one.name for one in fields(kind)}
    given: dict[str, Any] = {}
    for setting in settings:
        key, equals, _ = setting.partition("=")
        if not equals or key not in options:
            raise UserError(
                f"{where}: {setting!r} is no setting of {name!r}. Its settings are "
                f"{', '.join(sorted(options)) or 'none'}; write them as key=value."
            )
        override(given, setting)
    required = [one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING]
    missing = [name for name in required if name not in given]
    if missing:
        raise UserError(f"{where}: {name!r} needs {', '.join(missing)}; write it as {name} {missing[0]}=...")
    return kind(**given)


@cache
def kinds(slot: str) -> tuple[type[Part], ...]:
    """The parts that can fill a slot."""
    modules = [import_module(f"{package.__name__}.{module.name}") for module in iter_modules(package.__path__)]
    return tuple(
        kind
        for module in modules
        for kind in vars(module).values()
        if inspect.isclass(kind) and kind.__module__ == module.__name__
        if issubclass(kind, SLOTS[slot]) and not inspect.isabstract(kind)
    )
