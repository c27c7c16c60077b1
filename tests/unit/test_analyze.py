"""LOOP's five behaviors, counted by hand on made-up attempts; what must not count is here too."""

import warnings
import weakref
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from longloop.analysis.behaviors import calls, count
from longloop.analysis.failures import last_error
from longloop.analysis.rules import rules
from longloop.analysis.run import analyze
from longloop.envs.react import react
from longloop.stats import total
from longloop.store.trajectories import StoredTrajectory, StoredTurn, Trajectories
from longloop.types import Group, Message, StopReason, Task, Trajectory, Turn, UserError

SEARCH = "found = apis.mail.search(query='x', access_token=mail)"
SHOW = "print(apis.mail.show(message_id=3, access_token=mail))"
DONE = "apis.owner.complete_task()"
LOST = """Traceback (most recent call last):
  File "code", line 1, in <module>
LookupError: 404 There is no message 3."""
WORKED = "[{'id': 3, 'subject': 'News'}]"


def user(text: str) -> Message:
    return Message("user", text)


def an_attempt(*turns: tuple[str, str], stop: str = "finished", task: str = "t") -> Trajectory:
    """Turns are what the agent wrote and what came back; of the last nothing is stored, as before `unread`."""
    arrived = ["The task.", *(back for _, back in turns)]
    made = tuple(
        Turn((Message("user", before),), (1, 2), Message("assistant", wrote), (3,), (-0.5,))
        for before, (wrote, _) in zip(arrived, turns, strict=False)
    )
    return Trajectory(Task(task, "train"), 0, made, 1.0, True, StopReason(stop))


def counted(*turns: tuple[str, str], stop: str = "finished") -> Counter[str]:
    return count(StoredTrajectory.of(an_attempt(*turns, stop=stop), 0, 0), rules())


def wrote(*actions: str) -> Counter[str]:
    return counted(*((action, "(no output)") for action in actions))


def ran(*turns: tuple[str, str], stop: str = "finished") -> tuple[int, int]:
    """(failed, given up) of turns of code."""
    sums = counted(*((react("Go on.", code), back) for code, back in turns), stop=stop)
    return sums["failed"], sums["given_up"]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("print(apis.mail.show(message_id=1))", ["mail.show"]),
        ("t = apis.mail.login(**apis.owner.show_account(app='mail'))", ["mail.login", "owner.show_account"]),
        ("print(f'{apis.mail.show(message_id=1)}')", ["mail.show"]),
        ("apis . mail . show (\n message_id=1)", ["mail.show"]),
        ("# apis.mail.show(message_id=1)", []),
        ("print('apis.mail.show(message_id=1)')", []),
        ("f = apis.mail.show", []),
        ("apis.mail(1); mail.show(1); other.mail.show(1); apis.mail.inbox.show(1)", []),
        ("print(apis.mail.show(message_id=1", ["mail.show"]),
        ("I call apis.mail.show(message_id=1) now", ["mail.show"]),
        ("\0 apis.mail.show(1)", ["mail.show"]),
        ("2", []),
        ("", []),
    ],
)
def test_calls(code, found):
    assert sorted(calls(code)) == found


def test_calls_say_nothing_about_odd_code():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert calls(r'apis.mail.search(query="\d")  # apis.mail.show()') == ["mail.search"]


@pytest.mark.parametrize(
    ("action", "lookups"),
    [
        (react("Read.", 'print(apis.docs.show(api="mail.send"))\nprint(apis.docs.show(api="mail.show"))'), 2),
        (react("Read.", 'print(apis.api_docs.show_api_doc(app_name="mail", api_name="send"))'), 1),
        ('Thought: Read.\nprint(apis.docs.show(api="mail.send"))', 1),
        (react("Look.", 'print(apis.docs.list_apis(app="mail"))\nprint(apis.docs.list_apps())'), 0),
        (react('I could use apis.docs.show(api="mail.send").', DONE), 0),
        (react("No.", f'# apis.docs.show(api="mail.send")\n{DONE}'), 0),
        (react("One.", SHOW) + '\n```python\napis.docs.show(api="mail.send")\n```', 0),  # only the first cell runs
    ],
)
def test_lookups(action, lookups):
    assert wrote(action)["lookups"] == lookups


