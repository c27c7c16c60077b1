"""One thread: the models here are tiny, and results are the same to the bit only with the same number of threads."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("HF_HUB_OFFLINE", "1")
