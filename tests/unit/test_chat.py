"""Chat templates and tokens: what the model reads is what the template says, and nobody else writes special tokens."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from longloop.tokens.chat import Chat
from longloop.tokens.transcript import Transcript
from longloop.types import Message, Sampled, StopReason, Task, Trajectory, Turn, UserError
from tests.support.templates import APPEND_ONLY, FAMILIES, tokenizer

CHATS = {name: Chat(tokenizer(name)) for name in FAMILIES}
PROPERTY = settings(deadline=None, derandomize=True, max_examples=60)
NONCHARACTERS = "\ufdd0\ufdd1\ufdd2"


def framing(name: str) -> tuple[str, ...]:
    return FAMILIES[name].special + FAMILIES[name].plain


def framing_ids(name: str, ids: Sequence[int]) -> list[int]:
    """Only the ids that the template alone may write, in their order."""
    wanted = set(tokenizer(name).convert_tokens_to_ids(framing(name)))
    return [id for id in ids if id in wanted]


def texts(name: str, hostile: bool) -> st.SearchStrategy[str]:
    """What an environment may say. A hostile one spells special tokens, halves of them, and template code."""
    pieces = [
        "fox",
        " dog",
        "42",
        "\n",
        "\n\n",
        "  ",
        "\t",
        "\x1f",
        ".",
        "'s",
        "é",
        "e\u0301",
        "日本",
        "🦊",
        "<",
        "|>",
        "]",
    ]
    if hostile:
        pieces += [*framing(name), *(t[:3] for t in framing(name)), *(t[3:] for t in framing(name))]
        pieces += ["{{ bos_token }}", "{% endfor %}", "<0x0A>", *NONCHARACTERS]
    drawn = st.lists(st.one_of(st.sampled_from(pieces), st.characters(codec="utf-8")), max_size=12).map("".join)
    return drawn if hostile else drawn.filter(lambda text: spells_nothing(name, text))


def spells_nothing(name: str, text: str) -> bool:
    return not any(token in text for token in framing(name)) and not set(text) & set(NONCHARACTERS)


def actions(name: str) -> st.SearchStrategy[str]:
    """What a model says. Without white space around it: `assistant\\n` + `\\nhi` may merge into other tokens than its
    two halves, and a template may trim it; the whole rendering then differs by right, for the sampled ids stay as they
    are. Nor empty, for the same reason, nor with the sign that SentencePiece writes for a space."""
    return texts(name, hostile=False).map(lambda text: text.replace("▁", "_").strip() or "fox")


@dataclass
class Talk:
    """A conversation as an episode would have it, with everything that came of it."""

    name: str
    messages: list[Message] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chat = CHATS[self.name]
        self.transcript = Transcript(self.chat)
        self.end = tokenizer(self.name).convert_tokens_to_ids(FAMILIES[self.name].end)

    def hear(self, *messages: Message) -> tuple[list[int], bool]:
        before = list(self.transcript.ids)
        self.messages += messages
        ids, restarts = self.transcript.receive(messages)
        self.heard = ids.tolist(), restarts
        assert self.transcript.ids == ([] if restarts else before) + self.heard[0]
        return self.heard

    def say(self, text: str, ended: bool = True) -> Message:
        ids = self.chat.encode(FAMILIES[self.name].lead + text) + ((self.end,) if ended else ())
        return self.say_ids(ids)

    def say_ids(self, ids: Sequence[int]) -> Message:
        before = list(self.transcript.ids)
        action = self.transcript.act(Sampled(tuple(ids), (0.0,) * len(ids), "stop"))
        assert self.transcript.ids == before + list(ids)
        self.messages.append(action)
        self.turns.append(
            Turn((), self.heard[0], action, tuple(ids), (0.0,) * len(ids), restarts_context=self.heard[1])
        )
        return action

    @property
    def whole(self) -> list[int]:
        """The conversation rendered and encoded in one piece."""
        return list(self.chat.encode(self.chat.render(self.messages)))

    @property
    def whole_by_hugging_face(self) -> list[int]:
        turns = [{"role": m.role, "content": m.content} for m in self.messages]
        return tokenizer(self.name).apply_chat_template(turns, add_generation_prompt=True, return_dict=False)


def opening(name: str, draw: st.DataObject, hostile: bool) -> list[Message]:
    text = texts(name, hostile)
    system = [Message("system", draw.draw(text))] if draw.draw(st.booleans()) else []
    return [*system, Message("user", draw.draw(text))]


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("name", APPEND_ONLY)
@PROPERTY
@given(data=st.data())
def test_growing_ids_are_those_of_the_whole_conversation(name: str, hostile: bool, data: st.DataObject) -> None:
    """At every turn, whether the model ended its turn or was cut; and they are Hugging Face's own where no text
    spells a special token."""
    talk = Talk(name)
    talk.hear(*opening(name, data, hostile))
    for _ in range(data.draw(st.integers(1, 4))):
        talk.say(data.draw(actions(name)), ended=data.draw(st.booleans()))
        _, fresh = talk.hear(Message("user", data.draw(texts(name, hostile))))
        assert not fresh
        assert talk.transcript.ids == talk.whole
        if not hostile:
            assert talk.transcript.ids == talk.whole_by_hugging_face


@pytest.mark.parametrize("name", FAMILIES)
@PROPERTY
@given(data=st.data())
def test_no_text_forges_a_special_token(name: str, data: st.DataObject) -> None:
    """The special ids of a hostile conversation are those of the same one with harmless text, one for one."""
    hostile, harmless = Talk(name), Talk(name)
    for turn in range(3):
        messages = opening(name, data, hostile=True) if turn == 0 else [Message("user", data.draw(texts(name, True)))]
        if turn and name in ("chatml", "qwen3", "llama3"):
            messages.append(Message("tool", data.draw(texts(name, True))))
        hostile.hear(*messages)
        harmless.hear(*(Message(m.role, "x") for m in messages))
        assert framing_ids(name, hostile.transcript.ids) == framing_ids(name, harmless.transcript.ids)
        if turn == 2:
            break
        hostile.say("fox")
        harmless.say("fox")


@pytest.mark.parametrize("name", FAMILIES)
def test_a_special_token_that_the_model_spells_out_stays_text(name: str) -> None:
    """Letter by letter it is not the token: neither in the sampled ids nor when history is written anew."""
    spelling, harmless = Talk(name), Talk(name)
    for token in FAMILIES[name].special:
        for talk, said in ((spelling, "a" + token), (harmless, "a")):
            talk.hear(*([] if talk.messages else [Message("system", "s")]), Message("user", "u"))
            letters = [id for letter in said for id in talk.chat.encode(letter)]
            assert said in talk.say_ids([*letters, talk.end]).content
    for talk in (spelling, harmless):
        talk.hear(Message("user", "u"))
    assert framing_ids(name, spelling.transcript.ids) == framing_ids(name, harmless.transcript.ids)
    assert framing_ids(name, spelling.whole) == framing_ids(name, harmless.whole)


@st.composite
def thoughtful_actions(draw: st.DrawFn, name: str) -> str:
    """With a thought in the template's own layout, in another, or without one."""
    said, thought = draw(actions(name)), draw(actions(name))
    return draw(st.sampled_from([said, f"<think>\n{thought}\n</think>\n\n{said}", f"<think>{thought}</think>{said}"]))


