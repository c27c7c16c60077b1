"""As in a notebook: when code ends with an expression, its value is shown.

The code is rewritten so that the sandbox itself prints the value, within its limits; `_` holds it afterwards.
"""

import ast
import re

_SHOW = "\nif _ is not None:\n    print(repr(_))"
_ASSIGNED = re.compile(r"^( +)_ = (.*\n)(?:( +)    ([~^]+ *\n))?", re.MULTILINE)


def showing(code: str, tree: ast.Module | None) -> tuple[str, bool]:
    """Code that shows the value of the expression it ends with, and whether it had to be changed for that. `tree` is
    the code parsed, if it can be."""
    last = tree.body[-1] if tree is not None and tree.body else None
    if not isinstance(last, ast.Expr) or _prints(last.value):
        return code, False
    lines = code.encode().splitlines(keepends=True)
    start = sum(len(line) for line in lines[: last.lineno - 1]) + last.col_offset
    changed = code.encode()[:start] + b"_ = " + code.encode()[start:]
    return changed.decode() + _SHOW, True


def as_written(traceback: str) -> str:
    """The traceback of code that was changed, with its lines as they were."""
    return _ASSIGNED.sub(r"\1\2\3\4", traceback)


def _prints(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "print"
