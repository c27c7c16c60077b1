"""Several methods side by side: what is planned, what is run, what is run again, and the numbers of the table."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from longloop import build
from longloop.compare import Plan, over_seeds, paired
from longloop.config import read
from longloop.types import UserError
from tests.helpers import GUESS, write_config

OWN = """
[methods.sft]
steps = 2
[methods.sft.algo]
lr = 3e-3
[methods.dpo]
tasks_per_step = 2
[methods.dpo.algo]
beta = 0.5
"""


def plan(folder: Path, methods: str, *overrides: str, seeds: int = 1, start: str = "sft") -> Plan:
    path = write_config(folder, GUESS + OWN)
    return Plan(path, [f"folder={folder}", *overrides], methods.split(","), seeds, start)


def test_methods_share_start_and_budget(tmp_path: Path) -> None:
    """3 steps of 3 tasks with 4 attempts are 36 attempts: for DPO with 2 tasks and 1 attempt, 18 steps."""
    made = plan(tmp_path, "dpo,loop,base,sft", seeds=2)
    assert [(entry.method, entry.seed) for entry in made.entries] == [
        *(("base", 0), ("base", 1), ("sft", 0), ("sft", 1)),
        *(("dpo", 0), ("dpo", 1), ("loop", 0), ("loop", 1)),
    ]
    configs = {entry.method: entry.config for entry in made.entries if entry.seed == 1}
    assert {name: config.steps for name, config in configs.items()} == {"base": 3, "sft": 2, "dpo": 18, "loop": 3}
    assert configs["dpo"].algo == {"name": "dpo", "beta": 0.5}, "LOOP's settings are not DPO's"
    assert configs["loop"].algo == {"name": "loop", "k": 4, "lr": 1e-3}
    assert configs["sft"].model.path == "tiny" and configs["dpo"].model.path == str(made.model(1))
    assert configs["dpo"].name == "dpo-1" and configs["dpo"].seed == 1


def test_everyone_may_start_from_the_base(tmp_path: Path) -> None:
    assert {entry.config.model.path for entry in plan(tmp_path, "sft,loop", start="base").entries} == {"tiny"}


def test_a_table_for_no_method_is_a_slip(tmp_path: Path) -> None:
    """Settings of a method that is not compared this time are none."""
    assert len(plan(tmp_path, "sft").entries) == 1
    path = write_config(tmp_path, GUESS + "[methods.dpoo]\nsteps = 2\n")
    with pytest.raises(UserError, match=r"There is no method 'dpoo', for which .* has settings. Did you mean 'dpo'"):
        Plan(path, [], ["sft"], 1, "sft")


def test_the_committed_comparison_is_planned(tmp_path: Path) -> None:
    """Every method has its budget: 1,280 attempts, the expert's counted too (twice where both take part)."""
    path = Path("configs/compare.toml")
    methods = list(read(path)["methods"])
    for entry in Plan(path, [], methods, 1, "base").entries:
        build.world(entry.config).tasks(entry.config.split)
        algo, tasks = build.algorithm(entry.config), entry.config.steps * entry.config.tasks_per_step
        shown = entry.method in ("dpo", "eto", "spin", "nat")
        if not entry.method.startswith("stepagent"):
            assert 1270 <= tasks * (algo.k + shown) <= 1290, entry.method


def test_a_mistake_in_a_methods_table_is_the_users(tmp_path: Path) -> None:
    path = write_config(tmp_path, GUESS + "[methods.sft]\nsteps = 'two'\n")
    with pytest.raises(UserError, match=r"methods.sft.*steps|steps.*methods.sft"):
        Plan(path, [], ["sft"], 1, "base")


def test_intervals_by_hand() -> None:
    """Three seeds, 0.2, 0.3, 0.4: s = 0.1, and t = 4.303."""
    assert over_seeds([0.2, 0.3, 0.4]) == pytest.approx((0.3, 4.303 * 0.1 / 3**0.5))
    assert over_seeds([0.5]) == (0.5, 0.0)
    tasks = [str(n) for n in range(50)]
    same = [dict.fromkeys(tasks, 0.5)]
    assert paired(same, same) == (0.0, 0.0, 0.0)
    better = [{task: float(n < 40) for n, task in enumerate(tasks)}, dict.fromkeys(tasks, 0.0)]
    mean, low, high = paired(better, [dict.fromkeys(tasks, 0.0)])
    assert mean == pytest.approx(0.4) and 0.3 < low < 0.4 < high < 0.5


def test_compare_runs_what_is_missing_and_nothing_else(command: Any, tmp_path: Path) -> None:
    config = write_config(tmp_path, GUESS.replace('name = "test"', 'name = "side by side"') + OWN)
    words = ["compare", str(config), "steps=1", f"folder={tmp_path}", "--seeds", "2", "--split", "dev"]
    code, first, error = command(*words, "--methods", "base,sft,loop")
    assert code == 0, error
    folder = tmp_path / "side by side"
    table = (folder / "table.md").read_text()
    rows = re.findall(r"^\| (base|sft|loop) \| 2 \| \d", table, re.M)
    assert rows == ["base", "sft", "loop"] and "loop, seed 1" in first
    assert (folder / "table.png").stat().st_size > 0
    stamps = {path: path.stat().st_mtime_ns for path in folder.rglob("*.json")}

    _, again, _ = command(*words, "--methods", "base,sft,loop")
    assert table in again and "step 1" not in again, "nothing was trained again"
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.json")} == stamps

    (folder / "results" / "loop-1.json").unlink()
    _, more, _ = command(*words, "--methods", "base,sft,loop,rloo")
    assert (folder / "table.md").read_text().startswith(table.split("\n\n")[0]), "the same run, measured again"
    assert "rloo, seed 1" in more and json.loads((folder / "results" / "rloo-0.json").read_text())["dev"]["by_task"]


def test_bad_input(command: Any, tmp_path: Path) -> None:
    config = str(write_config(tmp_path))
    for words, sentence in {
        ("--methods", "lop"): "There is no method 'lop'. Did you mean 'loop'?",
        ("--methods", "loop", "--start", "sft"): "which is not among the methods",
        ("--methods", ""): "Name some methods",
    }.items():
        code, _, error = command("compare", config, *words)
        assert code and sentence in error
