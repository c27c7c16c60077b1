"""The methods that imitate (EI, RFT, NAT, SFT-GT): which attempts they learn from, told in which words, how much."""

import asyncio
import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from longloop.algos.ei import Ei
from longloop.algos.nat import Nat
from longloop.algos.rft import Rft
from longloop.algos.sft import SFT
from longloop.algos.sft_gt import REPLY, SftGt, _unanswered
from longloop.config import RolloutConfig
from longloop.engines.scripted import ScriptedEngine
from longloop.envs.guess import Guess
from longloop.rollout.episode import RolloutContext
from longloop.rollout.groups import GroupRollouts
from longloop.store.trajectories import Trajectories
from longloop.training import TaskStream, schedule
from longloop.types import Group, Message, Now, Sampled, SamplingParams, Step, StopReason, Task, Trajectory, UserError
from tests.support.samples import CPU, NOW, assert_close, attempt, first_minibatch, gradient, learner, sampled
from tests.support.worlds import CHAT, starts

TASKS = list(Guess.tasks("train", Guess.Options(highest=3)))
"""1, 2 and 3; the expert says 2 first, and then the other."""
NOTE = Nat().note.lower()
"""As the tiny tokenizer spells it."""


class Remembering(ScriptedEngine):
    """A scripted engine that keeps what it was asked."""

    def __init__(self, actions: Any) -> None:
        super().__init__(None, CHAT, actions)
        self.asked: list[tuple[str, float, tuple[int, ...]]] = []

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
        self.asked.append((session, params.temperature, tuple(ids)))
        return await super().sample(ids, params, session=session)


def guessing(*says: str, by_attempt: bool = False, stored: Sequence[Group] = ()) -> tuple[GroupRollouts, Remembering]:
    """The game of three numbers and two tries, played by an agent that says these words turn by turn, or always the
    word of its attempt's number."""
    script: Any = (lambda session, turn: says[int(session.rpartition("/")[2])]) if by_attempt else list(says)
    engine = Remembering(script)
    context = RolloutContext(
        lambda: Guess(Guess.Options(highest=3, tries=2)), CHAT, engine, RolloutConfig(), SamplingParams()
    )
    return GroupRollouts(context, "test", abandon=False, stored=stored), engine


def collect(algo: Any, rollouts: GroupRollouts, tasks: Sequence[Task] = TASKS) -> list[Group]:
    """One step's attempts at these tasks, in their order."""
    stream = TaskStream(tasks, seed=0)
    groups = asyncio.run(asyncio.wait_for(algo.collect(rollouts, stream, len(tasks), NOW), 60))
    return sorted(groups, key=lambda group: group.task.id)


def saying(number: int, reward: float, *words: str, **fields: Any) -> Trajectory:
    """A hand-made attempt that says these words."""
    made = attempt(reward, [2] * len(words), number)
    turns = (replace(t, action=Message("assistant", w)) for t, w in zip(made.turns, words, strict=True))
    return replace(made, turns=tuple(turns), **fields)


def text(ids: Sequence[int]) -> str:
    """The ids, the chat's own included, as the template wrote them."""
    return CHAT.tokenizer.decode(list(ids), skip_special_tokens=False)


# --- EI ---


def test_ei_keeps_successes_and_weighs_their_tokens_alike():
    groups = [
        Group(TASKS[0], (attempt(1.0, (2, 3), 0), attempt(0.9, (4,), 1), attempt(1.0, (1,), 2))),
        Group(TASKS[1], (attempt(0.0, (2,), 0), attempt(1.0, (2,), 1, stop=StopReason.TIMEOUT))),
    ]
    samples = Ei().credit(groups, None, NOW)
    assert [s.source for s in samples] == [(0, 0), (0, 2)], "0.9 is no success, a timeout has no reward"
    assert all(s.weights.tolist() == s.advantages.tolist() == s.mask.tolist() for s in samples)
    assert [s.source for s in Ei(least_reward=0.9).credit(groups, None, NOW)] == [(0, 0), (0, 1), (0, 2)]


def test_ei_has_nothing_to_do_without_a_success():
    groups = [Group(TASKS[0], (attempt(0.0), attempt(0.5, number=1)))]
    samples = Ei().credit(groups, None, NOW)
    config: Any = type("Settings", (), {"seed": 0, "steps": 1})
    assert samples == [] and list(schedule(config, Ei(), groups, samples, Now(1, 1))) == []


