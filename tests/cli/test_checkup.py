"""`longloop doctor` and its quick form in `train`: healthy setups pass, each that is broken on purpose is found out."""

import json

import pytest

from longloop import api
from longloop.diagnose.cost import Collected, duration
from longloop.diagnose.learning import Speed
from longloop.rollout import episode
from tests.support.broken import FORGETFUL
from tests.support.helpers import load_config, write_config

BROKEN, UNTRUE = "tests.support.broken:", "tests.support.untrue:"


@pytest.fixture
def examined(command, tmp_path):
    """Findings by name, and the exit status, of the full doctor."""

    def run(*overrides: str) -> tuple[dict, int]:
        code, said, _ = command("doctor", str(write_config(tmp_path)), "--json", "model.threads=1", *overrides)
        found = json.loads(said)
        by_name = {finding["name"]: finding for finding in found["findings"]}
        assert found["fails"] == sum(f["verdict"] == "fail" for f in by_name.values())
        assert code == (found["fails"] > 0)
        return by_name, code

    return run


def verdicts(found: dict) -> dict[str, str]:
    return {name: finding["verdict"] for name, finding in found.items() if finding["verdict"] != "pass"}


ALL = ["contract", "determinism", "separation", "reward", "shortcut", "method", "tokens", "observations"]
ALL += ["template", "agreement", "variety", "replay", "memory", "update", "success", "time"]


@pytest.mark.parametrize("more", [[], ["algo.name=ppo"], ["algo={name='sft'}"], ["model.lora_rank=4"]])
def test_a_healthy_setup(examined, more):
    found, code = examined(*more)
    assert list(found) == ALL and verdicts(found) == {} and code == 0
    assert found["reward"]["numbers"] == {"expert": 1.0, "nothing": 0.0}
    pieces = found["tokens"]["text"]
    assert [trained for trained, _ in pieces] == [n % 2 == 1 for n in range(len(pieces))]
    assert pieces[0][1].startswith("<|user|>guess 1-3") and len(pieces) >= 4, "an attempt of several turns"


def test_time_adds_up(examined):
    numbers = examined("steps=7", "eval.every=2", "eval.attempts=2")[0]["time"]["numbers"]
    assert numbers["step"] == pytest.approx(numbers["collect"] + numbers["update"], abs=2e-3)
    total = 7 * numbers["step"] + numbers["evaluations"]
    assert numbers["hours"] * 3600 == pytest.approx(total, abs=0.5) and numbers["evaluations"] > 0
    assert numbers["peak"] > 0


@pytest.mark.parametrize(("steps", "every"), [(1, 0), (3, 2), (2, 2), (1, 5)])
def test_as_many_evaluations_are_counted_as_there_will_be(tmp_path, steps, every):
    config = load_config(tmp_path, f"steps={steps}", f"eval.every={every}", "doctor=false")
    some, algo = Collected(1, 1, 1.0, 1.0, ""), api.prepared(config).algo
    said = duration(config, algo, some, Speed(1.0, 1.0), None, evaluated=3, rescored=False).seen
    made = sum("eval" in line for line in api.train(config, progress=False).metrics)
    assert f"with {made} evaluations of 3 attempts" in said


def test_errands_with_the_novice(command):
    """The environment and the model that the quick start uses; a little of it."""
    config = ["quickstart", "rollout.max_turns=3", "algo.k=2", "tasks_per_step=2", "eval.tasks=2"]
    code, said, _ = command("doctor", *config)
    assert code == 0 and "16 findings: 0 fail, 0 warnings." in said
    assert "[[Thought: " in said and "delete everything 0" in said


# --- broken on purpose ---


@pytest.mark.parametrize(
    ("setting", "verdict", "words"),
    [
        (["env={name='tests.support.broken:Believer', highest=7}"], "fail", "done"),
        (["env={name='tests.support.broken:Believer', paid=0.5}"], "warning", "done"),
        (["env={name='tests.support.broken:Office', looks=false}"], "fail", "zzz hand in"),
    ],
)
def test_claiming_to_be_done_pays(examined, setting, verdict, words):
    finding = examined(*setting)[0]["shortcut"]
    assert finding["verdict"] == verdict and words in finding["seen"] and "finish()" in finding["advice"]


def test_an_ending_that_does_not_pay_alone(examined):
    assert examined("env={name='tests.support.broken:Office'}")[0]["shortcut"]["verdict"] == "pass"
    found, _ = examined("env.tries=1")  # the expert's only words are right at one task in three
    assert found["shortcut"]["verdict"] == "pass" and "fails at 2" in found["reward"]["seen"]