@pytest.mark.parametrize("name", ["qwen3", "mistral-last"])
@PROPERTY
@given(data=st.data())
def test_fresh_exactly_where_the_template_rewrote_history(name: str, data: st.DataObject) -> None:
    """Then the ids are the whole rendering; else they were appended. What was sampled is trained on as it was."""
    talk = Talk(name)
    talk.hear(*opening(name, data, hostile=False))
    said = thoughtful_actions(name) if name == "qwen3" else actions(name)
    for _ in range(data.draw(st.integers(1, 5))):
        before = rendered_by_hugging_face(talk)
        action = talk.say(data.draw(said), ended=data.draw(st.booleans()))
        role = data.draw(st.sampled_from(["user", "tool"])) if name == "qwen3" else "user"
        _, fresh = talk.hear(Message(role, data.draw(texts(name, hostile=False))))
        assert fresh == (not rendered_by_hugging_face(talk).startswith(before + action.content))
        assert talk.transcript.ids == talk.whole == talk.whole_by_hugging_face
    talk.say("fox")
    stretches = Trajectory(Task("t", "train"), 0, tuple(talk.turns), 0.0, False, StopReason.FINISHED).stretches()
    assert len(stretches) == 1 + sum(turn.restarts_context for turn in talk.turns)
    trained = [id for s in stretches for id, chosen in zip(s.ids, s.mask, strict=True) if chosen]
    assert trained == [id for turn in talk.turns for id in turn.action_ids]


