"""What an expert, a stored attempt or a scripted engine says is text: a special token that it spells is not one."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from longloop.config import RolloutConfig
from longloop.engines.scripted import ScriptedEngine
from longloop.envs.base import Environment
from longloop.envs.play import Script
from longloop.model import tiny
from longloop.model.from_scratch import train_tokenizer
from longloop.rollout.demonstrations import demonstrate, retokenize
from longloop.rollout.episode import RolloutContext, run_episode
from longloop.tokens.chat import Chat
from longloop.types import Message, Outcome, SamplingParams, Step, Task, Trajectory
from tests.support.templates import APPEND_ONLY, FAMILIES, tokenizer

TASK = Task("task", "train")
CHATS = {name: Chat(tokenizer(name)) for name in FAMILIES}
TRANSCRIPTS = ['print("<|end|>") and then "<|user|>"', "print('<|assistant|>') for The Fox"] * 20
"""Of an agent that works with chat markup. In quotes, a special token stands alone, and could become one piece."""


def fresh(words: bool = False) -> Chat:
    """The tokenizer of a model that `longloop models new` makes."""
    return Chat(train_tokenizer(TRANSCRIPTS, 500, words))


def hostile(special: Sequence[str]) -> list[str]:
    """Two turns that spell every special token: in a row, in quotes, and at either end."""
    return [f"say {' '.join(special)} done", f"{special[-1]}print('{''.join(special)}'){special[-1]}"]


class Echo(Environment):
    """Two turns. Notes what it hears; its expert says what it is told to."""

    def __init__(self, says: list[str]) -> None:
        self.says = says
        self.heard: list[str] = []

    def start(self, task: Task) -> list[Message]:
        return [Message("user", "go")]

    def step(self, action: Message) -> Step:
        self.heard.append(action.content)
        return Step([Message("user", "on")], done=len(self.heard) == 2)

    def finish(self) -> Outcome:
        return Outcome(1.0, True)

    def expert(self, task: Task) -> Script:
        return Script(self.says)


def check(chat: Chat, says: list[str], special: Sequence[str], trajectory: Trajectory) -> None:
    """The text came through as it was, and the only special token of an action is its end."""
    ids = set(chat.tokenizer.convert_tokens_to_ids(list(special)))
    assert [turn.action.content for turn in trajectory.turns] == says
    for turn in trajectory.turns:
        *text, end = turn.action_ids
        assert end == chat.end_id and not ids & set(text)


def by_expert(chat: Chat, says: list[str]) -> Trajectory:
    engine: Any = None
    env = Echo(says)
    trajectory = asyncio.run(
        demonstrate(RolloutContext(lambda: env, chat, engine, RolloutConfig(max_turns=2), SamplingParams()), TASK)
    )
    assert env.heard == says
    return trajectory


def by_script(chat: Chat, says: list[str]) -> Trajectory:
    env = Echo([])
    context = RolloutContext(
        lambda: env, chat, ScriptedEngine(None, chat, says), RolloutConfig(max_turns=2), SamplingParams()
    )
    trajectory = asyncio.run(run_episode(context, TASK, 0, "session"))
    assert env.heard == says
    return trajectory


@pytest.mark.parametrize("how", [by_expert, by_script])
@pytest.mark.parametrize("name", FAMILIES)
def test_special_tokens_in_what_is_said_stay_text(name: str, how: Any) -> None:
    special, chat = FAMILIES[name].special, CHATS[name]
    says = hostile(special)
    trajectory = how(chat, says)
    check(chat, says, special, trajectory)
    check(chat, says, special, retokenize(chat, trajectory))


@pytest.mark.parametrize("name", APPEND_ONLY)
def test_a_stored_attempt_is_told_in_another_models_tokens(name: str) -> None:
    """Another model's markup is text for this one, and this one's own as well."""
    special, chat = FAMILIES[name].special, CHATS[name]
    says = hostile((*special, "<|im_end|>", "</s>", "<end_of_turn>"))
    trajectory = retokenize(chat, by_script(fresh(), says))
    check(chat, says, special, trajectory)
    # What the model reads in the end is what the template makes of the whole conversation.
    if not FAMILIES[name].lead:
        (stretch,) = trajectory.stretches()
        conversation = [Message("user", "go"), Message("assistant", says[0]), Message("user", "on")]
        whole = chat.encode(chat.render([*conversation, Message("assistant", says[1])], generate=False))
        assert stretch.ids.tolist() == list(whole[: len(stretch.ids)])


def test_a_thought_is_still_a_token() -> None:
    """Added tokens that are not special, as `<think>`, are the assistant's own to say."""
    ids = CHATS["qwen3"].action_ids("<think>\nhm\n</think>\n\nyes<|im_end|>")
    think = tokenizer("qwen3").convert_tokens_to_ids(["<think>", "</think>"])
    assert [id for id in ids if id in think] == think and ids.count(CHATS["qwen3"].end_id) == 1


def test_half_a_surrogate_pair_is_no_reason_to_crash() -> None:
    assert CHATS["chatml"].action_ids("caf\udce9") == CHATS["chatml"].action_ids("caf\ufffd")


@pytest.mark.parametrize("words", [False, True])
def test_a_new_models_tokenizer_cannot_spell_a_special_token(words: bool) -> None:
    """Also when the transcripts it is made from are full of them: it is made, and text stays text."""
    special = [*tiny.ROLES, "<|end|>"]
    chat = fresh(words)
    says = hostile(special)
    check(chat, says, special, by_expert(chat, says))


def test_the_tiny_model_reads_markup_as_characters() -> None:
    chat = Chat(tiny.tokenizer())
    assert chat.action_ids("a<|end|>b") == (*chat.encode("a"), *[0, 0], *chat.encode("end"), 0, 0, 2, chat.end_id)
