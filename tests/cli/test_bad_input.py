"""Bad input gets one or two clear sentences and a non-zero exit, and loses nothing."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest

from longloop import api
from longloop.cli.main import main
from longloop.envs.base import Environment
from longloop.store.run import Run
from longloop.store.run_reader import checkpoint_in
from longloop.types import Message, Outcome, RankLost, Step, Task, UserError
from tests.support.helpers import load_config, train, write_config


@pytest.fixture
def refused(capsys, monkeypatch, tmp_path):
    """Run a command that must be refused; returns what it said."""

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["longloop", *arguments])
        with pytest.raises(SystemExit) as exit:
            main()
        said = capsys.readouterr().err
        assert exit.value.code == 2
        assert said.startswith("longloop: ") and "Traceback" not in said
        assert len(said) < 500
        return said

    return run


@pytest.fixture
def refused_config(refused, tmp_path):
    """The same for `train` on the test config with overrides; no run folder may be left behind."""

    def run(*overrides: str) -> str:
        said = refused("train", str(write_config(tmp_path)), f"folder={tmp_path / 'runs'}", *overrides)
        assert not (tmp_path / "runs").exists()
        return said

    return run


class NoStep(Environment):
    @classmethod
    def tasks(cls, split, options):
        return [Task("a", split)]

    async def start(self, task):
        return [Message("user", "hi")]

    async def finish(self):
        return Outcome(0.0, False)


class BadStart(NoStep):
    async def start(self, task):
        return "hello"

    async def step(self, action):
        return Step(done=True)


class BadStep(NoStep):
    async def step(self, action):
        return {"reward": 1}


class BadFinish(NoStep):
    def step(self, action):
        return Step(done=True)

    def finish(self):
        return 1.0


class Raising(NoStep):
    async def step(self, action):
        raise ZeroDivisionError("oops")


class NoTasks(BadStart):
    @classmethod
    def tasks(cls, split, options):
        return []


class WrongTasks(BadStart):
    @classmethod
    def tasks(cls, split, options):
        return ["a", "b"]


class SameIds(BadStart):
    @classmethod
    def tasks(cls, split, options):
        return [Task("a", split), Task("a", split)]


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (NoStep, ["NoStep has no method step()"]),
        (BadStart, ["start() must return a list with at least one Message", "'hello'"]),
        (BadStep, ["step() must return a Step", "{'reward': 1}"]),
        (BadFinish, ["finish() must return an Outcome", "1.0"]),
        (Raising, ["step() raised ZeroDivisionError: oops"]),
        (NoTasks, ["no tasks in the split 'train'"]),
        (WrongTasks, ["must return a list of Task"]),
        (SameIds, ["two tasks with the same id"]),
    ],
)
def test_environment_that_breaks_the_contract(refused_config, tmp_path, environment, words):
    said = refused_config(f"env={{name='{__name__}:{environment.__name__}'}}")
    for word in words:
        assert word in said


def test_missing_model(refused_config):
    assert "'nowhere/to-be-found'" in refused_config("model.path=nowhere/to-be-found")
    assert "longloop models" in refused_config("model.path=./no-such-folder")


def test_one_attempt_with_a_leave_one_out_baseline(refused_config):
    assert "algo.k >= 2" in refused_config("algo.k=1")


def test_zero_tasks_in_a_split(refused_config):
    assert "no tasks in the split 'exam'. It declares train, dev, test. Set" in refused_config("split=exam")
    assert "no tasks in the split 'final'" in refused_config("eval.split=final")


def test_context_too_short_for_the_opening(refused_config):
    said = refused_config("rollout.context=5")
    assert "rollout.context is 5" in said and "tokens" in said


def test_longest_trajectory_does_not_fit_in_memory(refused_config):
    said = refused_config("rollout.context=2000000000")
    assert "will not fit" in said and "Lower rollout.c" in said
    said = refused_config("learner.micro_tokens=2000000000")
    assert "learner.micro_tokens" in said and "learner.checkpointing=true" in said


def test_unknown_names(refused_config):
    assert "Did you mean 'grpo'?" in refused_config("algo.name=grppo")
    where = f"in {Path.cwd()} or among the installed packages"
    assert f"there is no module 'nomodule' {where}." in refused_config("env={name='nomodule:Env'}")
    assert "has no 'Nothing'" in refused_config("env={name='longloop.envs.guess:Nothing'}")
    assert "Did you mean 'algo.clip'?" in refused_config("algo.clipp=0.1")
    assert "Did you mean 'env.tries'?" in refused_config("env.trys=3")


def test_a_table_needs_a_key(refused_config):
    assert "'algo' in the command line (algo=...) is a table of settings: write algo.name=grpo" in refused_config(
        "algo=grpo"
    )
    assert "write model.KEY=novice" in refused_config("model=novice")


def test_a_slip_of_the_pen(refused_config, refused):
    assert "Did you mean 'grpo'?" in refused_config("algo.name=gpro"), "not 'igpo', which is as near"
    assert "Did you mean 'algo.name'?" in refused_config("algo.nme=grpo")
    assert "no model 'novise'. Did you mean 'novice'? `longloop models`" in refused_config("model.path=novise")
    assert "Did you mean 'quickstart'?" in refused("train", "quikstart")


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/..", "/tmp/x"])
def test_a_run_is_inside_its_folder(refused_config, name):
    assert f"name = '{name}' names no folder inside" in refused_config(f"name={name}")


def test_a_file_of_tasks_that_lies_elsewhere(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = refused("check", "agent", "command=['true']", "tasks=tasks.jsonl")
    assert f"Cannot read the tasks in tasks.jsonl in {tmp_path}: No such file or directory." in said
    said = refused("check", "agent", "command=['true']", f"tasks={tmp_path}/tasks.jsonl")
    assert f"Cannot read the tasks in {tmp_path}/tasks.jsonl: No such file or directory." in said


def test_a_file_that_is_named_without_its_class(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "Did you mean 'errands'?" in refused("check", "errand")
    (tmp_path / "errand.py").write_text("")
    for words in (["check", "errand"], ["check", "errand.py"], ["envs", "errand"]):
        assert "There is a file errand.py here: write its class as errand:Class." in refused(*words)


def test_config_of_a_newer_format(refused, tmp_path):
    assert "Upgrade longloop" in refused("train", str(write_config(tmp_path, "format = 2\n")))


def test_run_folder_in_use(refused, tmp_path):
    with Run.create(load_config(tmp_path), {}) as run:
        before = sorted(run.folder.rglob("*"))
        assert "in use by another process" in refused("train", "--resume", str(run.folder))
        assert sorted(run.folder.rglob("*")) == before


def test_run_folder_exists(refused, tmp_path):
    _, run, _ = train(tmp_path, "steps=1")
    before = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    config = tmp_path / "config.toml"
    said = refused("train", str(config), f"folder={tmp_path / 'runs'}")
    assert "exists already" in said and "--resume" in said
    assert {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()} == before


def test_not_a_run(refused, tmp_path):
    assert "not a run folder" in refused("train", "--resume", str(tmp_path))
    assert "not a run folder" in refused("eval", str(tmp_path))
    assert "Name a config" in refused("train")


def test_a_run_that_is_not_there(refused, tmp_path, monkeypatch):
    """The newest of its neighbours are named."""
    runs = tmp_path / "my runs"
    for age, name in enumerate(("new", "b", "c", "d", "e", "old", "older")):
        (runs / name).mkdir(parents=True)
        (runs / name / "run.json").write_text("{}")
        os.utime(runs / name / "run.json", (1e9 - age, 1e9 - age))
    (runs / "not-one").mkdir()
    for words in (["eval", f"{runs}/nwe"], ["serve", f"{runs}/nwe"], ["show", f"{runs}/nwe", "1/0/0"]):
        said = refused(*words)
        assert f"In {runs} there are new, b, c, d, e and 2 more." in said
    assert "There is neither a run nor a config configs/mine." in refused("eval", "configs/mine")
    assert f"In {runs} there are new" in refused("eval", str(runs / "not-one"))
    said = refused("train", str(write_config(tmp_path)), f"folder={tmp_path / 'runs'}", f"model.path={runs}/nwe")
    assert f"There is no {runs}/nwe. In {runs} there are new" in said
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"There is no my runs/n we\. In my runs there are new"):
        checkpoint_in(Path("my runs/n we"))


def test_a_model_of_the_hubs_cache_is_no_run(tmp_path, monkeypatch):
    """Although runs are in a folder that is named as its owner."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "first").mkdir(parents=True)
    (tmp_path / "owner" / "first" / "run.json").write_text("{}")
    with pytest.raises(UserError, match=r"There is no owner/model\. In owner there is first\."):
        checkpoint_in(Path("owner/model"))
    cache = {"owner/model": str(tmp_path / "config.json")}
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda name, file: cache.get(name))
    assert checkpoint_in(Path("owner/model")) is None
    with pytest.raises(UserError, match="There is no owner/other"):
        checkpoint_in(Path("owner/other"))


