"""Conversations of one attempt: whatever an agent does with its calls, every sampled id is trained on exactly once."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longloop.config import RolloutConfig
from longloop.envs.base import Environment
from longloop.gateway.request import Refused, Request
from longloop.gateway.session import Session
from longloop.gateway.threads import Threads
from longloop.rollout.episode import RolloutContext, run_episode, seed_of
from longloop.tokens.chat import Chat
from longloop.types import Call, Message, Outcome, Sampled, SamplingParams, Step, StopReason, Task
from tests.support import tool_templates
from tests.support.templates import tokenizer

CHAT = Chat(tokenizer("chatml"))
TOOL = {"type": "function", "function": {"name": "f"}}


def user(text: str) -> Message:
    return Message("user", text)


def said(text: str) -> Message:
    return Message("assistant", text)


def place(threads: Threads, *messages: Message, tools: tuple[dict[str, Any], ...] = ()) -> Step:
    return threads.place(Request(messages, tools))


def test_a_call_that_begins_with_all_that_was_said_continues_its_conversation() -> None:
    threads = Threads()
    first = place(threads, user("a"))
    assert (first.thread, first.messages) == ("", (user("a"),))
    threads.answered(said("1"))
    second = place(threads, user("a"), said(" 1\n"), user("b"))
    assert (second.thread, second.messages) == ("", (user("b"),)), "white space around an answer does not count"
    threads.answered(said("2"))
    assert [m.content for m in threads.all[0].messages] == ["a", "1", "b", "2"]


@pytest.mark.parametrize(
    "call",
    [
        [user("a")],
        [user("a"), said("1")],
        [user("a"), said("other"), user("b")],
        [user("summary"), user("b")],
        [Message("system", "a"), said("1"), user("b")],
    ],
    ids=["the same again", "nothing new", "another answer", "compaction", "another role"],
)
def test_any_other_call_begins_a_conversation(call: list[Message]) -> None:
    threads = Threads()
    place(threads, user("a"))
    threads.answered(said("1"))
    other = place(threads, *call)
    assert other.thread and other.messages == tuple(call)


def test_the_longest_beginning_wins_and_tools_must_be_the_same() -> None:
    threads = Threads()
    place(threads, user("a"))
    threads.answered(said("1"))
    place(threads, user("a"), said("1"), user("b"))
    threads.answered(said("2"))
    branch = place(threads, user("a"), said("1"), user("c"))
    assert branch.thread, "the first conversation has gone on, so this is a branch of it"
    threads.answered(said("3"))
    longest = place(threads, user("a"), said("1"), user("c"), said("3"), user("d"))
    assert (longest.thread, longest.messages) == (branch.thread, (user("d"),))
    threads.answered(said("4"))
    other = place(threads, user("a"), said("1"), user("b"), said("2"), user("e"), tools=(TOOL,))
    assert other.thread and len(other.messages) == 5 and other.tools == (TOOL,)


def test_of_two_beginnings_the_longer_one_is_continued() -> None:
    threads = Threads()
    for _ in range(2):  # the same question, and by chance the same answer
        place(threads, user("a"))
        threads.answered(said("1"))
    place(threads, user("a"), said("1"), user("b"))
    threads.answered(said("2"))
    assert place(threads, user("a"), said("1"), user("b"), said("2"), user("c")).messages == (user("c"),)


def test_calls_are_compared_by_what_they_ask() -> None:
    """Not by their ids, nor by how their arguments are written."""
    threads = Threads()
    place(threads, user("a"), tools=(TOOL,))
    threads.answered(Message("assistant", "", (Call("1", "f", '{"x": 1, "y": 2}'),)))
    echo = Message("assistant", "", (Call("other", "f", '{"y":2,"x":1}'),))
    answer = Message("tool", "3", call="other")
    assert place(threads, user("a"), echo, answer, tools=(TOOL,)).messages == (answer,)
    threads = Threads()
    place(threads, user("a"), tools=(TOOL,))
    threads.answered(Message("assistant", "", (Call("1", "f", '{"x": 1}'),)))
    changed = Message("assistant", "", (Call("1", "f", '{"x": 2}'),))
    assert len(place(threads, user("a"), changed, answer, tools=(TOOL,)).messages) == 3


def test_tools_are_told_where_a_conversation_begins() -> None:
    """Once: a worker would send them to the trainer with every call."""
    threads = Threads()
    assert place(threads, user("a"), tools=(TOOL,)).tools == (TOOL,)
    threads.answered(said("1"))
    assert place(threads, user("a"), said("1"), user("b"), tools=(TOOL,)).tools == ()
    assert place(threads, user("other"), tools=(TOOL,)).tools == (TOOL,)


def test_a_conversation_that_another_is_the_beginning_of_is_not_taken_for_it() -> None:
    """All that was said there must come first, word for word: not a part of it, and not more or less of a message."""
    threads = Threads()
    place(threads, user("a"))
    threads.answered(said("1"))
    place(threads, user("a"), said("1"), user("b"))
    threads.answered(said("2"))
    assert place(threads, user("a"), said("1"), user("b")).thread != "", "as long as what it would continue"
    assert place(threads, user("a"), said("1"), user("b"), said("2 "), user("c")).messages == (user("c"),)


def test_an_agent_that_has_left_is_not_waited_for() -> None:
    """Neither by who waits already nor by who comes later; a call that it left behind is nobody's."""

    async def run() -> None:
        session = Session()
        waiting = asyncio.create_task(session.next())
        await asyncio.sleep(0)
        assert not waiting.done()
        session.leave()
        assert await asyncio.wait_for(waiting, 10) is None
        asking = asyncio.create_task(session.ask(Request((user("a"),)), {}))
        await asyncio.sleep(0)
        assert await asyncio.wait_for(session.next(), 10) is None
        session.close()
        with pytest.raises(Refused):
            await asking

    asyncio.run(run())


