"""Experts written as Python: each comment is a thought, and the lines below it are the code of that turn.

    def solve(self, title: str, minutes: int) -> None:
        # I look for '{title}' in the calendar.
        found = shown(apis.calendar.search(query=title))
        # There is one; I add the reminder.
        print(apis.calendar.add_reminder(event_id=found[0]["id"], minutes_before=minutes))
        # The reminder is set.

The function is never called. The agent's session has `apis`, and what one turn assigns, the next can use. The
parameters are slots of the task: their values replace their names, in the code and (in braces) in the thoughts. A slot
that is annotated as float is a number in the code, however the instruction writes it. With a thought that has no code,
the last, the expert completes the task; where there is an answer to give, it is written out.

The first turn that calls an app begins by logging in to it, and each call is given the app's access token. `log_in`,
`every` and `shown` are written out as what they stand for.
"""

import ast
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, TypeVar

from errands.apps import BY_NAME
from errands.syntax import parse

T = TypeVar("T")

Edit = tuple[int, int, str]
"""Bytes of the source from a start to an end, and what replaces them."""

_CALLED = re.compile(r"\bapis\.([a-z]+\.[a-z_]+)\(")
_LOGGED_IN = re.compile(r"\bapis\.([a-z]+)\.login\(")
_EXPLAINED = "owner.complete_task"
"""What the system prompt explains, besides logging in."""
_COMPLETES = f"apis.{_EXPLAINED}()"

apis: Any = None
"""In an expert: the apps, as the agent has them."""


def log_in(*apps: str) -> Any:
    """In an expert: log in to apps before they are called. A variable named after each gets its access token."""
    raise TypeError("log_in() is read from the source of an expert, never called")


def every(listing: T) -> T:
    """In an expert: `rows = every(apis.mail.search())`. The rows of all pages of a listing."""
    raise TypeError("every() is read from the source of an expert, never called")


def shown(value: T) -> T:
    """In an expert: `found = shown(apis.mail.search())`. A value that is also printed."""
    raise TypeError("shown() is read from the source of an expert, never called")


def apis_called(solve: Callable[..., None]) -> tuple[str, ...]:
    """The APIs that an expert calls, each where it is called first, without those that the system prompt explains."""
    return tuple(dict.fromkeys(api for api in _CALLED.findall(inspect.getsource(solve)) if api != _EXPLAINED))


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
    entered = {app.name for app in BY_NAME.values() if not app.login}
    for thought, lines in turns:
        text = "\n".join(lines).strip("\n") or _COMPLETES
        entered.update(_LOGGED_IN.findall(text))
        called = dict.fromkeys(api.partition(".")[0] for api in _CALLED.findall(text))
        new = [app for app in called if app not in entered]
        entered.update(new)
        yield thought, "\n".join([*map(_log_in, new), text])


@functools.cache
def _source(solve: Callable[..., None]) -> str:
    """The function from its `def` on, its signature on one line, with access tokens in its calls."""
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
    signature = f"def {function.name}({', '.join(argument.arg for argument in function.args.args)}):"
    code = "\n".join([signature, *lines[first:], ""])
    return _edited(code, _add_tokens(code, parse(code)))


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


def _add_tokens(source: str, tree: ast.AST) -> Iterator[Edit]:
    """Give the calls of apps their access tokens."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(value=ast.Name("apis"), attr=app))):
                if BY_NAME[app].login and not any(given.arg == "access_token" for given in node.keywords):
                    _, end, _ = _edit(source, node, "")
                    comma = ", " if node.keywords else ""
                    yield end - 1, end - 1, f"{comma}access_token={app}"


def _write_out(source: str, tree: ast.AST) -> Iterator[Edit]:
    """Replace log_in(), and what is assigned from every() and shown()."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(ast.Call(ast.Name("log_in"), apps)) | ast.Assign(_, ast.Call(ast.Name("log_in"), apps)):
                lines = [_log_in(ast.literal_eval(app)) for app in apps]
            case ast.Assign([ast.Name(rows)], ast.Call(ast.Name("every"), [call])):
                lines = _every(rows, ast.get_source_segment(source, call) or "")
            case ast.Assign([ast.Name(name)], ast.Call(ast.Name("shown"), [value])):
                lines = [f"{name} = {ast.get_source_segment(source, value)}", f"print({name})"]
            case _:
                continue
        assert isinstance(node, ast.stmt)
        yield _edit(source, node, ("\n" + " " * node.col_offset).join(lines))


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
