"""Multi-hop questions: HotpotQA, 2WikiMultihopQA and MuSiQue, answered with Search[...] and Finish[...].

The agent searches the pages of all questions in the data set's files, a closed corpus, by title or by words (BM25). The
reward is the F1 of its answer, or whether it matches exactly; success is the exact match. Answers are compared as in
the data sets' own evaluations. It needs the package bm25s (`pip install 'longloop[envs]'`) and the files.
"""

import copy
import random
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from longloop.envs.base import Environment, Player
from longloop.envs.play import Script, Silent
from longloop.envs.react import act, call_of
from longloop.envs.shared import datasets as files
from longloop.envs.shared.search_index import Index, folded
from longloop.types import Message, Outcome, Step, Task, UserError

SYSTEM = """You answer a question with the help of an encyclopedia. In each turn write a thought, then one action:

Thought: I need to know who wrote the novel, so I look it up.
Action: Search[The Old Man and the Sea]

Search[entity] shows the page with that title, or the nearest ones. Finish[answer] gives the answer, as short as can \
be, and ends the task. A question needs several pages: search them one after the other."""

Dataset = Literal["hotpotqa", "2wiki", "musique"]
_FILES = {"hotpotqa": "hotpot*{split}*.json*", "2wiki": "2wiki*{split}*.json*", "musique": "musique*{split}*.json*"}
_SOURCE = {
    "hotpotqa": "hotpotqa.github.io has hotpot_train_v1.1.json and hotpot_dev_distractor_v1.json.",
    "2wiki": "github.com/Alab-NII/2wikimultihop has train.json and dev.json, here 2wiki_train.json and 2wiki_dev.json.",
    "musique": "github.com/StonyBrookNLP/musique has musique_ans_v1.0_train.jsonl and musique_ans_v1.0_dev.jsonl.",
}
_PAGES, _OTHERS, _FOUND = 3, 5, 50
"""The most pages of one title that are shown, other titles that are named, and search results that are considered."""


@dataclass(frozen=True)
class Page:
    title: str
    text: str


class Library:
    """A data set: its questions by split, and the index of all their pages."""

    def __init__(self, folder: Path, dataset: Dataset) -> None:
        read: Callable[[Mapping[str, Any]], tuple[dict[str, Any], list[Page]]]
        read = _musique if dataset == "musique" else _hotpot
        pages: dict[Page, None] = {}
        self.tasks: dict[str, list[Task]] = {}
        for split in MultihopQA.splits:
            path = files.file(folder, _FILES[dataset].format(split=split), _SOURCE[dataset])
            tasks = self.tasks[split] = []
            for number, row in enumerate(files.read(path), 1):
                try:
                    question, context = read(row)
                except (KeyError, TypeError, ValueError, IndexError) as error:
                    raise UserError(
                        f"{path}, question {number}: {type(error).__name__} {error}. This is not a file of {dataset} "
                        f"with answers, contexts and supporting facts. {_SOURCE[dataset]}"
                    ) from error
                tasks.append(Task(row.get("_id") or row["id"], split, question))
                pages |= dict.fromkeys(context)
        self.pages = list(pages)
        self._index = Index(f"{page.title} {page.text}" for page in self.pages)
        self._titled: dict[str, list[Page]] = {}
        for page in self.pages:
            self._titled.setdefault(_title(page.title), []).append(page)

    def find(self, words: str) -> list[Page]:
        """Return the pages with that title, then those that match the words best."""
        near = [self.pages[number] for number in self._index.find(words, _FOUND)]
        titled = self._titled.get(_title(words), [])
        rank = {page: index for index, page in enumerate(near)}
        return [
            *sorted(titled, key=lambda page: rank.get(page, _FOUND)),
            *(page for page in near if page not in titled),
        ]


_library = files.once(Library)


class MultihopQA(Environment):
    @dataclass(frozen=True)
    class Options:
        dataset: Dataset = "hotpotqa"
        """Whose questions are asked."""
        data: str = ""
        """The folder with the data set's files, plain or compressed with xz; empty for $LONGLOOP_DATA/multihop_qa."""
        reward: Literal["f1", "em"] = "f1"
        """The F1 of the answer, or 1 for an exact match and 0 otherwise."""

    options: Options
    reward_range = (0.0, 1.0)
    splits = ("train", "dev")
    analysis = {
        "patterns": {
            "failure": {"heard": r"^That is no action", "title": "actions that failed"},
            "searches": {"said": r"(?i)^Action:\s*search\["},
            "missed": {"heard": r"^No page (?:is like|has the title)", "title": "searches without a page / attempt"},
        }
    }
    lucky = ("say yes",)

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._answer: str | None = None

    @classmethod
    def tasks(cls, split: str, options: Options) -> Sequence[Task]:
        return _open(options.data, options.dataset).tasks.get(split, [])

    def start(self, task: Task) -> Sequence[Message]:
        self._library = _open(self.options.data, self.options.dataset)
        self._task = task
        return [Message("system", SYSTEM), Message("user", task.data["question"])]

    def step(self, action: Message) -> Step:
        name, argument = call_of(action.content)
        if name == "finish" and argument:
            self._answer = argument
            return Step(done=True)
        if name == "search" and argument:
            return Step([Message("user", self._searched(argument))])
        wrong = "That is no action. Write `Action: Search[entity]` or `Action: Finish[answer]`."
        return Step([Message("user", wrong)], info={"failed": True})

    def finish(self) -> Outcome:
        if self._answer is None:
            return Outcome(0.0, False)
        answers = self._task.data["answers"]
        exact = any(exact_match(self._answer, answer) for answer in answers)
        best = max(f1(self._answer, answer) for answer in answers)
        reward = float(exact) if self.options.reward == "em" else best
        return Outcome(reward, exact, {"answer": self._answer, "f1": best})

    def fork(self) -> "MultihopQA":
        return copy.copy(self)  # all that an attempt changes is its answer

    def expert(self, task: Task) -> "Reader":
        return Reader(task.data["hops"], task.data["answers"][0])

    def baselines(self, task: Task) -> dict[str, Player]:
        return {
            "nothing": Silent(),
            "say yes": Script([act("Maybe.", "Finish[yes]")]),
            "random page": Guesser(task.id),
        }

    def _searched(self, words: str) -> str:
        found = self._library.find(words)
        if not found:
            return f"No page is like {words}."
        titled = [page for page in found if _title(page.title) == _title(words)][:_PAGES]
        shown = titled or found[:1]
        text = "\n".join(f"{page.title}: {page.text}" for page in shown)
        others = list(dict.fromkeys(page.title for page in found if page.title != shown[0].title))[:_OTHERS]
        intro = "" if titled else f"No page has the title {words}; the nearest is "
        return f"{intro}{text}" + (f"\nOther pages: {'; '.join(others)}" if others else "")