def test_ei_is_the_gradient_of_the_mean_negative_log_likelihood_of_the_successes():
    """Against autograd on a plain copy of the model: -1/N sum of log p over the N action tokens of the successes."""
    algo = Ei(minibatch=8)
    one = learner(algo)
    groups = sampled([Group(TASKS[0], (attempt(1.0, (2, 3), 0), attempt(0.0, (4,), 1), attempt(1.0, (1, 2), 2)))], one)
    found, metrics = gradient(one, first_minibatch(algo, groups, one, on_policy=True), algo.loss)

    plain = copy.deepcopy(one.policy.module)
    plain.set_attn_implementation("eager")
    total = torch.zeros(())
    tokens = 0
    for trajectory in (groups[0].trajectories[0], groups[0].trajectories[2]):
        (stretch,) = trajectory.stretches()
        logits = plain(input_ids=torch.tensor(stretch.ids[None], device=CPU)).logits[0]
        logp = torch.log_softmax(logits.float(), -1)
        for place in (i for i, chosen in enumerate(stretch.mask) if chosen):
            total = total - logp[place - 1, stretch.ids[place]]
            tokens += 1
    (total / tokens).backward()
    assert tokens == 2 + 3 + 1 + 2
    assert metrics["loss"] == pytest.approx((total / tokens).item(), rel=1e-5)
    assert_close(found, {name: parameter.grad for name, parameter in plain.named_parameters()})


def test_ei_is_measured_as_the_policys_own():
    """Its actions are sampled from the policy, so ratios are checked and the distance moved is measured."""
    algo = Ei()
    one = learner(algo)
    groups = sampled([Group(TASKS[0], (attempt(1.0, (2, 3), 0), attempt(0.0, (4,), 1)))], one)
    config: Any = type("Settings", (), {"seed": 0, "steps": 1})
    batches = list(schedule(config, algo, groups, algo.credit(groups, one, NOW), Now(1, 1)))
    assert [batch.on_policy for batch in batches] == [True, False], "two epochs"
    _, metrics = gradient(one, batches[0], algo.loss)
    assert metrics["ratio_gap"] < 1e-4 and metrics["kl"] == pytest.approx(0, abs=1e-4)
    assert algo.on_policy and all(sample.own for batch in batches for sample in batch.samples)
    shown = [Group(TASKS[0], (replace(attempt(1.0, (2, 3), 0), expert=True),))]
    for other in (Rft(), Nat(), SFT(), SftGt()):
        assert not other.on_policy, "sampled at other temperatures, by an expert, or under another opening"
        assert [sample.own for sample in other.credit(shown, one, NOW)] == [False]


# --- RFT ---


def test_rft_learns_once_from_attempts_that_say_the_same():
    worth = (
        saying(0, 1.0, "2", "1"),
        saying(1, 0.0, "2", "3"),
        saying(2, 1.0, "2", "1"),
        saying(3, 1.0, "1"),
        saying(4, 1.0, "2", "1", expert=True),
        saying(5, 1.0, "21", expert=True),
    )
    again = Group(TASKS[1], (saying(0, 0.0, "1", stop=StopReason.CANCELLED), saying(1, 1.0, "1")))
    samples = Rft().credit([Group(TASKS[0], worth), again], None, NOW)
    assert [s.source for s in samples] == [(0, 0), (0, 3), (0, 5), (1, 1)]


def test_rft_temperatures_are_the_papers():
    assert Rft().temperatures == pytest.approx([0.05 * n for n in range(1, 21)])
    assert Rft(k=3, coldest=0.0, hottest=1.0).temperatures == [0.0, 0.5, 1.0]
    assert Rft(k=1).temperatures == [0.05]
    for wrong in ({"coldest": -0.1}, {"coldest": 0.9, "hottest": 0.5}):
        with pytest.raises(UserError, match=r"algo\.coldest"):
            Rft(**wrong)


def test_each_attempt_is_sampled_at_its_temperature():
    rollouts, engine = guessing("3")
    groups = collect(Rft(k=3, coldest=0.5), rollouts)
    assert all(len(group.trajectories) == 3 for group in groups)
    by_attempt = {(session.rpartition("/")[2], temperature) for session, temperature, _ in engine.asked}
    assert by_attempt == {("0", 0.5), ("1", 0.75), ("2", 1.0)}, "at every task, in every turn"


def test_fewer_temperatures_than_attempts_begin_again():
    rollouts, engine = guessing("2")
    asyncio.run(rollouts.play(starts(TASKS[1:2]), 5, seed=0, temperatures=[0.2, 0.7]))
    assert sorted((s.rpartition("/")[2], t) for s, t, _ in engine.asked) == [
        *[("0", 0.2), ("1", 0.7), ("2", 0.2), ("3", 0.7), ("4", 0.2)]
    ]
    engine.asked.clear()
    asyncio.run(rollouts.play(starts(TASKS[1:2]), 2, seed=0))
    assert [temperature for _, temperature, _ in engine.asked] == [1.0, 1.0], "the run's, where none is given"


