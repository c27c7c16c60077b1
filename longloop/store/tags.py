"""Tags that a person gives to a run: a list of words in `tags.json`, a file of its own that training never touches."""

import json
import threading
from pathlib import Path

from longloop.store.files import write_whole
from longloop.types import UserError

LONGEST = 40
"""Characters of a tag."""
MOST = 20
"""Tags of a run."""
_CHANGING = threading.Lock()


def read_tags(folder: Path) -> list[str]:
    """The tags of a run, sorted; none where tags.json is missing or holds something else."""
    try:
        tags = json.loads((folder / "tags.json").read_bytes())
    except (OSError, ValueError):
        return []
    return sorted({tag for tag in tags if _is_tag(tag)}) if isinstance(tags, list) else []


def set_tag(folder: Path, tag: str, on: bool) -> list[str]:
    """Add a tag to a run, or remove it. Returns the tags that the run has now."""
    tag = " ".join(tag.split())
    if not _is_tag(tag):
        raise UserError(f"A tag has 1 to {LONGEST} printable characters.")
    with _CHANGING:
        before = read_tags(folder)
        after = sorted({*before, tag} if on else set(before) - {tag})
        if len(after) > MOST:
            raise UserError(f"A run has at most {MOST} tags. Remove one first.")
        if after != before:
            _write(folder / "tags.json", after)
    return after


def _write(path: Path, tags: list[str]) -> None:
    try:
        write_whole(path, (json.dumps(tags, ensure_ascii=False) + "\n").encode())
    except UserError as error:
        raise UserError(f"The tag could not be kept: {error.__cause__}.") from error


def _is_tag(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST and value.isprintable()
