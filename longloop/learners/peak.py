"""How much memory was really used; memory/forecast.py foresees how much will be."""

import resource
import sys
from pathlib import Path

import torch


def peak(device: torch.device) -> dict[str, int]:
    """The most bytes in use: of the `process` since it began, and of the `card`, where there is one, since last asked.

    The process's own mark could be reset only for everyone who looks at it, such as /usr/bin/time.
    """
    found = {"process": _process()}
    if device.type == "cuda":
        found["card"] = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
    return found


def _process() -> int:
    status = Path("/proc/self/status")
    if status.exists():  # what getrusage says there also counts whoever started the process
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
