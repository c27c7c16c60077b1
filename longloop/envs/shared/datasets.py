"""Published data sets, which the user downloads: finds their folders and files, and says what to do if they are
missing.

A folder is named by `env.data`, or found as `$LONGLOOP_DATA/<environment>`. Files may be plain or compressed with xz.
"""

import functools
import json
import lzma
import os
import threading
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar

from longloop.types import UserError

T = TypeVar("T")


def folder(environment: str, given: str, source: str) -> Path:
    """Return the folder with an environment's data. `source` is a sentence that says where to get them."""
    everything = os.environ.get("LONGLOOP_DATA")
    found = Path(given) if given else Path(everything, environment) if everything else None
    if found is None or not found.is_dir():
        lacking = f"there is no folder {found}" if found else "its data are not part of longloop"
        raise UserError(f"{environment}: {lacking}. {source} Then name the folder they are in: env.data=FOLDER.")
    return found


def file(folder: Path, pattern: str, source: str) -> Path:
    """Return the one file in a folder whose name, without `.xz`, matches the pattern."""
    found = sorted({*folder.glob(pattern), *folder.glob(f"{pattern}.xz")})
    if not found:
        raise UserError(f"There is no {pattern} (or {pattern}.xz) in {folder}. {source}")
    if len(found) > 1:
        raise UserError(f"{folder} has {' and '.join(path.name for path in found)}; keep one of them.")
    return found[0]


def read(path: Path) -> Any:
    """Return a file's JSON value; for `.jsonl`, the list of its lines' values."""
    unpack = lzma.open if path.suffix == ".xz" else open
    try:
        with unpack(path, "rt", encoding="utf-8") as text:
            if path.name.removesuffix(".xz").endswith(".jsonl"):
                return [json.loads(line) for line in text if line.strip()]
            return json.load(text)
    except (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}). Get the file again.") from error


def once(load: Callable[..., T]) -> Callable[..., T]:
    """Wrap a loader so that it runs once for all attempts of the process. Threads that ask meanwhile wait."""
    kept, lock = functools.cache(load), threading.Lock()

    @functools.wraps(load)
    def get(*arguments: Hashable) -> T:
        with lock:
            return kept(*arguments)

    return get
