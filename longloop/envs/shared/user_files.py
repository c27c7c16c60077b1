"""What the user names in an `[env]` table: a file of tasks, and commands with files of theirs in them."""

import json
from collections.abc import Sequence
from pathlib import Path

from longloop.types import Task, UserError


def read_tasks(file: Path) -> list[Task]:
    """The tasks in a file, one on each line."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        where = "" if file.is_absolute() else f" in {Path.cwd()}"
        raise UserError(f"Cannot read the tasks in {file}{where}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"Cannot read the tasks in {file}: it is not UTF-8 ({error}). Save it as UTF-8.") from error
    tasks = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            tasks.append(Task(value["id"], value["split"], value.get("data", {}), value.get("scenario", "")))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{file}, line {number}, is no task ({error!r}): write "
                '{"id": "1", "split": "train", "data": {...}}.'
            ) from error
    return tasks


def absolute(command: Sequence[str]) -> list[str]:
    """A command for another folder: what names a file here is made absolute."""
    return [str(Path(word).absolute()) if Path(word).is_file() else word for word in command]
