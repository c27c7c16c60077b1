"""The runs that are looked at: folders named by the user, and those inside, also ones that appear later."""

from collections.abc import Sequence
from pathlib import Path

from longloop.types import UserError
from longloop.viewer.run_reader import Record

_DEPTH = 2
"""How far below a named folder runs are looked for: `longloop compare` puts its own a level down."""


class Library:
    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = [root.resolve() for root in roots]
        self._records: dict[Path, Record] = {}
        for root in roots:
            if not root.is_dir():
                raise UserError(f"There is no folder {root}. Name run folders, or a folder of them such as runs.")
        if not self.records:
            raise UserError(
                f"No run is in {', '.join(map(str, roots))}. Name a folder that `longloop train` wrote, or its parent."
            )

    @property
    def records(self) -> dict[str, Record]:
        """By name: the folder's, with as many of its parents' as tell it from the others."""
        for root in self._roots:
            for folder in _runs(root, _DEPTH):
                if folder not in self._records:
                    self._records[folder] = Record(self._name(folder), folder)
        return {record.name: record for record in self._records.values() if record.folder.is_dir()}

    def _name(self, folder: Path) -> str:
        taken = {record.name for record in self._records.values()}
        names = ["~".join(folder.parts[-count:]) for count in range(1, len(folder.parts))]
        return next(name for name in names if name not in taken)


def _runs(folder: Path, depth: int) -> list[Path]:
    if (folder / "run.json").is_file():
        return [folder]
    if depth == 0:
        return []
    try:
        inside = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []
    return [run for path in inside for run in _runs(path, depth - 1)]
