"""`longloop demos`: an expert's attempts, or the good ones of a run, as a folder to imitate; and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from longloop.store.trajectories import Trajectories
from tests.support.helpers import train, write_config

CROSSROADS = 'name = "crossroads"'
GUESS = 'name = "guess"\nhighest = 3\ntries = 2'


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(tmp_path)


@pytest.fixture
def refused(command: Any, tmp_path: Path) -> Any:
    """Run a command that must be refused in one or two sentences, leaving no folder behind; what it said."""

    def run(*arguments: object) -> str:
        before = sorted(tmp_path.glob("*"))
        code, out, err = command(*arguments, f"folder={tmp_path}")
        assert code == 2 and err.startswith("longloop: ") and "Traceback" not in out + err and len(err) < 500
        assert sorted(tmp_path.glob("*")) == before
        return err

    return run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A stored run of the guessing game from random weights: it wins now and then."""
    _, stored, _ = train(tmp_path, "steps=6", "tasks_per_step=3", "algo.k=8", "rollout.turn_tokens=1", "name=run")
    return stored.folder


def stored(folder: Path) -> list[Any]:
    source = Trajectories(folder / "trajectories")
    return [t for step in source.steps() for group in source.read(step) for t in group.trajectories]


def test_good_attempts_of_a_run_are_kept_once_and_can_be_imitated(command, tmp_path, config, run):
    good = [t for t in stored(run) if t.reward >= 1]
    distinct = {(t.task.id, t.action_texts) for t in good}
    assert 0 < len(distinct) < len(good) < len(stored(run)), "the run must be worth picking from"

    code, out, err = command(
        "demos", config, "--from", run, "--min-reward", "1", f"folder={tmp_path}", "name=successes"
    )
    assert code == 0, err
    tasks = len({task for task, _ in distinct})
    assert f"{len(distinct)} attempts at {tasks} tasks" in out and f"demos={tmp_path / 'successes'}" in out
    kept = stored(tmp_path / "successes")
    assert len(kept) == len(distinct) and {(t.task.id, t.action_texts) for t in kept} == distinct
    assert all(t.reward == 1 for t in kept)
    assert len({(t.task.id, t.attempt) for t in kept}) == len(kept), "each has a number of its own in its group"

    imitate = ("algo.name=sft", "algo.k=1", f"demos={tmp_path / 'successes'}", "steps=1", f"tasks_per_step={tasks}")
    code, _, err = command("train", config, *imitate, f"folder={tmp_path}", "name=imitation")
    assert code == 0, err
    line = json.loads((tmp_path / "imitation" / "metrics.jsonl").read_text().splitlines()[-1])
    assert line["trained_trajectories"] == line["attempts"] == len(distinct)


def test_a_run_itself_can_be_imitated_by_its_best_attempts(command, tmp_path, config, run):
    best: dict[str, float] = {}
    for t in stored(run):
        best[t.task.id] = max(best.get(t.task.id, 0.0), t.reward)
    most = {(t.task.id, t.action_texts) for t in stored(run) if t.reward == best[t.task.id]}
    imitate = ("algo.name=sft", "algo.k=1", "algo.least_reward=0.0", f"demos={run}", "steps=1")
    code, _, err = command("train", config, *imitate, f"folder={tmp_path}", "name=imitation")
    assert code == 0, err
    shown = stored(tmp_path / "imitation")
    assert {(t.task.id, t.action_texts) for t in shown} == most and len(shown) == len(most)


def test_demonstrations_that_are_not_all_there_are_named(command, tmp_path, config):
    """And those of another environment, whatever its name is. A run's own attempts are never all there."""
    assert command("demos", "guess", f"folder={tmp_path}")[0] == 0
    facts, demos = json.loads((tmp_path / "demos" / "run.json").read_text()), tmp_path / "demos"
    imitate = ("train", config, "algo.name=sft", "algo.k=1", f"demos={demos}", "steps=1", f"folder={tmp_path}")
    code, out, err = command(*imitate, "name=whole", "env={name='longloop.envs.guess:Guess'}")
    assert code == 0 and str(demos) not in out.replace("demos=", ""), err
    (demos / "run.json").write_text(json.dumps(facts | {"status": "interrupted"}))
    said = f"{demos} is not whole: its status is interrupted, and attempts that were to come are missing."
    code, out, err = command(*imitate, "name=half")
    assert code == 0 and said in out and "environment" not in out, err
    code, out, err = command("demos", config, "--from", demos, f"folder={tmp_path}", "name=good")
    assert code == 0 and said in out, err
    (demos / "run.json").write_text(json.dumps(facts))
    text = (demos / "config.toml").read_text()
    (demos / "config.toml").write_text(text.replace('name = "guess"', 'name = "crossroads"'))
    code, out, err = command(*imitate, "name=other")
    assert code == 0 and f"{demos} was made in the environment crossroads, and this config has guess." in out, err


def test_an_environments_name_is_enough(command, tmp_path):
    code, out, err = command("demos", "guess", "env.highest=3", "env.tries=2", f"folder={tmp_path}")
    assert code == 0, err
    assert "3 successful demonstrations" in out
    assert [t.success for t in stored(tmp_path / "demos")] == [True] * 3


