"""The search over turns, by hand: which node is tried next, what an attempt's reward counts for, and what is closed."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from longloop.algos.tree_dpo import TreeDpo
from longloop.config import RolloutConfig
from longloop.engines.scripted import ScriptedEngine
from longloop.envs.base import Environment
from longloop.rollout.episode import RolloutContext
from longloop.rollout.groups import GroupRollouts
from longloop.rollout.search import grow
from longloop.types import (
    Group,
    Message,
    Outcome,
    Sampled,
    SamplingParams,
    Step,
    StopReason,
    Task,
    Trajectory,
    UserError,
)
from tests.support.worlds import CHAT, Env, Log

TASK = Task("task", "train")
ANSWER = "on"


class Path(Env):
    """So many turns (0: no end of its own); pays for all that was said. Keeps account of its copies."""

    def __init__(self, log: Log, turns: int, pay: Callable[[tuple[str, ...]], float]) -> None:
        super().__init__(log)
        self.end, self.pay = turns, pay
        self.said: tuple[str, ...] = ()

    async def step(self, action: Message) -> Step:
        self.log.steps += 1
        self.said += (action.content,)
        await asyncio.sleep(0)
        return Step([Message("user", ANSWER)], done=len(self.said) == self.end)

    async def finish(self) -> Outcome:
        self.note_finish()
        reward = self.pay(self.said)
        return Outcome(reward, reward == 1.0)

    def fork(self) -> "Path":
        copy = type(self)(self.log, self.end, self.pay)
        copy.said = self.said
        return copy


class New(ScriptedEngine):
    """Says these words at every state, one after the other. With enough of them, it never says the same twice."""

    def __init__(self, words: str = "abcdefgh") -> None:
        super().__init__(None, CHAT, lambda *_: "")
        self._words = words
        self._said: Counter[tuple[int, ...]] = Counter()

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
        said = CHAT.action_ids(self._words[self._said[tuple(ids)] % len(self._words)])
        self._said[tuple(ids)] += 1
        return Sampled(said, (0.0,) * len(said), "stop")


def numbered(session: str, turn: int) -> str:
    """Every episode says its own number, at every turn: where it branched off is what it says before."""
    return session.rsplit("/", 1)[1]


class Heard:
    """An engine that notes the episodes it speaks in."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.sessions: list[str] = []

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
        if session not in self.sessions:
            self.sessions.append(session)
        return await self._engine.sample(ids, params, session=session)

    def forget(self, session: str) -> None:
        self._engine.forget(session)

    def release(self) -> None: ...


def rollouts(make: Callable[[], Any], engine: Any, **limits: Any) -> GroupRollouts:
    script = engine if hasattr(engine, "sample") else ScriptedEngine(None, CHAT, engine)
    limited = RolloutConfig(**{"max_turns": 40} | limits)
    return GroupRollouts(RolloutContext(make, CHAT, script, limited, SamplingParams()), "test")


def search(make: Callable[[], Any], engine: Any, attempts: int, log: Log, explore: float = 1.0, **limits: Any) -> Group:
    """A tree. Whatever happens, every environment that was made is finished, and once."""
    (group,) = asyncio.run(
        asyncio.wait_for(rollouts(make, engine, **limits).trees([TASK], attempts, explore, seed=0), 60)
    )
    assert log.live == 0 and set(log.finished.values()) == {1}
    assert [t.attempt for t in group.trajectories] == list(range(len(group.trajectories)))
    return group


def said(group: Group | Sequence[Trajectory]) -> list[str]:
    trajectories = group.trajectories if isinstance(group, Group) else group
    return ["".join(turn.action.content for turn in t.turns) for t in trajectories]


# --- which node is tried next ---


def paid_by_number(*rewards: float) -> Callable[[tuple[str, ...]], float]:
    """Each episode is paid by its number, which is what it says last."""
    return lambda words: rewards[int(words[-1])]


