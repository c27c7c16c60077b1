"""Mind2Web on a small file that we write in its format: two pages, two sequences, five steps."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from longloop.diagnose.trial import difference, scores
from longloop.envs.contract import NoTasks
from longloop.envs.mind2web.env import Mind2Web, answer_of, overlap
from longloop.envs.mind2web.markup import brief, parse, shown
from longloop.envs.play import Script, play
from longloop.types import Message, Task, UserError

SEARCH = """<html backend_node_id="1"><body backend_node_id="2">
  <div backend_node_id="3"><div backend_node_id="4"><a backend_node_id="5" title="Train times"></a></div>
  <form backend_node_id="6"><input backend_node_id="7" placeholder="From" type="text">
    <input backend_node_id="8" placeholder="To" type="text"/>
    <select backend_node_id="9" name="class">
      <option backend_node_id="10"><text backend_node_id="11">First</text></option>
      <option backend_node_id="12"><text backend_node_id="13">Second</text></option></select>
    <button backend_node_id="14"><text backend_node_id="15">Find a train</text></button></form>
  <ul backend_node_id="16"><li backend_node_id="17"><text backend_node_id="18">About us, über uns</text></li>
    <li backend_node_id="19"><text backend_node_id="20">Jobs</text></li></ul></div></body></html>"""
RESULTS = """<html backend_node_id="31"><body backend_node_id="32"><div backend_node_id="33">
  <button backend_node_id="34"><text backend_node_id="35">08:15</text></button>
  <button backend_node_id="36"><text backend_node_id="37">09:40</text></button>
  <button backend_node_id="38"><text backend_node_id="39">Later</text></button></div></body></html>"""


def element(number: str, target: bool = True) -> dict[str, Any]:
    attributes = json.dumps({"backend_node_id": number})
    kinds = {"is_original_target": target, "is_top_level_target": target}
    return {"tag": "div", "attributes": attributes, "backend_node_id": number, **kinds}


def action(page: str, target: str, operation: str, value: str = "", others: str = "5 7 8 9 14 17 19") -> dict[str, Any]:
    return {
        "action_uid": f"{target}-{operation}",
        "raw_html": page,
        "cleaned_html": page,
        "operation": {"op": operation, "original_op": operation, "value": value},
        "pos_candidates": [element(target)] if target else [],
        "neg_candidates": [element(number, False) for number in others.split() if number != target],
    }


RECORDS = [
    {
        "annotation_id": "train-to-bern",
        "website": "trains",
        "domain": "Travel",
        "subdomain": "Ground",
        "confirmed_task": "Find a train to Zürich in first class",
        "action_reprs": ["[textbox] To -> TYPE: Zürich", "[combobox] class -> SELECT: First", "[button] Find -> CLICK"],
        "actions": [
            action(SEARCH, "8", "TYPE", "Zürich"),
            action(SEARCH, "9", "SELECT", "First"),
            action(SEARCH, "14", "CLICK"),
        ],
    },
    {
        "annotation_id": "early",
        "website": "trains",
        "domain": "Travel",
        "subdomain": "Ground",
        "confirmed_task": "Take the first train of the day",
        "action_reprs": ["[span] a banner -> CLICK", "[button] 08:15 -> CLICK"],
        "actions": [
            action(RESULTS, "", "CLICK", others="34 36 38"),
            action(RESULTS, "34", "CLICK", others="36 38"),
        ],
    },
]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "train").mkdir()
    (tmp_path / "train/train_0.json").write_text(json.dumps(RECORDS[:1], ensure_ascii=False, indent=1))
    (tmp_path / "train/train_1.json").write_text(json.dumps(RECORDS[1:]))
    return str(tmp_path)


def questions(folder: str, task: Task, choices: int = 5) -> list[str]:
    messages = asyncio.run(play(Mind2Web(Mind2Web.Options(folder, choices)), task, Script(["Answer: A."] * 9))).messages
    return [message.content for message in messages if message.role == "user"]


def letter(question: str, what: str) -> str:
    return next(line[0] for line in question.splitlines() if line[1:2] == "." and what in line)


def test_a_task_is_a_sequence(folder: str):
    tasks = Mind2Web.tasks("train", Mind2Web.Options(folder))
    assert [(task.id, task.data["steps"], task.data["file"]) for task in tasks] == [
        ("train-to-bern", 3, "train/train_0.json"),
        ("early", 2, "train/train_1.json"),
    ]
    assert Mind2Web.tasks("dev", Mind2Web.Options(folder)) == []


def test_the_question(folder: str):
    task = Mind2Web.tasks("train", Mind2Web.Options(folder))[0]
    first, second, third = questions(folder, task, choices=3)
    assert "Task: Find a train to Zürich in first class\nDone so far: none\n" in first
    assert "Done so far: [textbox] To -> TYPE: Zürich\n" in second  # the annotator's action, not ours
    choices = [line for line in first.splitlines() if line[1:2] == "."]
    assert choices[0] == "A. None of the above" and len(choices) == 4
    assert any("<input id=" in line and "To" in line for line in choices)
    assert first == questions(folder, task, choices=3)[0]
    assert "Find a train" in third


def test_as_much_of_the_page_as_the_choice_needs():
    page = parse(SEARCH)
    there = {e.number: e for e in page.walk()}
    options = "<option> First </option> <option> Second </option>"
    assert brief(there["9"], 1, 100) == f"<select id=1 class> {options} </select>"
    assert brief(there["9"], 1, 24) == f"<select id=1 class> {options}"[:24]
    text = shown(page, [there["8"], there["19"]])
    assert "<input id=0 text To />" in text and "<li id=1> Jobs </li>" in text
    assert "From" in text and "About us" in text  # beside them
    assert "Train times" not in text and "backend_node_id" not in text
    assert shown(parse("<p>cut <b>of"), []) == ""
    deep = parse("<div>" * 5000 + "<b backend_node_id='1'>x</b>")
    assert shown(deep, [e for e in deep.walk() if e.number]) == "<b id=0> x </b>"


def test_the_expert_is_right_and_others_are_not(folder: str):
    tasks = Mind2Web.tasks("train", Mind2Web.Options(folder))
    found = asyncio.run(scores(lambda: Mind2Web(Mind2Web.Options(folder)), tasks))
    assert found["expert"].rewards == [1.0, 1.0] and len(found["expert"].successes) == 2
    assert found["nothing"].rewards == [0.0, 0.0]
    assert found["none of the above"].rewards == [0.0, 0.5]  # the second one's first page lacks the element
    assert not found["random clicks"].successes
    assert not any(asyncio.run(difference(lambda: Mind2Web(Mind2Web.Options(folder)), task)) for task in tasks)


def test_each_step_is_scored(folder: str):
    """Right element and typed text, right element and wrong option, wrong element: 2 of 3, and one whole step."""
    task = Mind2Web.tasks("train", Mind2Web.Options(folder))[0]
    first, second, _ = questions(folder, task)
    said = [
        f"Answer: {letter(first, 'To')}. Action: TYPE, Value: Zürich",
        f"Answer: {letter(second, 'class')}. Action: SELECT, Value: Second",
        "Answer: A.",
    ]
    outcome = asyncio.run(play(Mind2Web(Mind2Web.Options(folder)), task, Script(said))).outcome
    assert outcome.reward == outcome.info["element_accuracy"] == 2 / 3 and not outcome.success
    assert outcome.info["operation_f1"] == pytest.approx((1 + 0.5 + 0) / 3)  # SELECT is one of two words
    assert outcome.info["step_success"] == 1 / 3
    assert asyncio.run(play(Mind2Web(Mind2Web.Options(folder)), task, Script(said[:1]))).outcome.reward == 1 / 3


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Answer: C. Action: SELECT, Value: Pickup", ("C", "SELECT Pickup")),
        ("Thought: I answer a question with B.\nAnswer: D. Action: CLICK", ("D", "CLICK")),
        ("**Answer:** E\r\n**Action:** type\r\n**Value:** New York", ("E", "TYPE New York")),
        ("answer: b.", ("B", "")),
        ("Answer: None of the above", ("A", "")),
        ("C. CLICK", ("C", "CLICK")),
        ("(D) click it", ("D", "CLICK")),
        ("B", ("B", "")),
        ("Answer: B. Action: CLICK, Value: None", ("B", "CLICK")),
        ("Answer: C. Action: TYPE, Value: 'A. Smith'", ("C", "TYPE A. Smith")),
        ("I would look around first.", ("", "")),
        ("", ("", "")),
    ],
)
def test_answers_are_read_tolerantly(text: str, read: tuple[str, str]):
    assert answer_of(text) == read


def test_no_answer_is_told_and_costs_no_step(folder: str):
    task = Mind2Web.tasks("train", Mind2Web.Options(folder))[1]
    env = Mind2Web(Mind2Web.Options(folder))
    env.start(task)
    for text in ("", "hm", "Answer: Z.", "Answer: 7"):
        step = env.step(Message("assistant", text))
        assert not step.done and "letter, A to D" in step.messages[0].content
    other = env.fork()
    assert not env.step(Message("assistant", "Answer: A.")).done
    assert env.step(Message("assistant", "Answer: B. Action: CLICK")).done
    assert env.finish().success and other.finish().reward == 0.0


def test_f1_of_operations():
    assert overlap("TYPE New York", "TYPE New York") == 1.0
    assert overlap("TYPE York", "TYPE New York") == pytest.approx(2 * 2 / 5)
    assert overlap("", "CLICK") == 0.0


def test_bad_data_is_said_clearly(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("LONGLOOP_DATA", raising=False)
    with pytest.raises(UserError, match="huggingface"):
        Mind2Web.tasks("train", Mind2Web.Options())
    with pytest.raises(NoTasks, match="no test_task_0"):  # other splits can be checked all the same
        Mind2Web.tasks("test_task", Mind2Web.Options(folder))
    for broken in ("[{", '[{"annotation_id": "x"}]', "[3]"):
        (tmp_path / "test_website_0.json").write_text(broken)
        with pytest.raises(UserError, match="is not Mind2Web's JSON"):
            Mind2Web.tasks("test_website", Mind2Web.Options(folder))
    with pytest.raises(UserError, match="2 to 25"):
        Mind2Web(Mind2Web.Options(folder, choices=1))
