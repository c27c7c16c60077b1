"""Published data sets for tests: in $LONGLOOP_DATA, or in ../shared/data beside the checkout."""

import os
from pathlib import Path

import pytest


def folder(name: str) -> Path:
    return Path(os.environ.get("LONGLOOP_DATA") or Path(__file__).parents[3] / "shared" / "data") / name


def needed(name: str) -> pytest.MarkDecorator:
    """Skip the test, saying so, where a data set is missing."""
    return pytest.mark.skipif(
        not folder(name).is_dir(), reason=f"needs published data: {name} is not in {folder('')} ($LONGLOOP_DATA)"
    )