def test_the_best_child_is_tried_next() -> None:
    """Without exploration: Q alone. R = 0.4, 0.6, 0.0, 0.2, 0.9, 0.0, 0.1.

    0, 1  the root gets two children, "0" with Q 0.4 and "1" with Q 0.6
    2     "1" is the better; it gets the child "12". Q("1") = (0.6 + 0.0) / 2 = 0.3
    3     "0" is now the better and gets "03". Q("0") = (0.4 + 0.2) / 2 = 0.3. A tie: the first
    4     "0" gets its second child, "04". Q("0") = (0.4 + 0.2 + 0.9) / 3 = 0.5
    5     "0" again, whose children are "03" with 0.2 and "04" with 0.9: "04" gets "045". Q("04") = 0.45, Q("0") = 0.375
    6     "0" (0.375 against 0.3), "04" (0.45 against 0.2): its second child, "046"
    """
    log = Log()
    pay = paid_by_number(0.4, 0.6, 0.0, 0.2, 0.9, 0.0, 0.1)
    group = search(lambda: Path(log, 4, pay), numbered, 7, log, explore=0.0)
    assert said(group) == ["0000", "1111", "1222", "0333", "0444", "0455", "0466"]


@pytest.mark.parametrize(
    ("explore", "fourth"),
    [
        # "0": 0.2 + c sqrt(log 3 / 2) = 0.2 + 0.7412 c, "1": 0.3 + c sqrt(log 3 / 3) = 0.3 + 0.6052 c:
        # the two are equal at c = 0.1 / 0.1360 = 0.735.
        (0.0, "1333"),
        (0.72, "1333"),
        (0.75, "0333"),
        (1.0, "0333"),
    ],
)
def test_a_child_that_was_tried_less_is_preferred_by_the_root_of_log_n(explore: float, fourth: str) -> None:
    """R = 0.2, 0.6, 0.0: "1" was tried twice and has Q 0.3, "0" once, with Q 0.2; the root saw N = 3."""
    log = Log()
    group = search(lambda: Path(log, 4, paid_by_number(0.2, 0.6, 0.0, 0.0)), numbered, 4, log, explore)
    assert said(group) == ["0000", "1111", "1222", fourth]


def test_a_node_gets_two_children_before_the_search_goes_deeper() -> None:
    """All paid the same and no exploration: the first open child of each node, two children each, all the way down."""
    log = Log()
    group = search(lambda: Path(log, 4, lambda _: 0.5), numbered, 7, log, explore=0.0)
    assert said(group) == ["0000", "1111", "0222", "0333", "0244", "0255", "0246"]


def test_a_reward_counts_for_every_node_on_the_way() -> None:
    """Two levels down: what "04" brings must lower "0" as well, or the search would never leave it.

    R = 0.5, 0.4, 0.9, 0.6, 0.0, 0.0, 0.0.

    0, 1  Q("0") = 0.5, Q("1") = 0.4
    2, 3  "0" gets "02" (0.9) and "03" (0.6). Q("0") = 2 / 3
    4     "02" gets "024" (0.0). Q("02") = 0.45, Q("0") = 2 / 4
    5     "03" (0.6) gets "035" (0.0). Q("03") = 0.3, Q("0") = 2 / 5, a tie with "1": the first
    6     "02" (0.45) gets "026" (0.0). Q("0") = 2 / 6
    7     "1", with 0.4, is the better at last
    """
    log = Log()
    pay = paid_by_number(0.5, 0.4, 0.9, 0.6, 0.0, 0.0, 0.0, 0.0)
    group = search(lambda: Path(log, 4, pay), numbered, 8, log, explore=0.0)
    assert said(group) == ["0000", "1111", "0222", "0333", "0244", "0355", "0266", "1777"]


@pytest.mark.parametrize(("explore", "sixth"), [(0.63, "12555"), (0.68, "13555")])
def test_a_node_counts_its_own_attempts(explore: float, sixth: str) -> None:
    """R("0") = -9, so all else goes through "1": its child "12" has Q (0.4 + 0.0) / 2 = 0.2, "13" has Q 0.1, and N = 4.

    "13" is preferred when c sqrt(log 4) (1 / sqrt 2 - 1 / sqrt 3) = 0.1528 c exceeds 0.1: from c = 0.655 on. With the
    root's N = 5 it would be from 0.607 on, with N = 3 from 0.735 on.
    """
    log = Log()
    pay = paid_by_number(-9.0, 0.6, 0.4, 0.1, 0.0, 0.0)
    group = search(lambda: Path(log, 5, pay), numbered, 6, log, explore)
    assert said(group) == ["00000", "11111", "12222", "13333", "12444", sixth]


