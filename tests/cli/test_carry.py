"""Runs that are carried to another machine in parts go on there as if nothing had been."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longloop.store.run_reader import load_run
from tests.support.helpers import GUESS, write_config
from tests.support.processes import ROOT
from tests.support.runs import differences

SFT = "\n[methods.sft]\nsteps = 2\n"


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Path]:
    """Carry a folder, in parts of 20 kB; with `lost`, one of them does not arrive."""
    monkeypatch.syspath_prepend(ROOT / "recipes" / "offline")
    carry = importlib.import_module("carry")
    monkeypatch.setattr(carry, "PART", 20_000)

    def over(folder: Path, there: Path, *, lost: bool = False) -> Path:
        parts = tmp_path / "parts"
        shutil.rmtree(parts, ignore_errors=True)
        for words in (["out", folder, parts], ["in", parts, there]):
            monkeypatch.setattr(sys, "argv", ["carry.py", *map(str, words)])
            carry.main()
            if lost:
                (parts / "0001").unlink()
        return there

    return over


def test_a_run_goes_on_elsewhere(command: Any, carried: Any, tmp_path: Path) -> None:
    words = ["steps=4", "save.keep=9", "eval.every=0", "model.lora_rank=4", f"folder={tmp_path}", "name=whole"]
    code, _, error = command("train", write_config(tmp_path), *words)
    assert code == 0, error
    whole, stopped = tmp_path / "whole", tmp_path / "here" / "whole"
    shutil.copytree(whole, stopped)
    facts = json.loads((stopped / "run.json").read_text())
    (stopped / "run.json").write_text(json.dumps(facts | {"status": "interrupted"}))
    for step in (3, 4):
        shutil.rmtree(stopped / "checkpoints" / f"{step:06d}")
    there = carried(stopped, tmp_path / "there" / "whole")
    assert list(load_run(there).checkpoints) == [2], "the newest alone"
    code, _, error = command("train", "--resume", there)
    assert code == 0, error
    shutil.rmtree(whole / "checkpoints" / "000001")
    assert differences(whole, there) == []
    with pytest.raises(SystemExit, match="there already"):
        carried(stopped, there)
    with pytest.raises(SystemExit, match="do not make a whole"):
        carried(stopped, tmp_path / "nowhere", lost=True)
    assert not (tmp_path / "nowhere").exists()


def test_a_carried_run_ends_with_its_table(
    command: Any, carried: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The evaluation before training comes along. A finished run without its weights is not said to go on."""
    words = ["steps=2", "eval.every=2", f"folder={tmp_path}", "name=run"]
    code, _, error = command("train", write_config(tmp_path), *words)
    assert code == 0, error
    run = tmp_path / "run"
    carried(run, tmp_path / "away" / "run")
    said = capsys.readouterr().out
    assert "it cannot go on" in said and "--resume" not in said
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(facts | {"status": "interrupted"}))
    there = carried(run, tmp_path / "there" / "run")
    assert f"go on with `longloop train --resume {there}`" in capsys.readouterr().out
    code, printed, error = command("train", "--resume", there, "steps=3", "eval.every=3")
    assert code == 0 and "A typical task, before and after" in printed and "change" in printed, error


def test_a_recipe_keeps_its_settings_when_it_goes_on(tmp_path: Path) -> None:
    """What a killed process had only begun to make is begun anew."""
    (tmp_path / "runs" / "begun").mkdir(parents=True)
    (tmp_path / "runs" / "half").mkdir()
    (tmp_path / "runs" / "half" / "run.json").write_text("{}")
    script = f"name=x; . {ROOT}/recipes/stages.sh; for run in half begun; do train $run some.toml steps=9 'a=b c'; done"
    made = {"LONGLOOP": "printf [%s]", "PATH": os.environ["PATH"]}
    said = subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=made, capture_output=True, text=True, check=True)
    again = "[train][--resume][runs/half][steps=9][a=b c]"
    assert said.stdout == f"{again}[train][some.toml][name=begun][steps=9][a=b c]"


def test_a_comparison_goes_on_elsewhere(
    command: Any, carried: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_config(tmp_path, GUESS + SFT)
    words = ["compare", config, "steps=1", "folder=runs", "--methods", "sft,loop,rloo", "--seeds", "1"]
    for machine in ("one", "two"):
        (tmp_path / machine / "runs").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "one")
    code, _, error = command(*words)
    assert code == 0, error
    here = tmp_path / "one" / "runs" / "test"
    shutil.copytree(here, tmp_path / "stopped")
    (tmp_path / "stopped" / "results" / "rloo-0.json").unlink()
    shutil.rmtree(tmp_path / "stopped" / "rloo-0")
    monkeypatch.chdir(tmp_path / "two")
    there = carried(tmp_path / "stopped", tmp_path / "two" / "runs" / "test")
    assert not (there / "models").exists() and not load_run(there / "loop-0").checkpoints
    code, said, error = command(*words)
    assert code == 0 and "rloo on guess" in said and "loop on guess" not in said.replace("rloo on guess", ""), error
    assert differences(here / "rloo-0", there / "rloo-0") == []