def test_rft_has_the_expert_beside_its_own_only_when_asked():
    rollouts, _ = guessing("1", "3", by_attempt=True)
    alone = collect(Rft(k=2), rollouts)
    assert not any(t.expert for group in alone for t in group.trajectories)
    algo = Rft(k=2, with_expert=True)
    groups = collect(algo, rollouts)
    assert [[(t.attempt, t.expert) for t in group.trajectories] for group in groups] == [
        [(0, False), (1, False), (2, True)]
    ] * 3
    kept = {s.source for s in algo.credit(groups, None, NOW)}
    # 1 is found by the first attempt, 3 by the second, 2 by the expert alone; and the expert needs another way to all.
    assert kept == {(0, 0), (0, 2), (1, 2), (2, 1), (2, 2)}


# --- NAT ---


def test_nat_tells_failures_with_a_note_and_leaves_the_rest():
    rollouts, _ = guessing("1", "3", by_attempt=True)
    algo = Nat(k=2)
    plain = asyncio.run(rollouts.play(starts(TASKS), 2, seed=0))
    first, second, _ = collect(algo, rollouts)

    success, failure, expert = first.trajectories
    assert (success.reward, failure.reward, expert.reward) == (1.0, 0.0, 1.0)
    opening = "guess 1-3"
    assert success.turns[0].context == expert.turns[0].context == (Message("user", opening),)
    assert failure.turns[0].context == (Message("user", f"{opening}\n\n{algo.note}"),)
    assert success.turns[0].context_ids.tolist() == plain[0].trajectories[0].turns[0].context_ids.tolist()
    assert not failure.expert, "it is still the policy's own: the step's success is counted over these"
    assert failure.action_texts == plain[0].trajectories[1].action_texts
    assert failure.turns[1:] and failure.turns[1].context == plain[0].trajectories[1].turns[1].context
    conversation = [m for turn in failure.turns for m in (*turn.context, turn.action)]
    whole = CHAT.encode(CHAT.render(conversation, generate=False))
    assert failure.stretches()[0].ids.tolist() == list(whole)

    trained = {s.source: text(s.ids) for s in algo.credit([first, second], None, NOW)}
    assert set(trained) == {(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)}, "all of them are learned from"
    assert {key for key, words in trained.items() if NOTE in words} == {(0, 1), (1, 0), (1, 1)}


def test_no_attempt_is_made_under_the_note():
    """Neither the step's own attempts nor later ones, nor an evaluation with the same rollouts, ever see it."""
    rollouts, engine = guessing("3")
    algo = Nat(k=1)
    for _ in range(2):
        groups = collect(algo, rollouts)
    assert any(NOTE in text(t.stretches()[0].ids) for group in groups for t in group.trajectories)
    asyncio.run(rollouts.play(starts(TASKS), 1, seed=9))
    assert engine.asked and not any(NOTE in text(ids) for _, _, ids in engine.asked)


def test_nat_leaves_out_what_cannot_be_learned_from():
    """An attempt without a reward is not a failure; an expert that fails is not imitated."""
    group = Group(
        TASKS[0],
        (
            saying(0, 0.0, "1", stop=StopReason.ENV_ERROR),
            saying(1, 0.0, "1"),
            saying(2, 0.5, "1", expert=True),
            saying(3, 1.0, "1", expert=True),
        ),
    )
    assert [s.source for s in Nat().credit([group], None, NOW)] == [(0, 1), (0, 3)]


def test_nat_does_not_mark_what_an_environment_failed():
    """An attempt without a reward is stored as it was, and is not learned from."""

    class Broken(Guess):
        async def step(self, action: Message) -> Step:
            if action.content == "3":
                raise RuntimeError("no threes")
            return await super().step(action)

    rollouts, _ = guessing("3", "1", by_attempt=True)
    rollouts.context = replace(rollouts.context, make=lambda: Broken(Guess.Options(highest=3, tries=2)))
    (group,) = collect(Nat(k=2), rollouts, TASKS[1:2])
    broken, failed, _ = group.trajectories
    assert broken.stop is StopReason.ENV_ERROR and failed.stop is StopReason.FINISHED
    assert [NOTE in text(t.stretches()[0].ids) for t in group.trajectories] == [False, True, False]
    assert [s.source for s in Nat().credit([group], None, NOW)] == [(0, 1), (0, 2)]


def test_what_nat_trained_on_is_what_is_stored(tmp_path):
    """The note makes an attempt longer; its advantages must lie at its own tokens in the store."""
    rollouts, _ = guessing("3")
    algo = Nat()
    groups = collect(algo, rollouts)
    Trajectories(tmp_path).write(1, groups, algo.credit(groups, None, NOW))
    assert Trajectories(tmp_path).read(1) == groups
    from safetensors.numpy import load_file

    columns = load_file(tmp_path / "000001.safetensors")
    assert columns["advantages"].tolist() == columns["mask"].tolist(), "all are learned from, with weight 1"


