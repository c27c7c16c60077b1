"""Imports go one way, and the light parts stay light."""

import ast
import subprocess
import sys
from pathlib import Path

import longloop

PACKAGE = Path(longloop.__file__).parent

# What each part may import, lowest first. A part may also import from itself.
ALLOWED = {
    "types": set(),
    "stats": set(),
    "options": {"types"},
    "protocols": {"types"},
    "registry": set(),
    "cache": set(),
    "config": {"types", "options", "registry"},
    "tokens": {"types"},
    "store": {"types", "config"},
    "model": {"types", "config", "cache"},
    "envs": {"types"},
    "algos": {"types", "protocols"},
    "engines": {"types", "protocols", "tokens", "model"},
    "isolation": {"types", "cache", "envs"},
    "learners": {"types", "protocols", "config", "algos", "model"},
    "memory": {"types", "protocols", "config", "algos", "model", "learners"},
    "rollout": {"types", "protocols", "config", "tokens", "envs", "isolation"},
    "evaluation": {"types", "protocols", "stats", "store"},
    "training": {"types", "protocols", "config", "algos", "learners", "store", "evaluation"},
    "diagnose": {
        *("types", "protocols", "config", "envs", "isolation", "algos", "engines", "learners", "memory", "rollout"),
        "training",
    },
    "build": {
        *("types", "options", "protocols", "registry", "config", "envs", "isolation", "tokens", "store", "model"),
        *("algos", "engines", "learners", "memory", "rollout", "evaluation", "training", "diagnose"),
    },
    "compare": {"types", "options", "registry", "config", "stats", "algos", "store", "build"},
    "analysis": {"types", "registry", "stats", "envs", "store"},
    "viewer": {"types", "config", "stats", "store", "model", "analysis"},
    "cli": {
        *("types", "options", "config", "registry", "envs", "algos", "stats", "store", "analysis", "build", "compare"),
        *("viewer", "diagnose"),
    },
}


def imports(path: Path) -> set[str]:
    """The parts of longloop that a file imports, wherever in the file it does."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "longloop":
            names = node.module.split(".")[1:2] or [alias.name for alias in node.names]
            found.update(names)
        elif isinstance(node, ast.Import):
            found.update(a.name.split(".")[1] for a in node.names if a.name.startswith("longloop."))
    return found - {"__version__"}


def test_imports_go_one_way():
    files = [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"]
    assert len(files) > 40
    for path in files:
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        wrong = imports(path) - ALLOWED[part] - {part}
        assert not wrong, f"{path.relative_to(PACKAGE)} must not import {sorted(wrong)}"


def test_the_order_has_no_cycle():
    seen: set[str] = set()
    for part, below in ALLOWED.items():
        assert below <= seen, f"{part} may import {below - seen}, which stands above it"
        seen.add(part)


def test_folders_are_two_levels_deep():
    """A big environment may be a folder, with folders for what it has many of."""
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).parts
        assert len(parts) <= (4 if parts[0] == "envs" else 2), path


def test_workers_need_no_other_package():
    """They are started in virtualenvs that have an environment's packages and nothing of longloop's."""
    code = (
        "import sys\n"
        "for name in ('numpy', 'pydantic', 'torch', 'rich', 'psutil', 'scipy'): sys.modules[name] = None\n"
        "import longloop.isolation.worker, longloop.envs.scienceworld, longloop.envs.textworld_express, "
        "longloop.envs.appworld, longloop.envs.alfworld.env"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_light_parts_do_not_load_torch():
    """envs, store and the listing commands answer at once because they never load torch or transformers."""
    code = (
        "import sys, longloop.cli.main, longloop.cli.listing, longloop.envs.guess, longloop.envs.crossroads, "
        "longloop.envs.contract, longloop.store.run, longloop.protocols, longloop.config, longloop.build, "
        "longloop.viewer.pages, longloop.viewer.server, longloop.viewer.html_export, longloop.viewer.terminal\n"
        "print([m for m in ('torch', 'transformers', 'peft') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
