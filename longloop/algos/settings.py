"""Classes whose fields are settings."""

from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field
from typing import ClassVar, dataclass_transform


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Settings:
    """Every subclass is a frozen dataclass, without the decorator as well as with it."""

    by_name: ClassVar[bool] = False
    """Whether settings are given by name alone."""

    def __init_subclass__(cls) -> None:
        own = dict(vars(cls))
        dataclass(frozen=True, kw_only=cls.by_name)(cls)
        # A class that has setters of its own, or lacks a field(...) that it had, could not be decorated once more.
        # The setters below hold for every subclass.
        for name in ("__setattr__", "__delattr__"):
            delattr(cls, name)
        for name, value in own.items():
            if isinstance(value, Field) and value.default is MISSING:
                setattr(cls, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")
