"""Errands, a benchmark for agents: a stateful world of everyday apps, made from a seed. README.md is its guide.

    from errands import Errands

`Errands` is imported when it is first used, so `import errands` is quick and starts no sandbox.
"""

from typing import TYPE_CHECKING, Any

from errands.version import __version__ as __version__

if TYPE_CHECKING:
    from errands.env import Errands

__all__ = ["Errands"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'errands' has no attribute {name!r}")
    from errands.env import Errands

    globals()[name] = Errands
    return Errands


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
