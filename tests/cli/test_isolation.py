"""Isolation as a user meets it: every command in workers, virtualenvs that are built, and what is missing."""

import gc
import json
from pathlib import Path

import pytest

from longloop.isolation import virtualenv
from tests.support.helpers import train, write_config

OWN = '''
import json
import sys

from longloop.envs.base import Environment
from longloop.types import Message, Outcome, Step, Task


class Own(Environment):
    """Says where it lives."""

    isolation = "venv"
    requires = ()

    @classmethod
    def tasks(cls, split, options):
        import here  # a module beside this one, and only there in the worker

        return [Task(here.NAME, split, {"prefix": sys.prefix})] if split == "train" else []

    def start(self, task):
        return [Message("user", json.dumps([name for name in ("torch", "pydantic", "pytest") if found(name)]))]

    def step(self, action):
        return Step(done=True)

    def finish(self):
        return Outcome(0.0, False, {"prefix": sys.prefix})

    def expert(self, task):
        return self

    def act(self, messages):
        return "something"


def found(name):
    import importlib.util

    return importlib.util.find_spec(name) is not None


class NeedsJava(Own):
    isolation = "process"
    system = ("java",)


class Prepared(Own):
    prepare = (("python", "-c", "open('prepared.txt', 'a').write('once')"),)


class Unlucky(Own):
    prepare = (("python", "-c", "import sys; sys.exit('no luck')"),)


class NeedsTheWorld(Own):
    requires = ("no-such-package-at-all==1.0",)
'''


@pytest.fixture
def longloop(command, tmp_path, monkeypatch):
    """In an empty folder with the environment above, and with an empty cache."""
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "here.py").write_text("NAME = 'beside'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run(*arguments: object) -> tuple[int, str]:
        code, out, err = command(*arguments)
        return code, out + err

    return run


def test_an_environment_in_a_virtualenv_of_its_own(longloop, tmp_path):
    """Refused until it is built, then built once; in it there is longloop, and nothing else of the trainer's."""
    code, said = longloop("play", "own:Own")
    assert code == 2 and "`longloop envs install own:Own` builds it." in said
    code, said = longloop("envs", "install", "own:Own")
    home = tmp_path / "cache" / "longloop" / "envs" / "own.Own"
    assert code == 0 and f"The virtualenv of own:Own is {home}" in said and "Building" in said
    code, said = longloop("envs", "install", "own:Own")
    assert code == 0 and "Building" not in said, "it is there"
    code, said = longloop("demos", "own:Own", f"folder={tmp_path}", "split=train")
    assert code == 2 and "the expert failed at every task" in said, "which it does"
    line = json.loads((tmp_path / "demos" / "trajectories" / "000000.jsonl").read_text())
    assert (line["task"]["id"], line["task"]["data"], line["info"]) == (
        "beside",
        {"prefix": str(home)},
        {"prefix": str(home)},
    )
    assert line["turns"][0]["context"] == [{"role": "user", "content": "[]"}]


def test_a_half_built_virtualenv_is_noticed(longloop, tmp_path):
    longloop("envs", "install", "own:Own")
    (virtualenv.folder_of("own:Own") / "longloop.json").unlink()
    code, said = longloop("check", "own:Own")
    assert code == 2 and "is half built or was built for other versions. `longloop envs install own:Own`" in said
    assert "Building" in longloop("envs", "install", "own:Own")[1]
    code, said = longloop("check", "own:Own", "--seeds", "1")
    assert code == 1 and "beside: expert fails" in said, said
    (virtualenv.folder_of("own:Own") / "longloop.json").write_text('{"requires": ["x==1"]}')
    assert longloop("check", "own:Own")[0] == 2


def test_a_virtualenv_that_cannot_be_built(longloop, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    code, said = longloop("envs", "install", "own:NeedsTheWorld")
    assert code == 2 and "No matching distribution found for no-such-package-at-all==1.0" in said
    assert "run `longloop envs install own:NeedsTheWorld` again" in said
    code, said = longloop("check", "own:NeedsTheWorld")
    assert code == 2 and "is half built" in said


def test_what_comes_after_pip(longloop, tmp_path):
    for _ in range(2):
        assert longloop("envs", "install", "own:Prepared")[0] == 0
    assert (tmp_path / "prepared.txt").read_text() == "once"
    code, said = longloop("envs", "install", "own:Unlucky")
    assert code == 2 and "failed: no luck. Mend that and run `longloop envs install own:Unlucky` again." in said
    assert longloop("check", "own:Unlucky")[0] == 2


def test_a_program_that_is_missing_is_named(longloop, tmp_path, monkeypatch):
    gc.collect()  # workers of tests before are cleared away with `rm`, which is missing in a moment
    monkeypatch.setenv("PATH", str(tmp_path))
    said = (
        "own:NeedsJava needs a Java runtime (Debian and Ubuntu: `sudo apt install default-jre-headless`), and there is"
    )
    for words in (("check", "own:NeedsJava"), ("envs", "install", "own:NeedsJava")):
        code, printed = longloop(*words)
        assert code == 2 and said in " ".join(printed.split())


def test_envs_still_lists_and_shows(longloop):
    code, said = longloop("envs")
    assert code == 0 and "guess" in said
    code, said = longloop("envs", "guess")
    assert code == 0 and "env.highest" in said and "nothing" in said
    code, said = longloop("envs", "guess", "errands")
    assert code == 2 and "`longloop envs install NAME`" in said
    assert longloop("envs", "install")[0] == 2
    code, said = longloop("envs", "install", "gess")
    assert code == 2 and "Did you mean 'guess'?" in said


def test_check_and_play_in_a_worker(longloop, monkeypatch):
    options = ("highest=3", "tries=2", "isolation=process", "workers=1")
    code, said = longloop("check", "guess", *options)
    assert code == 0 and "all is well" in said and "1.000 (all)" in said
    typed = iter(["/expert", "1", "", "2", ""])
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed))
    code, said = longloop("play", "guess", *options, "--task", "guess-2-of-3")
    assert code == 0 and "higher" in said and "reward 1.000" in said


