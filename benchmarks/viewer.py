"""How long a run of 200 steps with 50,000 attempts takes to open in the viewer, and how much of it is read for that.

    .venv/bin/python benchmarks/viewer.py [--steps 200] [--attempts 250]

A run folder is made, `longloop view` is started on it, and pages are asked for one after the other, each for the first
time and once more. Reading means what the kernel says the server's process read. For comparison, the time to parse the
lines of all attempts once, which is what a viewer without an index would do. Where there is a Chromium, also the time
from asking for the run's page until the browser has loaded and laid it out. Needs Linux.
"""

import argparse
import json
import os
import platform
import re
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support import recorded
from tests.support.chromium import CHROMIUM, Browser
from tests.support.viewing import ask, server

PAGES = {
    "runs": "/",
    "run": "/run/big",
    "step": "/run/big/step/{middle}",
    "group": "/run/big/step/{middle}/3",
    "attempt": "/run/big/step/{middle}/3/1",
    "failures": "/run/big/find?success=no",
    "text, common": "/run/big/find?text=list_orders",
    "text, nowhere": "/run/big/find?text=nobody+said+this",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--attempts", type=int, default=250, help="of a step, in groups of ten")
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as temporary:
        run = recorded.big(Path(temporary) / "big", options.steps, options.attempts // 10, 10, copies=True)
        files = list((run / "trajectories").glob("0*.jsonl"))
        stored = sum(path.stat().st_size for path in files)
        print(f"{options.steps * options.attempts:,} attempts in {options.steps} steps, {stored / 1e6:.0f} MB of lines")
        start = time.perf_counter()
        with server(run) as (port, pid):
            print(f"{'process':14}{1000 * (time.perf_counter() - start):8.0f} ms until it listens")
            for name, path in PAGES.items():
                measure(port, pid, name, path.format(middle=options.steps // 2))
            if CHROMIUM:
                browse(port, Path(temporary) / "profile")
        start = time.perf_counter()
        for path in files:
            for line in path.read_bytes().splitlines():
                json.loads(line)
        print(f"{'all lines':14}{1000 * (time.perf_counter() - start):8.0f} ms to parse them once, without a viewer")


def measure(port: int, pid: int, name: str, path: str) -> None:
    times, before = [], read(pid)
    for _ in range(2):
        start = time.perf_counter()
        status, _, _ = ask(port, path)
        times.append(1000 * (time.perf_counter() - start))
        assert status == 200, path
    print(f"{name:14}{times[0]:8.0f} ms, {times[1]:5.0f} ms again, {(read(pid) - before) / 1e6:8.2f} MB read")


def browse(port: int, profile: Path) -> None:
    with Browser(profile) as browser:
        browser.open("about:blank")
        for name, path in (("run", "/run/big"), ("step", "/run/big/step/1")):
            browser.open(f"http://127.0.0.1:{port}{path}")
            timing = "performance.getEntriesByType('navigation')[0].loadEventEnd"
            print(f"{name:14}{browser.until(timing):8.0f} ms until Chromium has loaded it")


def read(pid: int) -> int:
    return int(re.search(r"rchar: (\d+)", Path(f"/proc/{pid}/io").read_text())[1])


if __name__ == "__main__":
    main()
