"""The virtualenvs of environments, in the user's cache.

An environment's class declares what it needs in `requires`, `prepare` and `system` (envs/base.py). A virtualenv cannot
be moved, so it is built in its final folder. The last file written there says what it was built from; without that
file, or if the class has changed since, the virtualenv is built anew.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from longloop.cache import cache_dir
from longloop.envs.base import Environment
from longloop.types import UserError

_BUILT = "longloop.json"
_PROGRAMS = {"java": "a Java runtime (Debian and Ubuntu: `sudo apt install default-jre-headless`)"}


def folder_of(name: str) -> Path:
    """Return the folder of an environment's virtualenv, whether or not it exists."""
    return cache_dir() / "envs" / name.replace(":", ".")


def python(name: str, environment: type[Environment]) -> str:
    """Return the Python of an environment's virtualenv, or raise a UserError if it is missing or out of date."""
    folder = folder_of(name)
    if not folder.is_dir():
        raise UserError(
            f"{name} runs in a virtualenv of its own, which is not on this machine yet. "
            f"`longloop envs install {name}` builds it."
        )
    if _read(folder) != _recipe(environment):
        raise UserError(
            f"The virtualenv of {name}, {folder}, is half built or was built for other versions. "
            f"`longloop envs install {name}` builds it again."
        )
    return str(folder / "bin" / "python")


def check_programs(name: str, environment: type[Environment]) -> None:
    """Raise a UserError if a program that the environment needs is not on the PATH."""
    for program in environment.system:
        if shutil.which(program) is None:
            raise UserError(
                f"{name} needs {_PROGRAMS.get(program, program)}, and there is no `{program}` on your PATH. "
                "Install it and try again."
            )


def install(name: str, environment: type[Environment], tell: Callable[[str], None]) -> Path:
    """Build an environment's virtualenv, unless it is up to date, and check that its programs are there."""
    folder, recipe = folder_of(name), _recipe(environment)
    if _read(folder) != recipe:
        requires, prepare = recipe["requires"], recipe["prepare"]
        shutil.rmtree(folder, ignore_errors=True)
        tell(f"Building {folder}" + (f" with {', '.join(requires)}." if requires else "."))
        bare = [] if requires or any(command[0] == "pip" for command in prepare) else ["--without-pip"]
        _run(name, [sys.executable, "-m", "venv", *bare, str(folder)])
        if requires:
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            _run(name, [*pip, *requires])
        for program, *arguments in prepare:
            tell(" ".join([program, *arguments]))
            _run(name, [str(folder / "bin" / program), *arguments])
        (folder / _BUILT).write_text(json.dumps(recipe))
    check_programs(name, environment)
    return folder


def _run(name: str, command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise UserError(
            f"The virtualenv of {name} could not be built: `{Path(command[0]).name} {' '.join(command[1:])}` failed: "
            f"{said[-1] if said else 'it gave no reason'}. Mend that and run `longloop envs install {name}` again."
        )


def _recipe(environment: type[Environment]) -> dict[str, Any]:
    """Return what a virtualenv is built from, as JSON values."""
    return {
        "python": sys.version.split()[0],
        "requires": list(environment.requires),
        "prepare": [list(command) for command in environment.prepare],
    }


def _read(folder: Path) -> Any:
    """Return what a virtualenv was built from; None if its building was not completed."""
    try:
        return json.loads((folder / _BUILT).read_text())
    except (OSError, ValueError):
        return None
