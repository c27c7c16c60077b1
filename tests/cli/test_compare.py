"""Several methods side by side: what is planned, what is run, what is run again, and the numbers of the table."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longloop import api, build
from longloop.cli.comparison import table
from longloop.compare import Plan, differing, paired
from longloop.config import Config, read, resolve
from longloop.store.run_reader import load_run
from longloop.types import UserError
from tests.support.helpers import GUESS, write_config

OWN = """
[methods.sft]
steps = 2
[methods.sft.algo]
lr = 3e-3
[methods.dpo]
tasks_per_step = 2
[methods.dpo.algo]
k = 1
beta = 0.5
"""
MINE = """
from dataclasses import dataclass
from longloop.algos.loop import Loop

@dataclass(frozen=True, kw_only=True)
class Mine(Loop):
    boost: float = 2.0

class NotOne:
    pass
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A method of the user's own, which builds on LOOP."""
    (tmp_path / "own_to_compare.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "own_to_compare:Mine"
    sys.modules.pop("own_to_compare", None)


def plan(folder: Path, methods: str, *overrides: str, seeds: int = 1, start: str = "sft") -> Plan:
    path = write_config(folder, GUESS + OWN)
    return Plan(path, [f"folder={folder}", *overrides], methods.split(","), seeds, start)


def test_methods_share_start_and_budget(tmp_path: Path) -> None:
    """3 steps of 3 tasks with 4 attempts are 36 attempts: for DPO with 2 tasks and 1 attempt beside the expert's, 9
    steps."""
    made = plan(tmp_path, "dpo,loop,base,sft", seeds=2)
    assert [(entry.method, entry.seed) for entry in made.entries] == [
        *(("base", 0), ("base", 1), ("sft", 0), ("sft", 1)),
        *(("dpo", 0), ("dpo", 1), ("loop", 0), ("loop", 1)),
    ]
    configs = {entry.method: entry.config for entry in made.entries if entry.seed == 1}
    assert {name: config.steps for name, config in configs.items()} == {"base": 3, "sft": 2, "dpo": 9, "loop": 3}
    assert configs["dpo"].algo == {"name": "dpo", "k": 1, "lr": 1e-3, "beta": 0.5}
    assert configs["loop"].algo == {"name": "loop", "k": 4, "lr": 1e-3}
    assert configs["sft"].model.path == "tiny" and configs["dpo"].model.path == str(made.model(1))
    assert configs["dpo"].name == "dpo-1" and configs["dpo"].seed == 1


def test_algo_holds_for_every_method_that_shares_the_option(tmp_path: Path, mine: str) -> None:
    """LOOP's `clip` is not PPO's, though it is called so; who builds on LOOP has both its options."""
    made = plan(tmp_path, f"loop,ppo,sft,{mine}", "algo.clip=0.3", "algo.ratio=turn", start="base")
    tables = {entry.method: (entry.config.algo, entry.not_applied) for entry in made.entries}
    assert tables == {
        "loop": ({"name": "loop", "k": 4, "lr": 1e-3, "clip": 0.3, "ratio": "turn"}, ()),
        "ppo": ({"name": "ppo", "k": 4, "lr": 1e-3}, ("clip", "ratio")),
        "sft": ({"name": "sft", "k": 4, "lr": 3e-3}, ("clip", "ratio")),
        mine: ({"name": mine, "k": 4, "lr": 1e-3, "clip": 0.3, "ratio": "turn"}, ()),
    }
    assert made.entries[-1].config.name == "own_to_compare.Mine-0"


def test_the_settings_that_differ_are_said(tmp_path: Path) -> None:
    """SFT makes one attempt at a task whatever K is, so that it has 12 steps for 36 attempts."""
    rows = differing(plan(tmp_path, "base,loop,sft", "methods.sft.steps=12", "algo.ratio=turn", start="base").entries)
    assert rows == [
        ["method", "attempts per task", "steps", "algo.lr", "algo.epochs", "algo.minibatch", "its own", "not applied"],
        ["loop", "4", "3", "0.001", "2", "32", 'ratio = "turn"', ""],
        ["sft", "1", "12", "0.003", "1", "64", "", "ratio"],
    ]
    assert differing(plan(tmp_path, "base,loop", start="base").entries) == []


@pytest.mark.parametrize(
    ("name", "options", "attempts"),
    [
        ("loop", {}, 4),
        ("sft", {}, 1),
        ("sft_gt", {}, 1),
        ("dpo", {}, 5),
        ("eto", {}, 5),
        ("nat", {}, 5),
        ("dmpo", {}, 4),
        ("rft", {}, 4),
        ("rft", {"with_expert": True}, 5),
        ("stepagent_implicit", {}, 1),
        ("stepagent_inverse", {}, 1),
        ("stepagent_inverse", {"final": 1.0}, 5),
    ],
)
def test_the_budget_counts_the_experts_attempts(name: str, options: dict[str, Any], attempts: int) -> None:
    tree = {"env": {"name": "guess"}, "algo": {"name": name, "k": 4} | options}
    assert build.algorithm(resolve(tree, "a test")).attempts_per_task == attempts


def test_everyone_may_start_from_the_base(tmp_path: Path) -> None:
    assert {entry.config.model.path for entry in plan(tmp_path, "sft,loop", start="base").entries} == {"tiny"}


def test_a_table_for_no_method_is_a_slip(tmp_path: Path) -> None:
    """Settings of a method that is not compared this time are none."""
    assert len(plan(tmp_path, "sft").entries) == 1
    path = write_config(tmp_path, GUESS + "[methods.dpoo]\nsteps = 2\n")
    with pytest.raises(UserError, match=r"There is no method 'dpoo', for which .* has settings. Did you mean 'dpo'"):
        Plan(path, [], ["sft"], 1, "sft")
    path = write_config(tmp_path, GUESS + '[methods."longloop.algos.loop:Lop"]\nsteps = 2\n')
    with pytest.raises(UserError, match=r"longloop.algos.loop has no class 'Lop'"):
        Plan(path, [], ["sft"], 1, "sft")


def test_the_committed_comparison_is_planned(tmp_path: Path) -> None:
    """Every method has its budget: 1,280 attempts, the expert's counted too (twice where both take part)."""
    path = Path("compare")
    methods = ["ei", "ppo", "loop", *read(path)["methods"]]
    for entry in Plan(path, [], methods, 1, "base").entries:
        build.world(entry.config).tasks(entry.config.split)
        algo, tasks = build.algorithm(entry.config), entry.config.steps * entry.config.tasks_per_step
        if entry.method not in ("stepagent_implicit", "stepagent_inverse", "vineppo"):  # what they play is counted
            assert 1270 <= tasks * algo.attempts_per_task <= 1290, entry.method


def test_the_table_of_the_paper_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fourteen methods: the start apart, each plays or is shown 1,920 attempts (those of a tree at most)."""
    monkeypatch.syspath_prepend("recipes/compare")
    path = Path("recipes/models/table1.toml")
    methods = [*read(path)["methods"], "loop", *(f"variants:{name}" for name in ("Turn", "Trajectory", "Normalized"))]
    entries = {entry.method: entry.config for entry in Plan(path, [], methods, 1, "sft").entries}
    assert len(entries) == 14 and entries.pop("sft").model.path != entries["loop"].model.path
    for method, config in entries.items():
        assert config.steps * config.tasks_per_step * build.algorithm(config).attempts_per_task == 1920, method
    assert build.algorithm(entries["variants:WithoutKl"]).needs_reference is False


def test_the_seed_of_the_config_is_the_first(tmp_path: Path) -> None:
    made = plan(tmp_path, "sft,loop", "seed=5", seeds=2)
    assert [(entry.name, entry.config.seed) for entry in made.entries if entry.method == "loop"] == [
        ("loop-5", 5),
        ("loop-6", 6),
    ]
    assert made.entries[-1].config.model.path == str(made.model(6))


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("seed=7", "seed is that of the whole comparison. Set it above the tables."),
        ("name='x'", "name is that of the whole comparison"),
        ("folder='x'", "folder is that of the whole comparison"),
        ("model.path='novice'", "model.path is what sft has made .* or compare with --start base"),
    ],
)
def test_what_would_be_overwritten_is_refused(tmp_path: Path, setting: str, said: str) -> None:
    with pytest.raises(UserError, match=rf"\[methods.loop\] included\): {said}"):
        plan(tmp_path, "sft,loop", f"methods.loop.{setting}")


def test_each_may_start_from_a_model_of_its_own(tmp_path: Path) -> None:
    made = plan(tmp_path, "sft,loop", "methods.loop.model.path='novice'", start="base")
    assert [entry.config.model.path for entry in made.entries] == ["tiny", "novice"]
    assert plan(tmp_path, "sft,loop", "methods.sft.model.path='novice'").entries[0].config.model.path == "novice"


@pytest.mark.parametrize("name", ["", "..", "/tmp/x"])
def test_a_comparison_is_inside_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="names no folder inside"):
        plan(tmp_path, "loop", f"name='{name}'", start="base")


def test_a_mistake_in_a_methods_table_is_the_users(tmp_path: Path) -> None:
    path = write_config(tmp_path, GUESS + "[methods.sft]\nsteps = 'two'\n")
    with pytest.raises(UserError, match=r"methods.sft.*steps|steps.*methods.sft"):
        Plan(path, [], ["sft"], 1, "base")


def test_the_gain_over_the_start_is_paired_by_task() -> None:
    tasks = [str(n) for n in range(50)]
    same = [dict.fromkeys(tasks, 0.5)]
    change = paired(same, same)
    assert change is not None and change.difference == 0 and change.interval is None
    better = [{task: float(n < 40) for n, task in enumerate(tasks)}, dict.fromkeys(tasks, 0.0)]
    change = paired(better, [dict.fromkeys(tasks, 0.0)])
    assert change is not None and change.interval is not None and change.difference == pytest.approx(0.4)
    assert 0.3 < change.interval[0] < 0.4 < change.interval[1] < 0.5


def test_the_table_has_scenarios_and_what_training_took() -> None:
    """Of an environment whose tasks belong to scenarios."""

    def scores(whole: float, minutes: float) -> dict[str, Any]:
        played = {"attempts": 1200, "actions": 5000, "minutes": minutes}
        return {"dev": {"success": 0.5, "scenarios": whole, "by_task": {"a": 0.5}, "played": played}}

    printed = table({"loop": [scores(0.25, 2.0), scores(0.5, 3.5)]}, ["dev"], "base")
    assert "| loop | 2 | 1,200 | 5,000 | 2.8 | 50.0 (37.5) |  |\n" in printed and "In parentheses: scenarios" in printed


def test_two_seeds_have_no_interval_in_the_table() -> None:
    """Half and none of two tasks: Student's t would give 25 -+ 317.7."""
    scores = [{"dev": {"success": share, "by_task": {"a": share, "b": share}}} for share in (0.5, 0.0)]
    printed = table({"base": scores, "loop": scores}, ["dev"], "base")
    assert "| base | 2 |  |  |  | 25.0 |  |\n" in printed and "| loop | 2 |  |  |  | 25.0 | +0.0 |\n" in printed
    assert "scenarios" not in printed
    assert "2 seeds: no interval over seeds, which takes at least 3." in printed
    three = [*scores, {"dev": {"success": 0.25, "by_task": {"a": 0.25, "b": 0.25}}}]
    printed = table({"loop": three}, ["dev"], "base")
    assert "| loop | 3 |  |  |  | 25.0 [0.0, 87.1] |" in printed and "no interval over seeds" not in printed


def test_side_rollouts_are_counted(command: Any, tmp_path: Path) -> None:
    config = write_config(tmp_path)
    words = ["steps=2", "methods.vineppo.steps=2", "methods.vineppo.algo.m=2", f"folder={tmp_path}"]
    code, printed, error = command("compare", config, *words, "--methods", "vineppo,loop", "--seeds", "1")
    assert code == 0, error
    run = load_run(tmp_path / "test" / "vineppo-0")
    played = [t for step in (1, 2) for group in run.trajectories(step) for t in group.trajectories]
    assert sum(not t.side for t in played) == 24 and any(t.side for t in played) and any(t.replayed for t in played)
    actions = sum(len(t.turns) - t.replayed for t in played)
    assert f"| vineppo | 1 | {len(played)} | {actions} |" in printed and "| loop | 1 | 24 |" in printed
    (result,) = json.loads((tmp_path / "test" / "results" / "vineppo-0.json").read_text())["splits"].values()
    seconds = sum(step["time"][phase] for step in run.metrics for phase in ("collect", "credit", "update"))
    assert result["played"]["minutes"] == pytest.approx(seconds / 60) and seconds > 0


def test_runs_at_the_same_time_are_the_runs_one_after_another(command: Any, tmp_path: Path) -> None:
    config = write_config(tmp_path, GUESS + OWN)
    tables = []
    for name, jobs in (("one", "1"), ("two", "2")):
        words = ["steps=1", f"folder={tmp_path}", f"name={name}", "--methods", "base,loop", "--seeds", "1"]
        code, _, error = command("compare", config, *words, "--jobs", jobs)
        assert code == 0, error
        rows = [line.split("|") for line in (tmp_path / name / "table.md").read_text().splitlines()]
        tables.append([row[:5] + row[6:] for row in rows])  # without the minutes, which no two runs share
    assert tables[0] == tables[1] and len(tables[0]) > 3
    (tmp_path / "two" / "results" / "loop-0.json").unlink()
    (tmp_path / "two" / "loop-0" / "metrics.jsonl").write_text("nonsense")
    code, _, error = command("compare", config, *words, "--jobs", "2")
    assert code == 2 and "loop, seed 0" in error and "goes on from there" in error


def test_compare_runs_what_is_missing_and_nothing_else(command: Any, tmp_path: Path) -> None:
    config = write_config(tmp_path, GUESS.replace('name = "test"', 'name = "side by side"') + OWN)
    words = ["compare", str(config), "steps=1", f"folder={tmp_path}", "--seeds", "2", "--split", "dev"]
    code, first, error = command(*words, "--methods", "base,sft,loop")
    assert code == 0, error
    folder = tmp_path / "side by side"
    written = (folder / "table.md").read_text()
    rows = re.findall(r"^\| (base|sft|loop) \| 2 \| (\d+) \| \d", written, re.M)
    assert rows == [("base", "0"), ("sft", "6"), ("loop", "12")] and "loop, seed 1" in first
    assert (folder / "table.png").stat().st_size > 0
    stamps = {path: path.stat().st_mtime_ns for path in folder.rglob("*.json")}

    result, run = folder / "results" / "loop-1.json", folder / "loop-1"
    made = json.loads(result.read_text())
    assert (made["settings"]["algo.k"], made["settings"]["steps"], made["not_applied"]) == (4, 1, [])
    assert "| sft | 1 | 2 | 0.003 | 1 | 64 |" in first.partition("seed 0")[0], "said before anything is trained"
    assert "| sft | 1 | 2 | 0.003 | 1 | 64 |" in written
    part = {"name": "side by side", "method": "loop", "seed": 1, "start": "sft"}
    assert json.loads((run / "run.json").read_text())["comparison"] == part
    measured = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["eval"]
    assert measured["tasks"] == 3 and made["splits"]["dev"].items() >= measured.items(), "what the run ended with"

    code, _, error = command(*words, "--methods", "base,sft,loop", "algo.lr=1e-4")
    assert code and f"{folder / 'results' / 'loop-0.json'} was made with algo.lr = 0.001" in error

    _, again, _ = command(*words, "--methods", "base,sft,loop")
    assert written in again and "step 1" not in again, "nothing was trained again"
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.json")} == stamps

    (folder / "results" / "loop-1.json").unlink()
    _, more, _ = command(*words, "--methods", "base,sft,loop,rloo")
    assert (folder / "table.md").read_text().startswith(written.split("\n\n")[0]), "the same run, measured again"
    assert "rloo, seed 1" in more
    assert json.loads((folder / "results" / "rloo-0.json").read_text())["splits"]["dev"]["by_task"]


def test_the_best_checkpoints_are_measured_if_asked_for(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = []

    def measure(config: Config, checkpoint: Path | None, splits: list[str], measured: Any = api._measure) -> Any:
        chosen.extend([checkpoint] if checkpoint else [])
        return measured(config, checkpoint, splits)

    monkeypatch.setattr(api, "_measure", measure)
    config = write_config(tmp_path, GUESS + OWN)
    words = ["compare", config, "steps=3", "eval.every=1", "save.keep=9", f"folder={tmp_path}", "--seeds", "1"]
    words += ["--methods", "base,loop", "--split", "dev", "--split", "test"]
    code, said, error = command(*words)
    assert code == 0 and "that was best" not in said, error
    result, run = tmp_path / "test" / "results" / "loop-0.json", load_run(tmp_path / "test" / "loop-0")
    code, _, error = command(*words, "--best")
    assert code and f"{result} was measured without --best" in error
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line["eval"]["success"] = 0.75 if line["step"] == 2 else 0.25
    (run.folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    result.unlink()
    code, said, error = command(*words, "--best")
    assert code == 0 and "that was best on dev" in said and "step 3/3" not in said, error
    measured = json.loads(result.read_text())["splits"]
    assert measured["dev"]["success"] == 0.75 and measured["test"]["tasks"] == 3
    code, _, error = command("eval", run.folder, "--json", "--split", "test", "--step", "best")
    assert code == 0 and chosen == [run.checkpoints[step] for step in (3, 2, 2)], error
    code, _, error = command("eval", run.folder, "--step", "last")
    assert code and "neither the number of a step nor" in error
    (run.folder / "metrics.jsonl").write_text("")
    code, _, error = command("eval", run.folder, "--step", "best")
    assert code and "was evaluated, so none is the best; it has those of steps 1, 2, 3." in error


def test_a_method_of_ones_own(command: Any, tmp_path: Path, mine: str) -> None:
    config = write_config(tmp_path, GUESS + f'[methods."{mine}".algo]\nboost = 3.0\n')
    words = ["compare", str(config), "steps=1", f"folder={tmp_path}", "--seeds", "1", "--start", mine]
    code, printed, error = command(*words, "--methods", f"base,{mine},{mine}")
    assert code == 0, error
    folder = tmp_path / "test"
    made = json.loads((folder / "results" / "own_to_compare.Mine-0.json").read_text())
    assert made["settings"]["algo.boost"] == 3.0 and made["method"] == mine
    assert (folder / "models" / "own_to_compare.Mine-0").is_dir()
    assert re.search(rf"^\| {mine} \| 1 \| \d", (folder / "table.md").read_text(), re.M), printed


def test_bad_input(command: Any, tmp_path: Path, mine: str) -> None:
    config = str(write_config(tmp_path))
    for words, sentence in {
        ("--methods", "lop"): "There is no method 'lop'. Did you mean 'loop'?",
        ("--methods", "loop", "--start", "sft"): "which is not among the methods",
        ("--methods", ""): "Name some methods",
        ("--methods", "there_is_none:Mine"): "there is no module 'there_is_none'",
        ("--methods", mine.replace("Mine", "Yours")): "own_to_compare has no 'Yours'",
        ("--methods", mine.replace("Mine", "NotOne")): "own_to_compare:NotOne' is not an algorithm",
        ("--methods", mine, f"methods.{mine}.algo.bost=1"): f'[methods."{mine}".algo]',
        ("--methods", "loop", "methods.loop.algo.k=1"): "The method 'loop', with [algo] and [methods.loop.algo]",
        ("--methods", "loop", "methods.loop.algo.name=sft"): "algo.name is 'sft'. Leave it out there.",
        ("--methods", "loop", "methods.loop=3"): "3 is none",
        ("--methods", "loop", "methods.loop.steps.x=3"): "'steps' in",
    }.items():
        code, _, error = command("compare", config, *words)
        assert code and sentence in error


def test_a_start_that_was_cut_short_is_written_anew(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while the shared start was written, a comparison goes on, and no method begins with half of a model."""

    class Killed(BaseException):
        """Nobody catches it."""

    def cut_short(config: Config, checkpoint: Path, folder: Path, dtype: str) -> None:
        export(config, checkpoint, folder, dtype)
        (folder / "tokenizer.json").unlink()
        raise Killed

    config = write_config(tmp_path, GUESS + OWN)
    words = ["compare", config, "steps=1", f"folder={tmp_path}", "--methods", "sft,loop", "--seeds", "1"]
    export = api.export
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(api, "export", cut_short)
        command(*words)
    code, printed, error = command(*words)
    assert code == 0, error
    assert "| loop | 1 |" in printed
