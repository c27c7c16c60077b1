"""Runs from one machine to another that shares no disk with it, in parts, to go on there as if nothing had been.

    python recipes/offline/carry.py out FOLDER PARTS [--weights]     writes PARTS/0000, 0001, ... of 15 MB
    python recipes/offline/carry.py in PARTS FOLDER                  there: makes the folder of them
    longloop train --resume FOLDER                                   or the same `longloop compare ... name=FOLDER`

FOLDER is a run, or a comparison. Of a run that is not finished, and of those that a comparison starts from, the newest
checkpoint goes: weights or adapters, optimizer state, what the method remembers. Of a finished run its numbers and
trajectories go, with `--weights` its newest checkpoint too, without which it cannot go on. What stays behind: older
checkpoints, the best among them (measure it before, with `--step best`), attempts of evaluations but for those before
training, and exported models, which a comparison makes anew.
"""

import argparse
import io
import lzma
import shutil
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from longloop.store.run_reader import RunReader

PART = 15 * 2**20
LEFT = {"evaluations", "models", "checkpoints", "lock"}
"""Parts of a run or a comparison that do not go, unless they are needed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=("out", "in"))
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--weights", action="store_true", help="the weights of finished runs, too")
    options = parser.parse_args()
    if options.target.exists() and any(options.target.iterdir()):
        sys.exit(f"{options.target} is there already. Name a new folder, or delete it.")
    if options.way == "out":
        pack(options.source, options.target, options.weights)
    else:
        unpack(options.source, options.target)


def pack(folder: Path, parts: Path, weights: bool) -> None:
    files = sorted(needed(folder, weights))
    if not files:
        sys.exit(f"{folder} is neither a run nor a comparison: there is nothing in it to carry.")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz", preset=2) as archive:
        for path in files:
            archive.add(path, path.relative_to(folder))
    parts.mkdir(parents=True, exist_ok=True)
    whole = packed.getvalue()
    for number, start in enumerate(range(0, len(whole), PART)):
        (parts / f"{number:04d}").write_bytes(whole[start : start + PART])
    print(f"{len(files)} files of {folder}, {len(whole) / 1e6:.1f} MB, are in {number + 1} parts in {parts}.")


def unpack(parts: Path, folder: Path) -> None:
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    whole = b"".join(part.read_bytes() for part in sorted(parts.glob("[0-9]" * 4)))
    try:
        with tarfile.open(fileobj=io.BytesIO(whole), mode="r:xz") as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2, Debian 12's, has none
            archive.extractall(partial)
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        sys.exit(f"The parts in {parts} do not make a whole ({error}). Is one missing, or cut off?")
    partial.replace(folder)
    run = RunReader(folder)
    if not run.facts:
        then = "go on with the comparison's command"
    elif run.checkpoints or run.status != "finished":
        then = f"go on with `longloop train --resume {folder}`"
    else:
        then = "it was finished, and came without its weights (`--weights`), so it cannot go on"
    print(f"{folder} is as it was; {then}.")


def needed(folder: Path, weights: bool) -> Iterator[Path]:
    """The files that must go."""
    for path in folder.iterdir():
        if path.name in LEFT:
            continue
        if (path / "run.json").is_file():
            yield from needed(path, weights)
        else:
            yield from (file for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file())
    if (folder / "run.json").is_file():
        yield from (folder / "evaluations").glob("000000.*")  # what the end of the run compares with
        run = RunReader(folder)
        compared = run.facts.get("comparison") or {}
        started_from = compared.get("method") is not None and compared["method"] == compared["start"]
        if run.checkpoints and (weights or started_from or run.status != "finished"):
            newest = run.checkpoints[max(run.checkpoints)]
            yield from (file for file in newest.rglob("*") if file.is_file())


if __name__ == "__main__":
    main()