def test_some_tasks_are_drawn_with_the_seed(command, tmp_path):
    def drawn(name: str, *more: object) -> list[str]:
        code, _, err = command("demos", "guess", "env.highest=40", *more, f"folder={tmp_path}", f"name={name}")
        assert code == 0, err
        return [t.task.id for t in stored(tmp_path / name)]

    everything, some = drawn("all"), drawn("some", "--tasks", 5)
    assert len(some) == len(set(some)) == 5 and set(some) < set(everything)
    assert drawn("again", "--tasks", 5) == some and drawn("other", "--tasks", 5, "seed=1") != some
    assert drawn("more", "--tasks", 100) == everything


def test_the_defaults_can_spell_what_any_expert_says(command, tmp_path):
    code, _, err = command("demos", "errands", "env.per_scenario=1", f"folder={tmp_path}", "name=errands")
    assert code == 0, err
    assert stored(tmp_path / "errands") and all(t.success for t in stored(tmp_path / "errands"))


def test_what_is_neither_a_file_nor_an_environment(refused, tmp_path):
    assert "Did you mean 'guess'?" in refused("demos", "guesss")
    assert "Cannot read the config" in refused("demos", tmp_path / "nowhere.toml")
    assert "'steps' in the command line" in refused("demos", "guess", "steps=-1")


def test_demonstrations_do_not_go_on_as_training(refused, command, tmp_path):
    words = ("demos", "guess", f"folder={tmp_path}")
    assert command(*words)[0] == 0
    kept = sorted(path.name for path in (tmp_path / "demos").rglob("*"))
    said = refused(*words)
    assert "exists already. Make another with name=demos-2." in said and "--resume" not in said
    said = refused("train", "--resume", tmp_path / "demos")
    assert "holds demonstrations or evaluations" in said and f"demos={tmp_path}/demos" in said
    assert sorted(path.name for path in (tmp_path / "demos").rglob("*")) == kept, "and no config is changed"
    facts = json.loads((tmp_path / "demos" / "run.json").read_text())
    (tmp_path / "demos" / "run.json").write_text(json.dumps(facts | {"status": "interrupted"}))
    assert "--resume" not in refused(*words), "also when they were interrupted"


def test_evaluations_do_not_go_on_as_training(refused, command, run, tmp_path):
    assert command("eval", run, "--split", "test", "--out", tmp_path / "kept", "--step", "6")[0] == 0
    assert "holds demonstrations or evaluations" in refused("train", "--resume", tmp_path / "kept" / "test")


def test_nothing_good_enough(refused, config, run):
    said = refused("demos", config, "--from", run, "--min-reward", "1.5")
    assert "no attempt there was paid 1.5 or more; the best was paid 1" in said and "--min-reward" in said


def test_not_a_run(refused, tmp_path, config):
    assert "not a run folder" in refused("demos", config, "--from", tmp_path / "nowhere")
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "run.json").write_text("{}")
    assert "no run folder with trajectories" in refused("demos", config, "--from", bare)


def test_an_empty_folder_of_demonstrations(refused, tmp_path, config):
    (tmp_path / "empty" / "trajectories").mkdir(parents=True)
    said = refused("train", config, "algo.name=sft", "algo.k=1", f"demos={tmp_path / 'empty'}")
    assert "no scored trajectory is stored there" in said and "longloop demos" in said


@pytest.mark.parametrize("damage", ["cut", "not json", "lost", "other format"])
def test_trajectories_that_cannot_be_read(refused, config, run, damage):
    columns, lines = (run / "trajectories" / f"000003.{end}" for end in ("safetensors", "jsonl"))
    match damage:
        case "cut":
            columns.write_bytes(columns.read_bytes()[:20])
        case "not json":
            lines.write_text("{nonsense\n")
        case "lost":
            columns.unlink()
        case "other format":
            lines.write_text('{"group": 0}\n')
    said = refused("demos", config, "--from", run)
    assert "the trajectories of step 3 cannot be read" in said and "000003.jsonl" in said
    assert "the trajectories of step 3 cannot be read" in refused("train", config, "algo.name=sft", f"demos={run}")


def test_no_folder_is_made_for_nothing(refused, tmp_path):
    refused("demos", "guess", f"model.path={tmp_path / 'nowhere'}", f"folder={tmp_path}", "name=none")
    assert not (tmp_path / "none").exists()


def test_an_environment_without_an_expert(refused, command, tmp_path):
    assert "Crossroads has no expert" in refused("demos", "crossroads")
    text = write_config(tmp_path).read_text()
    config = write_config(tmp_path, text.replace(GUESS, CROSSROADS))
    for method in ("sft", "sft_gt", "nat", "rft"):
        expert = ["algo.with_expert=true"] if method == "rft" else []
        where = (f"folder={tmp_path / 'runs'}", f"name={method}", "algo.k=2", f"algo.name={method}", *expert)
        code, _, err = command("train", config, *where)
        assert code == 2 and "Crossroads has no expert" in err and "demos=RUN" in err, method