# --- SFT-GT ---


def test_sft_gt_hears_one_reply_however_much_was_said():
    shown = saying(0, 1.0, "2", "1")
    heard = (Message("user", "higher"), Message("user", "by one"))
    told = _unanswered(replace(shown, turns=tuple(replace(turn, context=heard) for turn in shown.turns)))
    assert [turn.context for turn in told.turns] == [heard, (Message("user", REPLY),)]


def test_sft_gt_hides_what_the_environment_said():
    rollouts, engine = guessing("never asked")
    shown, told = collect(SFT(), rollouts), collect(SftGt(), rollouts)
    for plain, group in zip(shown, told, strict=True):
        (before,), (after,) = plain.trajectories, group.trajectories
        assert after.action_texts == before.action_texts and after.reward == before.reward and after.expert
        assert after.turns[0] == before.turns[0], "the opening stays"
        assert [turn.context for turn in after.turns[1:]] == [(Message("user", REPLY),)] * (len(before.turns) - 1)
        words = text(after.stretches()[0].ids)
        assert "higher" not in words and "lower" not in words
    assert {len(group.trajectories[0].turns) for group in told} == {1, 2}
    assert not engine.asked
    samples = SftGt().credit(told, None, NOW)
    assert [sum(s.mask) for s in samples] == [sum(s.mask) for s in SFT().credit(shown, None, NOW)]


# --- stored demonstrations ---


def test_several_stored_attempts_at_a_task_are_all_imitated():
    rollouts, _ = guessing("1", "2", by_attempt=True)
    (group,) = asyncio.run(rollouts.play(starts(TASKS[:1]), 2, seed=0))
    again, engine = guessing("never asked", stored=[group])
    for _ in range(2):
        (told,) = collect(SFT(least_reward=0.0), again, TASKS[:1])
        assert [t.action_texts for t in told.trajectories] == [t.action_texts for t in group.trajectories]
        assert all(t.expert for t in told.trajectories) and not engine.asked
    assert [s.source for s in SFT(least_reward=0.0).credit([told], None, NOW)] == [(0, 0), (0, 1)]


def test_the_experts_attempts_are_numbered_on():
    own = Group(TASKS[0], (saying(0, 0.0, "1"), saying(1, 0.0, "2")))
    shown = Group(TASKS[0], (saying(0, 1.0, "3", expert=True), saying(1, 1.0, "4", expert=True)))
    joined = own.merged_with(shown)
    assert [(t.attempt, *t.action_texts) for t in joined.trajectories] == [(0, "1"), (1, "2"), (2, "3"), (3, "4")]


class Tongue:
    """An expert who says these words, and then nothing."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)

    def act(self, messages: Sequence[Message]) -> str:
        return self.words.pop(0) if self.words else ""


@pytest.mark.parametrize(("words", "kept"), [(["3", "", "2"], ["3", "", "2"]), (["3"], ["3"]), ([], [])])
def test_nobody_learns_to_say_nothing(words: list[str], kept: list[str]) -> None:
    class Short(Guess):
        def expert(self, task: Task) -> Any:
            return Tongue(words)

    context = RolloutContext(
        lambda: Short(Guess.Options(highest=3, tries=6)),
        CHAT,
        Remembering(["never asked"]),
        RolloutConfig(),
        SamplingParams(),
    )
    (group,) = collect(SFT(least_reward=0.0), GroupRollouts(context, "test", abandon=False), TASKS[:1])
    (shown,) = group.trajectories
    assert [turn.action.content for turn in shown.turns] == kept
    samples = SFT(least_reward=0.0).credit([group], None, NOW)
    assert sum(sample.action_tokens for sample in samples) == shown.action_tokens


@pytest.mark.parametrize("algo", [Nat(minibatch=1), SFT(minibatch=1, epochs=2)])
def test_the_schedule_goes_through_the_updates_of_a_step(algo: Any) -> None:
    """A run of one step and 20 updates: half of 1/20 into it the rate is 5/6 of its peak, at the end nearly 0."""
    algo = replace(algo, warmup=0.03)
    groups = [Group(TASKS[0], (replace(attempt(1.0, (2,), number), expert=True),)) for number in range(10)]
    samples = algo.credit(groups, None, NOW)
    config: Any = SimpleNamespace(seed=0, steps=1)
    paces = [update.lr_scale for update in schedule(config, algo, groups, samples, Now(1, 1))]
    by_hand = [0.025 / 0.03] + [(1 + math.cos(math.pi * ((n + 0.5) / 20 - 0.03) / 0.97)) / 2 for n in range(1, 20)]
    assert paces == pytest.approx(by_hand) and paces[-1] < 0.002
    assert Nat().weight_decay == 0.0
