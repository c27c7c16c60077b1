"""Locates where the user's own code failed or still runs: file, line and function, leaving out other frames."""

import linecache
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

_PACKAGE = Path(__file__).parents[1]
_STDLIB = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))
_CODE = 60
"""Characters of a line of code that are shown."""


def raised_at(error: BaseException, env: Any = None, *, code: bool = False) -> str:
    """Return the innermost of the user's lines that an error passed through, as `sql_env.py:12, in step`; empty if
    there is none. `code` adds the line itself."""
    return _at(reversed(list(traceback.walk_tb(error.__traceback__))), env, code)


def running_at(frame: FrameType | None, env: Any = None) -> str:
    """Return the same, with the line itself, for code that is running."""
    return _at(traceback.walk_stack(frame), env, code=True) if frame is not None else ""


def _at(frames: Iterable[tuple[FrameType, int]], env: Any, code: bool) -> str:
    own = _file_of(env if isinstance(env, type) else type(env))
    for frame, line in frames:
        file = frame.f_code.co_filename
        if file == own or _is_users(file):
            text = linecache.getline(file, line).strip()[:_CODE] if code else ""
            return f"{_short(file)}:{line}, in {frame.f_code.co_name}" + (f": `{text}`" if text else "")
    return ""


def _file_of(environment: type) -> str | None:
    """Return the file of an environment's class; None for our proxies of one."""
    module = environment.__module__
    if module.startswith("longloop.") and (module == "longloop.isolation.proxy" or ".envs." not in module):
        return None
    return getattr(sys.modules.get(module), "__file__", None)


def _is_users(file: str) -> bool:
    path = Path(file)
    if file.startswith("<") or {"site-packages", "dist-packages"} & set(path.parts):
        return False
    return not any(path.is_relative_to(root) for root in (*_STDLIB, _PACKAGE))


def _short(file: str) -> str:
    """Return a path relative to the current folder, if it lies below."""
    relative = os.path.relpath(file)
    return file if relative.startswith("..") else relative
