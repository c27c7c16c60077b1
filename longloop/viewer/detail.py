"""What the pages about attempts show: a step, a group, an attempt, two attempts compared, a search."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import fmean
from typing import Any

from longloop.types import StopReason
from longloop.viewer import tokens
from longloop.viewer.attempts import Entry, asked
from longloop.viewer.diff import CHARACTERS, LINES, Comparison
from longloop.viewer.page import Content, NotThere, address
from longloop.viewer.run_reader import KINDS, Record

_HITS = 100
_OTHERS = 200
"""Attempts at a task beyond which not all are listed for comparison."""
_SORTS = ("group", "spread", "advantage", "reward", "turns", "stop", "task")


@dataclass(frozen=True)
class GroupRow:
    """A group in a line."""

    number: int
    entries: Sequence[Entry]
    advantages: Mapping[tuple[int, int], float]
    asked: str
    """The beginning of the task's text."""

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
    def spread(self) -> float:
        return max(self.rewards) - min(self.rewards) if self.rewards else 0.0

    @property
    def advantage(self) -> float:
        """The largest of any attempt, whatever its sign."""
        return max((abs(self.advantages.get(entry.place, 0.0)) for entry in self.entries), default=0.0)

    @property
    def turns(self) -> float:
        return fmean(entry.turns for entry in self.entries)

    @property
    def stops(self) -> list[tuple[str, int]]:
        return Counter(entry.stop for entry in self.entries).most_common()

    def key(self, sort: str) -> Any:
        """Where it belongs when sorted; what is unusual comes first."""
        lost = sum(entry.stop != StopReason.FINISHED for entry in self.entries)
        return {
            "group": self.number,
            "spread": (-self.spread, self.number),
            "advantage": (-self.advantage, self.number),
            "reward": (1e9 if self.reward is None else self.reward, self.number),
            "turns": (-self.turns, self.number),
            "stop": (-lost, self.number),
            "task": (self.task, self.number),
        }[sort]


def step(record: Record, kind: str, number: int, sort: str = "") -> Content:
    attempts = record.attempts[kind]
    entries = attempts.entries(number)
    if not entries:
        raise NotThere(f"{record.name} has no {_title(kind, number)}.")
    advantages = attempts.advantages(number)
    sort = sort if sort in _SORTS else "group"
    by_group: dict[int, list[Entry]] = {}
    for entry in entries:
        by_group.setdefault(entry.group, []).append(entry)
    rows = [GroupRow(place, found, advantages, attempts.asked(found[0])) for place, found in by_group.items()]
    rows.sort(key=lambda row: row.key(sort))
    scored = [entry for entry in entries if entry.scored]
    values = {
        "kind": kind,
        "number": number,
        "rows": rows,
        "sort": sort,
        "sorts": _SORTS if any(advantages.values()) else [name for name in _SORTS if name != "advantage"],
        "attempts": len(entries),
        "unscored": len(entries) - len(scored),
        "success": fmean(entry.success for entry in scored) if scored else None,
        "reward": fmean(entry.reward for entry in scored) if scored else None,
        "metrics": next((line for line in record.metrics if line["step"] == number), {}),
        "heading": _title(kind, number),
    }
    links = _around(attempts.steps(), number, lambda other: address("run", record.name, kind, other))
    up = {"up": address("run", record.name)}
    return Content("step.html", _title(kind, number), values, record, (record,), links=links | up)


def group(record: Record, kind: str, number: int, place: int) -> Content:
    attempts = record.attempts[kind]
    everyone = attempts.entries(number)
    entries = [entry for entry in everyone if entry.group == place]
    if not entries:
        raise NotThere(f"{_title(kind, number)} of {record.name} has no group {place}.")
    given = attempts.advantages(number)
    read = [(entry, attempts.read(entry) or {}) for entry in entries]
    alike: dict[str, list[tuple[Entry, dict[str, Any]]]] = {}
    for entry, line in read:
        alike.setdefault(_course(entry, line), []).append((entry, line))
    columns = [
        {
            "entries": [entry for entry, _ in same],
            "entry": entry,
            "advantage": given.get(entry.place),
            "expert": line.get("expert", False),
            "turns": line.get("turns") or [],
            "tests": _tests(line),
        }
        for same in alike.values()
        for entry, line in same[:1]
    ]
    opening = next((line for _, line in read if line.get("turns")), {})
    values = {
        "kind": kind,
        "number": number,
        "place": place,
        "task": (opening.get("task") or {}) | {"id": entries[0].task},
        "asked": asked(opening),
        "columns": columns,
        "count": len(entries),
        "heading": _title(kind, number),
    }
    places = sorted({entry.group for entry in everyone})
    links = _around(places, place, lambda other: address("run", record.name, kind, number, other))
    links["up"] = address("run", record.name, kind, number)
    return Content("group.html", f"Group {place}", values, record, links=links)


def attempt(record: Record, kind: str, number: int, place: int, which: int, by: str = "") -> Content:
    attempts = record.attempts[kind]
    entries = attempts.entries(number)
    entry = next((entry for entry in entries if entry.place == (place, which)), None)
    line = attempts.read(entry) if entry else None
    if entry is None or line is None:
        raise NotThere(f"{record.name} has no attempt {kind}/{number}/{place}/{which}, or it was cut off.")
    by = by if by in tokens.COLOURINGS else ""
    coloured = tokens.coloured(record, attempts, number, line, by) if by else None
    turns = line.get("turns") or []
    seconds: Counter[str] = Counter()
    for turn in turns:
        seconds.update(turn.get("seconds") or {})
    values = {
        "kind": kind,
        "number": number,
        "entry": entry,
        "heading": _title(kind, number),
        "task": line.get("task") or {},
        "line": line,
        "turns": list(zip_longest(turns, coloured or [])),
        "advantage": attempts.advantages(number).get(entry.place),
        "seconds": dict(seconds),
        "tests": _tests(line),
        "notes": _notes(line),
        "unread": record.unread(line),
        "data": _json((line.get("task") or {}).get("data")),
        "why": _why(entry.stop),
        "siblings": [other for other in entries if other.group == place],
        "colourings": _colourings(record, kind, number),
        "by": by,
        "missing": bool(by) and coloured is None,
        "here": f"{kind}/{number}/{place}/{which}",
    }
    order = [other.place for other in entries]
    links = _around(order, entry.place, lambda other: address("run", record.name, kind, number, *other, tokens=by))
    links["up"] = address("run", record.name, kind, number, place)
    return Content("attempt.html", f"Attempt {place}/{which}", values, record, links=links)


