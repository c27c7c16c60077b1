"""What the viewer shows of an attempt of an agent: conversations, calls of tools, what its program printed."""

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from longloop.store.run import Run
from longloop.store.trajectories import Trajectories
from longloop.types import Call, Group, Message, StopReason, Task, Trajectory, Turn
from longloop.viewer import terminal
from longloop.viewer.library import Library
from longloop.viewer.pages import Pages
from tests.support.helpers import load_config

CALL = Call("c1", "weather", '{"city": "<b>Rome</b>"}', "CALL-MARKUP")


def turn(said: Message, *heard: Message, **more: object) -> Turn:
    ids = np.arange(2)
    return Turn(heard, ids, said, ids, np.zeros(2), **more)  # type: ignore[arg-type]


ATTEMPT = Trajectory(
    Task("t", "train"),
    0,
    (
        turn(Message("assistant", "Let me see. CALL-MARKUP", (CALL,)), Message("user", "How is Rome?")),
        turn(Message("assistant", "It is sunny."), Message("tool", "sun", call="c1")),
        turn(
            Message("assistant", "A title"),
            Message("user", "Sum it up."),
            Message("assistant", "", (Call("c2", "search", "not json"),)),
            restarts_context=True,
            rebuilt=True,
            thread="abc",
        ),
        turn(Message("assistant", "Another"), Message("user", "Shorter."), thread="abc"),
    ),
    1.0,
    True,
    StopReason.FINISHED,
    info={"output": "Traceback <i>not HTML</i>\x1b[31m", "cut": True},
)
ALONE = Trajectory(Task("t", "train"), 1, ATTEMPT.turns[:2], 0.0, False, StopReason.FINISHED)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with Run.create(load_config(tmp_path, f"folder={tmp_path}"), {}) as made:
        made.trajectories.write(1, [Group(ATTEMPT.task, (ATTEMPT, ALONE))])
        made.metrics.write({"step": 1})
    return made.folder


def test_it_is_stored_and_read_back(run: Path) -> None:
    (group,) = Trajectories(run / "trajectories").read(1)
    assert [one.thread for one in group.trajectories[0].turns] == ["", "", "abc", "abc"]
    assert group.trajectories[0].info == ATTEMPT.info
    assert '"thread"' not in (run / "trajectories" / "000001.jsonl").read_text().splitlines()[1], "left out where empty"


def test_the_page_of_an_attempt(run: Path) -> None:
    page = Pages(Library([run])).html("/run/test/step/1/0/0")
    assert page.index("Conversation 1 of 2") < page.index("How is Rome?") < page.index("Conversation 2 of 2")
    assert page.index("Conversation 2 of 2") < page.index("Sum it up.")
    assert page.count("2 turns") >= 2 and "history rewritten" not in page
    assert "calls weather" in page and "answers weather" in page and "calls search" in page and "not json" in page
    assert "CALL-MARKUP" not in page and "Let me see." in page, "a call is shown once, as a call"
    assert "<b>Rome</b>" not in page and "Rome" in page
    printed = page.split("program printed")[1]
    assert "Traceback &lt;i&gt;not HTML&lt;/i&gt;" in printed
    notes = page.split("What else the judge noted")[1].split("</details>")[0]
    assert "cut" in notes and "Traceback" not in notes
    alone = Pages(Library([run])).html("/run/test/step/1/0/1")
    assert "Conversation 1" not in alone and "program printed" not in alone and "calls weather" in alone


def test_the_page_of_a_group(run: Path) -> None:
    page = Pages(Library([run])).html("/run/test/step/1/0")
    assert "calls weather" in page and "CALL-MARKUP" not in page and "Let me see." in page


def test_the_same_in_a_terminal(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    terminal.show(run, "1/0/0", Console(highlight=False, markup=False, width=100))
    said = capsys.readouterr().out
    parts = ["conversation 1 of 2", "Let me see.", 'calls weather {"city"', "turn 2", "conversation 2 of 2", "turn 3"]
    parts += ["turn 4", "program printed", "Traceback"]
    places = [said.index(part) for part in parts]
    assert places == sorted(places) and "\x1b[31m" not in said and "CALL-MARKUP" not in said
