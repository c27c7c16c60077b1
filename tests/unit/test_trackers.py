"""Trackers get what metrics.jsonl has, and no tracker can stop a run."""

import importlib.util
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from longloop import api
from longloop.store import trackers
from longloop.store.metrics import Metrics
from longloop.store.run import Run
from longloop.store.run_reader import RunReader
from longloop.store.trackers import Mirror, numbers, send
from longloop.types import UserError
from tests.support.helpers import load_config, write_config

LINES: list[dict[str, Any]] = [
    {
        "step": 0,
        "eval": {"success": 0.25, "success_interval": [0.125, 0.5], "pass_at": {"1": 0.25}, "env_version": "1"},
    },
    {"step": 1, "success": 0.5, "update": {"kl": None, "lr": 0.5}, "memory": {"process": 1024}, "why": "text"},
    {"step": 2, "success": 0.75, "update": {"kl": 0.0625, "lr": 0.25}, "taught": [1, 2]},
]
WANTED = {
    "eval/success": [(0, 0.25)],
    "eval/success_low": [(0, 0.125)],
    "eval/success_high": [(0, 0.5)],
    "eval/pass_at/1": [(0, 0.25)],
    "success": [(1, 0.5), (2, 0.75)],
    "update/lr": [(1, 0.5), (2, 0.25)],
    "memory/process": [(1, 1024.0)],
    "update/kl": [(2, 0.0625)],
}
"""By hand: nothing but numbers, and no number that is missing."""


class Notes:
    """A tracker that remembers."""

    made: list["Notes"] = []

    def __init__(self, run: RunReader, project: str) -> None:
        self.project, self.folder = project, run.folder
        self.lines: list[tuple[int, dict[str, float]]] = []
        self.closed = False
        self.made.append(self)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.lines.append((step, dict(values)))

    def close(self) -> None:
        self.closed = True


class Absent(Notes):
    """Cannot be reached."""

    def __init__(self, run: RunReader, project: str) -> None:
        raise ConnectionError("no such host\nand more")


class Moody(Notes):
    """Fails at the second line."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        super().log(step, values)
        if len(self.lines) == 2:
            raise RuntimeError("disk full")


class Stuck(Notes):
    """Never returns."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        threading.Event().wait(3600)


HERE = __name__


@pytest.fixture(autouse=True)
def forgotten() -> None:
    Notes.made.clear()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with Run.create(load_config(tmp_path, f"folder={tmp_path}"), {}) as made:
        for line in LINES:
            made.metrics.write(line)
    return made.folder


