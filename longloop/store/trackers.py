"""Trackers that mirror `metrics.jsonl`: TensorBoard, Weights & Biases, trackio, MLflow, or a class of the user's.

The file stays the only truth. A tracker gets each line after it was written, in a thread of its own: one that fails,
or hangs, is told of once and left, and the run goes on. Packages are imported when they are asked for.
"""

import hashlib
import importlib
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from longloop.options import find_user_modules
from longloop.store.run_reader import RunReader, load_run
from longloop.types import UserError

_PATIENCE = 30.0
"""Seconds that a tracker has at the end of a run for what it was given."""


class Tracker(Protocol):
    """Where numbers go. Made with the run and the name of a project; a run that goes on is the same run there."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """The numbers of a step, which may have been logged before: then these count."""
        ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in the run's folder `tensorboard`: `tensorboard --logdir runs` shows all runs there."""

    def __init__(self, run: RunReader, project: str) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._events, self._summaries = event_pb2, summary_pb2
        self._writer = EventFileWriter(str(run.folder / "tensorboard"))
        self._last: int | None = None

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if self._last is None or step <= self._last:  # what was logged for this step and later is void
            started = self._events.SessionLog(status=self._events.SessionLog.START)
            self._writer.add_event(self._events.Event(step=step, wall_time=time.time(), session_log=started))
        self._last = step
        numbers = [self._summaries.Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        summary = self._summaries.Summary(value=numbers)
        self._writer.add_event(self._events.Event(step=step, wall_time=time.time(), summary=summary))

    def close(self) -> None:
        self._writer.close()


class _WandbLike:
    """What the trackers with wandb's interface share."""

    _run: Any

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


class Wandb(_WandbLike):
    """Weights & Biases, as its environment variables say (`WANDB_API_KEY`, `WANDB_MODE=offline`, ...)."""

    def __init__(self, run: RunReader, project: str) -> None:
        import wandb

        settings = run.config.model_dump()
        self._run = wandb.init(
            project=project, name=_name(run), id=_id(run), resume="allow", dir=str(run.folder), config=settings
        )


class Trackio(_WandbLike):
    """trackio, on this machine; `trackio show` opens its pages."""

    def __init__(self, run: RunReader, project: str) -> None:
        import trackio

        name = f"{_name(run)}-{_id(run)[:6]}"
        self._run = trackio.init(
            project, name, config=run.config.model_dump(), resume="allow", embed=False, auto_log_gpu=False
        )


class Mlflow:
    """MLflow, at `MLFLOW_TRACKING_URI`."""

    def __init__(self, run: RunReader, project: str) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric

        self._client, self._metric = MlflowClient(), Metric
        known = self._client.get_experiment_by_name(project)
        experiment = known.experiment_id if known is not None else self._client.create_experiment(project)
        found = self._client.search_runs([experiment], f"tags.`longloop.id` = '{_id(run)}'")
        tags = {"longloop.id": _id(run)}
        made = found[0] if found else self._client.create_run(experiment, run_name=_name(run), tags=tags)
        self._run = made.info.run_id

    def log(self, step: int, values: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        self._client.log_batch(self._run, [self._metric(name, value, now, step) for name, value in values.items()])

    def close(self) -> None:
        self._client.set_terminated(self._run)


TRACKERS: dict[str, type[Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
    "trackio": Trackio,
    "mlflow": Mlflow,
}


def tracker_class(name: str) -> Callable[[RunReader, str], Tracker]:
    """The tracker with a name, or the class that `module:Class` names. Raises UserError if it cannot be used."""
    module, colon, attribute = name.partition(":")
    if not colon and name not in TRACKERS:
        raise UserError(f"There is no tracker {name!r}. Known are {', '.join(TRACKERS)}; your own is module:Class.")
    if not colon and find_spec(name) is None:
        raise UserError(f"The tracker {name!r} needs its package: pip install 'longloop[{name}]'.")
    if not colon:
        return TRACKERS[name]
    find_user_modules()
    try:
        found: Callable[[RunReader, str], Tracker] = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise UserError(f"The tracker {name!r} cannot be imported: {type(error).__name__}: {error}.") from error
    return found


class Mirror:
    """Passes lines of metrics on to some trackers, as long as each is willing. `tell` is told of one that is not."""

    def __init__(self, names: Sequence[str], project: str, folder: Path, tell: Callable[[str], None]) -> None:
        made = [(name, tracker_class(name)) for name in names]
        run = load_run(folder) if made else None
        self._senders = [_Sender(name, kind, run, project, tell) for name, kind in made if run is not None]

    def write(self, line: Mapping[str, Any]) -> None:
        """Returns at once."""
        for sender in self._senders:
            sender.lines.put(line)

    def __enter__(self) -> "Mirror":
        return self

    def __exit__(self, *_: object) -> None:
        for sender in self._senders:
            sender.lines.put(None)
        for sender in self._senders:
            sender.end()


class _Sender:
    """One tracker, in a thread of its own."""

    def __init__(
        self,
        name: str,
        kind: Callable[[RunReader, str], Tracker],
        run: RunReader,
        project: str,
        tell: Callable[[str], None],
    ) -> None:
        self.lines: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        self._name, self._tell, self._folder = name, tell, run.folder
        self._thread = threading.Thread(target=self._send, args=(kind, run, project), daemon=True, name=name)
        self._thread.start()

    def end(self) -> None:
        self._thread.join(_PATIENCE)
        if self._thread.is_alive():
            self._leave(f"it has not ended after {_PATIENCE:g} s")

    def _send(self, kind: Callable[[RunReader, str], Tracker], run: RunReader, project: str) -> None:
        try:
            tracker = kind(run, project)
            while (line := self.lines.get()) is not None:
                tracker.log(line["step"], numbers(line))
            tracker.close()
        except (Exception, SystemExit) as error:
            self._leave(f"{type(error).__name__}: {error}".splitlines()[0][:300])

    def _leave(self, why: str) -> None:
        self._tell(
            f"The tracker {self._name} was left behind: {why}. Nothing is lost: `longloop log {self._folder} --to "
            f"{self._name}` sends everything later."
        )


def send(folder: Path, name: str, project: str) -> int:
    """Send all that a run has measured to a tracker; returns the number of steps."""
    kind = tracker_class(name)
    run = load_run(folder)
    try:
        tracker = kind(run, project)
        for line in run.metrics:
            tracker.log(line["step"], numbers(line))
        tracker.close()
    except Exception as error:
        raise UserError(f"The tracker {name} failed: {type(error).__name__}: {error}.") from error
    return len(run.metrics)


def numbers(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers in a line of metrics, by path: `eval.success` is `eval/success`, and its interval `eval/success_low`
    and `eval/success_high`."""
    return {name: value for name, value in _numbers(line) if name != "step" and math.isfinite(value)}


def _numbers(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float):
            yield prefix + name, float(value)
        elif name.endswith("_interval") and isinstance(value, list | tuple) and None not in value:
            for end, one in zip(("low", "high"), value, strict=True):
                yield f"{prefix}{name.removesuffix('interval')}{end}", float(one)


def _id(run: RunReader) -> str:
    """The same for a run whenever it goes on, and another for any other run."""
    return hashlib.blake2b(f"{_name(run)} {run.facts.get('started')}".encode(), digest_size=8).hexdigest()


def _name(run: RunReader) -> str:
    """The name that it began with: its folder may be another now, or be named as `.`."""
    return Path(str(run.settings.get("name"))).name
