"""Bad input gets one or two clear sentences and a non-zero exit, and loses nothing."""

import json
import sys
from pathlib import Path

import pytest

from longloop.cli.main import main
from longloop.envs.base import Environment
from longloop.store.run import Run
from longloop.types import Message, Outcome, Step, Task
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
    assert "no tasks in the split 'exam'" in refused_config("split=exam")
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
    assert "there is no module 'nomodule'" in refused_config("env={name='nomodule:Env'}")
    assert "has no 'Nothing'" in refused_config("env={name='longloop.envs.guess:Nothing'}")
    assert "Did you mean 'algo.clip'?" in refused_config("algo.clipp=0.1")
    assert "Did you mean 'env.tries'?" in refused_config("env.trys=3")


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


def test_eval_of_a_step_that_is_not_kept(refused, tmp_path):
    _, run, _ = train(tmp_path, "steps=3")
    assert "it has those of steps 2, 3" in refused("eval", str(run.folder), "--step", "1")


def test_eval_into_a_folder_that_is_taken(refused, tmp_path):
    _, run, _ = train(tmp_path, "steps=1")
    (tmp_path / "kept" / "test").mkdir(parents=True)
    said = refused("eval", str(run.folder), "--split", "dev", "--split", "test", "--out", str(tmp_path / "kept"))
    assert "exists already" in said and "--out" in said and "--resume" not in said
    assert not (tmp_path / "kept" / "dev").exists(), "or it would be in the way next time"


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
