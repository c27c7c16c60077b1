"""Virtualenvs that environments have to themselves, in the user's cache.

A class says what it needs: `requires`, exact pip requirements; `prepare`, commands that are run once pip is done, each
found among those of the virtualenv; `system`, programs that must be on the machine. A virtualenv cannot be moved, so it
is built where it stays, and counts when its last file, which says what it was built from, is there and still true.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from longloop.types import UserError

_BUILT = "longloop.json"
_PROGRAMS = {"java": "a Java runtime (Debian and Ubuntu: `sudo apt install default-jre-headless`)"}


def place(name: str) -> Path:
    """Where an environment's virtualenv is kept, whether or not it is there yet."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "longloop" / "envs" / name.replace(":", ".")


def python(name: str, environment: type) -> str:
    """The Python of an environment's virtualenv, which must be there, whole and as the class wants it."""
    folder = place(name)
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


def needs(name: str, environment: type) -> None:
    """Refuse an environment that needs a program which is not there."""
    for program in getattr(environment, "system", ()):
        if shutil.which(program) is None:
            raise UserError(
                f"{name} needs {_PROGRAMS.get(program, program)}, and there is no `{program}` on your PATH. "
                "Install it and try again."
            )


def install(name: str, environment: type, tell: Callable[[str], None]) -> Path:
    """Build an environment's virtualenv, unless it is there; then say what else the environment needs."""
    folder, recipe = place(name), _recipe(environment)
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
    needs(name, environment)
    return folder


def _run(name: str, command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise UserError(
            f"The virtualenv of {name} could not be built: `{Path(command[0]).name} {' '.join(command[1:])}` failed: "
            f"{said[-1] if said else 'it gave no reason'}. Mend that and run `longloop envs install {name}` again."
        )


def _recipe(environment: type) -> dict[str, Any]:
    """What a virtualenv is built from, as JSON has it."""
    return {
        "python": sys.version.split()[0],
        "requires": list(getattr(environment, "requires", ())),
        "prepare": [list(command) for command in getattr(environment, "prepare", ())],
    }


def _read(folder: Path) -> Any:
    """What it was built from; None when it was not built to the end."""
    try:
        return json.loads((folder / _BUILT).read_text())
    except (OSError, ValueError):
        return None
