"""Where longloop keeps what it fetched or built: virtualenvs of environments, models, compiled passes."""

from pathlib import Path

import platformdirs


def cache_dir() -> Path:
    """Return the user's cache folder of longloop: `~/.cache/longloop` on Linux, or below XDG_CACHE_HOME if it is
    set."""
    return platformdirs.user_cache_path("longloop")
