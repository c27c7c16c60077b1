"""Tells code that cannot make a value whose conversion is dangerous from code that might.

pydantic-monty converts arguments as a whole before anyone can look at them. Conversion hashes the keys of dictionaries
and the members of sets, and Python hashes a tuple of shared tuples as if it were written out: after `x = (x, x)`, forty
times over, hashing x takes for ever. Code that makes no sets, and no dictionaries but with keys that are written out or
come from an API, cannot make such a value. Most code is like that; what other code passes on is read in another process
(reader.py).
"""

import ast
import builtins
from collections.abc import Collection, Iterator

from errands.syntax import parse

_LONGEST = 4000
"""Characters of code that are parsed. Longer code may be nested more deeply than the parser bears."""
_PLAIN = (
    *(ast.Module, ast.Expr, ast.Assign, ast.AugAssign, ast.NamedExpr, ast.For, ast.While, ast.If, ast.Break),
    *(ast.Continue, ast.Pass, ast.Try, ast.ExceptHandler, ast.Raise, ast.Assert, ast.Return),
    *(ast.Lambda, ast.arguments, ast.arg, ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop),
    *(ast.comprehension, ast.keyword, ast.Slice, ast.Constant, ast.JoinedStr, ast.FormattedValue, ast.List, ast.Tuple),
    *(ast.ListComp, ast.GeneratorExp, ast.Starred, ast.Call, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare),
    ast.IfExp,
)
_HARMLESS = {kind for plain in _PLAIN for kind in (plain, *plain.__subclasses__())}
"""Kinds of nodes that need no closer look."""
_PARTS = {
    kind: [name for name in kind._fields if name not in ("ctx", "op", "ops")]
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}
_FUNCTIONS = {
    *("print", "len", "sorted", "sum", "min", "max", "str", "int", "float", "bool", "round", "range", "any", "all"),
    *("abs", "list", "tuple", "repr", "isinstance", "enumerate", "zip", "reversed", "divmod", "bin", "chr", "ord"),
    "id",
    *(name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, Exception)),
}
_OTHER_FUNCTIONS = vars(builtins).keys() - _FUNCTIONS
_METHODS = {
    *("append", "extend", "insert", "remove", "pop", "copy", "sort", "reverse", "index", "count", "get", "values"),
    *("join", "split", "rsplit", "partition", "splitlines", "strip", "lstrip", "rstrip", "lower", "upper", "title"),
    *("capitalize", "casefold", "startswith", "endswith", "replace", "find", "format", "isdigit", "zfill"),
}
"""Not keys and items: what is left of one without another is a set."""
_OTHER_METHODS = {name for kind in (str, bytes, int, float, list, dict, set) for name in dir(kind)} - _METHODS


def tame(tree: ast.Module | None, names: Collection[str]) -> bool:
    """Whether code makes no set and no computed key. `names` are those of apps and APIs, which may be attributes."""
    return tree is not None and all(type(node) in _HARMLESS or _tame(node, names) for node in _walk(tree))


def parsed(code: str) -> ast.Module | None:
    """Code as a tree; None if it is too long, or no Python."""
    if len(code) > _LONGEST:
        return None
    try:
        return parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that are harmless and have no parts."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        for name in _PARTS[type(node)]:
            part = getattr(node, name)
            if type(part) is list:
                left += [one for one in part if isinstance(one, ast.AST)]
            elif isinstance(part, ast.AST):
                left.append(part)


def _tame(node: ast.AST, names: Collection[str]) -> bool:
    match node:
        case ast.Name(name):
            return name not in _OTHER_FUNCTIONS
        case ast.Attribute(ast.Attribute(ast.Name("apis"), app), api, ast.Load()):
            return app in names and api in names
        case ast.Attribute(_, name, ast.Load()):
            return name in _METHODS or (name in names and name not in _OTHER_METHODS)
        case ast.Subscript(slice=key, ctx=context):
            return isinstance(context, ast.Load) or _written(key)
        case ast.Dict(keys):
            return all(key is None or _written(key) for key in keys)
        case ast.FunctionDef(decorator_list=decorators):
            return not decorators
    return False


def _written(key: ast.expr) -> bool:
    return isinstance(key, ast.Constant) and isinstance(key.value, str)
