"""Episodes and groups: limits, concurrency, stragglers, baselines and seeds."""

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest

from longloop.algos.loop import Loop
from longloop.config import ModelConfig, RolloutConfig
from longloop.engines.engine import NativeEngine
from longloop.envs.base import Environment
from longloop.envs.guess import Guess
from longloop.model.policy import load
from longloop.rollout.episode import RolloutContext
from longloop.rollout.groups import GroupRollouts
from longloop.types import Message, Outcome, SamplingParams, Step, StopReason, Task, Trajectory, UserError
from tests.support.samples import NOW
from tests.support.worlds import CHAT, TASKS, Env, Log, collect, default, raising, rollouts, starts, with_fault


def test_every_task_has_its_first_attempt_before_any_has_its_second() -> None:
    """And the groups are in the order of the tasks, each with its attempts in their order."""
    log = Log()
    groups = collect(rollouts(lambda: Env(log), concurrency=1), TASKS, k=2)
    assert log.started == [task.id for task in TASKS] * 2
    assert [group.task for group in groups] == TASKS
    assert [[t.attempt for t in group.trajectories] for group in groups] == [[0, 1]] * 3
    assert all(t.task is group.task for group in groups for t in group.trajectories)


@pytest.mark.parametrize("concurrency", [1, 3, 50])
def test_so_many_environments_live_at_once_and_no_more(concurrency: int) -> None:
    log = Log()
    collect(rollouts(lambda: Env(log), concurrency=concurrency), TASKS, k=4)
    assert log.most == min(concurrency, 12)
    assert log.made == 12 and log.live == 0


def test_a_finished_attempt() -> None:
    """Its turns, with what was heard and said, its reward and the verifier's notes. The engine may forget it."""
    forgotten: list[str] = []
    what = rollouts(lambda: Env(Log()), say=["first", "second"])
    what.context.engine.forget = forgotten.append
    one = collect(what, k=1)[0].trajectories[0]
    assert forgotten == ["test/0/0"]
    assert (one.stop, one.reward, one.success, one.error) == (StopReason.FINISHED, 1.0, True, "")
    assert one.info == {"verdict": "good"}
    assert [turn.context[0].content for turn in one.turns] == ["go", "on"]
    assert [turn.action.content for turn in one.turns] == ["first", "second"]
    assert all(turn.finish == "stop" and turn.seconds.keys() == {"sample", "env"} for turn in one.turns)
    (stretch,) = one.stretches()
    conversation = [m for turn in one.turns for m in (*turn.context, turn.action)]
    assert stretch.ids.tolist() == list(CHAT.encode(CHAT.render(conversation, generate=False)))


def test_a_further_conversation_has_a_name_of_its_own_in_each_attempt() -> None:
    """Two attempts that call theirs the same do not share random numbers or a cache."""

    class Asks(Env):
        async def step(self, action: Message) -> Step:
            return replace(await super().step(action), thread="helper")

    asked, forgotten = list[str](), list[str]()
    what = rollouts(lambda: Asks(Log()))
    sample = what.context.engine.sample

    async def noted(ids: Any, params: Any, *, session: str) -> Any:
        asked.append(session)
        return await sample(ids, params, session=session)

    what.context.engine.sample, what.context.engine.forget = noted, forgotten.append
    collect(what, k=2)
    assert sorted(asked) == sorted(forgotten) == ["test/0/0", "test/0/0/helper", "test/0/1", "test/0/1/helper"]


def test_an_attempt_that_used_its_turns_is_scored() -> None:
    log = Log()
    one = collect(rollouts(lambda: Env(log), max_turns=1), k=1)[0].trajectories[0]
    assert (one.stop, one.reward, len(one.turns)) == (StopReason.MAX_TURNS, 1.0, 1)
    assert one.stop.scored and log.finished == {0: 1}


@pytest.mark.parametrize("context", [11, 12, 15, 16, 17, 20, 21, 22, 23])
def test_an_attempt_that_filled_the_context_is_scored(context: int) -> None:
    """The limit holds for context and action together, wherever it falls; at its end the action is cut."""
    log = Log()
    # <|user|>go<|end|><|assistant|> is 5 tokens, "aaaaa<|end|>" is 6, <|user|>on<|end|><|assistant|> is 5.
    one = collect(rollouts(lambda: Env(log), context=context, say=["aaaaa"]), k=1)[0].trajectories[0]
    tokens = sum(len(turn.context_ids) + len(turn.action_ids) for turn in one.turns)
    assert tokens == (min(context, 5 + 6 + 5 + 6) if context > 5 + 6 + 5 else 5 + 6)
    assert one.stop == (StopReason.FINISHED if context > 16 else StopReason.CONTEXT_FULL)
    assert [turn.finish for turn in one.turns] == ["stop", "stop" if context >= 22 else "length"][: len(one.turns)]
    assert one.reward == 1.0 and log.finished == {0: 1}


def test_an_opening_longer_than_the_context_is_the_users_mistake() -> None:
    with pytest.raises(UserError, match=r"opening of task 'task 0' has 5 tokens and rollout.context is 5"):
        collect(rollouts(lambda: Env(Log()), context=5))


def test_an_action_of_too_many_tokens_is_cut_and_the_episode_goes_on() -> None:
    """The environment gets the cut text; the end token that is missing comes with the next context."""
    one = collect(rollouts(lambda: Env(Log()), turn_tokens=3, say=["abcdef", "x"]), k=1)[0].trajectories[0]
    assert [turn.finish for turn in one.turns] == ["length", "stop"]
    assert [turn.action.content for turn in one.turns] == ["abc", "x"]
    assert one.turns[1].context_ids[0] in CHAT.end_ids
    assert one.stop is StopReason.FINISHED


