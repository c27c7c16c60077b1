"""What an expert shows, what stands for it when it fails, and why it did."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from longloop.envs.calls import called
from longloop.envs.contract import NoExpert
from longloop.rollout.demonstrations import demonstrate, retokenize, why_failed
from longloop.rollout.expert import ExpertAsEngine
from longloop.types import Fault, Message, Outcome, Step, StopReason, Task, Trajectory, UserError
from tests.support.samples import attempt
from tests.support.worlds import CHAT, TASKS, Env, Log, rollouts


class Expert:
    def __init__(self, *says: str) -> None:
        self.says = list(says)

    async def act(self, messages: Sequence[Message]) -> str:
        return self.says.pop(0)


class Shown(Env):
    """An environment with an expert, or with one that is broken."""

    says: Any = ("a", "b")

    def expert(self, task: Task) -> Expert | None:
        if isinstance(self.says, Exception):
            raise self.says
        return Expert(*self.says) if self.says else None


def shown(log: Log, says: Any = ("a", "b"), kind: type[Shown] = Shown) -> Trajectory:
    one = type("Shown", (kind,), {"says": says})
    return asyncio.run(asyncio.wait_for(demonstrate(rollouts(lambda: one(log)).context, TASKS[0]), 60))


def test_a_demonstration_is_attempt_zero_of_an_expert_that_is_sure() -> None:
    """Up to the last turn at which it has something to say."""
    one = shown(Log())
    assert (one.task, one.attempt, one.expert, one.reward) == (TASKS[0], 0, True, 1.0)
    assert [turn.action.content for turn in one.turns] == ["a", "b"]
    for turn in one.turns:
        assert turn.action_key == CHAT.action_ids(turn.action.content) and turn.finish == "stop"
        assert turn.action_logprobs.tolist() == [0.0] * len(turn.action_ids)
    assert [turn.action.content for turn in shown(Log(), ("a", "")).turns] == ["a"]
    assert shown(Log(), ("", "")).turns == ()


def test_what_an_expert_left_undone_is_judged_as_well() -> None:
    setting = rollouts(lambda: Shown(Log())).idle().context
    one = asyncio.run(asyncio.wait_for(demonstrate(setting, TASKS[0]), 60))
    assert (one.stop, one.reward, one.turns) == (StopReason.MAX_TURNS, 1.0, ())


def test_an_expert_that_cannot_be_had_is_a_failed_attempt() -> None:
    one = shown(Log(), ValueError("out of office"))
    assert (one.task, one.attempt, one.turns, one.reward, one.success) == (TASKS[0], 0, (), 0.0, False)
    assert one.expert and one.stop is StopReason.ENV_ERROR and "out of office" in one.error


def test_nothing_to_imitate_is_said_with_the_split() -> None:
    with pytest.raises(UserError, match="Shown has no expert for the split 'train', so"):
        shown(Log(), ())
    with pytest.raises(UserError, match="Env has no expert, so"):
        asyncio.run(demonstrate(rollouts(lambda: Env(Log())).context, TASKS[0]))


def test_an_environment_that_failed_is_left_and_not_judged() -> None:
    """Its finish is called once, whatever failed; a verdict counts only if all went well."""

    class Breaks(Shown):
        async def step(self, action: Message) -> Any:
            raise ValueError("no")

    class Stumbles(Shown):
        async def start(self, task: Task) -> Any:
            raise ValueError("no")

    for kind in (Breaks, Stumbles):
        log = Log()
        one = shown(log, kind=kind)
        assert (one.stop, one.reward, one.success, one.info) == (StopReason.ENV_ERROR, 0.0, False, {})
        assert log.finished == {0: 1}


@pytest.mark.parametrize(
    ("stop", "success", "words"),
    [
        (StopReason.FINISHED, True, ""),
        (StopReason.ENV_ERROR, False, "broke"),
        (StopReason.MAX_TURNS, False, "no success within rollout.max_turns, paid 0.5"),
        (StopReason.CONTEXT_FULL, False, "the conversation no longer fitted into rollout.context"),
        (StopReason.FINISHED, False, "all was done that the expert does, and paid 0.5"),
    ],
)
def test_why_a_demonstration_is_none(stop: StopReason, success: bool, words: str) -> None:
    assert why_failed(replace(attempt(0.5, stop=stop), success=success, error="broke")) == words


def test_what_is_retold_has_the_policys_own_tokens() -> None:
    """Whatever the stored attempt had: ids, log-probs, and where the context begins anew."""
    one = shown(Log())
    turns = tuple(
        replace(
            turn, context_ids=(1,), action_ids=(2,), action_logprobs=(-3.0,), restarts_context=not turn.restarts_context
        )
        for turn in one.turns
    )
    again = retokenize(CHAT, replace(one, turns=turns, expert=False))
    assert again.expert and again.turns == one.turns


def test_a_reward_that_was_not_declared_is_refused() -> None:
    class Ranged(Shown):
        reward_range = (0.0, 0.5)

    one = shown(Log(), kind=Ranged)
    assert (one.stop, one.reward) == (StopReason.ENV_ERROR, 0.0) and "reward_range says 0 to 0.5" in one.error


def test_waiting_for_a_worker_is_not_the_environments_time() -> None:
    class Late(Shown):
        waited = False

        async def ready(self) -> None:
            if not self.waited:
                await asyncio.sleep(1.2)
            self.waited = True

    setting = rollouts(lambda: Late(Log()), step_seconds=1.0).context
    assert asyncio.run(asyncio.wait_for(demonstrate(setting, TASKS[0]), 60)).success


# --- the expert in the engine's place ---


class Recorded:
    """An environment and a chat template in one, which note what they are given."""

    reward_range = (0.0, 1.0)

    def __init__(self, *steps: Step, spells: bool = True) -> None:
        self.steps, self.spells = list(steps), spells
        self.conversations: list[list[str]] = []
        self.ended: list[str] = []

    async def start(self, task: Task) -> Sequence[Message] | Step:
        return self.steps.pop(0)

    async def step(self, action: Message) -> Step:
        if not self.steps:
            raise RuntimeError("broken")
        return self.steps.pop(0)

    async def finish(self) -> Outcome:
        self.ended.append("finished")
        return Outcome(1.0, True)

    async def leave(self) -> None:
        self.ended.append("left")

    def spell(self, conversation: Sequence[Message], action: Message, tools: Any) -> list[int] | None:
        self.conversations.append([message.content for message in conversation])
        return [5] if self.spells else None

    def action_ids(self, text: str) -> list[int]:
        return [len(text), 2]


class Caller:
    """Calls the tool `go`, or says that there is no expert."""

    def __init__(self, knows: bool = True) -> None:
        self.knows = knows

    def act(self, seen: Sequence[Message]) -> str:
        if not self.knows:
            raise NoExpert("nobody knows this one")
        return called("go", {})


GO = ({"type": "function", "function": {"name": "go", "parameters": {"type": "object", "properties": {}}}},)


def seated(env: Recorded, expert: Caller) -> Any:
    return ExpertAsEngine(env, expert, SimpleNamespace(chat=env))  # type: ignore[arg-type]


def said(text: str, **more: Any) -> Step:
    return Step([Message("user", text)], **more)


def test_calls_are_spelled_in_the_conversation_so_far() -> None:
    """Opening, action, answer; and after a rebuild only what was told anew."""

    async def played() -> list[list[str]]:
        env = Recorded(said("opening", tools=GO), said("answer"), said("all of it", rebuild=True))
        seat = seated(env, Caller())
        await seat.start(TASKS[0])
        for action in ("one", "two", ""):
            sampled = await seat.sample([], None, session="")
            assert sampled.ids.tolist() == [5]
            if action:
                await seat.step(Message("assistant", action))
        return env.conversations

    assert asyncio.run(played()) == [["opening"], ["opening", "one", "answer"], ["all of it"]]


def test_an_environment_is_judged_if_it_answered_last_and_left_otherwise() -> None:
    async def ended(steps: int) -> list[str]:
        env = Recorded(*[said("text")] * steps)
        seat = seated(env, Caller())
        assert seat.reward_range == (0.0, 1.0)
        with contextlib.suppress(IndexError, RuntimeError):
            await seat.start(TASKS[0])
            await seat.step(Message("assistant", "go"))
        await seat.finish()
        return env.ended

    assert [asyncio.run(ended(steps)) for steps in (0, 1, 2)] == [["left"], ["left"], ["finished"]]


def test_what_an_expert_cannot_do_is_said() -> None:
    async def sampled(env: Recorded, expert: Caller) -> None:
        seat = seated(env, expert)
        await seat.start(TASKS[0])
        await seat.sample([], None, session="")

    with pytest.raises(Fault, match="nobody knows this one"):
        asyncio.run(sampled(Recorded(said("text")), Caller(knows=False)))
    with pytest.raises(UserError, match="chat template"):
        asyncio.run(sampled(Recorded(said("text", tools=GO), spells=False), Caller()))


def test_a_turn_that_was_cut_does_not_learn_to_end_there() -> None:
    one = shown(Log())
    cut = replace(one, turns=(replace(one.turns[0], finish="length"), *one.turns[1:]))
    again = retokenize(CHAT, cut)
    assert again.turns[0].action_key == one.turns[0].action_key[:-1] and again.turns[0].finish == "length"
    assert [turn.action_key for turn in again.turns[1:]] == [turn.action_key for turn in one.turns[1:]]
