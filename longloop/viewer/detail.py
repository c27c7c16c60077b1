"""What the pages about attempts show: a step, a group, an attempt, two attempts compared, a search."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from statistics import fmean
from typing import Any

from longloop.store.run_reader import FOLDERS, RunReader, mixed_versions
from longloop.store.trajectories import IndexEntry, StoredTrajectory, StoredTurn
from longloop.types import Call, StopReason, Task
from longloop.viewer import curves, tokens
from longloop.viewer.diff import CHARACTERS, LINES, Comparison
from longloop.viewer.page import NotThere, Page, address, is_number
from longloop.viewer.search import search
from longloop.viewer.text import unread_note

_HITS = 100
_OTHERS = 200
"""With more attempts at a task, one of each group is offered for comparison."""
_SORTS = ("group", "spread", "advantage", "reward", "turns", "stop", "task")


@dataclass(frozen=True)
class GroupRow:
    """A group in a line."""

    number: int
    entries: Sequence[IndexEntry]
    advantages: Mapping[tuple[int, int], float]
    task_text: str
    """Its beginning."""

    @property
    def task(self) -> str:
        return self.entries[0].task

    @property
    def rewards(self) -> list[float]:
        return [entry.reward for entry in self.entries if entry.scored]

    @property
    def reward(self) -> float | None:
        return fmean(self.rewards) if self.rewards else None

    @property
    def reward_range(self) -> float:
        """The highest reward minus the lowest."""
        return max(self.rewards) - min(self.rewards) if self.rewards else 0.0

    @property
    def advantage(self) -> float:
        """The largest of any attempt, whatever its sign."""
        return max((abs(self.advantages.get(entry.key, 0.0)) for entry in self.entries), default=0.0)

    @property
    def turns(self) -> float:
        return fmean(entry.turns for entry in self.entries)

    @property
    def stops(self) -> list[tuple[str, int]]:
        return Counter(entry.stop for entry in self.entries if not entry.side).most_common()

    def key(self, sort: str) -> Any:
        """Sort key; what is unusual comes first."""
        lost = sum(entry.stop != StopReason.FINISHED for entry in self.entries if not entry.side)
        return {
            "group": self.number,
            "spread": (-self.reward_range, self.number),
            "advantage": (-self.advantage, self.number),
            "reward": (1e9 if self.reward is None else self.reward, self.number),
            "turns": (-self.turns, self.number),
            "stop": (-lost, self.number),
            "task": (self.task, self.number),
        }[sort]


def step(run: RunReader, kind: str, number: int, sort: str = "") -> Page:
    stored = run.stored[kind]
    entries = stored.entries(number)
    if not entries:
        raise NotThere(f"{run.name} has no {_title(kind, number)}.")
    advantages = stored.advantages(number)
    sort = sort if sort in _SORTS else "group"
    by_group: dict[int, list[IndexEntry]] = {}
    for entry in entries:
        by_group.setdefault(entry.group, []).append(entry)
    rows = [GroupRow(index, found, advantages, stored.task_text(found[0])) for index, found in by_group.items()]
    rows.sort(key=lambda row: row.key(sort))
    tried = [entry for entry in entries if not entry.side]
    line = next((line for line in run.metrics if line["step"] == number), {})
    success, reward = _means(run, kind, number, line, [entry for entry in tried if entry.scored])
    values = {
        "kind": kind,
        "number": number,
        "rows": rows,
        "sort": sort,
        "sorts": _SORTS if any(advantages.values()) else [name for name in _SORTS if name != "advantage"],
        "attempts": len(tried),
        "unscored": sum(not entry.scored for entry in tried),
        "sides": len(entries) - len(tried),
        "success": success,
        "reward": reward,
        "metrics": line,
        "heading": _title(kind, number),
    }
    links = _around(stored.steps(), number, lambda other: address("run", run.name, kind, other))
    up = {"up": address("run", run.name)}
    return Page("step.html", _title(kind, number), values, run, (run,), links=links | up)


def _means(
    run: RunReader, kind: str, number: int, line: Mapping[str, Any], scored: Sequence[IndexEntry]
) -> tuple[float | None, float | None]:
    """Success and reward as the page of the run has them, which are the policy's own and over tasks; of a step that was
    not measured those of its scored attempts."""
    if kind == "step" and "success" in line:
        return curves.scored("success")(line), curves.scored("reward")(line)
    if kind == "eval" and (found := run.evaluations.get(number)):
        return found.success, found.reward
    return (fmean(e.success for e in scored), fmean(e.reward for e in scored)) if scored else (None, None)


def group(run: RunReader, kind: str, number: int, index: int) -> Page:
    stored = run.stored[kind]
    everyone = stored.entries(number)
    entries = [entry for entry in everyone if entry.group == index]
    if not entries:
        raise NotThere(f"{_title(kind, number)} of {run.name} has no group {index}.")
    advantages = stored.advantages(number)
    alike: dict[str, list[IndexEntry]] = {}
    columns = []
    task_text = ""
    for entry in entries:
        trajectory = stored.get(entry) or _gone(entry)
        task_text = task_text or trajectory.task_text
        same = alike.setdefault(_course(entry, trajectory), [])
        same.append(entry)
        if len(same) == 1:
            columns.append(
                {
                    "entries": same,
                    "entry": entry,
                    "advantage": advantages.get(entry.key),
                    "expert": trajectory.expert,
                    "turns": trajectory.turns,
                    "tests": trajectory.tests,
                }
            )
    values = {
        "kind": kind,
        "number": number,
        "group": index,
        "task": entries[0].task,
        "task_text": task_text,
        "columns": columns,
        "count": len(entries),
        "heading": _title(kind, number),
    }
    indices = sorted({entry.group for entry in everyone})
    links = _around(indices, index, lambda other: address("run", run.name, kind, number, other))
    links["up"] = address("run", run.name, kind, number)
    return Page("group.html", f"Group {index}", values, run, links=links)


def attempt(run: RunReader, kind: str, number: int, index: int, which: int, by: str = "") -> Page:
    """Attempt `which` of group `index`; `by` is one of tokens.COLORINGS, or nothing."""
    stored = run.stored[kind]
    entries = stored.entries(number)
    entry = next((entry for entry in entries if entry.key == (index, which)), None)
    trajectory = stored.get(entry) if entry else None
    if entry is None or trajectory is None:
        raise NotThere(f"{run.name} has no attempt {kind}/{number}/{index}/{which}, or it was cut off.")
    by = by if by in tokens.COLORINGS else ""
    colored = tokens.colored(run, stored, number, trajectory, by) if by else None
    seconds: Counter[str] = Counter()
    for turn in trajectory.turns:
        seconds.update(turn.seconds)
    talks = trajectory.conversations
    values = {
        "kind": kind,
        "number": number,
        "entry": entry,
        "heading": _title(kind, number),
        "trajectory": trajectory,
        "turns": list(zip_longest(trajectory.turns, colored or [])),
        "begins": _begins(talks) if len(talks) > 1 else {},
        "called": {call.id: call.name for talk in talks for call in _calls(talk)},
        "advantage": stored.advantages(number).get(entry.key),
        "seconds": dict(seconds),
        "tests": trajectory.tests,
        "notes": _notes(trajectory),
        "unread": unread_note(run, trajectory),
        "data": _json(trajectory.task.data),
        "why": _why(entry.stop),
        "siblings": [other for other in entries if other.group == index],
        "colorings": _colorings(run, kind, number),
        "by": by,
        "missing": bool(by) and colored is None,
        "here": f"{kind}/{number}/{index}/{which}",
    }
    order = [other.key for other in entries]
    links = _around(order, entry.key, lambda other: address("run", run.name, kind, number, *other, tokens=by))
    links["up"] = address("run", run.name, kind, number, index)
    return Page("attempt.html", f"Attempt {index}/{which}", values, run, links=links)


def compare(runs: Mapping[str, RunReader], left: str, right: str, other: str) -> Page:
    """`left` and `right` are a run's name and an attempt's address with a colon between them."""
    run, kind, entry = _parse(runs, left)
    among = runs.get(other, run)
    ours = run.stored[kind].get(entry) or _gone(entry)
    values: dict[str, Any] = {
        "left": (run, kind, entry, ours),
        "left_name": left,
        "right": None,
        "mixed": "",
        "among": among,
        "names": list(runs),
        "most": (CHARACTERS, LINES),
        "found": _others(among, entry.task, None if among is not run else (kind, entry)),
    }
    if right:
        its_run, its_kind, its_entry = _parse(runs, right)
        theirs = its_run.stored[its_kind].get(its_entry) or _gone(its_entry)
        values["right"] = its_run, its_kind, its_entry, theirs
        values["mixed"] = mixed_versions([run, its_run])
        comparison = Comparison()
        both = zip_longest((t.action for t in ours.turns), (t.action for t in theirs.turns), fillvalue="")
        values["turns"] = [(one == another, comparison.rows(one, another)) for one, another in both]
        values["comparison"] = comparison
    return Page("compare.html", "Compare", values, run)


def find(run: RunReader, query: Mapping[str, str]) -> Page:
    text, task, stop, success = (query.get(name, "").strip() for name in ("text", "task", "stop", "success"))
    kind = query.get("kind", "")
    kind = kind if kind in FOLDERS else "step" if run.stored["step"].steps() else "eval"

    def wanted(entry: IndexEntry) -> bool:
        return (
            task.lower() in entry.task.lower()
            and stop in ("", entry.stop)
            and (not success or (entry.scored and entry.success == (success == "yes")))
        )

    start = tuple(int(part) for part in query.get("from", "").split(".") if is_number(part))
    stored = run.stored[kind]
    hits, more = search(stored, text, wanted, (start[0], start[1]) if len(start) == 2 else None, _HITS)
    values = {
        "hits": [(hit, stored.task_text(hit.entry)) for hit in hits],
        "query": {"text": text, "task": task, "stop": stop, "success": success, "kind": kind},
        "more": ".".join(map(str, more)) if more else "",
        "down_to": more[0] if more else None,
        "stops": [str(reason) for reason in StopReason],
    }
    return Page("find.html", "Attempts", values, run)


def _others(run: RunReader, task: str, this: tuple[str, IndexEntry] | None) -> list[tuple[str, IndexEntry]]:
    """The attempts at a task; of many, one of each group."""
    found = [(kind, entry) for kind in FOLDERS for entry in run.stored[kind].of_task(task)]
    if len(found) > _OTHERS:
        found = list({(kind, entry.step, entry.group): (kind, entry) for kind, entry in reversed(found)}.values())[::-1]
    return [pair for pair in found if pair != this]


def _parse(runs: Mapping[str, RunReader], name: str) -> tuple[RunReader, str, IndexEntry]:
    run, _, rest = name.rpartition(":")
    kind, *numbers = rest.split("/")
    if run in runs and kind in FOLDERS and len(numbers) == 3 and all(map(is_number, numbers)):
        entry = runs[run].stored[kind].find(*map(int, numbers))
        if entry is not None:
            return runs[run], kind, entry
    raise NotThere(f"There is no attempt {name} to compare.")


def _title(kind: str, number: int) -> str:
    return (
        f"Step {number}"
        if kind == "step"
        else f"Evaluation after step {number}"
        if number
        else "Evaluation before training"
    )


def _gone(entry: IndexEntry) -> StoredTrajectory:
    """What is left of a trajectory whose line is gone."""
    return StoredTrajectory(entry.group, Task(entry.task, ""), entry.attempt, entry.reward, entry.success, entry.stop)


def _course(entry: IndexEntry, trajectory: StoredTrajectory) -> str:
    """Actions, messages and verdict in one text: equal for attempts that went the same way."""
    turns = [(turn.action, [(m.role, m.content) for m in turn.context]) for turn in trajectory.turns]
    paid = [entry.reward, entry.success, entry.stop, trajectory.expert, trajectory.error, trajectory.tests]
    return json.dumps([turns, paid])


def _begins(talks: Sequence[Sequence[StoredTurn]]) -> dict[int, tuple[int, int]]:
    """The index of the turn that begins each conversation -> its number, and how many turns it has."""
    starts = accumulate((len(talk) for talk in talks), initial=0)
    return {start: (number, len(talk)) for number, (start, talk) in enumerate(zip(starts, talks, strict=False), 1)}


def _calls(turns: Iterable[StoredTurn]) -> Iterator[Call]:
    """Every call of a tool, by the agent or in what it was shown."""
    for turn in turns:
        yield from (call for message in (*turn.context, turn.said) for call in message.calls)


def _notes(trajectory: StoredTrajectory) -> str:
    """What else the judge wrote."""
    shown = {"tests": trajectory.tests, "output": trajectory.printed}
    return _json({key: value for key, value in trajectory.info.items() if not shown.get(key)})


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) if value else ""


def _why(stop: str) -> str:
    return StopReason(stop).sentence if stop in list(StopReason) else ""


def _colorings(run: RunReader, kind: str, number: int) -> dict[str, str]:
    gap = tokens.has_gap(run.stored[kind], number)
    return {name: said for name, said in tokens.COLORINGS.items() if name != "gap" or gap}


def _around(order: Sequence[Any], here: Any, link: Any) -> dict[str, str]:
    """Links to what comes before and after."""
    at = order.index(here)
    links = {"prev": link(order[at - 1])} if at > 0 else {}
    return links | ({"next": link(order[at + 1])} if at + 1 < len(order) else {})
