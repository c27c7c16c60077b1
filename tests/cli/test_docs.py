"""The code in the guides is real: files are written as shown, commands are run as shown."""

import asyncio
import importlib
import re
import shlex
import sys
from pathlib import Path

import pytest

from longloop.cli.listing import differences
from longloop.cli.main import main
from longloop.envs.play import Script, play
from longloop.registry import ALGOS
from longloop.store.metrics import Metrics

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def follow(guide: Path, folder: Path, monkeypatch, *shorter: str) -> int:
    """Write the guide's named files into the folder and run its `$ longloop` lines there; returns how many. Settings in
    `shorter` are added where they make a training run shorter."""
    monkeypatch.chdir(folder)
    commands = []
    for language, name, body in FENCE.findall(guide.read_text()):
        if name:
            (folder / name).write_text(body)
        if language == "console":
            commands += [line[2:] for line in body.splitlines() if line.startswith("$ longloop")]
    for command in commands:
        words = shlex.split(command)
        monkeypatch.setattr(sys, "argv", [*words, *(shorter if words[1] in ("train", "eval") else ())])
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


def test_what_differs_from_the_papers_is_said_and_up_to_date():
    """Every algorithm's page has a paragraph on it, and docs/algorithms.md has them all."""
    said = dict(row.split(": ", 1) for row in differences().splitlines())
    assert list(said) == [f"- **`{name}`**" for name in ALGOS]
    silent = [name for name, differs in said.items() if not differs]
    assert not silent, f"{silent}: end the page with a paragraph that begins 'Differs from the paper: '"
    page = (ROOT / "docs" / "algorithms.md").read_text()
    assert f"\n{differences()}\n" in page, "docs/algorithms.md is stale: run `make docs`"


def test_the_way_from_nothing_to_a_trained_agent(tmp_path, monkeypatch):
    """Every command works and fits the next; the numbers, which take minutes, are in the guide."""
    short = ("steps=2", "eval.tasks=2", "tasks_per_step=4", "eval.every=1", "doctor=false")
    assert follow(ROOT / "docs" / "own-environment.md", tmp_path, monkeypatch, *short) == 7
    lines = Metrics(tmp_path / "runs" / "practice" / "metrics.jsonl").read()
    assert [line["step"] for line in lines] == [0, 1, 2]


def test_the_expert_of_the_guide_can_do_its_tasks(tmp_path, monkeypatch):
    """It is handed only what has just arrived, and finds its way."""
    for language, name, body in FENCE.findall((ROOT / "docs" / "new-environment.md").read_text()):
        if language == "python" and name:
            (tmp_path / name).write_text(body)
    monkeypatch.syspath_prepend(str(tmp_path))
    letters, speller = (importlib.import_module(name) for name in ("letters", "speller"))
    game, options = letters.LastLetter, letters.LastLetter.Options
    for task in game.tasks("train", options()):
        assert asyncio.run(play(game(options()), task, speller.Speller())).outcome.success
    lost = game.tasks("dev", options())[0]
    assert asyncio.run(play(game(options(tries=3)), lost, Script(["?", "?", "?"]))).ending == (
        "it was paid 0 after 3 turns; its last words were '?'"
    )


def test_files_and_links_named_in_the_docs_exist():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    assert len(pages) > 5
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
