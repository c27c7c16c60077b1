"""A context that is rebuilt at every turn: what the agent sees, what is trained on, and EAPO by hand."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from longloop.algos.eapo import Eapo
from longloop.algos.parts.objective import Clipped
from longloop.algos.reduce import to_samples
from longloop.config import RolloutConfig
from longloop.engines.scripted import ScriptedEngine
from longloop.envs.base import Environment
from longloop.envs.contract import ContractError, expect
from longloop.envs.crossroads import Crossroads
from longloop.envs.guess import Guess
from longloop.envs.play import play
from longloop.envs.rebuilt import Rebuilt
from longloop.isolation.proxy import _step
from longloop.rollout.demonstrations import retokenize
from longloop.rollout.episode import RolloutContext
from longloop.rollout.groups import GroupRollouts
from longloop.store.trajectories import Trajectories
from longloop.types import Group, Message, Outcome, SamplingParams, Start, Step, StopReason, Task, Trajectory
from tests.support.rebuilt import RebuiltGuess
from tests.support.samples import NOW, TASK, attempt, batch, learner, loss_and_slopes
from tests.support.worlds import CHAT

OPTIONS = Guess.Options(highest=7, tries=4)
HIDDEN = Task("guess-5-of-7", "train", {"number": 5})
SAYS = ["'one was wrong'1", "2", "'two as well' 7", "5"]


class Instructed(Rebuilt, Guess):
    """As it comes."""


class InstructedAndQuoted(RebuiltGuess):
    instruction = Rebuilt.instruction


class Forkless(Rebuilt, Crossroads):
    """The crossroads have no copies and no expert."""


def rollouts(make: Any, *says: str, **limits: Any) -> GroupRollouts:
    engine = ScriptedEngine(None, CHAT, list(says))
    limited = RolloutConfig(**{"max_turns": 8, "turn_tokens": 64, "context": 256} | limits)
    return GroupRollouts(RolloutContext(make, CHAT, engine, limited, SamplingParams()), "test", abandon=False)


def played(make: Any, *says: str, task: Task = HIDDEN, **limits: Any) -> Trajectory:
    (group,) = asyncio.run(asyncio.wait_for(rollouts(make, *says, **limits).play([Start(task)], 1, 0), 60))
    return group.trajectories[0]


def shown(report: str, said: str, result: str) -> str:
    return f"guess 1-7\n\nYour report:\n{report}\n\nYour last action:\n{said}\n\nIts result:\n{result}"


def test_the_agent_sees_the_task_its_report_its_last_action_and_the_result() -> None:
    one = played(lambda: RebuiltGuess(OPTIONS), *SAYS)
    assert one.success and one.action_texts == tuple(SAYS)
    assert [turn.context[0].content for turn in one.turns] == [
        "guess 1-7",
        shown("one was wrong", "1", "higher"),
        shown("one was wrong", "2", "higher"),  # without a new report, the last one stays
        shown("two as well", "7", "lower"),
    ]
    assert [(turn.restarts_context, turn.rebuilt) for turn in one.turns] == [(False, False), *[(True, True)] * 3]
    for turn in one.turns:
        assert turn.context_ids.tolist() == list(CHAT.encode(CHAT.render(list(turn.context)))), "and nothing else"


def test_each_turn_is_a_sample_of_its_own() -> None:
    one = played(lambda: RebuiltGuess(OPTIONS), *SAYS)
    samples = to_samples(one, 0, 1.0, "turn")
    assert len(samples) == 4 and [set(s.turns.tolist()) for s in samples] == [{0}, {1}, {2}, {3}]
    assert sum(s.weights.sum() for s in samples) == pytest.approx(1.0), "an attempt counts once"
    assert [s.ids[s.mask].tolist() for s in samples] == [turn.action_ids.tolist() for turn in one.turns]


def test_the_context_does_not_grow_with_the_turns() -> None:
    """The same room is too little for the game as it is."""
    options = Guess.Options(highest=7, tries=30)
    rebuilt = played(lambda: RebuiltGuess(options), *["2"] * 30, max_turns=30, context=120)
    assert rebuilt.stop is StopReason.FINISHED and len(rebuilt.turns) == 30
    assert len({len(turn.context_ids) for turn in rebuilt.turns[1:]}) == 1
    assert played(lambda: Guess(options), *["2"] * 30, max_turns=30, context=120).stop is StopReason.CONTEXT_FULL


def test_the_instruction_follows_the_task_at_every_turn() -> None:
    one = played(lambda: InstructedAndQuoted(OPTIONS), *SAYS, context=2000)
    assert all(turn.context[0].content.startswith(f"guess 1-7\n\n{Rebuilt.instruction}") for turn in one.turns)
    assert one.turns[1].context[0].content.endswith("Your last action:\n1\n\nIts result:\nhigher")


def test_it_is_stored_and_encoded_again_as_it_was(tmp_path: Path) -> None:
    group = Group(HIDDEN, (played(lambda: RebuiltGuess(OPTIONS), *SAYS),))
    store = Trajectories(tmp_path)
    store.write(1, [group], to_samples(group.trajectories[0], 0, 1.0, 1.0))
    (read,) = store.read(1)
    assert [turn.rebuilt for turn in read.trajectories[0].turns] == [False, True, True, True]
    again = retokenize(CHAT, read.trajectories[0])
    for turn, other in zip(group.trajectories[0].turns, again.turns, strict=True):
        assert turn.context_ids.tolist() == other.context_ids.tolist()
        assert turn.restarts_context == other.restarts_context


def test_attempts_go_on_from_a_recorded_turn_and_trees_grow() -> None:
    make = lambda: RebuiltGuess(OPTIONS)  # noqa: E731
    one = played(make, *SAYS)
    (group,) = asyncio.run(rollouts(make, "6", "5").play([Start(HIDDEN, one, 3)], 1, 0))
    (on,) = group.trajectories
    assert on.replayed == 3 and on.action_texts == (*SAYS[:3], "6")
    what = rollouts(make, *[f"'r{n}'{n}" for n in (1, 2, 3, 4)])
    (tree,) = asyncio.run(what.trees([HIDDEN], 4, 1.0, seed=0))
    assert tree.scored and all("Your report" in turn.context[0].content for t in tree.scored for turn in t.turns[1:])


def test_copies_have_the_report_and_environments_without_copies_have_none() -> None:
    assert RebuiltGuess.can_fork and RebuiltGuess.has_expert
    assert not Forkless.can_fork and not Forkless.has_expert

    async def go() -> tuple[str, str]:
        env = type("Bare", (Instructed,), {"instruction": ""})(OPTIONS)
        await env.start(HIDDEN)
        await env.step(Message("assistant", "<report>mine</report>1"))
        copy = env.fork()
        await copy.step(Message("assistant", "<report>its own</report>2"))
        first = await env.step(Message("assistant", "3"))
        second = await copy.step(Message("assistant", "3"))
        return first.messages[0].content, second.messages[0].content

    one, other = asyncio.run(go())
    assert one == shown("mine", "3", "higher") and other == shown("its own", "3", "higher")


@pytest.mark.parametrize("kind", [RebuiltGuess, Instructed])
def test_the_expert_reads_what_the_environment_says(kind: type[Environment]) -> None:
    env: Any = kind(OPTIONS)
    assert asyncio.run(play(env, HIDDEN, env.expert(HIDDEN))).outcome.success


def test_an_environment_of_plain_functions_stays_one() -> None:
    class Plain(Environment):
        def start(self, task: Task) -> Sequence[Message]:
            return [Message("system", "be brief"), Message("user", "go")]

        def step(self, action: Message) -> Step:
            return Step([Message("user", f"heard {action.content}"), Message("user", "go on")])

        def finish(self) -> Outcome:
            return Outcome(0.0, False)

    class Shown(Rebuilt, Plain):
        instruction = ""
        report = RebuiltGuess.report

    one = played(lambda: Shown(None), "'a'x", "y", task=TASK, max_turns=2)
    first, second = one.turns
    assert [m.content for m in first.context] == ["be brief", "go"]
    assert len(second.context) == 2 and second.context[0].content == "be brief"
    assert second.context[1].content.endswith("Your report:\na\n\nYour last action:\nx\n\nIts result:\nheard x\ngo on")


def test_a_worker_passes_it_on_and_the_contract_asks_for_a_truth_value() -> None:
    step = Step([Message("user", "all of it")], rebuild=True)
    assert _step(asdict(step)).rebuild and not _step(asdict(replace(step, rebuild=False))).rebuild
    assert expect("step", step).rebuild
    with pytest.raises(ContractError, match="rebuild"):
        expect("step", replace(step, rebuild="yes"))  # type: ignore[arg-type]


# -- EAPO --------------------------------------------------------------------------------------------------------------


def test_eapo_standardizes_discounted_rewards_over_turns() -> None:
    """gamma = 0.5: 0.25, 0.5 and 1 for a success of three turns, 0 and 0 for a failure of two."""
    algo = Eapo(gamma=0.5)
    group = Group(TASK, (attempt(1.0, (1, 1, 1), 0, fresh=(1, 2)), attempt(0.0, (2, 1), 1)))
    samples = algo.credit([group], learner(algo), NOW)
    values = [0.25, 0.5, 1.0, 0.0, 0.0]
    mean = sum(values) / 5
    std = math.sqrt(sum((x - mean) ** 2 for x in values) / 4)
    found = [float(s.advantages[s.mask & (s.turns == u)][0]) for s in samples for u in sorted(set(s.turns.tolist()))]
    assert found == pytest.approx([(x - mean) / (std + 1e-6) for x in values])
    assert len(samples) == 4, "one for each turn that was rebuilt, one for the other attempt"
    paid = replace(group, trajectories=tuple(_paid(t) for t in group.trajectories))
    assert [s.advantages.tolist() for s in algo.credit([paid], learner(algo), NOW)] == [
        s.advantages.tolist() for s in samples
    ], "what the environment pays for turns does not count"


def _paid(trajectory: Trajectory) -> Trajectory:
    return replace(trajectory, turns=tuple(replace(turn, reward=3.0) for turn in trajectory.turns))


def test_a_turn_has_one_ratio_the_geometric_mean() -> None:
    """Log-ratios 0.1 and 0.3 of one turn, -0.2 of another: exp(0.2) and exp(-0.2); as products exp(0.4), exp(-0.2)."""
    of = batch([-1.0] * 3, [1.0, 1.0, -1.0], [0.25, 0.25, 0.5], turn=[0, 0, 1], unit=[0, 0, 0])
    logp = [-0.9, -0.7, -1.2]
    wide = {"low": 0.1, "high": 9.0, "ratio": "turn"}
    total, slopes = loss_and_slopes(Clipped(**wide, geometric=True), logp, of)  # type: ignore[arg-type]
    assert total == pytest.approx(-0.5 * math.exp(0.2) + 0.5 * math.exp(-0.2))
    assert slopes == pytest.approx([-0.25 * math.exp(0.2)] * 2 + [0.5 * math.exp(-0.2)])
    total, _ = loss_and_slopes(Clipped(**wide), logp, of)  # type: ignore[arg-type]
    assert total == pytest.approx(-0.5 * math.exp(0.4) + 0.5 * math.exp(-0.2))
    _, slopes = loss_and_slopes(Eapo(), logp, of)
    assert slopes == pytest.approx([0.0, 0.0, 0.0]), "both are beyond GSPO's narrow clip"