def needs(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        what = "package" if name == "tensorboard" else "tracker"  # `make test-all` gets that one alone
        pytest.skip(f"needs the {what} {name}: pip install 'longloop[{name}]'")


def by_name(lines: list[tuple[int, dict[str, float]]]) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for step, values in lines:
        for name, value in values.items():
            found.setdefault(name, []).append((step, value))
    return found


def test_numbers_and_nothing_else() -> None:
    assert by_name([(line["step"], numbers(line)) for line in LINES]) == WANTED
    assert numbers({"step": 1, "a": float("nan"), "b_interval": [None, 1], "c_interval": "text"}) == {}


def test_a_training_run_is_mirrored_line_by_line(tmp_path: Path) -> None:
    """And the run goes on as if the trackers that fail were not there."""
    names = [f"{HERE}:{name}" for name in ("Notes", "Absent", "Moody")]
    track = {"track.to": names, "track.project": "p", "folder": str(tmp_path), "eval.every": 1, "steps": 2}
    made = api.train(write_config(tmp_path), track | {"doctor": False, "learner.memory_check": False}, progress=False)
    lines = Metrics(made.folder / "metrics.jsonl").read()
    assert [line["step"] for line in lines] == [0, 1, 2] and made.facts["status"] == "finished"
    notes = next(one for one in Notes.made if type(one) is Notes)
    assert notes.closed and notes.project == "p"
    assert notes.lines == [(line["step"], numbers(line)) for line in lines]
    assert len(notes.lines[2][1]) > 20
    log = (made.folder / "logs" / "train.log").read_text()
    assert log.count("left behind") == 2, "each is said once"
    assert "Absent was left behind: ConnectionError: no such host. " in log
    assert f"`longloop log {made.folder} --to {HERE}:Moody` sends" in log


def test_a_tracker_that_hangs_is_left(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "_PATIENCE", 1.0)
    told: list[str] = []
    with Mirror([f"{HERE}:Stuck", f"{HERE}:Notes"], "p", run, told.append) as mirror:
        for line in LINES:
            mirror.write(line)
    assert len(told) == 1 and "Stuck was left behind: it has not ended after 1 s" in told[0]
    (notes,) = (one for one in Notes.made if type(one) is Notes)
    assert len(notes.lines) == 3


def test_what_cannot_be_used_is_refused_before_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    (tmp_path / "broken_tracker.py").write_text("raise RuntimeError('no license')")
    monkeypatch.syspath_prepend(tmp_path)
    for name, words in {
        "tensorbord": "There is no tracker 'tensorbord'. Known are tensorboard",
        "wandb": r"pip install 'longloop\[wandb\]'",
        "no_such_module:X": "no_such_module",
        f"{HERE}:Nobody": "Nobody",
        ":X": "cannot be imported: ValueError: Empty module name",
        "broken_tracker:X": "cannot be imported: RuntimeError: no license",
    }.items():
        with pytest.raises(UserError, match=words):
            api.train(write_config(tmp_path), {"track.to": [name], "folder": str(tmp_path / "runs")})
    assert not (tmp_path / "runs").exists()


def test_a_run_is_the_same_wherever_it_lies(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def id_of(folder: str | Path) -> str:
        return trackers._id(trackers.load_run(folder))

    first = id_of(run)
    monkeypatch.chdir(run)
    assert id_of(".") == first
    monkeypatch.chdir(tmp_path)
    assert id_of(run.rename(tmp_path / "another name")) == first
    with Run.create(load_config(tmp_path, f"folder={tmp_path}", "name=other"), {}) as other:
        assert id_of(other.folder) != first


def test_log_sends_a_whole_run(run: Path) -> None:
    assert send(run, f"{HERE}:Notes", "later") == 3
    (notes,) = Notes.made
    assert by_name(notes.lines) == WANTED and notes.closed and notes.project == "later"
    with pytest.raises(UserError, match="Moody failed: RuntimeError: disk full"):
        send(run, f"{HERE}:Moody", "p")


def test_tensorboard_reads_back_what_was_written(run: Path) -> None:
    """With its own reader. A step that is logged again replaces the first, as after a crash."""
    needs("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    send(run, "tensorboard", "p")
    tracker = trackers.TensorBoard(trackers.load_run(run), "p")  # as a run that is resumed makes another
    tracker.log(2, {"success": 0.875})
    tracker.log(3, {"success": 1.0})
    tracker.close()
    found = EventAccumulator(str(run / "tensorboard"))
    found.Reload()
    stored = {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    again = WANTED | {"success": [(1, 0.5), (2, 0.875), (3, 1.0)], "update/lr": [(1, 0.5)]}
    del again["update/kl"]
    assert {tag: values for tag, values in stored.items() if values} == again


def test_mlflow(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "ml").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow import MlflowClient

    send(run, "mlflow", "p")
    send(run, "mlflow", "p")
    client = MlflowClient()
    (only,) = client.search_runs([client.get_experiment_by_name("p").experiment_id])
    assert only.info.run_name == "test" and only.info.status == "FINISHED"
    history = {(m.step, m.value) for m in client.get_metric_history(only.info.run_id, "success")}
    assert history == {(1, 0.5), (2, 0.75)}


def test_trackio(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("trackio")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    send(run, "trackio", "p")
    stored = b"".join(path.read_bytes() for path in (tmp_path / "trackio").rglob("*") if path.is_file())
    assert b"eval/success_low" in stored and b"0.0625" in stored


def test_wandb(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    send(run, "wandb", "p")
    (stored,) = (run / "wandb").glob("offline-run-*/*.wandb")
    assert b"success_low" in stored.read_bytes()


def test_a_mirror_of_nothing_reads_nothing(tmp_path: Path) -> None:
    with Mirror([], "p", tmp_path / "none", print) as mirror:
        mirror.write(json.loads('{"step": 1}'))
