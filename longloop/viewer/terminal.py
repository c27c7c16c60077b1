"""One attempt in a terminal. What models and environments said is printed as text, never as control sequences."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from longloop.types import UserError
from longloop.viewer.attempts import Entry
from longloop.viewer.run_reader import KINDS, Record
from longloop.viewer.text import visible


def show(folder: Path, place: str, console: Console) -> None:
    """Print the attempt at a place: STEP/GROUP/ATTEMPT, with `eval/` before it for one of an evaluation."""
    if not (folder / "run.json").is_file():
        raise UserError(f"{folder} is not a run folder. Name one that `longloop train` wrote, such as runs/quickstart.")
    record = Record(folder.name, folder)
    kind, entry = _find(record, place)
    line = record.attempts[kind].read(entry)
    if line is None:
        raise UserError(f"{place} is in the index of {folder}, but its line was cut off or is gone.")
    verdict, colour = ("success", "green") if entry.success else ("failure", "red")
    if not entry.scored:
        verdict, colour = "no score", "yellow"
    console.print(Text.assemble((visible(entry.task), "bold"), "  ", (verdict, colour)), soft_wrap=True)
    said = f"reward {entry.reward:g}, stopped: {visible(entry.stop)}, {entry.turns} turns, {entry.action_tokens} tokens"
    console.print(Text(said, "dim"))
    if line.get("error"):
        console.print(Text(visible(line["error"]), "red"))
    for number, turn in enumerate(line.get("turns") or [], 1):
        _turn(number, turn, console)
    unread = record.unread(line)
    for message in line["unread"] if unread else ():
        _message(message, console, unread)
    tests = (line.get("info") or {}).get("tests")
    for test in tests if isinstance(tests, list) else ():
        if not isinstance(test, dict):
            continue
        passed = bool(test.get("passed"))
        mark = ("pass  ", "green") if passed else ("FAIL  ", "bold red")
        console.print(Text.assemble(mark, visible(str(test.get("name")))), soft_wrap=True)


def _turn(number: int, turn: dict[str, Any], console: Console) -> None:
    for message in turn.get("context") or ():
        _message(message, console)
    notes = [f"turn {number}", *(f"{name} {spent:.2f} s" for name, spent in (turn.get("seconds") or {}).items())]
    notes += ["cut at the token limit"] * (turn.get("finish") == "length")
    notes += [f"paid {turn['reward']:g}"] if turn.get("reward") else []
    console.print()
    console.print(Text(", ".join(notes), "bold cyan"))
    console.print(Padding(Text(visible(turn.get("action") or "")), (0, 0, 0, 2)))


def _message(message: dict[str, Any], console: Console, note: str = "") -> None:
    console.print()
    said = [(visible(str(message.get("role"))), "dim bold"), *([(f"  {note}", "yellow")] if note else [])]
    console.print(Text.assemble(*said), soft_wrap=True)
    console.print(Padding(Text(visible(message.get("content") or ""), "dim"), (0, 0, 0, 2)))


def _find(record: Record, place: str) -> tuple[str, Entry]:
    kind, *numbers = place.split("/") if place.split("/")[0] in KINDS else ["step", *place.split("/")]
    attempts = record.attempts[kind]
    if len(numbers) != 3 or not all(part.isascii() and part.isdigit() for part in numbers):
        raise UserError(f"{place!r} is not a place: write STEP/GROUP/ATTEMPT such as 12/0/3, or eval/20/0/0.")
    step, group, attempt = map(int, numbers)
    entry = attempts.find(step, group, attempt)
    if entry is None:
        steps = attempts.steps()
        known = f"it has steps {steps[0]} to {steps[-1]}" if steps else "it has no attempts yet"
        if step in steps:
            found = attempts.entries(step)
            known = f"step {step} has groups up to {max(e.group for e in found)}" if found else "its lines were cut off"
        raise UserError(f"{record.folder} has no attempt {place}: {known}.")
    return kind, entry
