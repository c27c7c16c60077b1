"""Python's own parser, for many threads.

Before Python 3.13, threads that build syntax trees at the same time count the depth of each other's recursion, and one
of them fails with "AST constructor recursion depth mismatch" (python/cpython#106905). So all of Errands parses here,
one at a time.
"""

import ast
import threading
from typing import Any

_ONE_AT_A_TIME = threading.Lock()


def parse(code: str) -> ast.Module:
    """Code as a syntax tree."""
    with _ONE_AT_A_TIME:
        return ast.parse(code)


def literal(code: str) -> Any:
    """The value of a literal."""
    with _ONE_AT_A_TIME:
        return ast.literal_eval(code)