def test_names_do_not_depend_on_who_was_faster() -> None:
    """Beyond the first; so neither do the random numbers of their actions."""

    def names(order: Sequence[str]) -> dict[str, str]:
        threads = Threads()
        place(threads, user("main"))
        threads.answered(said("ok"))
        found = {}
        for text in order:
            found[text] = place(threads, user(text)).thread
            threads.answered(said("ok"))
        return found

    assert names(["x", "y"]) == names(["y", "x"])
    threads = Threads()
    place(threads, user("main"))
    assert len({place(threads, user("vote")).thread for _ in range(3)}) == 3, "the same question thrice is three draws"


class Engine:
    """Says something new each time, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, list[int], list[int]]] = []
        self.forgotten: list[str] = []

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
        await asyncio.sleep(0)
        new = np.array(CHAT.action_ids(f"word {len(self.asked)}"))[: params.max_tokens]
        self.asked.append((session, params.seed, list(ids), new.tolist()))
        return Sampled(new, np.full(len(new), -float(len(self.asked))), "stop")

    def forget(self, session: str) -> None:
        self.forgotten.append(session)

    def release(self) -> None: ...


class Direct(Environment):
    """A session without HTTP and processes: the clients are tasks of the same event loop."""

    def __init__(self, agent: Any) -> None:
        self.session, self._agent = Session(), agent

    async def start(self, task: Task) -> Step:
        self._running = asyncio.create_task(self._agent(self.session))
        self._running.add_done_callback(lambda _: self.session.leave())
        return await self._next()

    async def step(self, action: Message) -> Step:
        self.session.answer(action)
        return await self._next()

    async def _next(self) -> Step:
        if step := await self.session.next():
            return step
        self._running.result()
        return Step([user("over")], done=True)

    async def finish(self) -> Outcome:
        self.session.close()
        await asyncio.gather(self._running, return_exceptions=True)
        return Outcome(1.0, True)


def played(agent: Any, **limits: Any) -> tuple[Any, Engine, Direct]:
    engine, env = Engine(), Direct(agent)
    settings = RolloutConfig(**{"context": 4000, "turn_tokens": 50, "max_turns": 200} | limits)
    context = RolloutContext(lambda: env, CHAT, engine, settings, SamplingParams())  # type: ignore[arg-type]
    task = Task("t", "train")

    async def run() -> Any:
        return await run_episode(context, task, 0, "s")

    return asyncio.run(run()), engine, env


def check_tokens(trajectory: Any, engine: Engine) -> None:
    """Every sampled id is in exactly one stretch, behind exactly what the engine had been shown."""
    stretches = trajectory.stretches()
    trained = Counter[tuple[Any, ...]]()
    for stretch in stretches:
        for turn in np.unique(stretch.turns[stretch.mask]):
            at = np.flatnonzero(stretch.mask & (stretch.turns == turn))
            trained[tuple(stretch.ids[: at[0]].tolist()), tuple(stretch.ids[at].tolist())] += 1
    sampled = Counter((tuple(ids), tuple(new)) for _, _, ids, new in engine.asked)
    assert trained == sampled and max(sampled.values(), default=1) == 1
    assert sum(int(s.mask.sum()) for s in stretches) == sum(len(new) for *_, new in engine.asked)


Act = st.tuples(
    st.integers(0, 3),  # which conversation
    st.sampled_from(["say"] * 6 + ["edit", "compact", "retry", "cancel early", "cancel late", "again", "silent edit"]),
    st.integers(0, 3),  # a detail
)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(st.lists(st.lists(Act, max_size=6), min_size=1, max_size=4))
def test_any_interleaving_gives_every_sampled_id_exactly_once(plans: list[list[tuple[int, str, int]]]) -> None:
    """Clients that speak at once, each with several conversations, which edit, sum up, retry and hang up."""
    replies: list[str] = []

    async def call(session: Session, messages: list[Message], retried: bool = False) -> str:
        body = {"messages": [[m.role, m.content] for m in messages]}
        reply = await session.ask(Request(tuple(messages)), body, retried)
        replies.append(reply.message.content)
        return reply.message.content

    async def client(session: Session, number: int, plan: list[tuple[int, str, int]]) -> None:
        talks: dict[int, list[Message]] = {}
        for which, what, detail in plan:
            talk = talks.setdefault(which, [user(f"client {number}, conversation {which % 2}")])
            if what == "edit" and len(talk) > 2:
                talk[2 * (detail % (len(talk) // 2))] = user(f"edited {detail}")
            elif what == "silent edit" and len(talk) > 1:
                talk[1] = said(f"never said {detail}")
            elif what == "compact":
                talk[:] = [user(f"summary {detail}"), talk[-1]]
            elif what.startswith("cancel"):
                gone = asyncio.create_task(call(session, list(talk)))
                for _ in range(1 if what == "cancel early" else 2 + detail):
                    await asyncio.sleep(0)
                gone.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await gone
            answer = await call(session, list(talk))
            if what == "retry":
                assert await call(session, list(talk), retried=True) == answer
            if what == "again":
                await call(session, list(talk))
            talk += [said(answer), user(f"go on {detail}")]

    async def agent(session: Session) -> None:
        await call(session, [user("main")])
        await asyncio.gather(*(client(session, number, plan) for number, plan in enumerate(plans)))

    trajectory, engine, env = played(agent)
    assert (trajectory.stop, trajectory.error) == (StopReason.FINISHED, "")
    check_tokens(trajectory, engine)
    words = {CHAT.decode(new) for *_, new in engine.asked}
    assert set(replies) <= words, "the agent is told what was sampled, and nothing else"
    assert len(trajectory.stretches()) == len(env.session.threads.all)
    assert set(engine.forgotten) == {session for session, *_ in engine.asked} | {"s"}
    assert len({seed for _, seed, *_ in engine.asked}) == len(engine.asked)


@pytest.mark.parametrize("name", ["chatml", "llama3", "llama3.1", "qwen2.5"])
def test_an_agent_that_only_appends_is_one_stretch_with_the_seeds_of_any_environment(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.CHAT", Chat(tool_templates.tokenizer(name)))

    async def agent(session: Session) -> None:
        talk = [user("go")]
        for turn in range(4):
            reply = await session.ask(Request(tuple(talk), (TOOL,)), {"turn": turn})
            talk += [reply.message, Message("tool", "done", call="1") if turn % 2 else user("on")]

    trajectory, engine, _ = played(agent)
    assert not any(turn.restarts_context for turn in trajectory.turns) and len(trajectory.stretches()) == 1
    assert [(name, seed) for name, seed, *_ in engine.asked] == [("s", seed_of("s", turn)) for turn in range(4)]
    check_tokens(trajectory, engine)


def test_turns_lie_conversation_by_conversation() -> None:
    """And each later one begins with its whole context, so that what reads trajectories needs to know no more."""

    async def agent(session: Session) -> None:
        talks = {name: [user(name)] for name in "ab"}
        for turn in range(2):
            for name, talk in talks.items():
                reply = await session.ask(Request(tuple(talk), (TOOL,)), {"turn": turn, "name": name})
                talk += [reply.message, user(f"{name}{turn}")]

    trajectory, engine, _ = played(agent)
    assert [turn.context[-1].content for turn in trajectory.turns] == ["a", "a0", "b", "b0"]
    assert [(turn.restarts_context, turn.rebuilt) for turn in trajectory.turns] == [(False, False)] * 2 + [
        (True, True),
        (False, False),
    ]
    assert [turn.tools for turn in trajectory.turns] == [(TOOL,), (), (TOOL,), ()]
    check_tokens(trajectory, engine)


def test_limits_of_a_call_hold_and_stop_texts_are_cut() -> None:
    """What the call asks for is passed to the engine, within the run's limits; the agent never sees its stop text."""
    told: list[SamplingParams] = []

    class Stopping(Engine):
        async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
            told.append(params)
            new = np.array(CHAT.encode("Thought. Observation:"))
            return Sampled(new, np.zeros(len(new)), "length" if params.max_tokens == 3 else "stop")

    heard = []

    async def agent(session: Session) -> None:
        for most in (3, 1000):
            reply = await session.ask(Request((user("go"),), (), ("Observation:",), most), {"most": most})
            heard.append((reply.message.content, reply.finish, reply.tokens > 0, reply.prompt_tokens > 0))

    env = Direct(agent)
    limits = RolloutConfig(context=4000, turn_tokens=50, stop=["!"])
    context = RolloutContext(lambda: env, CHAT, Stopping(), limits, SamplingParams())

    async def run() -> Any:
        return await run_episode(context, Task("t", "train"), 0, "s")

    asyncio.run(run())
    assert [(p.max_tokens, p.stop) for p in told] == [(3, ("!", "Observation:")), (50, ("!", "Observation:"))]
    assert heard == [("Thought. ", "length", True, True), ("Thought. ", "stop", True, True)]


