"""The names and words that worlds and errands are made of, from the files in `data`."""

import json
from pathlib import Path
from typing import Any


def read(name: str) -> Any:
    return json.loads((Path(__file__).parent / "data" / f"{name}.json").read_text(encoding="utf-8"))


WORDS: dict[str, list[Any]] = read("words")
"""What scenarios and practice draw from: list -> its words."""
