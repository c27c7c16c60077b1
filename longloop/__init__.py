"""longloop: train an LLM agent by reinforcement learning inside the environment it will work in.

    import longloop

    run = longloop.train("guess", {"steps": 20})
    print(longloop.evaluate(run, split="test").success)

The names in `__all__` are the public interface; docs/guides/python.md is its guide. Each is imported when first used,
so `import longloop` is quick and loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from longloop.version import __version__ as __version__

if TYPE_CHECKING:
    from longloop.algos.base import Algorithm
    from longloop.api import evaluate, load_run, train
    from longloop.config import Config
    from longloop.envs.base import Environment, Player
    from longloop.envs.judge import Attempt
    from longloop.evaluation import Evaluation
    from longloop.types import Call, Message, Outcome, Step, Task, UserError

__all__ = [
    "Algorithm",
    "Attempt",
    "Call",
    "Config",
    "Environment",
    "Evaluation",
    "Message",
    "Outcome",
    "Player",
    "Step",
    "Task",
    "UserError",
    "evaluate",
    "load_run",
    "train",
]

_HOMES = {
    "Algorithm": "longloop.algos.base",
    "Attempt": "longloop.envs.judge",
    "Config": "longloop.config",
    "Environment": "longloop.envs.base",
    "Evaluation": "longloop.evaluation",
    "Player": "longloop.envs.base",
    **dict.fromkeys(("Call", "Message", "Outcome", "Step", "Task", "UserError"), "longloop.types"),
    **dict.fromkeys(("evaluate", "load_run", "train"), "longloop.api"),
}
"""The module that each public name is imported from. No module may have the name of a public function: importing it
would put the module in the function's place."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'longloop' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