@pytest.mark.parametrize(
    ("action", "crowded"),
    [
        (react("One.", SEARCH) + "\n" + react("Two.", SHOW), True),
        ("```py\na\n```\n```Python\nb\n```\n``` python3\nc\n```", True),
        (react("One.", SEARCH) + "\nThen:\n```python\nprint(fou", True),  # cut at the token limit
        ("```python\nfound = apis.\n```python\nfound = []\n```", True),  # the first was never closed
        (react("One.", SEARCH), False),
        (react("One.", SEARCH) + "\nwill print\n```text\n[]\n```\nor\n```\n[]\n```", False),
        ("```pytb\nx\n```\n```python\ny\n```", False),
        ("```\na\n```\n```\nb\n```", False),
        ("python, python", False),
    ],
)
def test_crowded_turns(action, crowded):
    sums = wrote(action, react("Alone.", DONE))
    assert (sums["crowded"], sums["turns"]) == (int(crowded), 2)


def test_assumptions():
    thought = "I assume so. Assuming that, as I ASSUMED"
    assert wrote(react(thought, "x = 1  # assume"), react("I assume.", DONE))["assumptions"] == 5
    assert wrote(react("No assumption; he assumes, I presumed, unassuming.", DONE))["assumptions"] == 0
    assert counted((react("Read.", SHOW), "We assume you come."), (react("Done.", DONE), ""))["assumptions"] == 0


def test_placeholders():
    code = 'login(password="dummy_password", token=my_dummy_token)  # Dummy'
    assert wrote(react("Try a dummy.", code))["placeholders"] == 4
    assert wrote(react("A placeholder.", "x = 'TODO'"))["placeholders"] == 0
    assert counted((react("Read.", SHOW), "dummy"), (react("Done.", DONE), ""))["placeholders"] == 0


@pytest.mark.parametrize(
    ("turns", "failed", "given_up"),
    [
        ([(SEARCH, WORKED), (DONE, "")], 0, 0),
        ([(SHOW, LOST), (DONE, "")], 1, 1),
        ([(SHOW, LOST), (SHOW, WORKED), (DONE, "")], 1, 0),
        ([(SHOW, LOST), (SHOW, LOST), (SHOW, WORKED), (DONE, "")], 1, 0),
        ([(SHOW, LOST), (SHOW, WORKED), (SHOW, LOST), (DONE, "")], 2, 1),
        ([(SHOW, WORKED), (SHOW, LOST), (SEARCH, WORKED), (DONE, "")], 1, 1),
        ([(f"{SEARCH}\n{SHOW}\n{SHOW}", LOST), (SHOW, WORKED), (DONE, "")], 2, 1),
        ([("print(x)", LOST), (DONE, "")], 0, 0),
        ([(f"print(x)\n{DONE}", LOST), (DONE, "")], 1, 0),  # ending the episode shows that it worked
    ],
)
def test_giving_up(turns, failed, given_up):
    assert ran(*turns) == (failed, given_up)


def test_a_last_turn_that_nobody_saw_settles_nothing():
    assert ran((SHOW, LOST), (SHOW, "?"), stop="max_turns") == (1, 1)
    assert ran((SEARCH, WORKED), (SHOW, LOST), stop="context_full") == (0, 0)


def seen(attempt: StoredTrajectory) -> tuple[int, int, int, int, str]:
    """(turns with a known answer, those that failed, failed APIs, given up, last error)."""
    sums = count(attempt, rules())
    return sums["heard"], sums["failure"], sums["failed"], sums["given_up"], last_error(attempt, rules().failure)


@pytest.mark.parametrize("stop", ["finished", "max_turns", "context_full"])
def test_the_last_answer_counts_where_it_is_stored(stop):
    for back, found in ((LOST, (1, 1, 1, "LookupError: 404 There is no message #.")), (WORKED, (0, 0, 0, ""))):
        attempt = an_attempt((react("a", SEARCH), WORKED), (react("b", SHOW), ""), stop=stop)
        assert seen(StoredTrajectory.of(replace(attempt, unread=(user(back),)), 0, 0)) == (2, *found)


