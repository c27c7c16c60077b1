"""Experts written as Python: each comment is a thought, and the lines below it are the code of that turn.

    @staticmethod
    def solve(apis: Any, title: str, minutes: int) -> None:
        # I look for '{title}' in the calendar.
        calendar = log_in("calendar")
        found = apis.calendar.search(query=title, access_token=calendar)
        print(found)
        # There is one; I add the reminder.
        print(apis.calendar.add_reminder(event_id=found[0]["id"], minutes_before=minutes, access_token=calendar))
        # The reminder is set.
        apis.owner.complete_task()

The function is never called. The agent's session has `apis`, and what one turn assigns, the next can use. The other
parameters are the slots of the task: their values replace their names, in the code and (in braces) in the thoughts. A
slot that is annotated as float is a number in the code, however the instruction writes it.
`log_in` and `every` are written out as what they stand for.
"""

import ast
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from errands.syntax import parse

_CALLED = re.compile(r"\bapis\.([a-z]+\.[a-z_]+)\(")
_EXPLAINED = ("owner.complete_task",)
"""What every agent knows, and experts need not read about."""

Edit = tuple[int, int, str]
"""Bytes of the source from a start to an end, and what replaces them."""


def log_in(*apps: str) -> Any:
    """In an expert: `mail, todo = log_in("mail", "todo")`. A variable named after each app gets its access token."""
    raise TypeError("log_in() is read from the source of an expert, never called")


def every(call: Any) -> Any:
    """In an expert: `rows = every(apis.mail.search(access_token=mail))`. The rows of all pages of a listing."""
    raise TypeError("every() is read from the source of an expert, never called")


def apis_called(solve: Callable[..., None]) -> tuple[str, ...]:
    """The APIs that an expert calls, in the order of the first calls, but for those that the system prompt explains."""
    return tuple(dict.fromkeys(api for api in _CALLED.findall(inspect.getsource(solve)) if api not in _EXPLAINED))


def turns_of(solve: Callable[..., None], slots: Mapping[str, Any]) -> Generator[tuple[str, str], str, None]:
    """The thoughts and the code of an expert, for a task with these slots."""
    source = _source(solve)
    values = {
        name: float(slots[name]) if parameter.annotation is float else slots[name]
        for name, parameter in list(inspect.signature(solve).parameters.items())[1:]
    }
    filled = _edited(source, _fill(source, parse(source), values))
    code = _edited(filled, _write_out(filled, parse(filled)))
    turns: list[tuple[str, list[str]]] = []
    for line in textwrap.dedent(code.partition("\n")[2]).splitlines():
        if line.startswith("# "):
            turns.append((line[2:].format(**values), []))
        elif turns:
            turns[-1][1].append(line)
    for thought, lines in turns:
        yield thought, "\n".join(lines).strip("\n")


@functools.cache
def _source(solve: Callable[..., None]) -> str:
    """The function from its `def` on, its signature on one line."""
    source = textwrap.dedent(inspect.getsource(solve))
    (function,) = parse(source).body
    assert isinstance(function, ast.FunctionDef)
    first = function.body[0].lineno - 1
    lines = source.splitlines()
    while lines[first - 1].lstrip().startswith("#"):
        first -= 1
    names = {argument.arg for argument in function.args.args}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in names:
            raise ValueError(f"{solve.__qualname__}: {node.id} is a slot of the task; name the variable otherwise")
    return "\n".join([f"def {function.name}({', '.join(arg.arg for arg in function.args.args)}):", *lines[first:], ""])


def _fill(source: str, tree: ast.AST, values: Mapping[str, Any]) -> Iterator[Edit]:
    """Replace the names of slots by their values."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Name) and node.id in values:
            yield _edit(source, node, _literal(values[node.id]))
        elif isinstance(node, ast.JoinedStr):
            text = _filled(node, values)
            if text is not None:
                yield _edit(source, node, _literal(text))
        else:
            yield from _fill(source, node, values)


def _filled(node: ast.JoinedStr, values: Mapping[str, Any]) -> str | None:
    """The text of an f-string of slots; None if it has none."""
    text, slots, others = "", 0, 0
    for part in node.values:
        if isinstance(part, ast.Constant):
            text += str(part.value)
        elif isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name) and part.value.id in values:
            text, slots = f"{text}{values[part.value.id]}", slots + 1
        else:
            others += 1
    if slots and others:
        raise ValueError(f"{ast.unparse(node)}: an f-string has slots of the task or variables, not both; use +")
    return text if slots else None


def _write_out(source: str, tree: ast.AST) -> Iterator[Edit]:
    """Replace what is assigned from log_in() and every()."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
            continue
        called, target = node.value.func, node.targets[0]
        if not isinstance(called, ast.Name) or called.id not in ("log_in", "every"):
            continue
        indent = "\n" + " " * node.col_offset
        if called.id == "log_in":
            lines = [_log_in(ast.literal_eval(app)) for app in node.value.args]
        else:
            assert isinstance(target, ast.Name)
            listing = ast.get_source_segment(source, node.value.args[0]) or ""
            lines = _every(target.id, listing)
        yield _edit(source, node, indent.join(lines))


def login_code(*apps: str) -> str:
    """Code that logs in: the token of each app in a variable named after it."""
    return "\n".join(_log_in(app) for app in apps)


def listing_code(rows: str, listing: str) -> str:
    """Code that puts the rows of all pages of a listing into a variable."""
    return "\n".join(_every(rows, listing))


def _log_in(app: str) -> str:
    return f'{app} = apis.{app}.login(**apis.owner.show_account(app="{app}"))["access_token"]'


def _every(rows: str, listing: str) -> list[str]:
    start = listing[:-1].rstrip().rstrip(",")
    comma = "" if start.endswith("(") else ", "
    return [
        f"{rows}, page = [], 0",
        f"while part := {start}{comma}page=page, page_size=20):",
        f"    {rows} += part",
        "    page += 1",
    ]


def _literal(value: Any) -> str:
    """A value as Python, text in double quotes if it can be."""
    text = repr(value)
    return f'"{text[1:-1]}"' if isinstance(value, str) and text[0] == "'" and '"' not in text else text


def _edit(source: str, node: ast.expr | ast.stmt, text: str) -> Edit:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return _offset(source, node.lineno, node.col_offset), _offset(source, node.end_lineno, node.end_col_offset), text


def _offset(source: str, line: int, column: int) -> int:
    """Bytes before a place; lines count from 1."""
    return sum(len(part) for part in source.encode().splitlines(keepends=True)[: line - 1]) + column


def _edited(source: str, edits: Iterator[Edit]) -> str:
    text = source.encode()
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new.encode() + text[end:]
    return text.decode()
