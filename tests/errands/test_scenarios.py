"""Every scenario is sound: its expert does it in any world by reading the documentation, and nothing else will do."""

import asyncio
import hashlib
import os
import string
import subprocess
import sys
from collections import Counter
from statistics import fmean
from typing import Any

import pytest

from errands.api import Api
from errands.apps import find
from errands.audit import audit, variants
from errands.baselines import _DESTROYS
from errands.catalog import by_name, setting
from errands.env import SYSTEM, Errands
from errands.judge import judge
from errands.scenario import Scenario
from errands.scenarios import SCENARIOS
from errands.world import World
from longloop import Player
from longloop.envs.play import Played, play
from longloop.types import Task

NAMES = sorted(kind.name() for kind in SCENARIOS)
SEEDS = 8
EXPLAINED = ("owner.show_account", "owner.complete_task")
"""What the system prompt explains, besides login and the docs themselves."""


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """Each scenario. Its tests follow one another, and those of the same worlds share them."""
    return request.param


def task_of(name: str, seed: int) -> Task:
    return Task(f"{name}/{seed}", "tests", {"scenario": name, "world": f"tests/{seed}"}, name)


def of(split: str) -> list[type[Scenario]]:
    return [kind for kind in SCENARIOS if kind.split == split]


def played(name: str, seed: int, player: Player | None = None) -> Played:
    env, task = Errands(Errands.Options(example=False)), task_of(name, seed)
    return asyncio.run(play(env, task, player or env.expert(task), max_turns=100))


def test_there_are_many_scenarios() -> None:
    assert len(SCENARIOS) >= 60
    assert len(set(NAMES)) == len(SCENARIOS), "two scenarios have one name"
    assert all(of(split) for split in ("train", "dev", "validation", "test_normal", "test_challenge"))
    assert {kind.split for kind in SCENARIOS} == {"train", "dev", "validation", "test_normal", "test_challenge"}
    assert {kind.difficulty for kind in of("train")} == {1, 2, 3}
    assert {kind.difficulty for kind in SCENARIOS} == {1, 2, 3}


def test_a_challenge_needs_an_app_that_no_other_split_uses() -> None:
    trained = {app for kind in of("train") for app in kind.apps()}
    common = {app for kind in SCENARIOS if kind.split != "test_challenge" for app in kind.apps()}
    assert common == trained, "only test_challenge uses other apps than the apps of train"
    for kind in of("test_challenge"):
        assert set(kind.apps()) - common, kind.name()


def test_the_system_prompt_is_short() -> None:
    assert len(SYSTEM) < 1000


def test_splits_have_the_tasks_of_their_scenarios_in_worlds_of_their_own() -> None:
    tasks = {split: Errands.tasks(split, Errands.Options()) for split in Errands.splits}
    assert {task.scenario for task in tasks["unseen_worlds"]} == {task.scenario for task in tasks["train"]}
    everything = [task for some in tasks.values() for task in some]
    assert len({task.id for task in everything}) == len(everything)
    worlds = {split: {task.data["world"] for task in some} for split, some in tasks.items()}
    assert all(len(some) == 3 for some in worlds.values())
    assert len(set().union(*worlds.values())) == 3 * len(Errands.splits), "no two splits share a world"
    assert set(Counter(task.scenario for task in tasks["dev"]).values()) == {3}
    other = {task.data["world"] for task in Errands.tasks("train", Errands.Options(seed=1))}
    assert not other & worlds["train"]
    for difficulty in (1, 2, 3):
        some = Errands.tasks("train", Errands.Options(difficulty=difficulty, per_scenario=1))
        assert {by_name()[task.scenario].difficulty for task in some} == {difficulty}


def test_the_same_tasks_are_made_in_another_process() -> None:
    code = (
        "import hashlib; from errands.catalog import by_name, setting\n"
        "for name in sorted(by_name())[::3]:\n"
        "    s = setting(name, 'again')\n"
        "    print(hashlib.blake2b(s.goal.start.content.image() + s.instruction.encode()).hexdigest())"
    )
    names = sorted(by_name())[::3]
    here = [setting(name, "again") for name in names]
    digests = [hashlib.blake2b(s.goal.start.content.image() + s.instruction.encode()).hexdigest() for s in here]
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONHASHSEED": "3"},
        capture_output=True,
        text=True,
        check=True,
    )
    wrong = [name for name, one, other in zip(names, digests, done.stdout.split(), strict=True) if one != other]
    assert not wrong


def test_every_wording_says_everything(name: str) -> None:
    kind, slots = by_name()[name], setting(name, "tests/0").goal.slots
    assert len(set(kind.phrasings)) >= 3 and len(set(kind.phrasings)) == len(kind.phrasings)
    for wording in kind.phrasings:
        assert {field for _, field, _, _ in string.Formatter().parse(wording) if field is not None} == set(slots)
    assert all(find(api) for api in kind.apis)


