"""Tells code that cannot make a value whose conversion is dangerous from code that might.

pydantic-monty converts arguments as a whole before anyone can look at them. Conversion hashes the keys of dictionaries
and the members of sets, and Python hashes a tuple of shared tuples as if it were written out: after `x = (x, x)`, forty
times over, hashing x takes for ever. Code that makes no sets, and no dictionaries but with keys that are written out or
come from an API, cannot make such a value; nor do sets that go no further than the function or the loop they are made
for, as in `sorted({c["city"] for c in found})`. Most code is like that; what other code passes on is read in another
process (reader.py).
"""

import ast
import builtins
from collections.abc import Collection
from typing import Any

from errands.syntax import parse

LONGEST = 4000
"""Characters of code that are parsed. Longer code may be nested more deeply than the parser bears."""
_PLAIN = (
    *(ast.Module, ast.Expr, ast.Assign, ast.AugAssign, ast.NamedExpr, ast.For, ast.While, ast.If, ast.Break),
    *(ast.Continue, ast.Pass, ast.Try, ast.Raise, ast.Assert, ast.Return),
    *(ast.Lambda, ast.arguments, ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop),
    *(ast.comprehension, ast.keyword, ast.Slice, ast.Constant, ast.JoinedStr, ast.FormattedValue, ast.List, ast.Tuple),
    *(ast.ListComp, ast.GeneratorExp, ast.Starred, ast.Call, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare),
    ast.IfExp,
)
_HARMLESS = {type(None), *(kind for plain in _PLAIN for kind in (plain, *plain.__subclasses__()))}
"""Kinds of nodes that need no closer look."""
_NO_PARTS = {
    *("id", "attr", "arg", "name", "names", "module", "level", "kind", "conversion", "simple", "is_async"),
    *("type_comment", "type_ignores", "ctx", "op", "ops"),
}
"""Fields without nodes, or with none but harmless ones."""
_PARTS: dict[type, list[str]] = {
    kind: [name for name in kind._fields if name not in _NO_PARTS]
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
} | {ast.Constant: [], type(None): []}
_FUNCTIONS = {
    *("print", "len", "sorted", "sum", "min", "max", "str", "int", "float", "bool", "round", "range", "any", "all"),
    *("abs", "list", "tuple", "repr", "isinstance", "enumerate", "zip", "reversed", "divmod", "bin", "chr", "ord"),
    "id",
    *(name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, Exception)),
}
_OTHER_FUNCTIONS = vars(builtins).keys() - _FUNCTIONS
_TAKE_MEMBERS = {"sorted", "len", "list", "any", "all", "print", "str", "repr"}
"""Functions that give back no set that they are given. Code may not give these names to anything else."""
_ENDS_SETS: dict[type, str] = {ast.For: "iter", ast.comprehension: "iter", ast.Compare: "comparators", ast.Call: "args"}
"""Fields from which no set is passed on; those of a call, if it is one of these functions."""
_METHODS = {
    *("append", "extend", "insert", "remove", "pop", "copy", "sort", "reverse", "index", "count", "get", "values"),
    *("join", "split", "rsplit", "partition", "splitlines", "strip", "lstrip", "rstrip", "lower", "upper", "title"),
    *("capitalize", "casefold", "startswith", "endswith", "replace", "find", "format", "isdigit", "zfill"),
}
"""Not keys and items: what is left of one without another is a set."""
_OTHER_METHODS = {name for kind in (str, bytes, int, float, list, dict, set) for name in dir(kind)} - _METHODS


def tame(tree: ast.Module | None, names: Collection[str]) -> bool:
    """Whether code makes no set and no computed key. `names` are those of apps and APIs, which may be attributes."""
    if tree is None:
        return False
    left: list[ast.AST | None] = [tree]
    while left:
        node = left.pop()
        kind = type(node)
        if kind not in _HARMLESS and not _looks_tame(node, names):
            return False
        ends_here = _ENDS_SETS.get(kind)
        for name in _PARTS[kind]:
            part = getattr(node, name)
            parts = part if type(part) is list else [part]
            if name == ends_here and (kind is not ast.Call or _takes_members(node)):
                parts = [within for one in parts for within in _inside_sets(one)]
            left += parts
    return True


def _takes_members(call: Any) -> bool:
    return type(call.func) is ast.Name and call.func.id in _TAKE_MEMBERS


def _inside_sets(node: Any) -> list[ast.AST]:
    """What is left to look at of an expression whose value, if it is a set, goes no further."""
    if type(node) is ast.BinOp:
        return [*_inside_sets(node.left), *_inside_sets(node.right)]
    if type(node) is ast.Set:
        return list(node.elts)
    if type(node) is ast.SetComp:
        return [node.elt, *node.generators]
    if type(node) is ast.Call and type(node.func) is ast.Name and node.func.id == "set" and not node.keywords:
        return list(node.args)
    return [node]


def parsed(code: str) -> ast.Module | None:
    """Code as a tree; None if it is too long, or no Python."""
    if len(code) > LONGEST:
        return None
    try:
        return parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _looks_tame(node: ast.AST | None, names: Collection[str]) -> bool:
    """A closer look at a node of a kind that may be harmful."""
    if isinstance(node, ast.Name):
        return node.id not in _OTHER_FUNCTIONS and (type(node.ctx) is ast.Load or node.id not in _TAKE_MEMBERS)
    if isinstance(node, ast.Attribute):
        name, of = node.attr, node.value
        if type(of) is ast.Attribute and type(of.value) is ast.Name and of.value.id == "apis":
            tame_name = of.attr in names and name in names
        else:
            tame_name = name in _METHODS or (name in names and name not in _OTHER_METHODS)
        return tame_name and type(node.ctx) is ast.Load
    if isinstance(node, ast.Subscript):
        return type(node.ctx) is ast.Load or _written(node.slice)
    if isinstance(node, ast.Dict):
        return all(key is None or _written(key) for key in node.keys)
    if isinstance(node, ast.arg):
        return node.arg not in _TAKE_MEMBERS
    if isinstance(node, ast.FunctionDef) and node.decorator_list:
        return False
    return isinstance(node, ast.FunctionDef | ast.ExceptHandler) and node.name not in _TAKE_MEMBERS


def _written(key: ast.expr) -> bool:
    return isinstance(key, ast.Constant) and isinstance(key.value, str)