def test_an_attempt_that_is_out_of_turns_tells_its_agent_and_is_scored() -> None:
    refusals = []

    async def agent(session: Session) -> None:
        for turn in range(5):
            try:
                await session.ask(Request((user(f"{turn}"),)), {"turn": turn})
            except Refused as refused:
                refusals.append((refused.status, refused.code))

    trajectory, engine, _ = played(agent, max_turns=2)
    assert (trajectory.stop, trajectory.reward, len(engine.asked)) == (StopReason.MAX_TURNS, 1.0, 2)
    assert refusals == [(400, "longloop_stopped"), (410, "attempt_over"), (410, "attempt_over")]


def test_nothing_is_sampled_for_a_client_that_went_away_while_it_waited() -> None:
    async def agent(session: Session) -> None:
        first = asyncio.create_task(session.ask(Request((user("first"),)), {"n": 1}))
        gone = asyncio.create_task(session.ask(Request((user("gone"),)), {"n": 2}))
        await asyncio.sleep(0)
        gone.cancel()
        await first
        await session.ask(Request((user("third"),)), {"n": 3})

    trajectory, engine, _ = played(agent)
    assert [turn.context[0].content for turn in trajectory.turns] == ["first", "third"]
    check_tokens(trajectory, engine)


def test_clients_with_the_same_question_go_away_one_by_one() -> None:
    """Each waits for an answer of its own, and a retry joins the last."""

    async def agent(session: Session) -> None:
        def ask(text: str, retried: bool = False) -> asyncio.Task[Any]:
            return asyncio.create_task(session.ask(Request((user(text),)), {"text": text}, retried))

        first = ask("first")
        twins = [ask("same"), ask("same")]
        await asyncio.sleep(0)
        twins[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await twins[0]
        joined = ask("same", retried=True)
        assert (await twins[1]).id == (await joined).id
        await first
        both = [ask("other"), ask("other")]
        await asyncio.sleep(0)
        for one in both:
            one.cancel()
        assert [type(one) for one in await asyncio.gather(*both, return_exceptions=True)] == [
            asyncio.CancelledError
        ] * 2

    trajectory, engine, _ = played(agent)
    assert (trajectory.stop, trajectory.error) == (StopReason.FINISHED, "")
    assert [turn.context[0].content for turn in trajectory.turns[:2]] == ["first", "same"]
    check_tokens(trajectory, engine)


def test_a_flood_of_calls_is_refused() -> None:
    async def agent(session: Session) -> None:
        asks = [session.ask(Request((user(f"{n}"),)), {"n": n}) for n in range(300)]
        found = await asyncio.gather(*asks, return_exceptions=True)
        assert Counter(type(one) for one in found)[Refused] == 300 - 256
        assert {one.status for one in found if isinstance(one, Refused)} == {429}

    trajectory, engine, _ = played(agent, max_turns=300)
    assert (trajectory.stop, trajectory.error, len(engine.asked)) == (StopReason.FINISHED, "", 256)
    check_tokens(trajectory, engine)
