"""A turn's thought and action, as models write them and as they should not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longloop.envs.react import act, action_of, call_of


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("Thought: I need a lamp.\nAction: go to desk 1", "go to desk 1"),
        ("go to desk 1", "go to desk 1"),
        ("Action: go to desk 1", "go to desk 1"),
        ("Thought: I need a lamp.\ngo to desk 1", "go to desk 1"),
        ("I need a lamp.\n\nAction: go to desk 1", "go to desk 1"),
        ("Thought: I need a lamp. Action: go to desk 1", "go to desk 1"),
        ("Thought: my next action: go away\nAction: go to desk 1", "go to desk 1"),
        ("THOUGHT: hm\r\nACTION: go to desk 1\r\n", "go to desk 1"),
        ("thought : hm\raction : go to desk 1", "go to desk 1"),
        ("**Thought:** hm\n**Action:** go to desk 1", "go to desk 1"),
        ("### Action\n: go to desk 1", "### Action"),
        ("Thought 2: hm\nAction 2: go to desk 1\nObservation 2: a desk", "go to desk 1"),
        ("Action: `go to desk 1`", "go to desk 1"),
        ('Action: "go to desk 1"', "go to desk 1"),
        ("Action: **'go to desk 1'**", "go to desk 1"),
        ("Action:\n```text\ngo to desk 1\n```", "go to desk 1"),
        ("Action: ```go to desk 1```", "go to desk 1"),
        ("```\nAction: go to desk 1\n```", "go to desk 1"),
        ("> go to desk 1", "go to desk 1"),
        ("- Action: go to desk 1", "go to desk 1"),
        ("Action:\n\n\ngo to desk 1", "go to desk 1"),
        ("Action: go to desk 1\nAction: take lamp 1", "go to desk 1"),
        ("Action: go to desk 1 Action: take lamp 1", "go to desk 1"),
        ("Action: go to desk 1\ntake lamp 1", "go to desk 1"),
        ("Action: Action: go to desk 1", "go to desk 1"),
        ("Action: go to desk 1\nObservation: You see a lamp.\nThought: now\nAction: take it", "go to desk 1"),
        ('Action: say "hello"', 'say "hello"'),
        ("Thought: there is nothing to do", ""),
        ("Observation: a desk", ""),
        ("Action:", ""),
        ("Thought:\nAction:\n", ""),
        ("```\n```", ""),
        ("", ""),
        ("\r\n \t ", ""),
    ],
)
def test_the_action_is_found(text, action):
    assert action_of(text) == action


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("Thought: look.\nAction: search[red mug]", ("search", "red mug")),
        ("Action: Search [ red mug ]", ("search", "red mug")),
        ("Action: search[red mug", ("search", "red mug")),
        ("Action: I will now search[red mug] to find it.", ("search", "red mug")),
        ("Action: search[red mug] click[buy now]", ("search", "red mug")),
        ("Action: click[size [us 9]]", ("click", "size [us 9]")),
        ('Action: Finish["Rush"]', ("finish", "Rush")),
        ("Action: `click[< prev]`", ("click", "< prev")),
        ("Action: search[]", ("search", "")),
        ("Action: buy the mug", ("", "")),
        ("Thought: I could search[red mug]", ("", "")),
        ("", ("", "")),
    ],
)
def test_a_call_is_taken_apart(text, call):
    assert call_of(text) == call


@given(st.text())
def test_any_text_is_read(text):
    """Nothing raises, and an action is one line with nothing around it."""
    action = action_of(text)
    assert action == action.strip() and len(action.splitlines()) <= 1
    name, argument = call_of(text)
    assert name == name.lower() and (name or not argument)


@given(st.text(), st.from_regex(r"[a-z]{1,8}( [a-z0-9]{1,8}){0,4}", fullmatch=True))
def test_what_is_written_is_read(thought, action):
    """Whatever the thought is, short of one that itself contains an action."""
    if "action" not in thought.lower():
        assert action_of(act(thought, action)) == action


JUNK = st.lists(st.sampled_from(["Thought:", "Observation:", "```", "**", "\r\n", "\n", " ", "`", '"', "go"])).map(
    "".join
)


@given(JUNK, st.sampled_from(["", "`", "**", '"', "```", "\n```text\n"]), JUNK)
def test_rubbish_around_an_action_does_no_harm(before, mark, after):
    text = f"{before}\nAction: {mark}search[x]{mark[::-1]}\n{after}"
    assert call_of(text) == ("search", "x")
