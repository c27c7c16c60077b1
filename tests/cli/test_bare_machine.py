"""The tests themselves on a machine that has Python and make: no Java, no browser, no data, an empty home folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WANTING = (
    *(
        f"tests/contract/test_{name}.py"
        for name in ("scienceworld", "textworld_express", "appworld", "alfworld", "mcp")
    ),
    *("tests/browser/test_viewer.py", "tests/cli/test_web_envs.py"),
)
"""The files whose tests want something that nobody installs along with longloop."""
NOT_AGAIN = "tests/cli/test_web_envs.py::test_missing_data_are_one_sentence_and_what_mends_it"
"""This one wants nothing. Alone in these files it trains, for which torch would be imported once more."""


@pytest.fixture
def bare(tmp_path):
    """Run tests where nothing is installed; how it ended, and the lines that were printed."""
    kept = {name: value for name, value in os.environ.items() if name in ("LANG", "TMPDIR", "OMP_NUM_THREADS")}
    nothing = {"HOME": str(tmp_path), "PATH": str(tmp_path), "LONGLOOP_DATA": str(tmp_path), "PYTHONPATH": str(ROOT)}

    def run(*arguments: str) -> tuple[int, list[str]]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=kept | nothing, capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()

    return run


def test_what_is_missing_is_skipped_and_listed(bare, tmp_path):
    code, printed = bare(*WANTING, f"--deselect={NOT_AGAIN}")
    assert code == 0, "\n".join(printed)
    missing = printed[printed.index(next(line for line in printed if line.strip("= ") == "skipped")) + 1 : -1]
    listed = {line.split(maxsplit=1)[1]: int(line.split()[0]) for line in missing[:-1]}
    assert "make test-all" in missing[-1]
    for what in (
        "scienceworld needs a Java runtime",
        "textworld_express needs a Java runtime",
        "`longloop envs install appworld`",
        "`longloop envs install mcp`",
        "there is no Chromium on the PATH: `apt-get install chromium`",
        f"needs published data: alfworld is not in {tmp_path}",
        f"needs published data: webshop is not in {tmp_path}",
    ):
        assert len([reason for reason in listed if what in reason]) == 1, (what, listed)
    assert f" {sum(listed.values())} skipped" in printed[-1], "none is forgotten"


def test_of_a_full_machine_it_is_a_failure(bare):
    """`make test-all` has installed things; what is not there all the same is no reason to pass. Data it cannot get."""
    code, printed = bare("--full", "tests/contract/test_scienceworld.py", "-k", "test_stored_gold or test_steps_end")
    assert code == 1 and any("was skipped: scienceworld needs a Java runtime" in line for line in printed), printed
    assert "1 skipped" in printed[-1] and "1 error" in printed[-1]


def test_ci_is_what_anyone_can_run():
    script = (ROOT / ".ci" / "run").read_text()
    commands = [line for line in script.splitlines() if line and not line.startswith(("#", "set ", "cd "))]
    assert commands == ["make check", "make test"]