def test_q_of_a_node_is_that_of_all_attempts_that_went_its_way() -> None:
    """Also of one that went there before there was a node: the same Q that tree_dpo makes pairs by.

    R("0pp") = 1 and R("0pr") = 0.2: "0p" is worth 0.6 and not 0.2, and goes before "0s" with 0.5.
    """
    log = Log()
    words = ["0pp", "1qq", "0pr", "0ss", "0pt"]
    pay = dict(zip(words, (1.0, 0.5, 0.2, 0.5, 0.0), strict=True))

    def say(session: str, turn: int) -> str:
        """The script counts only what is really said: the turns up to the node are not asked for."""
        number = int(session.rsplit("/", 1)[1])
        return words[number][(0, 0, 1, 1, 2)[number] + turn]

    group = search(lambda: Path(log, 3, lambda said: pay["".join(said)]), say, 5, log, explore=0.0)
    assert said(group) == words


# --- what is closed ---

LIMITS = [
    pytest.param({}, 2, StopReason.FINISHED, id="the environment is done"),
    pytest.param({"max_turns": 2}, 0, StopReason.MAX_TURNS, id="turns"),
    # <|user|>go<|end|><|assistant|> is 5 tokens, an action 2, <|user|>on<|end|><|assistant|> 5: after two, 19.
    pytest.param({"context": 17}, 0, StopReason.CONTEXT_FULL, id="context"),
]


@pytest.mark.parametrize(("limits", "turns", "stop"), LIMITS)
def test_a_leaf_is_closed_whatever_ended_it(limits: dict[str, int], turns: int, stop: StopReason) -> None:
    """Two turns: two from the root, two more from each of its children, none of them replayed; then nothing is left."""
    log, engine = Log(), Heard(New())
    group = search(lambda: Path(log, turns, lambda words: float(words == ("b", "a"))), engine, 30, log, **limits)
    assert sorted(said(group)) == ["aa", "ab", "ac", "ba", "bb", "bc"] and {t.stop for t in group.trajectories} == {
        stop
    }
    assert len(engine.sessions) == 6 and log.steps == 2 * 2 + 4 * 1, "what a copy has behind it is not played again"
    copies = 2 + (0 if turns else 4)  # at the root's children, and where only the limit makes it an end
    assert log.made == 6 + copies, "no episode but these six"


@pytest.mark.parametrize(("limits", "turns", "stop"), LIMITS)
def test_a_tree_without_a_turn_left_at_its_first_child(limits: dict[str, int], turns: int, stop: StopReason) -> None:
    """One turn: two attempts."""
    log, engine = Log(), Heard(New())
    limits = {name: 1 if name == "max_turns" else 10 for name in limits}
    group = search(lambda: Path(log, turns and 1, lambda _: 0.5), engine, 30, log, **limits)
    assert said(group) == ["a", "b"] and len(engine.sessions) == 2


def test_q_is_the_mean_over_different_attempts() -> None:
    """Three turns, then the limit: eight attempts. Only "baa" is paid, so "b" is worth 1/4 and "ba" 1/2."""
    log = Log()
    group = search(lambda: Path(log, 0, lambda words: float(words == ("b", "a", "a"))), New("ab"), 30, log, max_turns=3)
    assert sorted(said(group)) == ["aaa", "aab", "aba", "abb", "baa", "bab", "bba", "bbb"]

    def pairs(gap: float) -> list[list[str]]:
        return sorted(said(pair) for pair in TreeDpo(gap=gap).pairs(group))

    assert pairs(0.24) == [["b", "a"], ["ba", "bb"], ["baa", "bab"]]
    assert pairs(0.26) == [["ba", "bb"], ["baa", "bab"]] and pairs(0.51) == [["baa", "bab"]]


# --- a policy that repeats itself ---


