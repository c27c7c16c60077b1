"""The runs that the viewer shows: folders that the user named, and run folders inside them, also later ones."""

import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from longloop.store.run_reader import RunReader
from longloop.types import UserError

_DEPTH = 2
"""How far below a named folder runs are looked for: `longloop compare` puts its own a level down."""


class Library:
    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = [root.resolve() for root in roots]
        self._runs: dict[Path, tuple[object, RunReader]] = {}
        """Each with what tells it from an earlier run in the same folder."""
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
        """Runs by name: the folder's, with as many parents as tell it from the others. One that was deleted and begun
        again has a new reader."""
        with self._looking:
            for root in self._roots:
                for folder in _run_folders(root, _DEPTH):
                    reader = RunReader(folder)
                    begun = reader.facts.get("started"), _inode(folder)
                    if folder not in self._runs or self._runs[folder][0] != begun:
                        self._runs[folder] = begun, reader
            names = _names(list(self._runs))
            for folder, (_, run) in self._runs.items():
                run.name = names[folder]
            return {run.name: run for _, run in self._runs.values() if run.folder.is_dir()}


def _inode(folder: Path) -> int:
    try:
        return folder.stat().st_ino
    except OSError:
        return 0


def _names(folders: Sequence[Path]) -> dict[Path, str]:
    """As few parents as tell a run from all others, whichever was found first."""
    names: dict[Path, str] = {}
    for count in range(1, 1 + max((len(folder.parts) for folder in folders), default=0)):
        said = {folder: "~".join(folder.parts[-count:]) for folder in folders if folder not in names}
        often, taken = Counter(said.values()), set(names.values())
        names |= {folder: name for folder, name in said.items() if often[name] == 1 and name not in taken}
    return names


def _run_folders(folder: Path, depth: int) -> list[Path]:
    try:
        if (folder / "run.json").is_file():
            return [folder]
        inside = sorted(path for path in folder.iterdir() if path.is_dir()) if depth else []
    except OSError:  # another user's
        return []
    return [run for path in inside for run in _run_folders(path, depth - 1)]
