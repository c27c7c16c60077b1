"""`longloop log`: send what a run has measured to trackers."""

from pathlib import Path

from longloop.store.run_reader import load_run
from longloop.store.trackers import send, tracker_class


def log(folder: Path, names: list[str], project: str) -> None:
    project = project or load_run(folder).config.track.project
    for name in names:
        tracker_class(name)  # before any gets something
    for name in names:
        print(f"{name}: {send(folder, name, project)} steps of {folder}, project {project}.")