@pytest.mark.parametrize(
    ("environment", "reward", "verdict", "words", "advice"),
    [
        ("Declared", "pass", "pass", "doing the task 100)", ""),
        ("Ample", "warning", "fail", "doing the task 1)", "claimed."),
        ("Points", "warning", "warning", "doing the task 1 as is assumed)", "declare reward_range, or give"),
    ],
)
def test_what_a_task_pays_where_there_is_no_expert(command, tmp_path, environment, reward, verdict, words, advice):
    """What the environment declares, as in its own points; where it says nothing, nothing is refused."""
    settings = [str(write_config(tmp_path)), f"env={{name='{BROKEN}{environment}'}}", "model.threads=1"]
    _, said, _ = command("doctor", *settings, "--json")
    found = {finding["name"]: finding for finding in json.loads(said)["findings"]}
    assert found["shortcut"]["verdict"] == verdict and words in found["shortcut"]["seen"]
    assert advice in found["shortcut"]["advice"] and found["reward"]["verdict"] == reward
    code, _, error = command("train", *settings, f"folder={tmp_path}", "steps=1")
    assert (code != 0) == (verdict == "fail") == ("learn to say just that" in error)


@pytest.mark.parametrize("isolation", ["inline", "process"])
@pytest.mark.parametrize("method", ["loop", "drpo"])
def test_an_expert_at_some_tasks_only(command, tmp_path, isolation, method):
    """In a worker, who there is shows when the expert is asked to act."""
    settings = [str(write_config(tmp_path)), f"algo.name={method}", f"folder={tmp_path}", "steps=1"]
    settings += [f"env={{name='{BROKEN}Half', isolation='{isolation}', workers=1}}"]
    code, said, _ = command("doctor", *settings, "--json", "model.threads=1")
    found = {finding["name"]: finding for finding in json.loads(said)["findings"]}
    assert found["reward"]["numbers"] == {"expert": 1.0, "nothing": 0.0}
    assert found["shortcut"]["verdict"] == "pass" and code == (method == "drpo")
    assert found["method"]["verdict"] == ("fail" if method == "drpo" else "pass")
    assert ("tasks without an expert" in found["method"]["seen"]) == (method == "drpo")
    code, _, error = command("train", *settings)
    assert (code != 0) == ("tasks without an expert" in error) == (method == "drpo")


@pytest.mark.parametrize(
    ("environment", "method", "verdict", "words"),
    [
        ("Office", "loop", "pass", "nothing special"),
        ("Office", "gigpo", "warning", "info['state']"),
        ("Office", "vineppo", "pass", "gives what the method needs (replay)"),
        ("Office", "igpo", "fail", "data['answers']"),
        ("Bare", "vineppo", "fail", "not deterministic"),
        ("Office", "drpo", "pass", "(expert, replay)"),
        ("Bare", "drpo", "fail", "tasks without an expert"),
    ],
)
def test_what_a_method_needs_of_the_environment(command, tmp_path, environment, method, verdict, words):
    """The quick form says so as well, before anything is trained."""
    settings = [f"env={{name='{BROKEN}{environment}'}}", f"algo.name={method}", f"folder={tmp_path}", "steps=1"]
    config = str(write_config(tmp_path))
    code, said, _ = command("doctor", config, "--json", "model.threads=1", *settings)
    (found,) = [finding for finding in json.loads(said)["findings"] if finding["name"] == "method"]
    assert found["verdict"] == verdict and words in found["seen"] and bool(found["advice"]) == (verdict != "pass")
    code, said, error = command("train", config, *settings)
    assert (code != 0) == (verdict == "fail")
    assert (found["seen"] in " ".join((said + error).split())) == (verdict != "pass")


@pytest.mark.parametrize("environment", ["Moody", "Lottery"])
def test_not_deterministic(examined, environment):
    found, code = examined(f"env.name={BROKEN}{environment}")
    assert code == 1 and found["determinism"]["verdict"] == found["replay"]["verdict"] == "fail"


def test_doing_nothing_pays(examined):
    found, code = examined(f"env.name={BROKEN}Idle")
    assert verdicts(found) == {"reward": "warning"} and code == 0
    assert "Doing nothing pays" in found["reward"]["seen"] and found["reward"]["numbers"]["nothing"] == 0.2