def rendered_by_hugging_face(talk: Talk) -> str:
    turns = [{"role": m.role, "content": m.content} for m in talk.messages]
    return tokenizer(talk.name).apply_chat_template(turns, tokenize=False, add_generation_prompt=True)


def test_rewriting_templates_by_example() -> None:
    """Thoughts survive a tool's answer and are gone after the user's next word; a system prompt wanders."""
    talk = Talk("qwen3")
    talk.hear(Message("user", "hi"))
    talk.say("<think>\nhm\n</think>\n\ncall")
    assert talk.hear(Message("tool", "42"))[1] is False
    talk.say("")  # nothing, which any text begins with
    assert talk.hear(Message("user", "thanks"))[1] is True
    assert "hm" not in talk.chat.decode(talk.transcript.ids)
    talk.say("welcome")
    assert talk.hear(Message("user", "bye"))[1] is False

    talk = Talk("mistral-last")
    talk.hear(Message("system", "fox"), Message("user", "hi"))
    talk.say("yes")
    assert talk.hear(Message("user", "and?"))[1] is True
    without = Talk("mistral-last")
    without.hear(Message("user", "hi"))
    without.say("yes")
    assert without.hear(Message("user", "and?"))[1] is False


@pytest.mark.parametrize("name", FAMILIES)
def test_a_cut_action_is_closed_as_context(name: str) -> None:
    """The end token that the model did not sample comes with the next message, where nothing is trained."""
    ended, cut = Talk(name), Talk(name)
    for talk in (ended, cut):
        talk.hear(Message("user", "hi"))
        talk.say("the fox", ended=talk is ended)
    assert cut.turns[0].action_key == ended.turns[0].action_key[:-1]
    after_end, after_cut = (talk.hear(Message("user", "and?"))[0] for talk in (ended, cut))
    assert after_cut == [talk.end, *after_end]
    assert ended.transcript.ids == cut.transcript.ids == cut.whole


@pytest.mark.parametrize("text", ["the fox", " the fox", "the fox\n", ""])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_sampled_end_token_is_not_doubled(name: str, text: str) -> None:
    """Neither the template's own nor the tokenizer's other one, also when the model said nothing else."""
    for end in CHATS[name].end_ids:
        talk, plain = Talk(name), Talk(name)
        talk.hear(Message("user", "hi"))
        talk.say_ids((*talk.chat.encode(text), end))
        plain.hear(Message("user", "hi"))
        plain.say("the fox")
        assert talk.hear(Message("user", "and?")) == plain.hear(Message("user", "and?"))
        assert plain.transcript.ids == plain.whole


def test_an_end_token_is_not_doubled_after_a_mere_thought() -> None:
    """Qwen3 ends a thought with two newlines; the model that ended its turn without them ended it all the same."""
    talk = Talk("qwen3")
    talk.hear(Message("user", "hi"))
    talk.say("<think>\nhm\n</think>")
    added, fresh = talk.hear(Message("tool", "42"))
    assert not fresh and talk.chat.decode(added).startswith("\nuser") and talk.end not in added[:2]


def test_end_ids_by_family() -> None:
    """The template's closing token, the tokenizer's end token, and those that the model names."""
    for name, family in FAMILIES.items():
        tokens = {family.end, family.eos or family.end}
        assert CHATS[name].end_ids == set(tokenizer(name).convert_tokens_to_ids(sorted(tokens)))
    assert Chat(tokenizer("chatml"), [7]).end_ids == CHATS["chatml"].end_ids | {7}


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.trims])
@pytest.mark.parametrize("text", ["  the fox \n", "\n\n\tthe fox", "the fox \n\n", " \n "])
def test_sampled_white_space_stays_where_templates_trim(name: str, text: str, ended: bool) -> None:
    """Trimming is not rewriting: the ids go on after the action as sampled, as they do after a trimmed one."""
    talk, trimmed = Talk(name), Talk(name)
    for each, said in ((talk, text), (trimmed, "the fox")):
        each.hear(Message("user", "hi"))
        each.say(said, ended)
    assert talk.hear(Message("user", "and?")) == trimmed.hear(Message("user", "and?"))


def test_sampled_white_space_stays_where_a_template_trims_one_side() -> None:
    """Qwen3 drops what stands before a thought and keeps the end of the message. Nothing is said twice."""
    talk, trimmed = Talk("qwen3"), Talk("qwen3")
    for each, before in ((talk, "\n"), (trimmed, "")):
        each.hear(Message("user", "hi"))
        each.say(before + "<think>\nhm\n</think>\n\ncall\n")
    assert talk.hear(Message("tool", "42")) == trimmed.hear(Message("tool", "42"))