class Reader:
    """Looks up the pages that the data set lists as supporting the answer, one after the other, and says what each
    tells: first by the words of a hop, then by the page's title."""

    def __init__(self, hops: Sequence[Mapping[str, str]], answer: str) -> None:
        self._hops, self._answer = list(hops), answer
        self._sought: Mapping[str, str] | None = None
        self._learned = ""

    def act(self, messages: Sequence[Message]) -> str:
        if self._sought and f"{self._sought['title']}: " not in messages[-1].content:
            title, self._sought = self._sought["title"], None
            return act(f"That does not say it; {title} may.", f"Search[{title}]")
        if not self._hops:
            return act(f"{self._learned}I can answer now.", f"Finish[{self._answer}]")
        hop = self._sought = self._hops.pop(0)
        thought = f"{self._learned}I look up {hop['words']}."
        self._learned = f"I read: {hop['fact']} " if hop["fact"] else ""
        return act(thought, f"Search[{hop['words']}]")


class Guesser:
    """Searches for some words of the question, and answers with the title of one of the pages it sees."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(f"guess/{seed}")
        self._searches = self._random.randint(1, 3)

    def act(self, messages: Sequence[Message]) -> str:
        text = messages[-1].content
        titles = text.rpartition("Other pages: ")[2].split("; ")
        if messages[0].role != "system" and self._searches == 0:
            return act("A guess.", f"Finish[{self._random.choice(titles)}]")
        self._searches = max(0, self._searches - 1)
        words = text.split() if messages[0].role == "system" else titles
        return act("Anything.", f"Search[{self._random.choice(words)}]")


def normalized(answer: str) -> str:
    """Return an answer in lower case, without punctuation, articles and extra spaces, as SQuAD compares answers."""
    letters = "".join(letter for letter in answer.lower() if letter not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", letters).split())


def exact_match(answer: str, right: str) -> bool:
    return normalized(answer) == normalized(right)


def f1(answer: str, right: str) -> float:
    """Return the F1 of the words in common. As in HotpotQA, yes and no share nothing with longer answers."""
    said, true = normalized(answer), normalized(right)
    if said != true and {said, true} & {"yes", "no", "noanswer"}:
        return 0.0
    common = (Counter(said.split()) & Counter(true.split())).total()
    return 2 * common / (len(said.split()) + len(true.split())) if common else 0.0


def _open(data: str, dataset: Dataset) -> Library:
    return _library(files.folder("multihop_qa", data, _SOURCE[dataset]), dataset)


def _title(text: str) -> str:
    return " ".join(folded(text).split())


def _hotpot(row: Mapping[str, Any]) -> tuple[dict[str, Any], list[Page]]:
    """Return a question of HotpotQA or 2WikiMultihopQA, and its pages."""
    sentences = {title: [sentence.strip() for sentence in said] for title, said in row["context"]}
    facts: dict[str, list[str]] = {}
    for title, number in row["supporting_facts"]:
        facts.setdefault(title, []).extend(sentences.get(title, [])[number : number + 1])
    # The titles in the question come first; the others are learned on the way.
    titles = sorted(facts, key=lambda title: folded(title) not in folded(row["question"]))
    hops = [{"words": title, "title": title, "fact": " ".join(facts[title])} for title in titles]
    pages = [Page(title, " ".join(said)) for title, said in sentences.items()]
    return {"question": row["question"], "answers": [row["answer"]], "hops": hops}, pages


def _musique(row: Mapping[str, Any]) -> tuple[dict[str, Any], list[Page]]:
    """Return a question of MuSiQue, and its pages. A step of its decomposition may refer to an earlier answer (#1)."""
    pages = [Page(page["title"], page["paragraph_text"]) for page in row["paragraphs"]]
    hops: list[dict[str, str]] = []
    learned: list[str] = []
    for step in row["question_decomposition"]:
        words = re.sub(r"#(\d+)", lambda found: learned[int(found[1]) - 1], step["question"].replace(" >>", ","))
        words = words.rstrip("? ")
        learned.append(step["answer"])
        title = pages[step["paragraph_support_idx"]].title
        hops.append({"words": words, "title": title, "fact": f"{words}? {step['answer']}."})
    return {"question": row["question"], "answers": [row["answer"], *row["answer_aliases"]], "hops": hops}, pages
