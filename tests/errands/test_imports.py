"""Errands' modules import each other one way, and of longloop only what is public."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import errands

ROOT = Path(errands.__file__).parent
PUBLIC = ("longloop", "longloop.types", "longloop.envs.play", "longloop.envs.react")


def name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name(path): ast.parse(path.read_text()) for path in ROOT.rglob("*.py")}


def imported(tree: ast.AST) -> set[str]:
    """What a module imports, anywhere in it; the modules that are named after `from`, if they are some."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{one.name}" for one in node.names}
            found |= (inner & MODULES.keys()) | ({node.module} if inner - MODULES.keys() else set())
    return found


def test_there_is_no_import_circle() -> None:
    graph = {module: (imported(tree) & MODULES.keys()) - {module} for module, tree in MODULES.items()}
    assert len(graph) > 40 and graph["errands.env"] >= {"errands.judge", "errands.session"}
    TopologicalSorter(graph).prepare()  # a CycleError would name the circle


def test_only_public_modules_of_longloop_are_imported() -> None:
    used = {one for tree in MODULES.values() for one in imported(tree) if one.split(".")[0] == "longloop"}
    assert used and used <= {*PUBLIC}