def test_training_in_workers_is_training_inline(tmp_path):
    """The same attempts and rewards; updates up to rounding, since who is sampled together depends on who is ready."""

    def numbers(folder: Path, *overrides: str) -> tuple[list, list, list]:
        folder.mkdir()
        _, run, steps = train(folder, "steps=2", "eval.every=1", *overrides)
        lines = [json.loads(line) for line in (run.folder / "trajectories" / "000002.jsonl").read_text().splitlines()]
        for turn in (turn for line in lines for turn in line["turns"]):
            del turn["seconds"]
        updates = [step.pop("update") for step in steps[1:]]
        for step in steps[1:]:
            del step["time"]
        return steps, lines, updates

    isolated = numbers(tmp_path / "process", "env.isolation=process", "env.workers=2")
    inline = numbers(tmp_path / "inline")
    assert isolated[:2] == inline[:2] and inline[0][2]["updates"] > 0
    assert isolated[2] == [pytest.approx(update, rel=1e-3, abs=1e-5) for update in inline[2]]
    assert 'isolation = "process"' in (tmp_path / "process" / "runs" / "test" / "config.toml").read_text()


def test_a_broken_environment_stops_a_run(longloop, tmp_path):
    """A clear sentence, not a run that learns from what is left."""
    (tmp_path / "moody.py").write_text(
        "from longloop.envs.guess import Guess\n\n"
        "class Moody(Guess):\n"
        "    made = 0\n\n"
        "    def __init__(self, options):\n"
        "        super().__init__(options)\n"
        "        Moody.made += 1\n\n"
        "    async def step(self, action):\n"
        "        assert Moody.made < 3, 'out of order'\n"
        "        return await super().step(action)\n"
    )
    config = write_config(tmp_path, Path(write_config(tmp_path)).read_text().replace('"guess"', '"moody:Moody"'))
    code, said = longloop(
        "train", config, f"folder={tmp_path / 'runs'}", "steps=50", "env.isolation=process", "doctor=false"
    )
    assert code == 2 and "episodes failed for reasons that are not the agent's" in said
    assert "step() raised AssertionError: out of order" in said and "is set aside after 8 failures in a row" in said
    assert json.loads((tmp_path / "runs" / "test" / "run.json").read_text())["status"] == "failed"
