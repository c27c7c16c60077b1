"""Temporary folders of workers, one for each, below a folder of their pool's.

The pool holds a lock on its folder. One without a lock belonged to a trainer that was killed, and the next pool that
this user starts removes it. What lies in these folders was made by whoever is not trusted: it is looked at without
following links, and removed by `rm`, which no depth of folders can stop.
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
"""Bytes that any entry of a folder counts, so that empty files count too."""


def make() -> tuple[Path, int]:
    """A new folder for a pool, and the descriptor that holds its lock. Removes what killed trainers left behind."""
    for left in Path(tempfile.gettempdir()).glob(f"{_NAME}*"):
        with contextlib.suppress(OSError):
            if left.stat().st_uid == os.geteuid():
                lock = _locked(left)
                remove(left)
                os.close(lock)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_NAME))
        with contextlib.suppress(OSError):  # in this very moment another trainer took it for one that was left behind
            return folder, _locked(folder)


def remove(folder: Path) -> None:
    """With all that is in it, also in folders that were made unreadable."""
    with contextlib.suppress(OSError):
        folder.rmdir()  # mostly there is nothing in it
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        if folder.exists():
            subprocess.run([*command, "--", str(folder)], stderr=subprocess.DEVNULL)


def used(folder: Path, processes: Iterable[int], most: int) -> int:
    """Bytes on disk below the folder, and in files without a name that the processes hold open (deleted ones, memfds).

    Counts no further once it has more than `most`. Raises OSError where a folder cannot be looked into.
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
            continue  # it was removed meanwhile
    for process in processes:
        with contextlib.suppress(OSError):  # it ended meanwhile
            for name in os.listdir(f"/proc/{process}/fd"):
                with contextlib.suppress(FileNotFoundError):
                    found = os.stat(f"/proc/{process}/fd/{name}")
                    if stat.S_ISREG(found.st_mode) and not found.st_nlink:
                        yield found


def _locked(folder: Path) -> int:
    """A descriptor of the folder, locked until it is closed. OSError where somebody has the lock, or it is gone."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not folder.exists():
            raise FileNotFoundError(folder)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