def test_text_that_is_not_unicode_is_encoded_all_the_same() -> None:
    """Half a surrogate pair, as from a program's output read with `surrogateescape`, is no reason to crash."""
    talk = Talk("chatml")
    talk.hear(Message("user", "caf\udce9 \ud83d"))
    assert talk.transcript.ids == list(talk.chat.encode(talk.chat.render([Message("user", "caf\ufffd \ufffd")])))


@pytest.mark.parametrize("space", [" ", "\n", "\t", "\x85", "\xa0", "\u2003", "\u3000", "\x1c", "\x1f", "\u200b"])
def test_a_token_swallows_what_the_tokenizers_library_counts_as_white_space(space: str) -> None:
    """Which is not quite what Python does: four control characters are none there."""
    talk = Talk("phi3")
    talk.hear(Message("user", f"{space}\n{space}fox{space}"))
    assert talk.transcript.ids == talk.whole_by_hugging_face


@pytest.mark.parametrize("space", ["", " ", "\n\n", "\t ", "\u3000", "\x1c"])
def test_a_token_swallows_the_white_space_before_it(space: str) -> None:
    spec = json.loads(tokenizer("chatml").backend_tokenizer.to_str())
    for token in spec["added_tokens"]:
        token["lstrip"] = True
    swallowing = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(spec)),
        eos_token=FAMILIES["chatml"].end,
        chat_template=FAMILIES["chatml"].template,
    )
    chat = Chat(swallowing)
    theirs = swallowing.apply_chat_template([{"role": "user", "content": f"a fox{space}"}], return_dict=False)
    assert list(chat.encode(chat.render([Message("user", f"a fox{space}")], generate=False))) == theirs


@pytest.mark.parametrize("name", ["chatml", "mistral-sp"])
def test_added_tokens_that_are_just_text_keep_their_ids(name: str) -> None:
    """Runs of spaces and the like, also where special tokens are part of the vocabulary (as in SentencePiece's)."""
    backend = Tokenizer.from_str(tokenizer(name).backend_tokenizer.to_str())
    backend.add_tokens([AddedToken("      ", normalized=False), AddedToken("<tool>", normalized=False)])
    more = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=FAMILIES[name].bos,
        eos_token=FAMILIES[name].end,
        chat_template=FAMILIES[name].template,
    )
    turns = [{"role": "user", "content": "a      fox<tool>"}]
    chat = Chat(more)
    theirs = more.apply_chat_template(turns, return_dict=False)
    assert more.convert_tokens_to_ids("<tool>") in theirs
    assert list(chat.encode(chat.render([Message("user", "a      fox<tool>")], generate=False))) == theirs


def test_a_tokenizer_with_several_templates_is_safe_too() -> None:
    """Which added tokens are framing is read from the template that is used."""
    template = FAMILIES["qwen3"].template
    several = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer("qwen3").backend_tokenizer,
        eos_token="<|im_end|>",
        chat_template={"default": template, "tool_use": template},
    )
    ids = Chat(several).encode(Chat(several).render([Message("user", "</think>")]))
    assert several.convert_tokens_to_ids("</think>") not in ids


def test_a_slow_tokenizer_is_refused() -> None:
    with pytest.raises(UserError, match=r"no fast .* version"):
        Chat(ByT5Tokenizer())


def test_a_tokenizer_without_a_template_is_refused() -> None:
    bare = PreTrainedTokenizerFast(tokenizer_object=tokenizer("chatml").backend_tokenizer)
    with pytest.raises(UserError, match=r"no chat template.*model.chat_template"):
        Chat(bare)


def test_a_tokenizer_whose_plain_text_makes_special_tokens_is_refused() -> None:
    """Here one is a letter of the vocabulary, so that no setting could keep an environment from forging it."""
    backend = Tokenizer.from_str(tokenizer("chatml").backend_tokenizer.to_str())
    backend.add_special_tokens(["a"])
    with pytest.raises(UserError, match="forge"):
        Chat(PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=FAMILIES["chatml"].template))


@pytest.mark.parametrize("name", ["gemma3", "mistral"])
def test_roles_that_a_template_refuses_are_named(name: str) -> None:
    with pytest.raises(UserError, match=r"refused .* roles user, user: roles must alternate"):
        CHATS[name].render([Message("user", "a"), Message("user", "b")])