def compare(records: Mapping[str, Record], left: str, right: str, other: str) -> Content:
    """`left` and `right` are a run's name and an attempt's address with a colon between them."""
    record, kind, entry = _parse(records, left)
    among = records.get(other, record)
    values: dict[str, Any] = {
        "left": (record, kind, entry, record.attempts[kind].read(entry) or {}),
        "left_name": left,
        "right": None,
        "run": among,
        "records": list(records),
        "most": (CHARACTERS, LINES),
        "found": _others(among, entry.task, None if among is not record else (kind, entry)),
    }
    if right:
        record, kind, entry = _parse(records, right)
        line = record.attempts[kind].read(entry) or {}
        values["right"] = record, kind, entry, line
        comparison = Comparison()
        both = zip_longest(_actions(values["left"][3]), _actions(line), fillvalue="")
        values["turns"] = [(ours == theirs, comparison.rows(ours, theirs)) for ours, theirs in both]
        values["comparison"] = comparison
    return Content("compare.html", "Compare", values, values["left"][0])


def find(record: Record, query: Mapping[str, str]) -> Content:
    text, task, stop, success = (query.get(name, "").strip() for name in ("text", "task", "stop", "success"))
    kind = query.get("kind", "")
    kind = kind if kind in KINDS else "step" if record.attempts["step"].steps() else "eval"

    def wanted(entry: Entry) -> bool:
        return (
            task.lower() in entry.task.lower()
            and stop in ("", entry.stop)
            and (not success or (entry.scored and entry.success == (success == "yes")))
        )

    start = tuple(int(part) for part in query.get("from", "").split(".") if part.isascii() and part.isdigit())
    hits, more = record.attempts[kind].search(text, wanted, start if len(start) == 2 else None, _HITS)
    values = {
        "hits": [(hit, record.attempts[kind].asked(hit.entry)) for hit in hits],
        "asked": {"text": text, "task": task, "stop": stop, "success": success, "kind": kind},
        "more": ".".join(map(str, more)) if more else "",
        "down_to": more[0] if more else None,
        "stops": [str(reason) for reason in StopReason],
    }
    return Content("find.html", "Attempts", values, record)


def _others(record: Record, task: str, this: tuple[str, Entry] | None) -> list[tuple[str, Entry]]:
    """The attempts at a task; of many, one of each group."""
    found = [(kind, entry) for kind in KINDS for entry in record.attempts[kind].of_task(task)]
    if len(found) > _OTHERS:
        found = list({(kind, entry.step, entry.group): (kind, entry) for kind, entry in reversed(found)}.values())[::-1]
    return [pair for pair in found if pair != this]


def _parse(records: Mapping[str, Record], name: str) -> tuple[Record, str, Entry]:
    run, _, rest = name.rpartition(":")
    kind, *place = rest.split("/")
    if run in records and kind in KINDS and len(place) == 3 and all(p.isascii() and p.isdigit() for p in place):
        entry = records[run].attempts[kind].find(*map(int, place))
        if entry is not None:
            return records[run], kind, entry
    raise NotThere(f"There is no attempt {name} to compare.")


def _title(kind: str, number: int) -> str:
    return (
        f"Step {number}"
        if kind == "step"
        else f"Evaluation after step {number}"
        if number
        else "Evaluation before training"
    )


def _course(entry: Entry, line: dict[str, Any]) -> str:
    """What was said, heard and paid, in one text: equal for attempts that went the same way."""
    turns = [(turn.get("action"), turn.get("context")) for turn in line.get("turns") or []]
    paid = [entry.reward, entry.success, entry.stop, bool(line.get("expert")), line.get("error"), _tests(line)]
    return json.dumps([turns, paid])


def _actions(line: dict[str, Any]) -> list[str]:
    return [turn.get("action") or "" for turn in line.get("turns") or []]


def _tests(line: dict[str, Any]) -> list[dict[str, Any]]:
    tests = (line.get("info") or {}).get("tests")
    return [test for test in tests if isinstance(test, dict)] if isinstance(tests, list) else []


def _notes(line: dict[str, Any]) -> str:
    """What else the judge wrote."""
    rest = {key: value for key, value in (line.get("info") or {}).items() if key != "tests" or not _tests(line)}
    return _json(rest)


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) if value else ""


def _why(stop: str) -> str:
    return StopReason(stop).sentence if stop in list(StopReason) else ""


def _colourings(record: Record, kind: str, number: int) -> dict[str, str]:
    gap = tokens.has_gap(record.attempts[kind], number)
    return {name: said for name, said in tokens.COLOURINGS.items() if name != "gap" or gap}


def _around(places: Sequence[Any], here: Any, link: Any) -> dict[str, str]:
    at = places.index(here)
    links = {"prev": link(places[at - 1])} if at > 0 else {}
    return links | ({"next": link(places[at + 1])} if at + 1 < len(places) else {})
