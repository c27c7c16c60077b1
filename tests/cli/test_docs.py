"""The code in the guides is real: files are written as shown, commands are run as shown."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from longloop.cli.main import main
from longloop.store.metrics import Metrics

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def follow(guide: Path, folder: Path, monkeypatch) -> int:
    """Write the guide's named files into the folder and run its `$ longloop` lines there; returns how many."""
    monkeypatch.chdir(folder)
    commands = []
    for language, name, body in FENCE.findall(guide.read_text()):
        if name:
            (folder / name).write_text(body)
        if language == "console":
            commands += [line[2:] for line in body.splitlines() if line.startswith("$ longloop")]
    for command in commands:
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        with pytest.raises(SystemExit) as exit:
            main()
        assert not exit.value.code, command
    return len(commands)


@pytest.mark.parametrize(
    ("guide", "run", "commands"), [("new-environment.md", "letters", 4), ("new-algorithm.md", "cispo", 1)]
)
def test_guide_works_and_the_agent_improves(guide, run, commands, tmp_path, monkeypatch):
    assert follow(ROOT / "docs" / guide, tmp_path, monkeypatch) == commands
    steps = [line for line in Metrics(tmp_path / "runs" / run / "metrics.jsonl").read() if "success" in line]
    first, last = (sum(step["success"] for step in part) / 5 for part in (steps[:5], steps[-5:]))
    assert last > first + 0.2


def test_files_and_links_named_in_the_docs_exist():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    assert len(pages) > 5
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
