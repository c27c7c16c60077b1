"""As in a notebook: when code ends with an expression, its value is shown.

The code is rewritten so that the sandbox itself prints the value, within its limits; `_` holds it afterwards.
"""

import ast
import re

_KEEP, _SHOW = "_ = ", "\nif _ is not None:\n    print(repr(_))"


def showing(code: str, tree: ast.Module | None) -> tuple[str, int | None]:
    """Code that shows the value of the expression it ends with, and where that begins if it had to be changed for that.
    `tree` is the code parsed, if it can be."""
    last = tree.body[-1] if tree is not None and tree.body else None
    if not isinstance(last, ast.Expr) or _prints(last.value):
        return code, None
    lines = code.encode().splitlines(keepends=True)
    before = b"".join([*lines[: last.lineno - 1], lines[last.lineno - 1][: last.col_offset]]).decode()
    return before + _KEEP + code[len(before) :] + _SHOW, len(before)


def as_written(traceback: str, code: str, start: int) -> str:
    """The traceback of code that was changed at `start`, with that line as it was, and what marks a part of it under
    the same characters."""
    left = code[:start].rpartition("\n")[2]
    line = left + code[start:].partition("\n")[0]
    before = left.lstrip()

    def mended(found: re.Match[str]) -> str:
        indent, marks = found[1], found[2] or ""
        moved = len(marks) - len(marks.lstrip()) >= len(indent) + len(before) + len(_KEEP)
        return f"{indent}{line.strip()}\n{marks[len(_KEEP) * moved :]}"

    shown = re.escape(f"{before}{_KEEP}{line[len(left) :].rstrip()}")
    return re.sub(rf"^( +){shown}\n( *[~^]+ *\n)?", mended, traceback, flags=re.MULTILINE)


def _prints(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "print"
