"""One attempt in a terminal. Text of models and environments is printed without its control sequences."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from longloop.printable import visible
from longloop.store.run_reader import FOLDERS, RunReader, load_run
from longloop.store.trajectories import IndexEntry, StoredTurn
from longloop.types import Message, UserError
from longloop.viewer.text import unread_note


def show(folder: Path, attempt_id: str, console: Console) -> None:
    """Print an attempt. Its id is STEP/GROUP/ATTEMPT, with `eval/` before it for one of an evaluation."""
    run = load_run(folder)
    kind, entry = _find(run, attempt_id)
    trajectory = run.stored[kind].get(entry)
    if trajectory is None:
        raise UserError(f"{attempt_id} is in the index of {folder}, but its line was cut off or is gone.")
    verdict, color = ("success", "green") if entry.success else ("failure", "red")
    if not entry.scored:
        verdict, color = "side rollout" if entry.side else "no score", "yellow"
    console.print(Text.assemble((visible(entry.task), "bold"), "  ", (verdict, color)), soft_wrap=True)
    said = f"reward {entry.reward:g}, stopped: {visible(entry.stop)}, {entry.turns} turns, {entry.action_tokens} tokens"
    console.print(Text(said, "dim"))
    if trajectory.error:
        console.print(Text(visible(trajectory.error), "red"))
    talks, numbers = trajectory.conversations, count(1)
    for which, talk in enumerate(talks, 1):
        if len(talks) > 1:
            console.print()
            console.print(Text(f"conversation {which} of {len(talks)}", "bold magenta"))
        for turn in talk:
            _turn(next(numbers), turn, console)
    note = unread_note(run, trajectory)
    for message in trajectory.unread:
        _message(message, console, note)
    if trajectory.printed:
        console.print()
        console.print(Text("the agent's program printed", "bold cyan"))
        console.print(Padding(Text(visible(trajectory.printed.rstrip())), (0, 0, 0, 2)))
    for test in trajectory.tests:
        passed = bool(test.get("passed"))
        mark = ("pass  ", "green") if passed else ("FAIL  ", "bold red")
        console.print(Text.assemble(mark, visible(str(test.get("name")))), soft_wrap=True)


def _turn(number: int, turn: StoredTurn, console: Console) -> None:
    for message in turn.context:
        _message(message, console)
    notes = [f"turn {number}", *(f"{name} {spent:.2f} s" for name, spent in turn.seconds.items())]
    notes += ["cut at the token limit"] * (turn.finish == "length")
    notes += [f"paid {turn.reward:g}"] if turn.reward else []
    console.print()
    console.print(Text(", ".join(notes), "bold cyan"))
    _said(turn.said, console, "")


def _said(message: Message, console: Console, style: str) -> None:
    """A message's words, and its calls of tools."""
    if message.words or not message.calls:
        console.print(Padding(Text(visible(message.words), style), (0, 0, 0, 2)))
    for call in message.calls:
        text = Text.assemble(("calls ", "cyan"), f"{visible(call.name)} {visible(call.arguments)}", style=style)
        console.print(Padding(text, (0, 0, 0, 2)))


def _message(message: Message, console: Console, note: str = "") -> None:
    console.print()
    said = [(visible(message.role), "dim bold"), *([(f"  {note}", "yellow")] if note else [])]
    console.print(Text.assemble(*said), soft_wrap=True)
    _said(message, console, "dim")


def _find(run: RunReader, attempt_id: str) -> tuple[str, IndexEntry]:
    kind, *numbers = attempt_id.split("/") if attempt_id.split("/")[0] in FOLDERS else ["step", *attempt_id.split("/")]
    if len(numbers) != 3 or not all(part.isascii() and part.isdigit() for part in numbers):
        wrong = f"{attempt_id!r} is not an attempt" if attempt_id else "Name an attempt"
        raise UserError(
            f"{wrong}: write STEP/GROUP/ATTEMPT such as 12/0/3, or eval/20/0/0. {run.folder} has {_contents(run)}."
        )
    step, group, attempt = map(int, numbers)
    stored = run.stored[kind]
    entry = stored.find(step, group, attempt)
    if entry is not None:
        return kind, entry
    where = f"the evaluation of step {step}" if kind == "eval" else f"step {step}"
    if found := stored.entries(step):
        attempts = _listed("attempt", [one.attempt for one in found if one.group == group])
        groups = _listed("group", [one.group for one in found])
        known = f"group {group} of {where} has {attempts}" if attempts else f"{where} has {groups}"
    else:
        known = f"the lines of {where} were cut off" if step in stored.steps() else f"it has {_contents(run)}"
    raise UserError(f"{run.folder} has no attempt {attempt_id}: {known}.")


def _contents(run: RunReader) -> str:
    """The steps of a run that have attempts: `steps 1 to 20 and evaluations of steps 0, 10, 20`."""
    trained, evaluated = (_listed("step", run.stored[kind].steps()) for kind in ("step", "eval"))
    evaluations = f"evaluations of {evaluated}" if evaluated else "no evaluations"
    return f"{trained or 'no steps'} and {evaluations}"


def _listed(noun: str, numbers: Sequence[int]) -> str:
    """`steps 1 to 3`, or `steps 0, 10, 20` where there are gaps; empty without any."""
    known = sorted(set(numbers))
    if len(known) < 2:
        return f"{noun} {known[0]}" if known else ""
    together = known[-1] - known[0] < len(known)
    return f"{noun}s {known[0]} to {known[-1]}" if together else f"{noun}s {', '.join(map(str, known))}"