class Stuck(Env):
    """Never returns from its second step."""

    async def step(self, action: Message) -> Step:
        if self.turns == 1:
            await self.wait()
        return await super().step(action)

    async def wait(self) -> None:
        await asyncio.Event().wait()


@pytest.mark.parametrize(("second", "stop"), [("a", StopReason.TIMEOUT), ("a" * 50, StopReason.CANCELLED)])
def test_an_environment_never_finishes_while_it_is_still_in_a_step(second: str, stop: StopReason) -> None:
    """One that overran its deadline, and a straggler: its thread cannot be stopped, and databases and interpreters do
    not survive two at once. The group does not wait for it; it finishes by itself."""
    go_on, inside, over = threading.Event(), threading.Event(), threading.Event()
    made: list[Any] = []
    finished: list[tuple[int, bool]] = []

    class Slow(Environment):
        def __init__(self) -> None:
            self.number, self.inside = len(made), False
            made.append(self)

        def start(self, task: Task) -> list[Message]:
            return [Message("user", "go")]

        def step(self, action: Message) -> Step:
            self.inside = True
            if self.number == 1:
                inside.set()
                go_on.wait(60)
            elif stop is StopReason.CANCELLED:
                inside.wait(60)  # or the other would be abandoned before its step
            self.inside = False
            return Step([], done=True)

        def finish(self) -> Outcome:
            finished.append((self.number, self.inside))
            if self.number == 1:
                over.set()
            return Outcome(1.0, True)

    def say(session: str, turn: int) -> str:
        return second if session.endswith("/1") else "a"

    seconds = 5.0 if stop is StopReason.TIMEOUT else 60.0
    groups = collect(rollouts(Slow, say=say, straggler_cutoff=0.5, min_scored=1, step_seconds=seconds), TASKS[:1], k=2)
    assert [t.stop for t in groups[0].trajectories] == [StopReason.FINISHED, stop]
    assert finished == [(0, False)] and made[1].inside
    go_on.set()
    assert over.wait(60) and finished[1:] == [(1, False)]


def test_cancelling_the_rollouts_leaves_nothing_running() -> None:
    async def cancelled() -> set[asyncio.Task[Any]]:
        task = asyncio.create_task(rollouts(lambda: Stuck(Log())).play(starts(TASKS), 2, 0))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(cancelled()) == set()


def test_the_baseline_is_over_the_scored_attempts_only() -> None:
    """Rewards 1, 0, 0.2 and two attempts without: 1 - (0 + 0.2)/2, 0 - (1 + 0.2)/2, 0.2 - (1 + 0)/2."""
    rewards = iter([1.0, 0.0, 0.2])

    class Paid(Env):
        async def finish(self) -> Outcome:
            await super().finish()
            return Outcome(next(rewards), False)

    log = Log()

    def make() -> Env:
        bad = raising(ValueError)
        return [Paid, with_fault("step", bad), Paid, with_fault("finish", bad), Paid][log.made](log)

    groups = collect(rollouts(make, concurrency=1, straggler_cutoff=1.0), k=5)
    samples = Loop().credit(groups, None, NOW)
    assert [sample.source for sample in samples] == [(0, 0), (0, 2), (0, 4)]
    for sample, advantage in zip(samples, [0.9, -0.6, -0.3], strict=True):
        assert sample.advantages.tolist() == pytest.approx([advantage * chosen for chosen in sample.mask])
        assert sample.action_tokens == 2 * len("a<")  # two turns of a letter and an end token


def test_a_seed_decides_what_the_attempts_do() -> None:
    """Same seed, same ids and log-probs, however many run at once; another seed, other attempts."""
    policy = load(ModelConfig(device="cpu", hidden=16, layers=1), seed=0)

    def attempts(seed: int, concurrency: int) -> list[Trajectory]:
        limits = RolloutConfig(concurrency=concurrency, turn_tokens=8, max_turns=3)
        context = RolloutContext(
            default(Guess), CHAT, NativeEngine(policy, CHAT, slots=concurrency), limits, SamplingParams()
        )
        groups = collect(
            GroupRollouts(context, "test", abandon=False), Guess.tasks("train", Guess.Options())[:3], k=3, seed=seed
        )
        return [t for group in groups for t in group.trajectories]

    one, again, other = attempts(0, 9), attempts(0, 2), attempts(100, 9)
    for a, b, c in zip(one, again, other, strict=True):
        assert a.stretches() == b.stretches()  # ids, mask, log-probs and turns, to the bit
        assert [turn.action_key for turn in a.turns] != [turn.action_key for turn in c.turns]
    assert len({t.turns[0].action_key for t in one}) == 9


@pytest.mark.parametrize("error", [RuntimeError("CUDA out of memory"), UserError("The engine cannot.")])
def test_an_engine_that_fails_leaves_no_environment_open(error: Exception) -> None:
    """It fails all requests at once, and every environment that waited for it is finished."""
    log = Log()
    what = rollouts(lambda: Env(log))

    async def sample(ids: Any, params: Any, *, session: str) -> Any:
        await asyncio.sleep(0.01)
        raise error

    what.context.engine.sample = sample
    with pytest.raises(type(error), match=str(error)):
        collect(what, TASKS, 4)
    assert log.made and log.live == 0 and sum(log.finished.values()) == log.made
