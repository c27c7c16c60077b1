"""Starts an agent's script in a fork of a process that has imported its framework already. To import LangGraph or the
Agents SDK takes seconds, which thousands of attempts would pay each. The script is run as it is, in a process of its
own; it has the folder, the variables and the output that it was started with.

    python warm.py serve SOCKET "import agents"     # runs the statement, then forks for all who ask, until stdin ends
    python -S warm.py run SOCKET SCRIPT             # in place of `python SCRIPT`
"""

import contextlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import traceback

_STANDARD = (0, 1, 2)


def serve(path: str, statement: str) -> None:
    exec(statement, {})
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(1024)
        print("ready", flush=True)
        while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:  # it is closed when nobody is left
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _become(connection)
            connection.close()


def run(path: str, script: str) -> int:
    """Have the script run, and return its exit code. Whoever kills this process ends the script with it."""
    told = json.dumps({"script": script, "folder": os.getcwd(), "variables": dict(os.environ)}).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [len(told).to_bytes(4)], _STANDARD)
        connection.sendall(told)
        return int.from_bytes(connection.recv(1) or b"\x01")


def _become(connection: socket.socket) -> None:
    """Run a script in this process, as the one who asked for it would have."""
    size, standard, _, _ = socket.recv_fds(connection, 4, len(_STANDARD))
    told = json.loads(connection.recv(int.from_bytes(size), socket.MSG_WAITALL))
    for theirs, ours in zip(standard, _STANDARD, strict=True):
        os.dup2(theirs, ours)
        os.close(theirs)
    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
    os.chdir(told["folder"])
    os.environ.clear()
    os.environ.update(told["variables"])
    sys.argv = [told["script"]]
    code = 1
    try:
        runpy.run_path(told["script"], run_name="__main__")
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        connection.send(code.to_bytes(1))
    os._exit(code)


def _end_with(connection: socket.socket) -> None:
    connection.recv(1)
    os._exit(1)


if __name__ == "__main__":
    what, where, *rest = sys.argv[1:]
    sys.exit(serve(where, *rest) if what == "serve" else run(where, *rest))
