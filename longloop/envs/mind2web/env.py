"""Mind2Web: what would a person do next on this web page? A choice of elements, and what to do with the one chosen.

Deng et al. 2023, asked as in StepAgent's appendix. A task is one annotated sequence of actions, and a turn is one of
its steps: it always shows the page that the annotator saw, whatever was answered before. The reward is the share of
steps whose element was chosen, so its mean over tasks is the macro element accuracy; success is every step right,
operation and value included. The data is the published JSON: train, test_task, test_website, test_domain.
"""

import copy
import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from longloop.envs.base import Environment, Player
from longloop.envs.contract import NoTasks
from longloop.envs.mind2web.markup import brief, parse, shown
from longloop.envs.play import Script, Silent
from longloop.envs.shared import datasets
from longloop.types import Message, Outcome, Step, Task, UserError

SYSTEM = """You act on web pages for a user. Each turn shows a part of a page, the task and what was done so far. \
Choose the element to act on next, A if none of those listed is right, and what to do with it: CLICK, TYPE or SELECT, \
the last two with a value. Answer like this:

Thought: The city has to be typed into the search box.
Answer: C. Action: TYPE, Value: Boston"""
SOURCE = "Get Mind2Web from huggingface.co/datasets/osunlp/Mind2Web (its test splits are in test.zip)."
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_BRIEF = 100
"""Characters of an element in the list of choices."""
_ANSWER = re.compile(
    r"\banswer[*_`\s]*:\W*(?:((?-i:[A-Z])\b|[a-z](?=[.),*_`]|\s*$))|none\b)", re.IGNORECASE | re.MULTILINE
)
_ALONE = re.compile(r"^[\s*_`(\"']*([A-Z])(?:[.):,*_`\"']|\s*$)", re.MULTILINE)
_OPERATION = re.compile(r"\b(CLICK|TYPE|SELECT)\b", re.IGNORECASE)
_VALUE = re.compile(r"\bValue[*_` ]*:[*_` ]*([^\n]*)", re.IGNORECASE)


@dataclass(frozen=True)
class Question:
    """One step of a sequence."""

    text: str
    letters: str
    """The possible answers."""
    right: str
    """The letter of the annotated element; A when the page has none."""
    operation: str
    """What was done with it, as `TYPE Boston`; empty when the page has no such element."""


class Mind2Web(Environment):
    @dataclass(frozen=True)
    class Options:
        data: str = ""
        """The folder with the JSON files; empty for $LONGLOOP_DATA/mind2web."""
        choices: int = 5
        """Elements to choose from besides `None of the above`: the annotated one and others of the page, which are the
        same in every attempt."""

        def __post_init__(self) -> None:
            if not 2 <= self.choices < len(_LETTERS):
                raise UserError(f"env.choices = {self.choices}: there can be 2 to {len(_LETTERS) - 1}.")

    options: Options
    reward_range = (0.0, 1.0)
    splits = ("train", "test_task", "test_website", "test_domain")
    analysis = {
        "patterns": {"failure": {"heard": r"^Answer with a letter", "title": "answers that were none"}},
    }

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._scores: list[tuple[bool, float]] = []

    @classmethod
    def tasks(cls, split: str, options: Options) -> Sequence[Task]:
        return list(_listed(_folder(options.data), split)) if split in cls.splits else []

    def start(self, task: Task) -> Sequence[Message]:
        self._task = task
        return [Message("system", SYSTEM), Message("user", self._question().text)]

    def step(self, action: Message) -> Step:
        question = self._question()
        letter, said = answer_of(action.content)
        if not letter or letter not in question.letters:
            letters = f"{question.letters[0]} to {question.letters[-1]}"
            return Step([Message("user", f"Answer with a letter, {letters}, as in: Answer: B. Action: CLICK")])
        element = letter == question.right
        score = overlap(said, question.operation) if question.operation else float(element)
        self._scores.append((element, score))
        info = {"element": element, "operation_f1": score, "step": element and score == 1}
        if len(self._scores) == self._task.data["steps"]:
            return Step(done=True, info=info)
        return Step([Message("user", self._question().text)], info=info)

    def finish(self) -> Outcome:
        """Steps that were not reached count as wrong."""
        if not self._scores:
            return Outcome(0.0, False)
        steps = self._task.data["steps"]
        right = sum(element and score == 1 for element, score in self._scores)
        info = {
            "element_accuracy": sum(element for element, _ in self._scores) / steps,
            "operation_f1": sum(score for _, score in self._scores) / steps,
            "step_success": right / steps,
        }
        return Outcome(info["element_accuracy"], right == steps, info)

    def fork(self) -> "Mind2Web":
        other = copy.copy(self)
        other._scores = list(self._scores)
        return other

    def expert(self, task: Task) -> Player:
        return Script([answer(question) for question in self._questions(task)])

    def baselines(self, task: Task) -> dict[str, Player]:
        rng = random.Random(f"baseline/{task.id}")
        letters = [rng.choice(question.letters) for question in self._questions(task)]
        return {
            "nothing": Silent(),
            "none of the above": Script(["Answer: A."] * len(letters)),
            "random clicks": Script([f"Answer: {letter}. Action: CLICK" for letter in letters]),
        }

    def _question(self) -> Question:
        return _asked(_folder(self.options.data), _span(self._task), len(self._scores), self.options.choices)

    def _questions(self, task: Task) -> list[Question]:
        folder, span = _folder(self.options.data), _span(task)
        return [_asked(folder, span, step, self.options.choices) for step in range(task.data["steps"])]


