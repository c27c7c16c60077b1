"""Confinement of a worker: what the Linux kernel lets an unprivileged process give up, through libc alone.

`confine` runs in the worker, before it starts a second thread or runs any code of the environment. From then on the
process and all its descendants

- cannot gain privileges, and have no capability but those for reading and writing files (no_new_privs, capset);
- cannot change the limits of another process, which could end the trainer (seccomp);
- can write only below the folders that they are given, cannot reach the memory of a process outside, and, from Linux
  6.12 on, cannot send it a signal (Landlock).

Where the kernel has no Landlock, `shield` makes the trainer's memory unreadable to other processes of the same user.
`unprotected` says what remains open. docs/reliability.md has the whole list.
"""

import ctypes
import errno
import functools
import os
import resource
import stat
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_SET_DUMPABLE, _SET_SECCOMP, _SET_NO_NEW_PRIVS = 4, 22, 38
"""Options of prctl."""
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Landlock's system calls, which have the same numbers on every architecture."""
_WRITE_FILE, _REFER, _TRUNCATE = 1 << 1, 1 << 13, 1 << 14
_CHANGE_FOLDERS = 0b1_1111_1111 << 4
"""Landlock's rights to remove and make entries of every kind."""
_ABSTRACT_SOCKETS, _SIGNALS = 1 << 0, 1 << 1
"""Landlock's scopes: of both, only what belongs to the worker can be reached."""
_DEVICES = ("null", "zero", "full", "random", "urandom", "ptmx", "pts", "kvm", "kfd", "dri", "nvidia*")
"""The entries of /dev that may be written to: neither /dev/shm, which all processes share, nor any disk."""
_FILE_CAPABILITIES = 0b11111
"""chown, dac_override, dac_read_search, fowner and fsetid: what root needs to use files as root does."""
_PRLIMIT: dict[str, dict[int, tuple[int, ...]]] = {
    "x86_64": {0xC000003E: (302, 302 | 1 << 30), 0x40000003: (340,)},
    "aarch64": {0xC00000B7: (261,), 0x40000028: (369,)},
}
"""Numbers of the system call prlimit64, by machine and by the kernel's name for each of its instruction sets."""

_LIBC = ctypes.CDLL(None, use_errno=True)


def confine(writes: Iterable[str], file_limit: int) -> None:
    """Confine this process for good. It may write below `writes` only, and files of at most `file_limit` bytes."""
    _prctl(_SET_NO_NEW_PRIVS, 1)
    for limit, most in ((resource.RLIMIT_FSIZE, file_limit), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(limit)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (most, most))
    if landlock():
        _write_only_to([Path(folder) for folder in writes])
    if seccomp():
        _forbid_limits_of_others(_PRLIMIT[os.uname().machine])
    _drop_capabilities()


def shield() -> None:
    """Make this process's memory unreadable to other processes of the user, if Landlock cannot keep workers out of it.

    This also excludes debuggers, profilers that attach, and core dumps, for as long as the process lives.
    """
    if not landlock():
        _prctl(_SET_DUMPABLE, 0)


def unprotected() -> str:
    """Say what this kernel would let a hostile environment in a worker do; empty if nothing."""
    open_ = {
        "write to your files": landlock() < 1,
        "empty your files": 1 <= landlock() < 3,
        "send signals to the trainer": landlock() < 6,
        "change the trainer's resource limits": not seccomp(),
    }
    found = [what for what, so in open_.items() if so]
    if not found:
        return ""
    return (
        f"Linux {os.uname().release} (Landlock {landlock()}) does not confine workers fully: a hostile environment "
        f"could {' and '.join(found)}. docs/reliability.md lists what is protected."
    )


@functools.cache
def landlock() -> int:
    """Return the version of the kernel's Landlock interface; 0 if there is none, or it may not be used."""
    return max(0, _LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)) if sys.platform == "linux" else 0


def seccomp() -> bool:
    """Return whether the kernel has seccomp filters, and ours is written for this machine."""
    return os.uname().machine in _PRLIMIT and os.path.exists("/proc/sys/kernel/seccomp/actions_avail")


def _write_only_to(folders: Iterable[Path]) -> None:
    """Restrict this thread, and what it starts, with Landlock. Reading is not restricted."""
    version = landlock()
    in_files = _WRITE_FILE | (_TRUNCATE if version >= 3 else 0)
    in_folders = in_files | _CHANGE_FOLDERS | (_REFER if version >= 2 else 0)
    scopes = _ABSTRACT_SOCKETS | _SIGNALS if version >= 6 else 0
    # Older kernels know a shorter structure, and take this one as long as what they do not know is zero.
    attributes = struct.pack("=QQQ", in_folders, 0, scopes)
    rules = _call("syscall", _CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    try:
        devices = [device for name in _DEVICES for device in Path("/dev").glob(name)]
        for path in (*folders, *devices):
            try:
                descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                rights = in_folders if stat.S_ISDIR(os.fstat(descriptor).st_mode) else in_files
                _call("syscall", _ADD_RULE, rules, 1, struct.pack("=Qi", rights, descriptor), 0)
            finally:
                os.close(descriptor)
        _call("syscall", _RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)


def _forbid_limits_of_others(numbers: dict[int, tuple[int, ...]]) -> None:
    """A seccomp filter: prlimit64 fails with EPERM unless it is about the caller itself (pid 0)."""
    load, equal, answer = 0x20, 0x15, 0x06  # BPF: load a word, jump if equal, return
    allow, refuse = 0x7FFF0000, 0x00050000 | errno.EPERM
    number_at, instructions_at, pid_at = 0, 4, 16  # in what the filter is given
    program: list[tuple[int, int, int, int]] = []
    for instructions, calls in numbers.items():
        program += [
            (load, 0, 0, instructions_at),
            (equal, 0, 1 + 4 * len(calls), instructions),
            (load, 0, 0, number_at),
        ]
        for call in calls:
            program += [(equal, 0, 3, call), (load, 0, 0, pid_at), (equal, 1, 0, 0), (answer, 0, 0, refuse)]
        # A pid of 0 is compared with the numbers that follow, of which none is 0.
    program.append((answer, 0, 0, allow))
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    _prctl(_SET_SECCOMP, 2, struct.pack("@HP", len(program), ctypes.addressof(buffer)))


def _drop_capabilities() -> None:
    """Keep only the capabilities for files. With no_new_privs set, an exec does not bring others back."""
    header = struct.pack("=Ii", 0x20080522, 0)
    sets = ctypes.create_string_buffer(24)
    _call("capget", header, sets)
    effective, permitted, inheritable = struct.unpack("=III", sets.raw[:12])  # the second half holds higher numbers
    kept = [held & _FILE_CAPABILITIES for held in (effective, permitted, inheritable)]
    _call("capset", header, struct.pack("=IIIIII", *kept, 0, 0, 0))


def _prctl(option: int, *values: Any) -> None:
    words = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in values]
    _call("prctl", option, *words, *[ctypes.c_ulong(0)] * (4 - len(words)))


def _call(name: str, *arguments: Any) -> int:
    result = int(getattr(_LIBC, name)(*arguments))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"the worker could not be confined: {name}{arguments[:1]}: {os.strerror(number)}")
    return result
