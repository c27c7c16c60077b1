"""Compose: a method put together in the config, from the parts of all the others.

    [algo]
    name = "compose"
    advantages = "anchors w=0.5"
    shape = ["empg"]
    objective = "clipped low=0.8 high=1.28"
    hold = ["kl coefficient=0.01"]

A part is written as its name and its settings; what is left out is LOOP's. A name that does not exist is answered with
those that do.

Differs from the paper: there is none. Two parts that both scale advantages by entropy are refused.
"""

import inspect
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from longloop.algos import parts as package
from longloop.algos.composed import Composed, Parts
from longloop.algos.parts.choose import Choose
from longloop.algos.parts.credit import Credit
from longloop.algos.parts.hold import Hold
from longloop.algos.parts.objective import Objective
from longloop.algos.parts.part import Part, snake
from longloop.algos.parts.rewards import Rewards
from longloop.algos.parts.rollouts import Attempts
from longloop.algos.parts.shape import Shape
from longloop.algos.parts.tasks import InOrder
from longloop.config import nearest, override
from longloop.types import UserError

SLOTS: dict[str, type[Part]] = {
    "tasks": InOrder,
    "rollouts": Attempts,
    "rewards": Rewards,
    "credit": Credit,
    "shape": Shape,
    "choose": Choose,
    "objective": Objective,
    "hold": Hold,
}


@dataclass(frozen=True, kw_only=True)
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

    @property
    def parts(self) -> Parts:
        written = {slot: getattr(self, "advantages" if slot == "credit" else slot) for slot in SLOTS}
        made: dict[str, Any] = {
            slot: made_of(slot, text) if isinstance(text, str) else tuple(made_of(slot, one) for one in text)
            for slot, text in written.items()
        }
        return Parts(**made)


def made_of(slot: str, text: str) -> Any:
    """The part that a text such as `anchors w=0.5` stands for."""
    name, *settings = text.split()
    known = {snake(kind.__name__): kind for kind in kinds(slot)}
    if name not in known:
        raise UserError(
            f"algo.{slot}: there is no part {name!r}.{nearest(name, known)} The parts are {', '.join(sorted(known))}."
        )
    kind = known[name]
    options = {field.name for field in fields(kind)}
    given: dict[str, Any] = {}
    for setting in settings:
        key, equals, _ = setting.partition("=")
        if not equals or key not in options:
            raise UserError(
                f"algo.{slot}: {setting!r} is no setting of {name!r}. Its settings are "
                f"{', '.join(sorted(options)) or 'none'}; write them as key=value."
            )
        override(given, setting)
    missing = [field.name for field in fields(kind) if _required(field) and field.name not in given]
    if missing:
        raise UserError(f"algo.{slot}: {name!r} needs {', '.join(missing)}; write it as {name} {missing[0]}=...")
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


def _required(field: Any) -> bool:
    return field.default is MISSING and field.default_factory is MISSING