def test_tasks_of_a_scenario_differ(name: str) -> None:
    settings = [setting(name, f"tests/{seed}") for seed in range(6)]
    assert len({one.goal.start.content.image() for one in settings}) == 6
    wishes = [(repr(one.goal.slots), repr(one.goal.steps), repr(one.goal.answer)) for one in settings]
    assert len(set(wishes)) >= 3, "who has done one of them can do the others without looking"
    assert len({one.instruction for one in settings}) >= 2
    for one in settings:
        assert one.goal.start.inconsistencies() == [] and one.goal.wish.inconsistencies() == []
        assert "{" not in one.instruction and "None" not in one.instruction
        assert one.goal.steps or one.goal.answer is not None


def test_the_numbers_of_rows_cannot_be_learnt_by_heart(name: str) -> None:
    """What has to be looked up is not the same in every world."""
    numbers = []
    for seed in range(8):
        steps = setting(name, f"tests/{seed}").goal.steps
        numbers.append([value for _, given in steps for key, value in given.items() if key.endswith("_id")])
    assert not all(numbers) or any(one != numbers[0] for one in numbers), f"always {numbers[0]}"


def test_the_expert_succeeds_in_any_world_and_reads_the_documentation_first(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, dict[str, Any]]] = []
    real = World.call

    def recording(self: World, api: Api, arguments: dict[str, Any]) -> Any:
        calls.append((f"{api.app}.{api.name}", arguments))
        return real(self, api, arguments)

    monkeypatch.setattr(World, "call", recording)
    for seed in range(SEEDS):
        calls.clear()
        attempt = played(name, seed)
        failed = [test["name"] for test in attempt.outcome.info["tests"] if not test["passed"]]
        assert attempt.outcome.success, f"in world {seed}: {failed}; it last saw {attempt.messages[-1].content!r}"
        assert attempt.outcome.reward == 1.0 and attempt.turns <= 20
        read = set()
        for called, arguments in calls:
            if called == "docs.show":
                read.add(arguments["api"])
            elif called not in EXPLAINED and not called.endswith(".login") and not called.startswith("docs."):
                assert called in read, f"in world {seed}: {called} was called before its documentation was read"
        used = {called for called, _ in calls}
        assert seed or set(by_name()[name].apis) - {"docs.show"} <= used, "it reads about what it never uses"
        observed = [m.content for m in attempt.messages[attempt.opening - 1 :] if m.role == "user"]
        assert not any("characters more were cut" in text for text in observed), f"in world {seed}: output was cut"
        assert not any("Traceback" in text for text in observed), f"in world {seed}: an error"


def made() -> Errands:
    return Errands(Errands.Options())


def test_every_wrong_variant_fails(name: str) -> None:
    found = asyncio.run(audit(made, by_name()[name], [0]))
    assert found.faults == []
    assert found.variants >= 1


def test_where_nothing_can_be_done_wrong_nothing_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("errands.audit.variants", lambda goal: [])
    found = asyncio.run(audit(made, by_name()["text-someone"], [0]))
    assert found.faults == ["text-someone: no wrong end state was found to judge"]
    assert asyncio.run(audit(made, by_name()["text-someone"], [])).faults == [], "nobody has looked"


def test_those_who_must_not_succeed_do_not(name: str) -> None:
    """The one who deletes everything is slow, so it tries only where deleting is part of the task."""
    destroys = any(api.partition(".")[2].startswith(_DESTROYS) for api in by_name()[name].apis)
    for who, player in Errands(Errands.Options()).baselines(task_of(name, 0)).items():
        if who == "delete everything" and not destroys:
            continue
        outcome = played(name, 0, player).outcome
        assert not outcome.success, who
        if who in ("nothing", "complete at once"):
            assert outcome.reward == 0.0, who


def test_the_audit_notices_a_goal_that_is_too_easy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A judge that overlooks all text lets wrong variants pass; the audit finds them."""
    goals = [setting(name, "tests/0").goal for name in NAMES]
    goal = next(goal for goal in goals if "todo.add" in [api for api, _ in goal.steps])
    assert not any(all(test.passed for test in judge(goal, end)) for _, end in variants(goal))
    monkeypatch.setattr("errands.judge.plain", lambda value: "" if isinstance(value, str) else value)
    lax = type(goal)(goal.start, **goal.slots)
    lax.answer = goal.answer
    for api, arguments in goal.steps:
        lax.do(api, **arguments)
    passed = [what for what, end in variants(lax) if all(test.passed for test in judge(lax, end))]
    assert "todo.add had the wrong text" in passed


def test_harder_scenarios_take_more_turns_and_apis() -> None:
    turns: dict[int, list[int]] = {1: [], 2: [], 3: []}
    apis: dict[int, list[int]] = {1: [], 2: [], 3: []}
    for kind in SCENARIOS:
        turns[kind.difficulty].append(played(kind.name(), 0).turns)
        apis[kind.difficulty].append(len(kind.apis))
    for measured in (turns, apis):
        easy, middling, hard = (fmean(measured[difficulty]) for difficulty in (1, 2, 3))
        assert easy < middling < hard
