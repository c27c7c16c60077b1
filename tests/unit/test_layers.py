"""Imports go one way, in no circle, and the light parts stay light."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import longloop

ROOT = Path(longloop.__file__).parents[1]
PACKAGE = ROOT / "longloop"

# What each part of longloop may import, lowest first. A part may also import from itself.
ALLOWED = {
    "version": set(),
    "types": set(),
    "stats": set(),
    "printable": set(),
    "options": {"types"},
    "protocols": {"types"},
    "registry": set(),
    "cache": set(),
    "config": {"types", "options", "registry"},
    "tokens": {"types"},
    "store": {"version", "types", "options", "config"},
    "model": {"types", "config", "cache"},
    "envs": {"types", "tokens", "cache"},
    "algos": {"types", "protocols", "config"},
    "engines": {"types", "protocols", "tokens", "model"},
    "isolation": {"types", "cache", "envs"},
    "gateway": {"types", "protocols", "tokens", "envs", "isolation"},
    "learners": {"types", "protocols", "config", "algos", "model", "tokens"},
    "memory": {"types", "protocols", "config", "algos", "model", "engines", "learners"},
    "rollout": {"types", "protocols", "config", "tokens", "envs", "isolation"},
    "cluster": {"types", "config", "envs", "isolation", "model", "engines", "learners", "rollout"},
    "evaluation": {"types", "protocols", "stats", "store"},
    "training": {"types", "protocols", "config", "algos", "learners", "store", "evaluation"},
    "diagnose": {
        *("types", "protocols", "config", "tokens", "envs", "isolation", "algos", "engines", "learners", "memory"),
        *("rollout", "cluster", "training"),
    },
    "build": {
        *("types", "options", "registry", "config", "envs", "isolation", "gateway", "tokens", "store", "model"),
        *("algos", "engines", "learners", "rollout", "cluster"),
    },
    "compare": {"types", "options", "registry", "config", "stats", "algos", "store", "build"},
    "analysis": {"types", "registry", "stats", "envs", "store"},
    "viewer": {"types", "printable", "config", "stats", "store", "model", "analysis"},
    "progress": {"types", "printable", "diagnose"},
    "api": {
        *("types", "config", "envs", "gateway", "store", "model", "memory", "rollout", "evaluation", "training"),
        *("diagnose", "build", "analysis", "printable", "progress", "cache"),
    },
    "cli": {
        *("version", "types", "options", "config", "registry", "envs", "isolation", "algos", "model", "stats", "store"),
        *("memory", "analysis", "build", "compare", "viewer", "diagnose", "printable", "progress", "api"),
    },
}

PUBLIC_MODULES = {"longloop.envs.calls", "longloop.envs.play", "longloop.envs.react"}
"""Helpers for environments: players without a model, their calls of tools, and agents that write code between
thoughts."""


def modules() -> dict[str, Path]:
    """Every module of longloop and of errands, by its name."""
    files = [path for name in ("longloop", "errands") for path in (ROOT / name).rglob("*.py")]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in files}


MODULES = modules()


@cache
def imported(name: str) -> tuple[tuple[str, str], ...]:
    """(module, name taken from it or "") of each import in a module's file, wherever it is, but for type checkers."""
    tree = ast.parse(MODULES[name].read_text())
    branches = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    checked = [node for branch in branches if ast.unparse(branch.test) == "TYPE_CHECKING" for node in branch.body]
    exempt = {id(inner) for node in checked for inner in ast.walk(node)}
    found: list[tuple[str, str]] = []
    for node in ast.walk(tree):
        if id(node) in exempt:
            continue
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name}: write imports in full"
            found += [(node.module or "", alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
    return tuple(found)


def graph() -> dict[str, set[str]]:
    """The modules of ours that each module imports."""
    found: dict[str, set[str]] = {}
    for name in MODULES:
        wanted = {f"{module}.{taken}" if f"{module}.{taken}" in MODULES else module for module, taken in imported(name)}
        found[name] = (wanted & MODULES.keys()) - {name}
    return found


def part(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_imports_go_one_way():
    arrows = {name: below for name, below in graph().items() if name.startswith("longloop.")}
    assert len(arrows) > 100
    for name, below in arrows.items():
        assert all(module.startswith("longloop") for module in below), f"{name} must not import errands"
        wrong = {part(module) for module in below} - ALLOWED[part(name)] - {part(name)}
        assert not wrong, f"{name} must not import {sorted(wrong)}"


def test_the_order_has_no_cycle():
    seen: set[str] = set()
    for name, below in ALLOWED.items():
        assert below <= seen, f"{name} may import {below - seen}, which stands above it"
        seen.add(name)


@pytest.mark.parametrize("package", ["longloop", "errands"])
def test_no_modules_import_each_other_in_a_circle(package):
    """Imports inside functions count: a circle that waits until a function runs is one all the same."""
    arrows = {name: below for name, below in graph().items() if name.partition(".")[0] == package}
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_errands_imports_only_what_is_public():
    for name in MODULES:
        for module, taken in imported(name) if name.partition(".")[0] == "errands" else ():
            public = module in PUBLIC_MODULES or (module == "longloop" and taken in longloop.__all__)
            assert module.partition(".")[0] != "longloop" or public, f"{name} must not import {module} ({taken})"


def test_folders_are_two_levels_deep():
    """A big environment may be a folder, with folders for what it has many of; the parts of methods have one."""
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).parts
        assert len(parts) <= {"envs": 4, "algos": 3}.get(parts[0], 2), path


def test_workers_need_no_other_package():
    """They are started in virtualenvs that have an environment's packages and nothing of longloop's."""
    code = (
        "import sys\n"
        "for name in ('numpy', 'pydantic', 'torch', 'rich', 'psutil', 'scipy'): sys.modules[name] = None\n"
        "import longloop.isolation.worker, longloop.envs.scienceworld, longloop.envs.textworld_express, "
        "longloop.envs.appworld, longloop.envs.alfworld.env, longloop.envs.reasoning_gym, longloop.envs.textarena, "
        "longloop.envs.bfcl, longloop.envs.agentdojo, longloop.envs.mcp, longloop.envs.openenv, "
        "longloop.envs.tau_bench, longloop.gateway.verifiers"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def loaded(code: str, *suspects: str) -> list[str]:
    """Which of these modules a program has loaded at its end."""
    code = f"import sys\n{code}\nprint([name for name in {suspects} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return ast.literal_eval(done.stdout.splitlines()[-1])


def test_light_parts_do_not_load_torch():
    """envs, store and the listing commands answer at once because they never load torch or transformers."""
    code = (
        "import longloop.cli.main, longloop.cli.listing, longloop.envs.guess, longloop.envs.crossroads, "
        "longloop.envs.contract, longloop.store.run, longloop.protocols, longloop.config, longloop.build, "
        "longloop.api, longloop.viewer.pages, longloop.viewer.server, longloop.viewer.html_export, "
        "longloop.viewer.terminal"
    )
    assert loaded(code, "torch", "transformers", "peft") == []


def test_importing_longloop_and_asking_for_help_load_next_to_nothing():
    """Seconds differ from machine to machine; what takes them is what is loaded."""
    heavy = ("torch", "transformers", "numpy", "scipy", "matplotlib", "pydantic")
    assert loaded("import longloop", *heavy, "rich", "typer", "asyncio", "longloop.types") == []
    ask = "from contextlib import suppress\nfrom longloop.cli.main import main\nsys.argv = ['longloop', '--help']\n"
    assert loaded(ask + "with suppress(SystemExit):\n    main()", *heavy) == []
    assert loaded("import longloop\nlongloop.Task, longloop.UserError, longloop.Player", "torch", "rich") == []


def test_public_names_are_there_and_no_module_takes_their_place():
    for name in longloop.__all__:
        assert getattr(longloop, name) is not None and name in dir(longloop)
        assert f"longloop.{name}" not in MODULES, f"importing longloop/{name}.py would put it in the place of the name"
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        longloop.trian  # noqa: B018
