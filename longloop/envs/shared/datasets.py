"""Data sets that a user gets from where they are published: where they lie, and what to say when they do not.

A folder is named by `env.data`, or found as `$LONGLOOP_DATA/<environment>`. Files may be plain or packed with xz.
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
    """The folder with an environment's data. `source` is a sentence on where to get them."""
    everything = os.environ.get("LONGLOOP_DATA")
    place = Path(given) if given else Path(everything, environment) if everything else None
    if place is None or not place.is_dir():
        lacking = f"there is no folder {place}" if place else "its data are not part of longloop"
        raise UserError(f"{environment}: {lacking}. {source} Then name the folder they are in: env.data=FOLDER.")
    return place


def file(folder: Path, pattern: str, source: str) -> Path:
    """The one file in a folder whose name, without `.xz`, is like the pattern."""
    found = sorted({*folder.glob(pattern), *folder.glob(f"{pattern}.xz")})
    if not found:
        raise UserError(f"There is no {pattern} (or {pattern}.xz) in {folder}. {source}")
    if len(found) > 1:
        raise UserError(f"{folder} has {' and '.join(path.name for path in found)}; keep one of them.")
    return found[0]


def read(path: Path) -> Any:
    """A file's JSON value; of a file with one on each line (`.jsonl`), the list of them."""
    unpack = lzma.open if path.suffix == ".xz" else open
    try:
        with unpack(path, "rt", encoding="utf-8") as text:
            if path.name.removesuffix(".xz").endswith(".jsonl"):
                return [json.loads(line) for line in text if line.strip()]
            return json.load(text)
    except (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}). Get the file again.") from error


def once(load: Callable[..., T]) -> Callable[..., T]:
    """What was loaded stays, for all attempts of the process; those that ask meanwhile, in other threads, wait."""
    kept, lock = functools.cache(load), threading.Lock()

    @functools.wraps(load)
    def get(*arguments: Hashable) -> T:
        with lock:
            return kept(*arguments)

    return get