def test_an_environment_that_fails_at_odd_text(examined):
    found, _ = examined(f"env.name={BROKEN}Shouting", "env.tries=9")
    assert found["contract"]["verdict"] == "warning" and "too long for me" in found["contract"]["seen"]


def test_a_template_that_rewrites_history(examined, tmp_path):
    (tmp_path / "forgetful.jinja").write_text(FORGETFUL)
    found, _ = examined(f"model.chat_template={tmp_path / 'forgetful.jinja'}")
    assert verdicts(found) == {"template": "warning"}
    numbers = found["template"]["numbers"]
    assert numbers["fresh"] > numbers["turns"] / 2 and numbers["times"] > 1


@pytest.mark.parametrize("more", [[], ["model.lora_rank=4"], ["model.dtype=bfloat16"]])
def test_an_engine_with_stale_weights(examined, more):
    found, code = examined(f"engine.name={UNTRUE}Stale", *more)
    assert verdicts(found) == {"update": "fail"} and code == 1
    assert "other weights than the learner's" in found["update"]["seen"]


@pytest.mark.parametrize("by", [1, -1])
@pytest.mark.parametrize("turns", [1, 2])
def test_a_mask_that_is_off_by_one(examined, by, turns):
    found, code = examined(f"algo.name={UNTRUE}OffByOne", f"algo.by={by}", f"rollout.max_turns={turns}")
    assert found["tokens"]["verdict"] == "fail" and "mask" in found["tokens"]["seen"] and code == 1


def test_an_engine_that_ignores_the_seed(examined):
    found, code = examined(f"engine.name={UNTRUE}OneSeed")
    assert verdicts(found) | {"success": ""} == {"variety": "fail", "success": ""} and code == 1
    assert "the same random numbers" in found["variety"]["seen"]


def test_identical_seeds(examined, monkeypatch):
    monkeypatch.setattr(episode, "seed_of", lambda *_: 3)
    found, code = examined()
    # All attempts alike: they may all have failed, too.
    assert verdicts(found) | {"success": ""} == {"variety": "fail", "success": ""} and code == 1
    assert "the same seed" in found["variety"]["seen"]


def test_a_temperature_of_almost_zero(examined):
    found, code = examined("rollout.temperature=0.01")
    assert found["variety"]["verdict"] == "warning" and code == 0
    assert "temperature" in found["variety"]["seen"]


def test_what_does_not_fit(examined):
    found, code = examined("rollout.context=2000000000")
    assert found["memory"]["verdict"] == "fail" and "will not fit" in found["memory"]["seen"] and code == 1


def test_a_contract_that_is_broken(examined):
    found, code = examined("env={name='tests.cli.test_bad_input:BadStep'}")
    assert list(found) == ["contract"] and "step() must return a Step" in found["contract"]["seen"] and code == 1


def test_hostile_text_is_text(command, tmp_path, monkeypatch):
    """No control sequence of the environment's reaches the terminal, whether it has colours or not."""
    _, said, _ = command("doctor", str(write_config(tmp_path)), f"env.name={BROKEN}Hostile")
    assert "[[" in said and "\x1b" not in said


# --- in train ---


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (["env={name='tests.support.broken:Believer'}"], "learn to say just that"),
        ([f"env.name={BROKEN}Moody"], "partly luck"),
        ([f"algo.name={UNTRUE}OffByOne"], "mask"),
        ([f"engine.name={UNTRUE}OneSeed"], "the same random numbers"),
        (["engine={name='scripted', actions=['1']}", "algo.name=reinforce"], "Engine and learner disagree"),
    ],
)
def test_train_refuses(command, tmp_path, broken, words):
    code, _, said = command("train", str(write_config(tmp_path)), f"folder={tmp_path / 'runs'}", *broken)
    assert code == 2 and said.startswith("longloop: ") and words in said and "doctor=false" in said
    assert not (tmp_path / "runs").exists()


def test_train_goes_on_when_told_to(command, tmp_path):
    anyway = [f"folder={tmp_path / 'runs'}", f"env.name={BROKEN}Moody", "steps=1", "doctor=false"]
    assert command("train", str(write_config(tmp_path)), *anyway)[0] == 0


def test_train_prints_warnings_and_goes_on(command, tmp_path):
    code, said, _ = command(
        "train", str(write_config(tmp_path)), f"folder={tmp_path / 'runs'}", f"env.name={BROKEN}Idle", "steps=1"
    )
    assert code == 0 and "warning (reward): " in said and "Doing nothing pays" in said