def answer(question: Question) -> str:
    """Return the right answer, as an agent would write it."""
    operation, _, value = question.operation.partition(" ")
    action = f" Action: {operation}{f', Value: {value}' if value else ''}" if operation else ""
    thought = "This is the next step." if operation else "What is needed next is not here."
    return f"Thought: {thought}\nAnswer: {question.right}.{action}"


def answer_of(text: str) -> tuple[str, str]:
    """Return a turn's letter, and its operation with the value, as in `TYPE Boston`; empty if it has none."""
    after = list(_ANSWER.finditer(text))
    if after:
        letter, rest = (after[-1][1] or "A").upper(), text[after[-1].end() :]
    else:
        alone = _ALONE.search(text)
        if not alone:
            return "", ""
        letter, rest = alone[1], text[alone.end() :]
    operation, value = _OPERATION.search(rest), _VALUE.search(rest)
    said = operation[1].upper() if operation else ""
    typed = value[1].strip().strip("\"'`*") if value and said != "CLICK" else ""
    return letter, f"{said} {typed}".strip()


def overlap(said: str, right: str) -> float:
    """Return the F1 of the words of the two texts."""
    one, other = set(said.split()), set(right.split())
    return 2 * len(one & other) / (len(one) + len(other)) if one and other else float(one == other)


def _folder(given: str) -> Path:
    return datasets.folder("mind2web", given, SOURCE)


@datasets.once
def _listed(folder: Path, split: str) -> tuple[Task, ...]:
    """Return a split's tasks, with the file and the bytes of each: the files are large, and are read piece by piece."""
    paths = sorted(folder.rglob(f"{split}_*.json"), key=lambda path: [len(path.name), path.name])
    if not paths:
        raise NoTasks(f"There is no {split}_0.json in or below {folder}. {SOURCE}")
    return tuple(task for path in paths for task in _records(folder, path, split))


def _records(folder: Path, path: Path, split: str) -> list[Task]:
    text = path.read_text(encoding="latin-1")  # a letter is a byte
    decoder, tasks, at = json.JSONDecoder(), [], text.find("[") + 1
    file = str(path.relative_to(folder))
    try:
        while (begin := _skip(text, at)) < len(text) and text[begin] != "]":
            record, at = decoder.raw_decode(text, begin)
            where = {"file": file, "at": begin, "bytes": at - begin, "steps": len(record["actions"])}
            tasks.append(Task(record["annotation_id"], split, {**where, "website": record["website"]}))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not Mind2Web's JSON ({type(error).__name__}: {error}). {SOURCE}") from error
    return [task for task in tasks if task.data["steps"]]


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,":
        at += 1
    return at


def _span(task: Task) -> tuple[str, int, int]:
    """Return the file of a task's record, its first byte, and its length."""
    return task.data["file"], task.data["at"], task.data["bytes"]


@lru_cache(maxsize=4)
def _record(folder: Path, span: tuple[str, int, int]) -> dict[str, Any]:
    file, at, size = span
    with open(folder / file, "rb") as opened:
        opened.seek(at)
        return json.loads(opened.read(size))


@lru_cache(maxsize=2000)
def _asked(folder: Path, span: tuple[str, int, int], step: int, choices: int) -> Question:
    """Return the question of a step. Cached, because all attempts at a task ask the same."""
    record = _record(folder, span)
    action = record["actions"][step]
    page = parse(action["cleaned_html"])
    there = {element.number: element for element in page.walk() if element.number}
    targets = [c for c in action["pos_candidates"] if c["backend_node_id"] in there]
    target = next((c for c in targets if c.get("is_original_target")), targets[0] if targets else None)
    right = [target["backend_node_id"]] if target else []
    known = {c["backend_node_id"] for c in action["pos_candidates"]}
    others = [c["backend_node_id"] for c in action["neg_candidates"]]
    others = [number for number in dict.fromkeys(others) if number in there and number not in known]
    rng = random.Random(f"{record['annotation_id']}/{step}")
    chosen = {*right, *rng.sample(others, min(len(others), choices - len(right)))}
    listed = [number for number in there if number in chosen]  # in the order of the page, which tells nothing
    elements = [there[number] for number in listed]
    letters = _LETTERS[: len(listed) + 1]
    lines = [
        f"{letter}. {brief(e, n, _BRIEF)}" for n, (letter, e) in enumerate(zip(letters[1:], elements, strict=True))
    ]
    before = "; ".join(record["action_reprs"][:step]) or "none"
    told = [shown(page, elements), "", f"Task: {record['confirmed_task']}", f"Done so far: {before}", "What is next?"]
    text = "\n".join([*told, "A. None of the above", *lines])
    done = action["operation"]
    operation = f"{done['op']} {done.get('value') or ''}".strip() if target else ""
    return Question(text, letters, letters[1 + listed.index(right[0])] if target else "A", operation)