def test_a_policy_that_always_says_the_same_makes_one_attempt() -> None:
    """Four episodes at each of two nodes before it is given up: the same attempt every time."""
    log, engine = Log(), Heard(ScriptedEngine(None, CHAT, ["a"]))
    group = search(lambda: Path(log, 2, lambda _: 0.5), engine, 30, log)
    assert said(group) == ["aa"] and len(engine.sessions) == 8


def test_repeating_is_bounded_in_deep_trees_too() -> None:
    """At most two episodes for each attempt that was asked for."""
    log, engine = Log(), Heard(ScriptedEngine(None, CHAT, ["a"]))
    group = search(lambda: Path(log, 9, lambda _: 0.5), engine, 5, log)
    assert said(group) == ["a" * 9] and len(engine.sessions) == 10


def test_a_repeated_attempt_counts_nowhere_and_the_next_one_has_other_random_numbers() -> None:
    """R("0") = 0.4 and R("1") = 0.6. The third episode repeats the first: neither is tried more or worth other than it
    was, so the fourth goes from "1", as the third would have; and no two episodes share a session."""
    log = Log()
    pay = {"00": 0.4, "11": 0.6}
    words = ["0", "0", "1", "2", "3"]  # the second episode repeats the first
    engine = Heard(ScriptedEngine(None, CHAT, lambda session, _: words[int(session.rsplit("/", 1)[1])]))
    group = search(lambda: Path(log, 2, lambda said: pay.get("".join(said), 0.0)), engine, 4, log, explore=0.0)
    assert said(group) == ["00", "11", "12", "03"]
    assert len(engine.sessions) == len(set(engine.sessions)) == 5


def test_attempts_that_part_later_are_different_ones() -> None:
    """All begin with "a": one child of the root, from which the fifth goes on."""
    log = Log()

    def say(session: str, turn: int) -> str:
        return "a" if turn == 0 and int(session.rsplit("/", 1)[1]) < 4 else numbered(session, turn)

    group = search(lambda: Path(log, 3, lambda _: 0.5), say, 5, log)
    assert said(group) == ["a00", "a11", "a22", "a33", "a44"]


class PaysOtherwise(Path):
    async def finish(self) -> Outcome:
        return Outcome((await super().finish()).reward + self.number, False)


class AnswersOtherwise(Path):
    async def step(self, action: Message) -> Step:
        return replace(await super().step(action), messages=[Message("user", f"{self.number}")])


@pytest.mark.parametrize("world", [PaysOtherwise, AnswersOtherwise])
def test_the_same_words_with_another_answer_are_another_attempt(world: type[Path]) -> None:
    """An environment that draws lots: what was heard and what was paid are part of how an attempt went."""
    log = Log()
    group = search(lambda: world(log, 2, lambda _: 0.0), ScriptedEngine(None, CHAT, ["a"]), 3, log)
    assert said(group) == ["aa", "aa", "aa"]


# --- faults, copies, and who cleans up ---


class Mined(Path):
    """Raises at the words in `mines`."""

    mines: tuple[str, ...] = ()

    async def step(self, action: Message) -> Step:
        step = await super().step(action)
        if "".join(self.said) in self.mines:
            raise ValueError("boom")
        return step


def test_an_attempt_that_failed_is_told_of_and_has_no_part_in_any_q() -> None:
    """R = 0.4, 0.6; the third goes from "1" and fails at its last turn. Q("1") is still 0.6 and not 0.3, and "12" is no
    child: the next two go from "1" again."""
    log = Log()
    world = type("World", (Mined,), {"mines": ("1222",)})
    group = search(lambda: world(log, 4, paid_by_number(0.4, 0.6, 0.9, 0.5, 0.5)), numbered, 5, log, explore=0.0)
    assert said(group) == ["0000", "1111", "1222", "1333", "1444"]
    failed = group.trajectories[2]
    assert failed.stop is StopReason.ENV_ERROR and "boom" in failed.error and failed.reward == 0.0
    assert len(group.scored) == 4