def conversation(*turns: StoredTurn, **fields: Any) -> tuple[int, int, int, int, str]:
    return seen(StoredTrajectory(0, Task("t", "train"), 0, turns=turns, **fields))


def test_what_a_conversation_says_again_came_back_once():
    """Written anew before each turn, it has the error of the first turn in it ever after."""
    said = Message("assistant", react("a", SHOW))
    whole = [user("The task."), said, user(LOST), said, user(WORKED), said, user("404 No such thing 5.")]
    turns = [StoredTurn(tuple(whole[:end]), said.content, rebuilt=end > 1) for end in (1, 3, 5)]
    assert conversation(*turns, stop="max_turns") == (2, 1, 1, 0, "LookupError: 404 There is no message #.")
    unread = tuple(whole)
    assert conversation(*turns, stop="max_turns", unread=unread) == (3, 2, 2, 1, "404 No such thing #.")


def test_what_begins_another_conversation_is_no_answer():
    first = StoredTurn((user("The task."),), react("a", SHOW), thread="one")
    second = StoredTurn((user("Explain this: " + LOST),), react("b", SEARCH), rebuilt=True, thread="two")
    assert conversation(first, second) == (0, 0, 0, 0, "")
    assert conversation(first, second, unread=(user(LOST),)) == (0, 0, 0, 0, ""), "of which of them is not known"


@pytest.mark.parametrize(
    ("back", "failed"),
    [
        (LOST, True),
        ("one line\n" + LOST, True),
        ("404 There is no message 3.", True),  # caught and printed
        ("422 mail.show has no parameter 'id'. Did you mean 'message_id'?", True),
        ("Error: 401 The access_token is missing or expired.", True),
        ("TimeoutError: the code ran for more than 1 s; the session was restarted and its variables are gone.", True),
        ("Execution failed. Traceback:\n ...", True),
        (
            "mail.show(message_id: int)\nOne mail in full.\nErrors: 401 The access_token is missing. 404 There is no",
            False,
        ),
        ("404 Castle Hill", False),
        ("450 grams of flour.", False),
        ("[{'id': 404, 'subject': 'Error: 404 There is none.'}]", False),
        ("{'message': 'No error.'}", False),
        ("(no output)", False),
        ("", False),
    ],
)
def test_what_a_failure_looks_like(back, failed):
    assert ran((SHOW, back), (DONE, "")) == (int(failed), int(failed))


@pytest.fixture
def run(tmp_path):
    (tmp_path / "run.json").write_text('{"format": 1}')
    return tmp_path


def store(run, kind: str, step: int, *trajectories: Trajectory) -> None:
    Trajectories(run / kind).write(step, [Group(t.task, (t,)) for t in trajectories])


def looking(times: int, task: str, stop: str = "finished") -> Trajectory:
    return an_attempt((react("Read.", "apis.docs.show(api='mail.send')\n" * times), ""), stop=stop, task=task)


def test_evaluations_are_compared_task_by_task(run):
    for step, times in ((0, 1), (10, 9), (20, 3)):
        store(run, "evaluations", step, looking(times, "a"), looking(2 * times, "b"), looking(3 * times, "c"))
        store(run, "trajectories", step + 1, looking(7, "x"))
    found = analyze(run)
    assert found.evaluated and (found.first.steps, found.last.steps) == ((0,), (20,))
    change = found.changes["lookups"]
    assert (change.first, change.last, change.difference) == (2, 6, 4)
    assert change.interval == (2, 6), "of 1, 2 and 3 looked up, all three may be drawn alike"
    assert found.coded and list(found.training) == [1, 11, 21] and found.training[11].tasks["x"]["lookups"] == 7


