"""What Errands shows to people who train with something else: its names, its README, its table of results."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

import errands
from errands import leaderboard
from errands.leaderboard import table
from errands.tools import ToolEpisode
from longloop import build, config
from longloop.cli.main import app

ROOT = Path(errands.__file__).parents[1]
README = ROOT / "errands" / "README.md"


def ran(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_it_is_cheap() -> None:
    heavy = "[name for name in ('pydantic_monty', 'pydantic', 'longloop', 'torch', 'sqlite3') if name in sys.modules]"
    assert ran(f"import sys, errands; print(errands.__version__, {heavy})") == f"{errands.__version__} []"
    code = "import sys; from errands import Errands; print(Errands.version, 'torch' in sys.modules)"
    assert ran(code) == f"{errands.__version__} False"


def test_public_names() -> None:
    assert errands.Errands.__module__ == "errands.env" and "Errands" in dir(errands)
    assert re.fullmatch(r"\d+\.\d+", errands.__version__)
    with pytest.raises(AttributeError, match="no attribute 'Erands'"):
        errands.Erands  # noqa: B018


def test_its_version_reaches_the_runs() -> None:
    made = build.stamped(config.resolve({"env": {"name": "errands"}}, "a test"))
    assert made.env_version == errands.__version__ == errands.Errands.version


# --- the README ---


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


def test_its_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": "readme"}
    printed = []
    for block in blocks("python"):
        exec(compile(block, str(README), "exec"), names)
        printed.append(capsys.readouterr().out)
    plain, expert, gymnasium, tools = printed
    assert plain.startswith("[system] ") and "'mail.search'" in plain and plain.splitlines()[-1].startswith("0.0 False")
    assert expert == "True\n"
    assert gymnasium.startswith("0.0 False [{'name': ")
    assert "Error: 422 contacts.search" in tools and re.search(r"True 0\.\d\n$", tools) and " 224\n" in tools


def test_the_task_that_it_shows_is_one() -> None:
    (shown,) = blocks("text")
    tasks = errands.Errands.tasks("train", errands.Errands.Options())
    (task,) = (task for task in tasks if task.id == "train/forward-to-relation/0")
    assert " ".join(shown.split()) == ToolEpisode(task).messages[-1]["content"]


def test_every_block_is_of_a_kind_that_is_tested() -> None:
    assert set(re.findall(r"^```(\w*)$", README.read_text(), re.MULTILINE)) == {"", "console", "python", "text"}


def test_its_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line accepts them; the table is made of files like those that `longloop eval` writes."""
    install, measure, show = (line[2:].partition("#")[0] for block in blocks("console") for line in block.splitlines())
    assert install.split() == ["pip", "install", "."]
    words = shlex.split(measure.partition(">")[0])
    group = typer.main.get_command(app)
    top = group.make_context("longloop", words[1:], resilient_parsing=False)
    name, command, rest = group.resolve_command(top, words[1:])
    context = command.make_context(name, list(rest), parent=top)
    assert context.params["split"] == ["dev", "test_normal", "test_challenge"]
    for number, file in enumerate(("loop-0", "loop-1", "loop-2", "base")):
        (tmp_path / f"{file}.json").write_text(json.dumps({"dev": score(0.1 * number)}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", shlex.split(show)[2:])
    leaderboard.main()


def test_its_splits_are_those_there_are() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", README.read_text(), re.MULTILINE)) == set(errands.Errands.splits)


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", README.read_text()):
        assert target.startswith("https://") or (README.parent / target).exists(), target


# --- the table of results ---


def score(success: float, version: str = "1.0") -> dict[str, Any]:
    return {"success": success, "success_interval": [0.0, 0.9], "scenarios": success / 2, "env_version": version}


def test_a_table_of_results() -> None:
    seeds = [{"test_normal": score(share), "dev": score(share), "other": score(1.0)} for share in (0.2, 0.3, 0.4)]
    printed = table({"LOOP": seeds, "as it is": [{"dev": score(0.1), "test_normal": score(0.0)}]})
    assert printed.splitlines()[:4] == [
        "|  | seeds | dev | test_normal |",
        "| --- | --- | --- | --- |",
        "| LOOP | 3 | 30.0 [20.0, 40.0] / 15.0 | 30.0 [20.0, 40.0] / 15.0 |",
        "| as it is | 1 | 10.0 [0.0, 90.0] / 5.0 | 0.0 [0.0, 90.0] / 0.0 |",
    ]
    assert printed.endswith("Errands 1.0.")


def test_versions_do_not_share_a_table(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"these are of: 1\.0, 1\.1"):
        table({"a": [{"dev": score(0.5)}], "b": [{"dev": score(0.5, "1.1")}]})
    old = score(0.5)
    del old["env_version"]
    (tmp_path / "old.json").write_text(json.dumps({"dev": old}))
    (tmp_path / "new.json").write_text(json.dumps({"dev": score(0.5)}))
    made = [f"{name}={tmp_path / name}.json" for name in ("old", "new")]
    for words, sentence in ((made, "these are of: before versions, 1.0."), (["x.json"], "'x.json' is not a row.")):
        command = [sys.executable, "-m", "errands.leaderboard", *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 1 and sentence in done.stderr and "Traceback" not in done.stderr
