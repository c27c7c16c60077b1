"""The assertions of test files, rewritten once for all workers of a run. Each of them collects all tests, and pytest
would have each rewrite all files, at the same time.
"""

import sys
from contextlib import suppress
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

TESTS = Path(__file__).parents[1]


def share(config: pytest.Config, number: int, workers: int, folder: Path) -> None:
    """Rewrite this worker's share of the files where the others look. That is the `folder` if Python is not to write
    bytecode beside the sources."""
    if sys.dont_write_bytecode:
        rewrite.get_cache_dir = lambda file: folder.joinpath(*file.parts[1:-1])
    files = sorted(TESTS.rglob("test_*.py"), key=lambda file: (-file.stat().st_size, file))
    for file in files[number::workers]:
        kept = rewrite.get_cache_dir(file) / (file.stem + rewrite.PYC_TAIL)
        if rewrite._read_pyc(file, kept) is not None or not rewrite.try_makedirs(kept.parent):
            continue
        with suppress(SyntaxError, ValueError):  # of which collecting the file will tell
            source, code = rewrite._rewrite_test(file, config)
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source, kept)