def test_without_two_evaluations_the_first_and_last_training_steps_are_compared(run):
    store(run, "evaluations", 0, looking(1, "a"))
    for step in range(1, 13):
        store(run, "trajectories", step, looking(step, "a"), looking(step, f"b{step}"))
    found = analyze(run)
    assert not found.evaluated
    assert (found.first.steps, found.last.steps) == ((1, 2, 3, 4, 5), (8, 9, 10, 11, 12))
    assert found.first.tally.tasks["a"]["attempts"] == 5 and len(found.first.tally.tasks) == 6
    assert found.changes["lookups"].difference == 10 - 3
    low, high = found.changes["lookups"].interval
    assert 4 < low < 7 < high < 10


def test_few_steps_never_overlap(run):
    store(run, "trajectories", 1, looking(1, "a"))
    only = analyze(run)
    assert only.last is None and only.changes["lookups"].first == 1 and only.changes["lookups"].difference is None
    store(run, "trajectories", 2, looking(2, "a"))
    store(run, "trajectories", 3, looking(4, "a"))
    three = analyze(run)
    assert (three.first.steps, three.last.steps) == ((1,), (3,)) and three.changes["lookups"].interval is None
    assert not (run / "evaluations").exists(), "reading creates nothing"


def test_attempts_that_were_not_scored_are_left_out(run):
    spoiled = [looking(50, "a", stop) for stop in ("cancelled", "env_error", "timeout")]
    store(run, "trajectories", 1, looking(1, "a"), *spoiled, looking(3, "a", "max_turns"))
    assert total(analyze(run).first.tally.tasks)["attempts"] == 2 and analyze(run).changes["lookups"].first == 2


def test_a_run_without_code(run):
    store(run, "trajectories", 1, an_attempt(("2", "too low"), ("3", "")))
    found = analyze(run)
    assert not found.coded and found.changes["given_up"].first is None
    assert [found.changes[name].first for name in ("lookups", "crowded", "assumptions", "placeholders")] == [0, 0, 0, 0]
    assert [rate.counted for rate in found.behaviors] == [
        *("assumptions", "placeholders", "failure", "repeated", "turns", "tokens"),
    ]


def test_a_run_that_was_cut_while_written(run):
    store(run, "trajectories", 1, looking(1, "a"), looking(3, "b"))
    store(run, "trajectories", 2, looking(2, "a"))
    path = run / "trajectories" / "000001.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    (run / "trajectories" / "000003.jsonl.partial").write_text('{"gro')
    (run / "trajectories" / "000004.jsonl").write_text("")
    (run / "trajectories" / "000002.safetensors").unlink()
    found = analyze(run)
    assert (found.first.steps, found.last.steps) == ((1,), (2,)) and found.changes["lookups"].first == 1


def test_one_attempt_is_held_at_a_time(run, monkeypatch):
    store(run, "trajectories", 1, *(looking(1, str(number)) for number in range(50)))
    alive: weakref.WeakSet[StoredTrajectory] = weakref.WeakSet()
    most = 0
    read = StoredTrajectory.from_json

    def watched(line):
        nonlocal most
        one = read(line)
        alive.add(one)
        most = max(most, len(alive))
        return one

    monkeypatch.setattr(StoredTrajectory, "from_json", watched)
    monkeypatch.setattr(StoredTrajectory, "__hash__", lambda self: id(self))
    assert total(analyze(run).first.tally.tasks)["attempts"] == 50
    assert 0 < most <= 3


def test_what_cannot_be_analyzed_says_what_to_do(run, tmp_path):
    with pytest.raises(UserError, match=r"not a run folder\. Name one"):
        analyze(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"no scored attempts yet\. Wait"):
        analyze(run)
    store(run, "evaluations", 0, looking(1, "a"))
    path = run / "evaluations" / "000000.jsonl"
    path.write_text('{"group"\n' + path.read_text())
    with pytest.raises(UserError, match=r"000000\.jsonl has a line that is not a trajectory, .*damaged.*move it away"):
        analyze(run)
    (run / "run.json").write_text('{"format": 99}')
    with pytest.raises(UserError, match="Upgrade"):
        analyze(run)
