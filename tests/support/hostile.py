"""An environment whose every action is an attack on whoever runs it. It answers with what came of it.

The attacks are harmless where they succeed: signal 0 only asks whether a signal may be sent, and SEIZE stops nobody.
"""

import ctypes
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

from longloop.envs.base import Environment
from longloop.types import Message, Outcome, Step, Task

LIBC = ctypes.CDLL(None, use_errno=True)


class Hostile(Environment):
    """The action is the name of an attack, and its argument."""

    reward_range = (0.0, 1.0)
    _reward = 0.0

    @classmethod
    def tasks(cls, split: str, options: Any) -> list[Task]:
        return [Task("attack", split)]

    def start(self, task: Task) -> list[Message]:
        return [Message("user", "attack")]

    def step(self, action: Message) -> Step:
        name, _, argument = action.content.partition(" ")
        try:
            answer = getattr(self, name)(argument)
        except OSError as error:
            answer = f"refused: {error}"
        return Step([Message("user", f"{'done' if answer is None else answer}")])

    def finish(self) -> Outcome:
        return Outcome(self._reward, False)

    # The memory of another process.

    def read_memory(self, pid: str) -> str:
        with open(f"/proc/{pid}/maps") as maps:
            start = int(maps.readline().partition("-")[0], 16)
        with open(f"/proc/{pid}/mem", "rb") as memory:
            memory.seek(start)
            return f"read {len(memory.read(16))} bytes"

    def write_memory(self, pid: str) -> None:
        open(f"/proc/{pid}/mem", "r+b").close()

    def read_variables(self, pid: str) -> str:
        return Path(f"/proc/{pid}/environ").read_text()

    def trace(self, pid: str) -> None:
        _checked(LIBC.ptrace(0x4206, int(pid), None, None))

    def copy_memory(self, pid: str) -> None:
        class Vector(ctypes.Structure):
            _fields_: ClassVar = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

        here = ctypes.create_string_buffer(8)
        local, remote = Vector(ctypes.addressof(here), 8), Vector(ctypes.addressof(here), 8)
        result = LIBC.process_vm_readv(int(pid), ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
        if result < 0 and ctypes.get_errno() == 14:
            return  # it was allowed to look, and nothing is at this address over there
        _checked(result)

    # Its life.

    def signal(self, pid: str) -> None:
        os.kill(int(pid), 0)

    def signal_group(self, pid: str) -> None:
        os.killpg(os.getpgid(int(pid)), 0)

    def limit(self, pid: str) -> None:
        resource.prlimit(int(pid), resource.RLIMIT_CPU)

    def send(self, name: str) -> None:
        """To a socket with an abstract name."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
            one.sendto(b"hello", f"\0{name}")

    # Files.

    def write(self, path: str) -> None:
        Path(path).write_text("was here")

    def append(self, path: str) -> None:
        with open(path, "a") as file:
            file.write("was here")

    def truncate(self, path: str) -> None:
        os.truncate(path, 0)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def rename(self, path: str) -> None:
        os.rename(path, f"{path}.renamed")

    def steal(self, path: str) -> None:
        os.rename(path, Path(tempfile.gettempdir(), "stolen"))

    def link(self, path: str) -> None:
        """A second name, in a folder that may be written to."""
        os.link(path, Path(tempfile.gettempdir(), "linked"))

    def grow(self, size: str) -> None:
        """One file, to so many MB."""
        with tempfile.TemporaryFile() as file:
            file.truncate(int(size) << 20)

    def fill(self, size: str) -> str:
        """The temporary folder, with files of so many MB, until somebody does something about it."""
        for number in range(1000):
            Path(tempfile.gettempdir(), str(number)).write_bytes(b"x" * (int(size) << 20))
            time.sleep(0.05)
        return "full"

    def fill_unseen(self, size: str) -> str:
        """Files that have no name any more, or never had one."""
        kept = [tempfile.TemporaryFile(), os.fdopen(os.memfd_create("x"), "wb")]  # noqa: SIM115
        for _ in range(1000):
            for file in kept:
                file.write(b"x" * 1000)
                file.flush()
                os.posix_fallocate(file.fileno(), 0, int(size) << 20)
            time.sleep(0.05)
        return "full"

    def bury(self, depth: str) -> str:
        """Folders in folders, the last of them locked, deeper than a path can be long."""
        os.chdir(tempfile.gettempdir())
        for _ in range(int(depth)):
            os.mkdir("d" * 200)
            os.chdir("d" * 200)
        Path("file").write_text("x")
        os.chmod(".", 0)
        return tempfile.gettempdir()

    # Whoever comes next.

    def patch(self, reward: str) -> None:
        Hostile.finish = lambda self: Outcome(float(reward), False)  # type: ignore[method-assign]

    def pay(self, reward: str) -> None:
        self._reward = float(reward)

    # What must go on working.

    def work(self, argument: str) -> str:
        """Temporary files, children that are stopped, a device."""
        with tempfile.TemporaryDirectory() as folder:
            first = Path(folder, "first")
            first.write_text("x")
            first.rename(Path(folder, "second"))
            shutil.copy2(Path(folder, "second"), first)
        child = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL)
        child.kill()
        return f"{child.wait()} {os.environ['TMPDIR'] == tempfile.gettempdir()}"

    def java(self, argument: str) -> str:
        """Where a JVM puts its temporary files."""
        done = subprocess.run(["java", "-XshowSettings:properties", "-version"], capture_output=True, text=True)
        found = [line for line in (done.stdout + done.stderr).splitlines() if "java.io.tmpdir =" in line]
        return f"{done.returncode} {found[0].split('= ')[1] == os.environ['TMPDIR']}"

    def privileges(self, argument: str) -> str:
        lines = dict(line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
        return f"{lines['NoNewPrivs']} {int(lines['CapEff'], 16) & ~0b11111}"

    def child_privileges(self, argument: str) -> str:
        """Of a program that is started as root, where that is who we are."""
        code = "from tests.support.hostile import Hostile; print(Hostile(None).privileges(''))"
        path = {"PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=path).stdout.strip()

    def parent(self, argument: str) -> int:
        return os.getppid()

    def pid(self, argument: str) -> int:
        return os.getpid()


class Writer(Hostile):
    """Says where it writes, as it should."""

    writes = ()


class Clumsy(Hostile):
    """Means no harm, and writes where it must not."""

    def step(self, action: Message) -> Step:
        Path(action.content).write_text("notes")
        return Step(done=True)


def _checked(result: int) -> Any:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
