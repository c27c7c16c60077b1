"""A newcomer's mistakes: `check`, `doctor` and `train` say in one sentence which method, what it owes, what to do."""

import re
from pathlib import Path

import pytest

from longloop.cli import run_summary
from tests.support.helpers import write_config

pytestmark = [
    pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("error:coroutine:RuntimeWarning"),
]
HERE = "tests/support/clumsy.py:"
BLOCKING = ("SleepingStep", "EndlessStart", "StubbornFinish", "SleepingPlainStep", "WaitingStep")


@pytest.fixture(params=["check", "doctor", "train"])
def said(request, command, tmp_path):
    """What a command prints about an environment, and its exit status. No run is begun: where there is nothing to
    refuse, a file is in the way."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "test.partial").write_text("")

    def run(environment: str, *more: str) -> tuple[int, str]:
        name = f"tests.support.clumsy:{environment}"
        seconds = 2 if environment in BLOCKING else 60
        if request.param == "check":
            code, out, err = command("check", name, "--step-seconds", seconds)
        else:
            config = [write_config(tmp_path), f"env={{name='{name}'}}", f"folder={tmp_path / 'runs'}"]
            code, out, err = command(request.param, *config, f"rollout.step_seconds={seconds}", *more)
        assert "Traceback" not in out + err and "Exception ignored" not in out + err
        assert not (tmp_path / "runs" / "test" / "run.json").exists()
        return code, out + err

    return run


MISTAKES = {
    # what raises: the user's own line, and what is expected instead
    "RaisingConstructor": ["the constructor raised OSError: no licence", HERE, "in __init__", "[env] table"],
    "RaisingStart": ["start() raised AttributeError", "'questions'", HERE, "in start", "the first messages"],
    "RaisingStep": ["step() raised ZeroDivisionError: division by zero", HERE, "in step", "answer any text"],
    "RaisingFinish": ["finish() raised AssertionError (", HERE, "in finish", "score the state"],
    "RaisingTasks": ["RaisingTasks.tasks() raised FileNotFoundError", HERE, "in tasks", "a list of Task"],
    "RaisingExpert": ["expert() raised KeyError: 'solution'", HERE, "in expert", "return a player"],
    "RaisingAct": ["act() raised KeyError: 'number?'", HERE, "in act", "what to say next"],
    "OneThread": ["step() raised ProgrammingError: SQLite objects", HERE, "check_same_thread=False"],
    # what blocks: where it stands
    "SleepingStep": ["step() blocked every other attempt for 2 s", HERE, "in step: `time.sleep(30)`", "await"],
    "EndlessStart": ["start() blocked every other attempt for 2 s", HERE, "in start", "def instead of async def"],
    "StubbornFinish": ["finish() blocked every other attempt for 2 s", HERE, "`time.sleep(0.1)`"],
    "SleepingPlainStep": ["step() took longer than 2 s", HERE, "in step: `time.sleep(30)`", "rollout.step_seconds"],
    "WaitingStep": ["step() took longer than 2 s", HERE, "`await asyncio.Event().wait()`"],
    # what was not awaited, or not called
    "ForgottenAwait": ["step() must return a Step, but returned a coroutine", "write `await` before step()"],
    "UnawaitedReward": ["finish() returned the reward a coroutine", "write `await` before score()"],
    "UnawaitedSuccess": ["success is True or False, but it is a coroutine", "write `await` before solved()"],
    "UncalledSuccess": ["success is True or False, but it is the method solved", "call it, solved()"],
    "UnawaitedText": ["start() must return", "content must be a text", "write `await` before question()"],
    # wrong types
    "TextStart": [
        "start() must return a list with at least one Message",
        "the text 'number?'",
        "[Message('user', text)]",
    ],
    "BareMessage": ["start() must return a list", "one Message that is in no list", "[Message(...)]"],
    "Dicts": ["start() must return a list", "item 0 is {'role': 'user'", "Message('user', text)"],
    "NoReturn": ["step() must return a Step, but returned None", "`return` missing"],
    "TextInStep": ["step() must return a Step whose messages are a list of Message", "the text 'no'"],
    "TextReward": ["finish() returned the reward '1.0'", "not a finite number", "float(...)"],
    "NanReward": ["finish() returned the reward nan", "not a finite number"],
    "NoneSuccess": ["success is True or False, but it is None"],
    "ListInfo": ["finish() must return an info that is a dict", "['a note']"],
    # tasks
    "NumberedTasks": ["tasks('train') must give every Task an id that is a text", "item 0 has the id 0", "Task(id="],
    "UnnamedTasks": ["tasks() raised TypeError", "missing 1 required positional argument: 'id'", HERE],
    "SameIds": ["tasks('train') has two tasks with the same id, 'one'", "unique"],
    "SetData": ["tasks('train')", "data of 'one' must be JSON", "data['words'][0]", "of the type set"],
    "TupleData": ["tasks('train')", "data of 'one' must be JSON", "data['span'] is a tuple", "write a list"],
    "GeneratedTasks": ["tasks('train') must return a list of Task, but returned <generator"],
    "InstanceTasks": ["tasks must be a classmethod", "@classmethod"],
    "AsyncTasks": ["tasks('train') must return a list of Task, but returned a coroutine"],
    # what is not the same for all attempts
    "RandomStart": ["the second time: start() returned other messages"],
    "OnTheClass": ["side by side", "OnTheClass.n is set on the class, which all attempts share", "on self"],
    "InTheModule": ["side by side", "step() gave another answer to action 1", "on self, not on the class"],
    "Endless": ["start() must return", "a message of 12,000,000 characters", "cut it"],
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(said, mistake):
    code, printed = said(mistake)
    assert code != 0, printed
    told = [line for line in printed.splitlines() if all(words in line for words in MISTAKES[mistake])]
    assert len(told) == 1, printed
    assert len(told[0]) < 700


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ("ForClass", ["ForClass.attempts is set on the class", "on self"]),
        ("Markup", ["start() returned a message with chat markup in it (<|im_start|>)", "plain text", "leave it out"]),
        ("Enormous", ["step() returned", "rollout.context"]),
    ],
)
def test_what_is_odd_is_told_and_allowed(said, environment, words):
    code, printed = said(environment)
    told = [line for line in printed.splitlines() if all(word in line for word in words)]
    assert len(told) == 1 and re.match(r"NOTE|warning", told[0]), printed
    assert code == 0 or "File exists" in printed


def test_nothing_is_said_of_a_sound_one(said):
    code, printed = said("Sound", "algo.name=sft")
    assert code == 0 or "File exists" in printed, printed
    assert not re.search(r"^(FAULT|NOTE|warning|fail)", printed, re.MULTILINE), printed


def test_a_model_that_never_succeeds(command, tmp_path):
    """The doctor warns; training says once what to do, and once more at its end. It has done what it was asked: 0."""
    config = [write_config(tmp_path), "env={name='tests.support.clumsy:Hopeless'}", f"folder={tmp_path / 'runs'}"]
    code, out, _ = command("doctor", *config, "tasks_per_step=16")
    (told,) = (line for line in out.splitlines() if line.startswith("warning"))
    assert code == 0 and "0 of 68 attempts succeeded" in told and "never succeeds here" in told and "1 warning." in out
    assert all(remedy in told for remedy in ("algo.name=sft", "easier tasks", "worked example", "another model"))
    code, out, _ = command("train", *config, "steps=5", "tasks_per_step=6")
    assert code == 0 and out.count("never succeeds here") == 2
    assert out.count("None of 72 attempts has succeeded: this model never succeeds here") == 1
    assert out.count("Nothing was learned in 5 steps") == 1
    assert out.count("all attempts were paid the same, so there was nothing to learn") == 1
    assert sum(line.endswith("nothing to learn") for line in out.splitlines()) == 5
    log = (tmp_path / "runs" / "test" / "logs" / "train.log").read_text()
    assert log.count("all attempts were paid the same, so there was nothing to learn") == 5


def test_an_expert_that_never_succeeds(command, tmp_path):
    """The failures of an imitated expert are not the model's."""
    config = [write_config(tmp_path), "env={name='tests.support.clumsy:HelplessExpert'}", f"folder={tmp_path / 'runs'}"]
    code, out, _ = command("train", *config, "algo={name='sft'}", "doctor=false", "steps=4", "tasks_per_step=20")
    assert code == 0 and "never succeeds here" not in out, out
    assert out.count("None of 80 attempts has succeeded: no demonstration succeeds here") == 1
    assert out.count("Nothing was learned in 4 steps, and the model is what it was before: no demonstration") == 1


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([(0, 0.0)] * 4, "Nothing was learned in 4 steps, and the model is what it was before: this model never"),
        ([(0, 1.0)] * 4, "it succeeds at every attempt. Take harder tasks."),
        ([(0, 0.5)] * 4, "at every task all attempts fared alike"),
        ([(0, 0.0)] * 3 + [(9, 0.1)], "In 3 of 4 steps there was nothing to learn"),
        ([(0, 0.0)] + [(9, 0.1)] * 3, ""),
        ([], ""),
    ],
)
def test_the_verdict_at_the_end(steps, words):
    lines = [{"trained_tokens": tokens, "success": share, "stops": {"finished": 8}} for tokens, share in steps]
    said = run_summary.verdict([{"step": 0}, *lines])
    assert words in said and bool(words) == bool(said)
    failing = [{"trained_tokens": 0, "success": 0.0, "stops": {"env_error": 8}}]
    assert "no attempt had a reward" in run_summary.verdict(failing)


def test_demonstrations_that_failed_are_counted_and_say_why(command, tmp_path):
    code, out, err = command("demos", "tests.support.clumsy:HalfAnExpert", f"folder={tmp_path}", "rollout.max_turns=2")
    assert code == 0 and "1 successful demonstrations, 2 failed." in out, err
    assert "1 of them ('train-1' for one): no success within rollout.max_turns, paid 0" in out
    assert re.search(
        r"\('train-2' for one\): expert\(\) raised KeyError: 2 \(tests/support/clumsy.py:\d+, in expert\)", out
    )
    code, _, err = command("demos", "tests.support.clumsy:RaisingAct", f"folder={tmp_path}", "name=none")
    assert (
        code == 2
        and "failed at every task" in err
        and "act() raised KeyError: 'number?' (tests/support/clumsy.py:" in err
    )


def test_a_module_that_cannot_be_imported(command, tmp_path, monkeypatch):
    Path(tmp_path / "typo.py").write_text("class Env:\n    pass\n\nEnv.nothing\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    code, _, err = command("check", "typo:Env")
    assert code == 2 and "importing typo raised AttributeError" in err and "typo.py:4" in err and "Traceback" not in err