def test_where_every_action_fails_the_search_goes_elsewhere() -> None:
    """Everything that is tried after "a" fails: four episodes there, and then "b" is all that is left."""
    log = Log()
    world = type("World", (Mined,), {"mines": tuple(f"a{x}" for x in "bcdefgh")})
    group = search(lambda: world(log, 2, lambda words: float(words[0] == "a")), New(), 30, log, explore=0.0)
    assert said(group) == ["aa", "ba", "ab", "ac", "ad", "ae", "bb", "bc"]
    assert [t.stop.scored for t in group.trajectories] == [True, True, *[False] * 4, True, True]


def test_a_copy_that_cannot_be_copied_again() -> None:
    """The attempts at that node say so, and hold no environment; the search ends when no other is left."""
    log = Log()

    class Once(Path):
        def fork(self) -> Path:
            if getattr(self, "is_copy", False):
                raise RuntimeError("no copy of a copy")
            copy: Any = super().fork()
            copy.is_copy = True
            return copy

    group = search(lambda: Once(log, 2, lambda _: 0.5), New(), 30, log)
    assert said(group)[:2] == ["aa", "ba"] and set(said(group)[2:]) == {""}
    assert all("no copy of a copy" in t.error for t in group.trajectories[2:]) and len(group.scored) == 2


def test_a_tree_that_is_cancelled_finishes_the_environment_it_was_in() -> None:
    """And all of its copies."""
    log = Log()

    class Stuck(ScriptedEngine):
        async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
            if session.endswith("/2"):
                inside.set()
                await asyncio.Event().wait()
            return await super().sample(ids, params, session=session)

    async def go() -> None:
        setting = rollouts(lambda: Path(log, 3, lambda _: 0.5), Stuck(None, CHAT, numbered)).context
        growing = asyncio.create_task(grow(setting, TASK, "session", 9, 1.0, puct=False))
        await inside.wait()
        assert log.live == 3, "two copies and the one that is being played"
        growing.cancel()
        await asyncio.gather(growing, return_exceptions=True)
        assert growing.cancelled()

    inside = asyncio.Event()
    asyncio.run(asyncio.wait_for(go(), 60))
    assert log.live == 0 and set(log.finished.values()) == {1}


class Plain(Environment):
    """In plain functions, which run in threads; its copies take as long as the test wants."""

    def __init__(self, log: Log, may_copy: threading.Event) -> None:
        self.log, self.may_copy, self.turns = log, may_copy, 0
        self.number = log.made
        log.made += 1
        log.live += 1

    def start(self, task: Task) -> list[Message]:
        return [Message("user", "go")]

    def step(self, action: Message) -> Step:
        self.turns += 1
        return Step([Message("user", ANSWER)], done=self.turns == 2)

    def fork(self) -> "Plain":
        self.may_copy.wait(60)
        copy = Plain(self.log, self.may_copy)
        copy.turns = self.turns
        return copy

    def finish(self) -> Outcome:
        self.log.finished[self.number] += 1
        self.log.live -= 1
        return Outcome(0.5, False)


def test_a_copy_that_comes_too_late_is_finished_as_well() -> None:
    """The attempt ran into its deadline, and the tree is gone when the copy is done."""
    log, may_copy = Log(), threading.Event()
    what = rollouts(lambda: Plain(log, may_copy), ["a"], step_seconds=1.0)
    (group,) = asyncio.run(asyncio.wait_for(what.trees([TASK], 1, 1.0, seed=0), 60))
    (error,) = (t.error for t in group.trajectories)
    assert error.startswith("step() took longer than 1 s (") and "in fork" in error and log.live == 1
    may_copy.set()
    until = time.monotonic() + 30
    while log.live and time.monotonic() < until:
        time.sleep(0.01)
    assert log.live == 0 and log.made == 2 and set(log.finished.values()) == {1}


def test_an_engine_that_breaks_down_leaves_no_copy_behind() -> None:
    """The third turn of the first attempt, when there is one copy and one that is being played."""
    log = Log()

    class Breaks(ScriptedEngine):
        async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
            if log.steps == 2:
                raise UserError("out of memory")
            return await super().sample(ids, params, session=session)

    with pytest.raises(UserError, match="out of memory"):
        search(lambda: Path(log, 4, lambda _: 0.5), Breaks(None, CHAT, numbered), 3, log)
    assert log.made == 2 and log.live == 0 and set(log.finished.values()) == {1}