def test_folders_that_cannot_be_written(refused, tmp_path):
    """A file in their place: permission is no obstacle to those who run tests as root."""
    file = tmp_path / "file"
    file.write_text("")
    said = refused("train", str(write_config(tmp_path)), f"folder={file}")
    assert f"Cannot make {file}/test: Not a directory. Set `folder` and `name`" in said and "finished steps" not in said
    assert f"{file}/model" in refused("models", "new", f"{file}/model", "--env", "guess")
    _, run, _ = train(tmp_path, "steps=1")
    assert f"{file}/model.partial cannot be read or written: Not a directory." in refused(
        "export", str(run.folder), "--out", f"{file}/model"
    )
    (run.folder / "lock").unlink()
    (run.folder / "lock").mkdir()
    said = refused("train", "--resume", str(run.folder), "steps=2")
    assert f"Cannot write {run.folder}/lock: Is a directory. All finished steps" in said and "make room" not in said


def test_a_run_that_has_all_its_steps_says_so(command, tmp_path):
    _, run, _ = train(tmp_path, "steps=1")
    code, printed, error = command("train", "--resume", run.folder)
    assert code == 0 and "It has 1 step already. For more, set steps=2" in printed, error
    code, printed, error = command("train", "--resume", run.folder, "steps=2")
    assert code == 0 and "already" not in printed, error
    code, printed, error = command("train", "--resume", run.folder, "steps=1")
    assert code == 0 and "It has 2 steps already. For more, set steps=4" in printed, error


