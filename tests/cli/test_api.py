"""longloop from Python: the same runs as from the command line, in a script and where an event loop runs already."""

import json
import tomllib
from pathlib import Path

import pytest
import torch
from rich.console import Console

import longloop
from longloop import api
from longloop.config import Config
from longloop.engines.kv_cache import KVCache
from longloop.envs.guess import Guess
from longloop.learners.local import LocalLearner
from longloop.types import RankLost
from tests.support.helpers import GUESS, write_config
from tests.support.processes import Program


@pytest.fixture
def config(tmp_path) -> dict:
    return tomllib.loads(GUESS) | {"folder": str(tmp_path / "runs")}


def test_train_measure_read_and_go_on(command, config, tmp_path, capsys):
    run = longloop.train(config, {"steps": 2, "env.name": Guess, "eval.attempts": 4}, progress=False)
    assert capsys.readouterr().out == "" and run.status == "finished"
    assert longloop.load_run(run.folder).metrics == run.metrics
    assert tomllib.loads((run.folder / "config.toml").read_text())["env"]["name"] == "longloop.envs.guess:Guess"
    measured = longloop.evaluate(run)
    assert json.loads(json.dumps(measured.to_json())) == run.metrics[-1]["eval"]
    assert longloop.evaluate(str(run.folder), "test", {"eval.attempts": 2}, step=1).attempts == 2
    assert longloop.evaluate(config).tasks == 3, "the model before training"

    longloop.train(resume=run.folder, overrides={"steps": 3})
    assert [line["step"] for line in run.metrics] == [1, 2, 3] and "step 3/3" in capsys.readouterr().out
    code, _, error = command("train", write_config(tmp_path), f"folder={tmp_path / 'typed'}", "steps=3")
    assert code == 0, error
    called, typed = (
        (folder / "checkpoints" / "000003" / "model" / "model.safetensors").read_bytes()
        for folder in (run.folder, tmp_path / "typed" / "test")
    )
    assert called == typed


@pytest.mark.parametrize(
    ("where", "method", "said"),
    [
        (
            KVCache,
            "grow",
            "while sampling. Lower rollout.concurrency (engine.slots, if set) or rollout.context, or limit",
        ),
        (LocalLearner, "update", "while computing an update. Lower rollout.context or learner.micro_tokens, set"),
    ],
)
def test_a_full_card_is_said_and_the_run_goes_on(where, method, said, config, tmp_path, monkeypatch):
    """In the second step; what was done is kept, and with a lower setting the run is finished."""
    sound, folder = getattr(where, method), Path(config["folder"]) / "test"

    def full(self, *args, **options):
        if (folder / "checkpoints" / "000001").exists():
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 7.79 GiB.")
        return sound(self, *args, **options)

    monkeypatch.setattr(where, method, full)
    with pytest.raises(longloop.UserError) as error:
        longloop.train(config, progress=False)
    assert said in str(error.value) and f"`longloop train --resume {folder}` and the lower setting" in str(error.value)
    if method == "grow":
        with pytest.raises(longloop.UserError, match="ran out of memory while sampling"):
            longloop.evaluate(str(folder))
    monkeypatch.undo()
    lower = {"learner.micro_tokens": 512, "rollout.concurrency": 2}
    assert [line["step"] for line in longloop.train(resume=folder, overrides=lower, progress=False).metrics] == [
        1,
        2,
        3,
    ]


def test_mistakes_say_where_they_are(config, tmp_path):
    class Hidden(Guess):
        """Nobody can import it."""

    for mistake, words in (
        (lambda: longloop.train(config, {"stepz": 3}), "'stepz' in the overrides. Did you mean 'steps'?"),
        (lambda: longloop.train({"steps": 1}), "the config lacks the key 'env'"),
        (lambda: longloop.train({"env": {"name": Hidden}}), "at the top of a module"),
        (lambda: longloop.train(), "Name a config"),
        (lambda: longloop.evaluate(Config.model_validate(config), step=1), "not one"),
        (lambda: longloop.load_run(tmp_path), "not a run folder"),
    ):
        with pytest.raises(longloop.UserError) as error:
            mistake()
        assert words in str(error.value)
    assert not (tmp_path / "runs").exists()


INTERRUPTED = """
import asyncio, os, signal, tomllib
import longloop
from longloop.envs.guess import Guess
from longloop.learners.local import LocalLearner

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests in the background ignores it

class Stopping(Guess):
    made = 0

    async def start(self, task):
        Stopping.made += 1
        if Stopping.made == 40:
            os.kill(os.getpid(), signal.SIGINT)
        return await super().start(task)

async def cell():
    config = tomllib.loads(open("config.toml").read())
    try:
        longloop.train(config, {"env.name": Stopping, "steps": 1000, "doctor": False}, progress=False)
    except KeyboardInterrupt:
        run = longloop.load_run("runs/test")
        print(run.status, len(run.metrics) < 1000)

asyncio.new_event_loop().run_until_complete(cell())  # asyncio.run would handle the interrupt
"""


def test_an_interrupt_in_a_notebook_ends_the_run_as_ctrl_c_does(tmp_path):
    write_config(tmp_path)
    (tmp_path / "interrupted.py").write_text(INTERRUPTED)
    program = Program(tmp_path / "interrupted.py", folder=tmp_path, variables={"PATH": ""})
    code, printed = program.finish()
    assert code == 0 and printed.split() == ["interrupted", "True"], program.errors
    assert "Continue with `longloop train --resume runs/test`" in program.errors and "Traceback" not in program.errors


def test_a_lost_rank_continues_the_run_that_was_resumed(config, tmp_path, monkeypatch):
    """Not another one that is where a new run of this config would be."""
    resumed = []

    def loses(config, resume, *rest):
        resumed.append(resume)
        raise RankLost("Lost rank 1.")

    for name in ("this", "test"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").write_text("{}")
    monkeypatch.setattr(api, "_trained", loses)
    made = Config.model_validate(config).model_copy(update={"folder": str(tmp_path / "runs"), "name": "test"})
    made = made.model_copy(update={"ranks": made.ranks.model_copy(update={"restarts": 1})})
    with pytest.raises(RankLost, match=r"--resume \S*/runs/this`"):
        api.trained(made, tmp_path / "runs" / "this", Console(quiet=True))
    assert resumed == [tmp_path / "runs" / "this"] * 2
