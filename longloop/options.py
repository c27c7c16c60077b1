"""The options of a class that a config names as `module:Class`: type, default and meaning of each.

Those of an algorithm or an engine are its fields, or the parameters of its constructor; those of an environment are the
fields of its `Options`. Source files are read, not imported, so commands that only list things answer at once.
"""

import ast
import contextlib
import importlib.machinery
import importlib.util
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from longloop.types import UserError

_NAMED = re.compile(r"^\s*`?(\w+)`?: +(\S.*)$")
"""The line of a docstring that begins to explain an option, as `name: meaning`."""


@dataclass(frozen=True)
class Option:
    """One option, as its source has it."""

    type: str
    default: str
    """Empty if the option is required."""
    meaning: str = ""


def find_user_modules() -> None:
    """Make modules in the folder where the command is run importable."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def document(where: str) -> str:
    """Return the docstring of a class's module, or of the class if its module has none."""
    where = _defined(where)
    return ast.get_docstring(_module(where)) or ast.get_docstring(_class(where)) or ""


def about(where: str) -> str:
    """Return the docstring of the class itself."""
    return ast.get_docstring(_class(_defined(where))) or ""


def options_of(where: str) -> dict[str, Option]:
    """Return the options of an algorithm's or an engine's class by name, inherited ones first."""
    where = _defined(where)
    if _is_dataclass(where):
        return _fields(where)
    for home in (where, *_ancestors(where)):
        for node in _class(home).body:
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                meanings = _meanings(about(home)) | _meanings(ast.get_docstring(node) or "")
                found = _parameters(home, node.args)
                return {name: replace(option, meaning=meanings.get(name, "")) for name, option in found}
    return {}


def environment_options(where: str) -> dict[str, Option]:
    """Return the options of an environment's class by name: the fields of its `Options`, own or inherited."""
    where = _defined(where)
    for home in (where, *_ancestors(where)):
        if any(isinstance(node, ast.ClassDef) and node.name == "Options" for node in _class(home).body):
            return _fields(f"{home}.Options")
    return {}


def _fields(where: str) -> dict[str, Option]:
    """Return a dataclass's fields. One that only gets another default keeps the meaning of the inherited one."""
    found: dict[str, Option] = {}
    for base in _bases(where):
        found |= _fields(base)
    body = _class(where).body
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and "ClassVar" not in ast.unparse(node.annotation):
            name = ast.unparse(node.target)
            default = _default(node.value) if node.value is not None else ""
            inherited = found[name].meaning if name in found else ""
            found[name] = Option(_type(where, node.annotation), default, _string(following) or inherited)
    return found


def _default(value: ast.expr) -> str:
    """Return a field's default as text; of a `field(...)`, what it makes."""
    if not (isinstance(value, ast.Call) and ast.unparse(value.func) == "field"):
        return ast.unparse(value)
    given = {word.arg: ast.unparse(word.value) for word in value.keywords}
    made = given.get("default_factory", "")
    if made.startswith("lambda: "):
        return made.removeprefix("lambda: ")
    return given.get("default") or {"list": "[]", "dict": "{}", "": ""}.get(made, f"{made}()")


def _parameters(where: str, arguments: ast.arguments) -> Iterator[tuple[str, Option]]:
    plain = [*arguments.posonlyargs, *arguments.args][1:]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    for argument, default in (*zip(plain, defaults, strict=True), *named):
        text = ast.unparse(default) if default is not None else ""
        yield argument.arg, Option(_type(where, argument.annotation), text)


def _type(where: str, annotation: ast.expr | None) -> str:
    """Return an annotation as text, with the name of a type alias replaced by what it stands for."""
    if not isinstance(annotation, ast.Name):
        return ast.unparse(annotation) if annotation is not None else ""
    for node in _module(where).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == annotation.id:
            return ast.unparse(node.value)
    home = _homes(where).get(annotation.id, "")
    return _type(home, annotation) if home and home.partition(":")[0] != where.partition(":")[0] else annotation.id


def _meanings(docstring: str) -> dict[str, str]:
    """Return the options that a docstring explains, each as `name: meaning`, in one line or with more that are indented
    further."""
    meanings: dict[str, str] = {}
    name, indent = "", 0
    for line in docstring.splitlines():
        further = len(line) - len(line.lstrip()) > indent
        if name and further:
            meanings[name] += f" {line.strip()}"
        elif found := _NAMED.match(line):
            name, indent = found[1], len(line) - len(line.lstrip())
            meanings[name] = found[2]
        else:
            name = ""
    return meanings


def _is_dataclass(where: str) -> bool:
    decorators = (ast.unparse(node) for node in _class(where).decorator_list)
    return any("dataclass" in text for text in decorators) or any(map(_is_dataclass, _bases(where)))


def _ancestors(where: str) -> Iterator[str]:
    for base in _bases(where):
        yield base
        yield from _ancestors(base)


def _bases(where: str) -> list[str]:
    """Return the base classes whose source can be found, as `module:Class`."""
    homes, found = _homes(where), []
    for base in _class(where).bases:
        outer, dot, inner = ast.unparse(base).partition(".")  # a nested class, or a module's
        with contextlib.suppress(UserError):
            found += [_defined(homes[outer]) + dot + inner] if outer in homes else []
    return found


def _homes(where: str) -> dict[str, str]:
    """Return where each class that a module defines or imports comes from, as `module:Class`, without Python's own."""
    module = where.partition(":")[0]
    found: dict[str, str] = {}
    top = _module(where).body
    conditional = [node for block in top if isinstance(block, ast.If) for node in block.body]
    for node in (*top, *conditional):
        if isinstance(node, ast.ClassDef):
            found[node.name] = f"{module}:{node.name}"
        elif isinstance(node, ast.ImportFrom):
            package = module if _spec(module).submodule_search_locations else module.rpartition(".")[0]
            home = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            if home.partition(".")[0] not in sys.stdlib_module_names:
                found |= {alias.asname or alias.name: f"{home}:{alias.name}" for alias in node.names}
    return found


def _defined(where: str) -> str:
    """Return where a class is defined, as `module:Class`, if the module only imports it."""
    module, _, name = where.partition(":")
    home = _homes(where).get(name)
    if home is None:
        raise UserError(f"{where!r}: {module} has no class {name!r}.")
    return where if home == where else _defined(home)


def _class(where: str) -> ast.ClassDef:
    body: list[ast.stmt] = _module(where).body
    for name in where.partition(":")[2].split("."):
        found = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == name)
        body = found.body
    return found


def _module(where: str) -> ast.Module:
    origin = _spec(where.partition(":")[0]).origin
    try:
        return _parsed(Path(origin or "").read_text())
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise UserError(f"{where!r}: its source cannot be read ({error}).") from error


@cache
def _parsed(source: str) -> ast.Module:
    """Return the syntax tree, which nobody changes. To list a class's options, its module is asked for many times."""
    return ast.parse(source)


def _spec(module: str) -> importlib.machinery.ModuleSpec:
    find_user_modules()
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise UserError(f"There is no module {module!r} to import, neither installed nor in this folder.")
    return spec


def _string(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split())
    return ""
