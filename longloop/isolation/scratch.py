"""The temporary folders of workers, one for each, below the folder of their pool.

A pool holds a lock on its folder. A folder without a lock belonged to a trainer that was killed, and the next pool of
the same user removes it. The contents come from code that is not trusted: they are read without following links, and
removed by `rm`, which copes with folders of any depth.
"""

import contextlib
import fcntl
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

_NAME = "longloop-workers-"
_LEAST = 4096
"""Bytes that every entry of a folder counts at least, so that empty files count too."""


def make() -> tuple[Path, int]:
    """Make a folder for a pool; return it and the descriptor that holds its lock. Removes what killed trainers left."""
    for left in Path(tempfile.gettempdir()).glob(f"{_NAME}*"):
        with contextlib.suppress(OSError):
            if left.stat().st_uid == os.geteuid():
                lock = _locked(left)
                remove(left)
                os.close(lock)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_NAME))
        with contextlib.suppress(OSError):  # another trainer has just removed it as left behind
            return folder, _locked(folder)


def remove(folder: Path) -> None:
    """Remove a folder with all that is in it, unreadable folders included."""
    with contextlib.suppress(OSError):
        folder.rmdir()  # it is mostly empty
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        if folder.exists():
            subprocess.run([*command, "--", str(folder)], stderr=subprocess.DEVNULL)


def used(folder: Path, processes: Iterable[int], most: int) -> int:
    """Return the bytes on disk below the folder, and in nameless files that the processes hold open (deleted, memfds).

    Stops counting above `most`. Raises OSError if a folder cannot be read.
    """
    total, counted = 0, set()
    for found in _files(folder, processes):
        key = found.st_dev, found.st_ino
        if key not in counted:
            counted.add(key)
            total += max(512 * found.st_blocks, _LEAST)
        if total > most:
            break
    return total


def _files(folder: Path, processes: Iterable[int]) -> Iterable[os.stat_result]:
    waiting = [str(folder)]
    while waiting:
        path = waiting.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        yield found
                        if stat.S_ISDIR(found.st_mode):
                            waiting.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            continue  # it has been removed meanwhile
    for process in processes:
        with contextlib.suppress(OSError):  # it ended meanwhile
            for name in os.listdir(f"/proc/{process}/fd"):
                with contextlib.suppress(FileNotFoundError):
                    found = os.stat(f"/proc/{process}/fd/{name}")
                    if stat.S_ISREG(found.st_mode) and not found.st_nlink:
                        yield found


def _locked(folder: Path) -> int:
    """Return a descriptor of the folder that locks it until it is closed. Raises OSError if it is locked or gone."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not folder.exists():
            raise FileNotFoundError(folder)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
