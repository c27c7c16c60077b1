"""One thread: the models here are tiny, and results are the same to the bit only with the same number of threads. Where
a test has two, they sleep while they wait: other tests need the cores.

Without a GPU, Triton interprets its kernels; it must be told before it is first imported.

A test that needs what the machine lacks is skipped, and the end of the run lists what was missing. With `--full`
(`make test-all`) such a skip is a failure, unless no command could have installed what is missing.

What is imported and collected stays to the end. The garbage collector would spend a quarter of that time, and a
twentieth of the tests', on going through it: it is off until then, and leaves it alone afterwards. Then it looks more
rarely than it does by default: runs of tiny models make so many objects that it took a tenth of their time.

Properties are tried at the same examples each time, and have no deadline: others may have the cores.

Nothing waits for the disk: a run of a tiny model did so four times a step. What a test kills is a process, and what it
had written is there without that.
"""

import atexit
import gc
import os
from collections import Counter
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OMP_WAIT_POLICY"] = "passive"
os.environ.setdefault("HF_HUB_OFFLINE", "1")
if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"
os.fsync = lambda fd: None
gc.disable()
with suppress(ImportError):  # a machine with a card may have been given what tests/gpu needs and no more
    from hypothesis import settings

    settings.register_profile("longloop", deadline=None, derandomize=True, database=None)
    settings.load_profile("longloop")

EXCUSED = ("needs a CUDA device", "needs MKL", "needs Linux", "needs root", "needs published data", "needs the tracker")
"""How the reason for a skip begins where `--full` accepts it."""
LONG = (
    *("test_ranks", "test_composed", "test_hosts", "test_graphs", "test_compiled_update", "test_vllm", "test_learning"),
    *("test_row_invariance", "test_pairs", "test_docs", "test_shards", "test_vllm_engine", "test_memory_forecast"),
)
"""Files that take a minute or more. They are begun first: no worker shall be alone with one at the end."""

Report = pytest.TestReport | pytest.CollectReport


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """One more than there are cores: tests of several processes wait for these a third of their time."""
    return (yield) + 1


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="fail a test that is skipped because something is missing")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))


def pytest_collection_finish() -> None:
    gc.freeze()
    atexit.register(gc.unfreeze)  # or extension modules complain at the end that their objects were never released
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Report, Report]:
    return judged((yield), item.config)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Report, Report]:
    return judged((yield), collector.config)


def judged(report: Report, config: pytest.Config) -> Report:
    """The report, which with `--full` is a failure if the test was skipped for a reason that is not excused."""
    reason = skipped_for(report)
    if reason and config.getoption("full") and not reason.startswith(EXCUSED):
        report.outcome, report.longrepr = "failed", f"{report.nodeid} was skipped: {reason}"
    return report


def skipped_for(report: Report) -> str | None:
    """Why a test was skipped. A test that is expected to fail, and does, also counts as skipped, but has no reason."""
    return report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was missing, and how many tests wanted it."""
    reasons = Counter(reason for report in terminalreporter.stats.get("skipped", []) if (reason := skipped_for(report)))
    if reasons:
        terminalreporter.section("skipped")
    for reason, count in reasons.most_common():
        terminalreporter.line(f"{count:5}  {reason}")
    if not all(reason.startswith(EXCUSED) for reason in reasons):
        terminalreporter.line("`make test-all` installs what can be installed, and runs these tests as well.")
