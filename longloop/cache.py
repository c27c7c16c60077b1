"""Where longloop keeps what it fetched or built: virtualenvs of environments, models, compiled passes."""

import os
import sys
from pathlib import Path


def cache_dir() -> Path:
    """Return the user's cache folder of longloop: `~/.cache/longloop` on Linux, or below XDG_CACHE_HOME if that is an
    absolute path."""
    usual = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (chosen if chosen.is_absolute() else usual) / "longloop"
