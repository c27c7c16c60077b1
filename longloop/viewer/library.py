"""The runs that the viewer shows: folders that the user named, and run folders inside them, also later ones."""

import threading
from collections.abc import Sequence
from pathlib import Path

from longloop.store.run_reader import RunReader
from longloop.types import UserError

_DEPTH = 2
"""How far below a named folder runs are looked for: `longloop compare` puts its own a level down."""


class Library:
    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = [root.resolve() for root in roots]
        self._runs: dict[Path, RunReader] = {}
        self._looking = threading.Lock()
        """Pages are made in several threads."""
        for root in roots:
            if not root.is_dir():
                raise UserError(f"There is no folder {root}. Name run folders, or a folder of them such as runs.")
        if not self.runs:
            raise UserError(
                f"No run is in {', '.join(map(str, roots))}. Name a folder that `longloop train` wrote, or its parent."
            )

    @property
    def runs(self) -> dict[str, RunReader]:
        """Runs by name: the folder's, with as many parents as tell it from the others."""
        with self._looking:
            for root in self._roots:
                for folder in _run_folders(root, _DEPTH):
                    if folder not in self._runs:
                        self._runs[folder] = RunReader(folder, self._name(folder))
            return {run.name: run for run in self._runs.values() if run.folder.is_dir()}

    def _name(self, folder: Path) -> str:
        taken = {run.name for run in self._runs.values()}
        names = ["~".join(folder.parts[-count:]) for count in range(1, len(folder.parts))]
        return next(name for name in names if name not in taken)


def _run_folders(folder: Path, depth: int) -> list[Path]:
    if (folder / "run.json").is_file():
        return [folder]
    if depth == 0:
        return []
    try:
        inside = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []
    return [run for path in inside for run in _run_folders(path, depth - 1)]
