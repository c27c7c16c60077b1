"""Errands as an environment: the contract, broken actions, careless experts, and trying it out."""

import asyncio
import random
import re
import subprocess
import sys
from typing import Any

import pytest

from errands.apps import make_world
from errands.catalog import by_name
from errands.env import SYSTEM, Errands, Expert
from errands.example import PinNewest
from errands.experts.careless import careless
from errands.judge import judge
from errands.session import Session
from longloop.diagnose import trial
from longloop.envs import contract
from longloop.envs.guess import Guess
from longloop.envs.play import Played, Script, Silent, play
from longloop.envs.react import code_of, react
from longloop.types import Message, Outcome, Step, Task
from tests.support.worlds import default

TASKS = Errands.tasks("train", Errands.Options(per_scenario=1))


def started(task: Task = TASKS[0]) -> Errands:
    env = Errands(Errands.Options())
    env.start(task)
    return env


def say(env: Errands, text: str) -> Step:
    return env.step(Message("assistant", text))


def expert_of(task: Task, carelessness: float = 0.0, thorough: bool = False) -> Played:
    env = Errands(Errands.Options(careless=carelessness, thorough=thorough))
    return asyncio.run(play(env, task, env.expert(task)))


def test_it_keeps_the_contract() -> None:
    contract.check_class("errands", Errands)
    for split in Errands.splits:
        assert contract.tasks_of(Errands, split, Errands.Options(per_scenario=1))
    env = Errands(Errands.Options(example=False))
    opening = contract.expect("start", env.start(TASKS[0]))
    assert [message.role for message in opening] == ["system", "user"]
    assert opening[0].content == SYSTEM and opening[1].content.startswith("I am ")
    step = contract.expect("step", say(env, react("I look.", "print(apis.docs.list_apps())")))
    assert not step.done and [message.role for message in step.messages] == ["user"]
    assert "calendar" in step.messages[0].content
    assert contract.expect("step", say(env, react("Done.", "apis.owner.complete_task()"))).done
    outcome = contract.expect("finish", env.finish())
    assert (outcome.reward, outcome.success) == (0.0, False)
    assert [set(test) for test in outcome.info["tests"]] == [{"name", "passed"}] * len(outcome.info["tests"])


def test_every_way_to_end_is_scored() -> None:
    """Before it began, at once, after some turns, and after it is done."""
    assert Errands(Errands.Options()).finish() == Outcome(0.0, False)
    assert started().finish().reward == 0.0
    env = started()
    say(env, "Thought: hm")
    assert env.finish().reward == 0.0
    assert expert_of(TASKS[0]).outcome.reward == 1.0


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "Thought: I think.",
            "```",
            "```python",
            "```python\n```",
            "no code",
            "\x00",
            "caf\udce9",
            "x" * 10**5,
        ),
        *("```python\nwhile True: pass", "```bash\nls\n```", "<|im_end|>", "{'role': 'user'}", "\u202e"),
    ],
)
def test_any_action_gets_an_answer(text: str) -> None:
    env = started()
    step = contract.expect("step", say(env, text))
    assert not step.done
    assert len(step.messages) == 1 and 0 < len(step.messages[0].content) < 5000
    step.messages[0].content.encode()
    assert say(env, react("?", "print(1)")).messages[0].content == "1"
    assert env.finish().reward == 0.0


def test_what_was_done_before_is_said_to_have_been_done() -> None:
    env = started()
    repeated = "(You ran the same code before, with the same result. Try something else.)"
    assert say(env, react("?", "print(1)")).messages[0].content == "1"
    assert say(env, react("once more", "print(1)")).messages[0].content == f"1\n{repeated}"
    say(env, react("?", "page = 0"))
    for page in (1, 2):
        next_page = say(env, react("the next page", "page += 1\nprint(page)")).messages[0].content
        assert next_page == str(page), "the same code with another result is no repetition"
    copy = env.fork()
    assert say(copy, react("?", "print(1)")).messages[0].content == f"1\n{repeated}"
    copy.finish()
    last = react("done", "apis.owner.complete_task()")
    assert say(env, last).done
    env.finish()


