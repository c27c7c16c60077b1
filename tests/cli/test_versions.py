"""The version of an environment: where it is written, and that two of them are never mixed silently."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import longloop
from longloop.cli.comparison import table
from longloop.envs.contract import check_class
from longloop.envs.guess import Guess
from longloop.store.metrics import Evaluation
from longloop.store.run_reader import load_run, mixed_versions, read_changes
from longloop.types import UserError
from longloop.version import __version__
from longloop.viewer.library import Library
from longloop.viewer.pages import Pages
from tests.support.helpers import GUESS, write_config

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def first_version(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "1.0")


def install(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(Guess, "version", version)


@pytest.fixture
def run(command: Any, tmp_path: Path) -> Path:
    code, _, error = command(
        "train", write_config(tmp_path), f"folder={tmp_path}", "steps=1", "eval.every=1", "name=first"
    )
    assert code == 0, error
    return tmp_path / "first"


def forget_version(run: Path) -> None:
    """Leave the folder as it was written before there were versions."""
    config, facts = run / "config.toml", run / "run.json"
    config.write_text(re.sub(r"^env_version = .*\n", "", config.read_text(), flags=re.M))
    facts.write_text(facts.read_text().replace('"env_version": "1.0",', ""))
    metrics = run / "metrics.jsonl"
    metrics.write_text(re.sub(r', ?"env_version": ?"1.0"', "", metrics.read_text()))


def test_runs_and_evaluations_carry_it(command: Any, run: Path, tmp_path: Path) -> None:
    facts = json.loads((run / "run.json").read_text())
    assert (facts["env_version"], facts["longloop"]) == ("1.0", __version__)
    assert 'env_version = "1.0"' in (run / "config.toml").read_text()
    assert load_run(run).env_version == "1.0" and load_run(run).evaluations[1].env_version == "1.0"
    code, printed, error = command("eval", run, "--json", "--split", "dev", "--out", tmp_path / "kept")
    assert code == 0 and json.loads(printed)["dev"]["env_version"] == "1.0" and "version" not in error
    assert load_run(tmp_path / "kept" / "dev").env_version == "1.0"
    assert "version 1.0" in command("eval", run)[1]
    code, _, error = command("demos", write_config(tmp_path), "name=demos", f"folder={tmp_path}", "--tasks", "2")
    assert code == 0 and load_run(tmp_path / "demos").env_version == "1.0", error
    code, _, error = command("export", run, "--out", tmp_path / "model")
    assert code == 0 and "| version 1.0 | version 1.0 |" in (tmp_path / "model" / "README.md").read_text(), error


def test_what_was_measured_before_versions_is_read(run: Path) -> None:
    forget_version(run)
    found = load_run(run)
    assert found.env_version == "" and found.evaluations[1].env_version == "" and "env_version" not in found.facts
    assert isinstance(found.evaluations[1], Evaluation)


def test_a_run_is_not_resumed_in_another_version(
    command: Any, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, "1.10")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    code, _, error = command("train", "--resume", run, "steps=2")
    assert code == 2 and f"{run} was made in version 1.0 of guess, and version 1.10 is installed." in error
    assert f"model.path={run}" in error and "env_version='1.10'" in error and "Traceback" not in error
    with pytest.raises(UserError, match=r"version 1\.0 of guess, and version 1\.10 is installed"):
        longloop.train(write_config(tmp_path), {"steps": 2}, resume=run, progress=False)
    code, _, error = command("train", "--resume", run, "steps=2", "env_version=1.1")
    assert code == 2 and "version 1.10 is installed" in error, "another one that is not installed either"
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before

    code, printed, error = command("train", "--resume", run, "steps=2", "env_version=1.10")
    assert code == 0, error
    assert "from step 2: env_version = 1.10 (was 1.0)" in printed
    assert read_changes(run)[0].changed == {"env_version": ("1.0", "1.10"), "steps": (1, 2)}
    found = load_run(run)
    assert found.env_version == "1.10" and found.facts["env_version"] == "1.0"
    assert list(found.evaluations) == [0, 1, 2] and list(found.comparable_evaluations) == [2]
    assert command("train", "--resume", run, "steps=3")[0] == 0, "once is enough"


def test_a_run_from_before_versions_is_not_resumed_silently(
    command: Any, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_version(run)
    code, _, error = command("train", "--resume", run, "steps=2")
    assert code == 2 and "an unknown version (before versions) of guess, and version 1.0 is installed" in error
    code, _, error = command("train", "--resume", run, "steps=2", "env_version=1.0")
    assert code == 0 and read_changes(run)[0].changed["env_version"] == ("", "1.0"), error
    forget_version(run)
    (run / "changes.jsonl").unlink()
    install(monkeypatch, "")
    assert command("train", "--resume", run, "steps=3")[0] == 0, "an environment without versions goes on as before"


def test_eval_tells_of_another_version(command: Any, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "2.0")
    code, printed, error = command("eval", run, "--json")
    assert code == 0 and f"{run} was made in version 1.0 of guess, and version 2.0 is installed." in error
    assert json.loads(printed)["env_version"] == "2.0", "what it was measured in"
    with pytest.warns(UserWarning, match=r"version 1\.0 of guess, and version 2\.0 is installed"):
        assert longloop.evaluate(run).env_version == "2.0"
    assert "version 1.0" in command("demos", "guess", "--from", run, "--min-reward", "0", f"folder={run.parent}")[1]


def test_demonstrations_of_another_version_are_told_of(
    command: Any, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("demos", write_config(tmp_path), "name=demos", f"folder={tmp_path}", "--tasks", "2")[0] == 0
    install(monkeypatch, "2.0")
    imitate = ("algo.name=sft", "algo.k=1", f"demos={tmp_path / 'demos'}", "steps=1", f"folder={tmp_path}", "name=b")
    code, printed, error = command("train", write_config(tmp_path), "doctor=false", *imitate)
    assert code == 0, error
    assert f"{tmp_path / 'demos'} was made in version 1.0 of guess, and version 2.0 is installed." in printed


def test_a_config_may_ask_for_a_version(command: Any, tmp_path: Path) -> None:
    config = write_config(tmp_path, 'env_version = "0.9"\n' + GUESS)
    for name in ("train", "eval"):
        code, _, error = command(name, config, f"folder={tmp_path}")
        assert code == 2 and "The config is for version 0.9 of guess, and version 1.0 is installed." in error
    assert not (tmp_path / "test").exists()
    assert command("train", config, f"folder={tmp_path}", "steps=1", "env_version=1.0")[0] == 0


def test_a_comparison_has_one_version(command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["compare", write_config(tmp_path), "steps=1", f"folder={tmp_path}", "--seeds", "1", "--split", "dev"]
    code, printed, error = command(*words, "--methods", "base,loop")
    assert code == 0 and "Measured in version 1.0 of the environment." in printed, error
    install(monkeypatch, "1.1")
    code, _, error = command(*words, "--methods", "base,loop")
    assert code == 2 and "base-0.json was made with env_version = '1.0', and now it is '1.1'" in error
    assert "start another with name=..." in error
    code, _, error = command(*words, "--methods", "loop", "--start", "base")
    assert code == 2 and "env_version = '1.0'" in error
    file = tmp_path / "test" / "results" / "base-0.json"
    stored = json.loads(file.read_text())
    del stored["settings"]["env_version"]
    file.write_text(json.dumps(stored))
    assert "env_version = ''" in command(*words, "--methods", "base")[2], "a result from before versions"
    install(monkeypatch, "")
    assert command(*words, "--methods", "base")[0] == 0, "an environment without versions goes on as before"


def test_a_table_says_what_it_is_of() -> None:
    scores = [{"dev": {"success": 0.5, "by_task": {"a": 0.5}, "env_version": version}} for version in ("1.0", "1.1")]
    assert "Measured in version 1.0 and version 1.1 of the environment." in table({"base": scores}, ["dev"], "base")


def test_runs_of_different_versions_are_not_laid_side_by_side_silently(
    command: Any, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("train", write_config(tmp_path), f"folder={tmp_path}", "steps=1", "name=same")[0] == 0
    install(monkeypatch, "2.0")
    assert command("train", write_config(tmp_path), f"folder={tmp_path}", "steps=1", "name=other")[0] == 0
    first, same, other = (load_run(tmp_path / name) for name in ("first", "same", "other"))
    said = (
        "These runs were made in different versions of guess, whose scores do not compare (version 1.0: first, same; "
        "version 2.0: other)."
    )
    assert mixed_versions([first, same]) == "" and mixed_versions([first, same, other]) == said
    pages = Pages(Library([tmp_path]))
    assert said in pages.html("/curves", {"run": ["first", "same", "other"]})
    assert "different versions" not in pages.html("/curves", {"run": ["first", "same"]})
    assert "guess 1.0" in pages.html("/", {}) and "guess 2.0" in pages.html("/", {})
    sides = {"left": ["first:eval/1/0/0"], "right": ["other:eval/1/0/0"]}
    assert "different versions of guess" in pages.html("/compare", sides)
    assert "different versions" not in pages.html("/compare", sides | {"right": ["same:eval/1/0/0"]})
    code, printed, _ = command("analyze", first.folder, other.folder)
    assert code == 0 and "different versions of guess" in printed
    assert "different versions" not in command("analyze", first.folder, same.folder)[1]


def test_the_recipes_table_is_of_one_version(tmp_path: Path) -> None:
    splits = ("unseen_worlds", "dev", "validation", "test_normal", "test_challenge")
    results = tmp_path / "runs" / "smollm2-results"
    results.mkdir(parents=True)

    def made() -> subprocess.CompletedProcess[str]:
        program = [sys.executable, str(ROOT / "recipes" / "table.py"), "smollm2"]
        return subprocess.run(program, cwd=tmp_path, capture_output=True, text=True)

    score: dict[str, Any] = {"success": 0.5, "scenarios": 0.25}
    for side in ("sft-0", "loop-0"):
        (results / f"{side}.json").write_text(json.dumps({split: score | {"env_version": "1.0"} for split in splits}))
    done = made()
    assert done.returncode == 0 and "| sft | 0 | 50.0 | 25.0 |" in done.stdout, done.stderr
    (results / "loop-0.json").write_text(json.dumps(dict.fromkeys(splits, score)))
    done = made()
    assert done.returncode == 1 and "results of different versions of Errands ('', '1.0')" in done.stderr


def test_a_version_is_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guess, "version", 1.0)
    with pytest.raises(UserError, match=r"Guess\.version is 1\.0; it must be a text, as in version = '1\.0'"):
        check_class("guess", Guess)
