"""Files that survive a crash: a file appears whole or not at all; lines are appended, and a cut last one is ignored."""

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from longloop.types import UserError


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it appears complete or not at all."""
    temporary = path.with_name(path.name + ".partial")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from error


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Where to write a new folder so that it appears complete or not at all. What a killed writer left is removed."""
    partial = folder.with_name(folder.name + ".partial")
    if partial.is_dir() and not partial.is_symlink():
        shutil.rmtree(partial)
    else:
        partial.unlink(missing_ok=True)
    yield partial
    partial.replace(folder)


def append_lines(path: Path, objects: list[Any]) -> None:
    """Append JSON lines in one write. A partial line that a crash left behind is cut off first."""
    text = "".join(json.dumps(o, separators=(",", ":"), allow_nan=False) + "\n" for o in objects)
    try:
        with path.open("ab+") as file:
            end = _end_of_last_line(file)
            file.truncate(end)
            try:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                file.truncate(end)
                raise
    except OSError as error:
        raise cannot_write(path, error) from error


def read_lines(path: Path, skip_damaged: bool = False) -> Iterator[Any]:
    """Yield the JSON lines of a file, without a last one that was cut; nothing if there is no such file.

    A whole line that is not JSON raises ValueError, or is passed over with `skip_damaged`.
    """
    try:
        with path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    return
                try:
                    yield json.loads(line)
                except ValueError:
                    if not skip_damaged:
                        raise
    except FileNotFoundError:
        return


def stamp(path: Path) -> tuple[int, int]:
    """What changes when a file does: its time and size; zeros if there is none."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def cannot_write(path: Path, error: OSError) -> UserError:
    full = any(error.errno == code or f"os error {code}" in str(error) for code in (errno.ENOSPC, errno.EDQUOT))
    return UserError(
        f"Cannot write {path}: {error.strerror or error}. All finished steps of a run are safe; "
        f"{'make room' if full else 'mend that'} and continue it with `longloop train --resume RUN`."
    )


def _end_of_last_line(file: Any) -> int:
    """The offset after the last newline."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - 65536)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