def test_a_run_without_its_checkpoints_does_not_begin_again(refused, command, tmp_path):
    """Its steps would be overwritten, whether it had all of them or was stopped. One that was killed while it wrote its
    first checkpoint has lost nothing else."""
    _, run, _ = train(tmp_path, "steps=2")
    shutil.rmtree(run.folder / "checkpoints")
    before = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    said = refused("train", "--resume", str(run.folder), "steps=3")
    assert f"{run.folder} has no checkpoint left: going on would overwrite its 2 steps from the first." in said
    assert f"`longloop train {run.folder}/config.toml name=test-2`" in said
    assert {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()} == before
    facts = json.loads((run.folder / "run.json").read_text())
    (run.folder / "run.json").write_text(json.dumps(facts | {"status": "interrupted"}))
    assert "has no checkpoint left" in refused("train", "--resume", str(run.folder))
    first = [line for line in (run.folder / "metrics.jsonl").read_text().splitlines() if json.loads(line)["step"] < 2]
    (run.folder / "metrics.jsonl").write_text("\n".join(first) + "\n")
    code, _, error = command("train", "--resume", run.folder)
    assert code == 0, error


def test_a_run_that_exists_is_neither_waited_for_nor_taken_over(refused, tmp_path, monkeypatch):
    """Also where a rank is lost before the new one's folder is made, and the run may restart."""
    _, run, _ = train(tmp_path, "steps=1")
    before = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}

    def lost(*_):
        raise RankLost("Lost rank 1.")

    monkeypatch.setattr(api.build, "cluster", lost)
    said = refused("train", str(tmp_path / "config.toml"), f"folder={tmp_path / 'runs'}", "ranks.restarts=1", "steps=2")
    assert f"{run.folder} exists already. Continue it with" in said
    assert {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()} == before


