"""Errands in Gymnasium's interface: with that library, and without it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import errands.gym as gym
from errands.env import Errands
from errands.gym import ErrandsEnv
from longloop.envs.react import react
from longloop.types import Message

ROOT = Path(__file__).parents[2]
TASK = "train/mail-to-relation/0"
DONE = react("I am done.", "apis.owner.complete_task()")


def played(env: ErrandsEnv, task: str) -> tuple[list[float], dict[str, Any]]:
    """The rewards of the expert's steps, and the last info."""
    (found,) = [one for one in Errands.tasks(task.partition("/")[0], Errands.Options()) if one.id == task]
    expert = Errands(Errands.Options()).expert(found)
    observation, info = env.reset(options={"task": task})
    rewards: list[float] = []
    over = False
    while not over:
        action = expert.act([Message(**message) for message in info["messages"]])
        observation, reward, terminated, truncated, info = env.step(action)
        rewards.append(reward)
        over = terminated or truncated
        assert isinstance(observation, str) and (terminated, truncated) in [(False, False), (True, False)]
    return rewards, info


@pytest.mark.parametrize("task", [TASK, "dev/star-last-mail/1", "train/note-into-list/2"])
def test_the_expert_succeeds(task: str) -> None:
    rewards, info = played(ErrandsEnv(), task)
    assert rewards == [0.0] * (len(rewards) - 1) + [1.0] and len(rewards) > 2
    assert info["success"] is True and all(test["passed"] for test in info["tests"])


def test_a_wrong_sequence_is_not_paid() -> None:
    env = ErrandsEnv()
    env.reset(options={"task": TASK})
    observation, reward, terminated, truncated, info = env.step(react("I look.", "print(1 + 1)"))
    assert (observation, reward, terminated, truncated) == ("2", 0.0, False, False) and "success" not in info
    _, reward, terminated, truncated, info = env.step(DONE)
    assert (reward, terminated, truncated, info["success"]) == (0.0, True, False, False)
    with pytest.raises(RuntimeError, match=r"call reset\(\)"):
        env.step(DONE)


def test_too_many_turns_truncate_and_the_state_is_scored() -> None:
    """The expert does all but say that it is done."""
    env = ErrandsEnv(max_turns=3)
    (task,) = [one for one in Errands.tasks("train", Errands.Options()) if one.id == TASK]
    expert = Errands(Errands.Options()).expert(task)
    turns = list(iter(lambda: expert.act([Message("user", "")]), ""))
    env.reset(options={"task": TASK})
    ends = [env.step(turn)[1:] for turn in turns[-4:-1]]
    assert [(terminated, truncated) for _, terminated, truncated, _ in ends] == [(False, False)] * 2 + [(False, True)]
    assert 0.0 < ends[-1][0] < 1.0 and ends[-1][3]["success"] is False


def test_the_same_seed_gives_the_same_task() -> None:
    env = ErrandsEnv(per_scenario=1)
    (first, info), (again, same) = env.reset(seed=7), env.reset(seed=7)
    assert (
        first == again
        and info == same
        and info["task"].startswith("train/")
        and info["messages"][0]["role"] == "system"
    )
    assert len({env.reset()[1]["task"] for _ in range(10)}) > 5
    env.close()
    env.close()
    for wrong in ("train/nothing/0", "nowhere/nothing/0"):
        with pytest.raises(ValueError, match="no task"):
            env.reset(options={"task": wrong})
    with pytest.raises(ValueError, match="The splits are train, unseen_worlds"):
        ErrandsEnv(split="nowhere")


def test_gymnasium_takes_it() -> None:
    gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    from gymnasium.utils.env_checker import check_env

    env = gymnasium.make("errands.gym:Errands-v1", split="dev", max_turns=3)
    check_env(env.unwrapped)
    observation, info = env.reset(seed=3)
    assert isinstance(env.unwrapped, ErrandsEnv) and info["task"].startswith("dev/")
    assert observation in env.observation_space and "é\n" * 10 in env.action_space and 3 not in env.action_space
    assert env.action_space.sample() in env.action_space
    env.close()


def test_it_needs_no_gymnasium() -> None:
    code = (
        "import sys; sys.modules['gymnasium'] = None\n"
        "from errands.gym import ErrandsEnv\n"
        "env = ErrandsEnv()\n"
        "seen, info = env.reset(seed=7)\n"
        "assert seen in env.observation_space and 3 not in env.action_space\n"
        f"seen, reward, terminated, truncated, end = env.step({DONE!r})\n"
        "assert reward == 0.0 and terminated and not truncated\n"
        "env.close()\n"
        "print(info['task'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ErrandsEnv().reset(seed=7)[1]["task"], "the seed means the same with and without"
    assert gym.MAX_TURNS == 40