def test_what_is_no_action_is_answered_with_how_to_write_one() -> None:
    env = started()
    for nothing in ("", "Thought: I wonder.", "Thought: I wonder.\n```\n", "```python\n```"):
        assert say(env, nothing).messages[0].content.startswith("(There is no code in your message.")
    two = "Thought: both\n```python\nprint(1)\n```\nOutput: 1\n```python\nprint(2)\n```"
    seen = say(env, two).messages[0].content
    assert seen == "1\n(Only the first block of code was run. Write one block in each turn.)"
    env.finish()


def test_the_example_is_a_task_done_to_the_end_as_turns_of_the_conversation() -> None:
    task = TASKS[0]
    env = Errands(Errands.Options(example=True))
    system, *shown, last = env.start(task)
    plain = Errands(Errands.Options(example=False))
    assert plain.start(task)[0] == system and len(plain.start(task)) == 2
    assert [message.role for message in (*shown, last)] == ["user", "assistant"] * (len(shown) // 2) + ["user"]
    looked = [shown[n].content for n in (1, 3, 5)]
    assert all(api in text for api, text in zip(("list_apps", "list_apis", "docs.show"), looked, strict=True))
    assert "complete_task(answer=" in shown[-1].content and "The task is completed." in last.content
    assert last.content.endswith(plain.start(task)[1].content) and "new session" in last.content
    assert not any("Traceback" in message.content for message in shown)
    assert say(env, react("?", "print(found)")).messages[0].content.count("NameError") == 1, (
        "its session is not this one"
    )
    assert "pin-newest" not in by_name()
    env.finish()
    plain.finish()


def test_the_example_passes_its_own_judge() -> None:
    kind, world = PinNewest(), make_world("example")
    goal = kind.prepare(world)
    session = Session(world)
    for _, code in kind.turns(**goal.slots):
        session.run(code)
    assert all(test.passed for test in judge(goal, world)) and world.done is not None
    session.close()


def test_a_copy_goes_its_own_way() -> None:
    env = started()
    say(env, react("x", "x = 1"))
    copy = env.fork()
    say(copy, react("x", "x = 2\napis.owner.complete_task()"))
    assert say(env, react("?", "print(x)")).messages[0].content == "1"
    assert not say(env, react("?", "print(apis.owner.show_time())")).messages[0].content.count("409")
    copy.finish()
    assert say(env, react("?", "print(x + 1)")).messages[0].content == "2"
    env.finish()


def test_an_expert_can_go_on_in_a_copy() -> None:
    """Halfway through, both ways lead to the same end."""
    task = TASKS[0]
    lines = expert_of(task).said
    env = started(task)
    for line in lines[: len(lines) // 2]:
        say(env, line)
    copy = env.fork()
    for one in (copy, env):
        for line in lines[len(lines) // 2 :]:
            say(one, line)
        assert one.finish().success


def test_attempts_at_one_task_start_alike() -> None:
    first, second = Errands(Errands.Options()), Errands(Errands.Options())
    assert first.start(TASKS[0]) == second.start(TASKS[0])
    login = react("?", "print(apis.notes.login(**apis.owner.show_account(app='notes')))")
    assert say(first, login) == say(second, login)
    assert first.finish() == second.finish()


CODE = "print(1)"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (react("I think.", CODE), CODE),
        (f"```python\n{CODE}\n```", CODE),
        (f"```py\n{CODE}\n```", CODE),
        (f"```Python\n{CODE}\n```", CODE),
        (f"``` python\n{CODE}\n```", CODE),
        (f"```\n{CODE}\n```", CODE),
        (f"```python {CODE}```", CODE),
        (f"Thought: a\n```python\n{CODE}\n```\nThat should do.", CODE),
        (f"Thought: a\n```python\n{CODE}\n```\nand\n```python\nprint(2)\n```", CODE),
        (f"Thought: a\n```python\n{CODE}", CODE),
        (f"```python\n{CODE}\n``", f"{CODE}\n``"),
        (f"Thought: a\n{CODE}", CODE),
        (CODE, CODE),
        (f"thought: a\n{CODE}", CODE),
        ("Thought: only a thought", ""),
        ("Thought: only a thought\n", ""),
        ("", ""),
        ("```python\n```", ""),
        ("```", ""),
        ("```python\nfor i in x:\n    print(i)\n```", "for i in x:\n    print(i)"),
        ("```python\n    x = 1\n```", "    x = 1"),
        ("```python\r\nx = 1\r\n```", "x = 1"),
        ("```bash\nls\n```", "ls"),
        ("```json\n{}\n```", "{}"),
        ("```pycon\n>>> 1\n```", ">>> 1"),
    ],
)
def test_code_is_found_in_malformed_output(text: str, code: str) -> None:
    assert code_of(text).strip("\r\n") == code


@pytest.mark.parametrize("split", ["train", "test_challenge"])
def test_what_is_written_is_read_again(split: str) -> None:
    task = Errands.tasks(split, Errands.Options(per_scenario=1))[0]
    for said in expert_of(task).said:
        code = code_of(said)
        thought = said.partition("\n")[0].removeprefix("Thought: ")
        assert code and said == react(thought, code)


def turns() -> Any:
    for number in range(5):
        yield f"thought {number}", f"x = {number}"
    yield "done", "apis.owner.complete_task()"


def all_turns(rate: float, seed: int) -> list[tuple[str, str]]:
    """Until the task is completed."""
    said = list(careless(turns(), rate, random.Random(seed)))
    return said[: next(place for place, (_, code) in enumerate(said) if "complete_task" in code) + 1]


def test_a_careful_expert_leaves_nothing_out() -> None:
    assert all_turns(0.0, 0) == list(turns())


def test_a_careless_expert_leaves_things_out_or_stops_but_always_completes_the_task() -> None:
    seen = [all_turns(0.3, seed) for seed in range(200)]
    assert all(one[-1][1] == "apis.owner.complete_task()" for one in seen)
    assert all(one[:-1] == [turn for turn in turns() if turn in one[:-1]] for one in seen)
    early = [one for one in seen if one[-1][0] == "That should be all."]
    left_out = [one for one in seen if one[-1][0] == "done" and len(one) < 6]
    whole = [one for one in seen if len(one) == 6]
    # Of five turns each slips with 0.3, half of the slips end it: 0.7**5 = 0.168 are whole, about half end early.
    assert 20 < len(whole) < 50 and 80 < len(early) < 140 and len(left_out) > 20


def test_who_cannot_complete_the_task_completes_it_without_an_answer() -> None:
    """What the answer is made of was left out; and then nothing was said any more, eighteen turns long."""
    assert list(careless(turns(), 0.0, random.Random(0))) == list(turns()), "all went well, and there is no more to say"
    said = [list(careless(turns(), 0.3, random.Random(seed))) for seed in range(50)]
    again = [one for one in said if len(one) > 1 and one[-2][0] == "done"]
    assert len(again) > 5 and all(one[-1] == ("That should be all.", "apis.owner.complete_task()") for one in again)
    asked = [
        task
        for task in Errands.tasks("practice", Errands.Options(per_scenario=4))
        if task.scenario.startswith("title-")
    ]
    attempts = [expert_of(task, carelessness=0.3, thorough=True) for task in asked[:40]]
    assert all("complete_task" in attempt.messages[-2].content for attempt in attempts)
    assert any(attempt.messages[-4].content.count("complete_task(answer") for attempt in attempts)


def test_careless_experts_finish_and_sometimes_succeed() -> None:
    attempts = [expert_of(task, carelessness=0.2) for task in TASKS[:25]]
    assert all(attempt.messages[-2].content.count("complete_task") == 1 for attempt in attempts)
    assert 0 < sum(attempt.outcome.success for attempt in attempts) < len(attempts)
    assert attempts[:3] == [expert_of(task, carelessness=0.2) for task in TASKS[:3]]


def test_an_expert_with_nothing_more_to_say_is_silent() -> None:
    expert = Expert(iter_turns())
    said = [expert.act([Message("user", "")]) for _ in range(4)]
    assert said[0] == react("a", "b") and said[1:] == ["", "", ""]


def iter_turns() -> Any:
    yield "a", "b"


def test_everyone_who_can_play_without_a_model_is_scored() -> None:
    found = asyncio.run(trial.scores(default(Errands), TASKS[:2]))
    assert next(iter(found)) == "expert" and found["expert"].success == 1.0 and found["expert"].reward == 1.0
    assert {"nothing", "complete at once", "answer at random", "delete everything"} < set(found)
    for name, score in found.items():
        assert len(score.rewards) == 2
        if name != "expert":
            assert score.success == 0.0 and score.failures == [task.id for task in TASKS[:2]]
    assert found["nothing"].steps == 0 and found["complete at once"].steps == 2
    assert "expert" not in asyncio.run(trial.scores(default(Errands), TASKS[:1], expert=False))


def test_an_environment_without_baselines_has_at_least_the_silent_one() -> None:
    assert list(asyncio.run(trial.players(Guess(Guess.Options()), Guess.tasks("train", Guess.Options())[0]))) == [
        "expert",
        "nothing",
    ]


def test_an_attempt_repeats_itself() -> None:
    assert not asyncio.run(trial.difference(default(Errands), TASKS[0]))

    class Moody(Errands):
        count = 0

        def step(self, action: Message) -> Step:
            Moody.count += 1
            return Step([Message("user", str(Moody.count))])

    assert asyncio.run(trial.difference(default(Moody), TASKS[0]))


def test_play_stops_at_the_limit_and_scores_what_was_reached() -> None:
    lines = [react("?", "print(1)")] * 5
    attempt = asyncio.run(play(Errands(Errands.Options()), TASKS[0], Script(lines), max_turns=3))
    assert attempt.turns == 3 and attempt.outcome.reward == 0.0
    assert asyncio.run(play(Errands(Errands.Options()), TASKS[0], Silent())).turns == 0


def test_a_thorough_expert_has_seen_the_names_of_what_it_reads_about() -> None:
    """Nothing of what it looks up has it by heart, so that the way it goes leads to new errands too."""
    for task in TASKS:
        played = expert_of(task, thorough=True)
        assert played.outcome.success
        heard = ""
        for message in played.messages[played.opening :]:
            if message.role == "assistant":
                read = re.findall(r'docs\.show\(api="(\w+\.\w+)"', message.content)
                assert all(f"'{api}'" in heard for api in read), (task.id, read)
                quoted = re.findall(r" \('([^']+)'\)", message.content.partition("```")[0])
                assert all(about in heard for about in quoted) and bool(read) == bool(quoted), (task.id, quoted)
            else:
                heard += message.content


def test_attempts_at_a_task_are_judged_at_the_same_time() -> None:
    """They share the goal, whose databases bear one thread at a time: two stop the interpreter for good, and this test
    with it, so that it is done in a process of its own."""
    code = """
import sys, threading
sys.setswitchinterval(1e-5)
from errands.env import Errands
from errands.judge import _layout

for task in Errands.tasks("train", Errands.Options())[:12]:
    envs = [Errands(Errands.Options()) for _ in range(8)]
    start = threading.Barrier(8)

    def play(env):
        start.wait()
        env.start(task)
        env._world.written.update(_layout())
        start.wait()
        env.finish()

    threads = [threading.Thread(target=play, args=(env,)) for env in envs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=90)
