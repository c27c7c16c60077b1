"""The policy: loading, adapters, attention, compiled passes, checkpoints. Engines and learners both build on it.

Private interfaces of torch and PEFT stay in here (and those that count memory in `memory/`); each docstring names its
own.
"""

from importlib.util import find_spec
from pathlib import Path

from longloop.types import UserError

SHIPPED = {"novice": "errands"}
"""Models that come with longloop, and the package whose folder has them (docs/environments/novice.md)."""


def shipped(name: str) -> Path:
    """The folder of a model that comes with longloop."""
    spec = find_spec(SHIPPED[name])
    if spec is None or spec.origin is None:
        raise UserError(f"The model {name!r} comes with the package {SHIPPED[name]!r}, which is not installed.")
    return Path(spec.origin).parent / name
