"""One thread: the models here are tiny, and results are the same to the bit only with the same number of threads.

Without a GPU, Triton interprets its kernels; it must be told before it is first imported.
"""

import os
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("HF_HUB_OFFLINE", "1")
if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"