def test_a_checkpoint_that_training_deletes_meanwhile(command, refused, tmp_path, monkeypatch):
    """It is chosen when the model's code is there, which takes seconds. Once chosen it may still be deleted."""
    _, run, _ = train(tmp_path, "steps=2")
    chosen = "api.checkpoints = lambda folder: print('longloop.model.policy' in sys.modules) or [1]"
    script = f"import sys; from pathlib import Path; from longloop import api; {chosen}; api.checkpoint_of(Path('x'))"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert said.stdout == "True\n", said.stderr
    first = run.folder / "checkpoints" / "000001"
    monkeypatch.setattr(api, "checkpoint_of", lambda folder, step: shutil.rmtree(first) or first)
    said = refused("eval", str(run.folder))
    assert f"{first} is not a checkpoint (any more); the run has those of these steps: 2." in said


def test_eval_of_a_step_that_is_not_kept(refused, tmp_path):
    _, run, _ = train(tmp_path, "steps=3")
    assert "it has those of steps 2, 3" in refused("eval", str(run.folder), "--step", "1")


def test_eval_on_the_split_of_training(refused, tmp_path):
    said = refused("eval", str(write_config(tmp_path)), "split=nope")
    assert "with --split, or as eval.split" in said


def test_eval_into_a_folder_that_is_taken(refused, tmp_path):
    _, run, _ = train(tmp_path, "steps=1")
    (tmp_path / "kept" / "test").mkdir(parents=True)
    said = refused("eval", str(run.folder), "--split", "dev", "--split", "test", "--out", str(tmp_path / "kept"))
    assert "exists already" in said and "--out" in said and "--resume" not in said
    assert not (tmp_path / "kept" / "dev").exists(), "or it would be in the way next time"


def test_eval_into_a_folder_that_cannot_be_written(refused, tmp_path, monkeypatch):
    """Said before anything is measured."""
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(api, "measuring", None)
    said = refused("eval", str(write_config(tmp_path)), "--out", str(tmp_path / "file" / "kept"))
    assert f"Cannot write into {tmp_path}/file/kept: Not a directory. Give --out another folder." in said


def test_eval_of_a_shipped_config_beside_a_folder_of_its_name(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "guess").mkdir()
    code, printed, error = command("eval", "guess", "model.path=tiny", "eval.tasks=1")
    assert code == 0 and "on guess" in printed, error


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (("--heads", "0"), "--heads"),
        (("--layers", "-1"), "--layers"),
        (("--hidden", "10", "--heads", "6"), "--hidden 10 cannot be divided among --heads 6, in two halves each"),
        (("--hidden", "9", "--heads", "3"), "name a multiple of 6"),
    ],
)
def test_a_new_model_of_no_shape(command, tmp_path, shape, said):
    code, printed, error = command("models", "new", tmp_path / "m", "--env", "guess", *shape)
    assert code == 2 and said in printed + error and "Traceback" not in printed + error
    assert not (tmp_path / "m").exists()


def test_engine_and_learner_that_disagree(refused, tmp_path):
    """A scripted engine claims log-probs of 0: the run refuses to train on them, says where, and keeps its folder."""
    said = refused(
        *("train", str(write_config(tmp_path)), f"folder={tmp_path / 'runs'}", "env.tries=1", "doctor=false"),
        *("engine={name='scripted', actions=['1']}", "algo.name=reinforce"),
    )
    assert "Engine and learner disagree" in said
    for word in ("group", "attempt", "turn", "token", "log-prob 0.00000 when sampled"):
        assert word in said
    assert json.loads((tmp_path / "runs" / "test" / "run.json").read_text())["status"] == "failed"
    assert Path(tmp_path / "runs" / "test" / "trajectories" / "000001.jsonl").exists()
