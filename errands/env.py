"""Errands: do things for a person through the APIs of their apps, by writing Python.

A world of everyday apps, made from a seed (world.py), tasks from scenarios (scenario.py), code run in a sandbox
(session.py), and a judge that compares the state the agent left with the one it should have left (judge.py).
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from errands.audit import report
from errands.baselines import baselines
from errands.catalog import PLAIN, by_name, expert, of_split, setting
from errands.disguise import Disguise
from errands.example import after_example, opening
from errands.experts.careless import careless
from errands.experts.mistaken import mistaken
from errands.judge import changed, outcome
from errands.scenario import Turns
from errands.session import Session
from errands.version import __version__
from errands.world import World
from longloop import Environment, Message, Outcome, Player, Step, Task
from longloop.envs.react import code_of, react

SYSTEM = """You do errands for your owner by writing Python. In each turn write a thought, then one block of code:

Thought: what to do next
```python
print(apis.docs.list_apis(app="mail"))
```

You then see what the code printed, and variables stay for the next turn. Call apps as apis.<app>.<api>(...). Do not \
guess what exists, look it up: apis.docs.list_apps(), apis.docs.list_apis(app=...), apis.docs.show(api="app.api"). Log \
in with apis.<app>.login(**apis.owner.show_account(app=...)). When you are done, call apis.owner.complete_task(), with \
answer=... if you were asked something."""

_NO_CODE = "(There is no code in your message. Write it between ```python and ```.)"
_FIRST_BLOCK = "(Only the first block of code was run. Write one block in each turn.)"
_REPEATED = "(You ran the same code before, with the same result. Try something else.)"

_TOGETHER = 3
"""Tasks that count as one scenario when completed scenarios are counted (SGC), as in AppWorld."""


@dataclass(frozen=True)
class TaskOptions:
    """Which tasks there are, for agents that write code and for those that call tools."""

    difficulty: int = 0
    """Keep only the scenarios of this difficulty; 0 for all."""
    per_scenario: int = 3
    """Tasks made from each scenario."""
    per_drill: int = 0
    """Tasks made from each scenario of practice; 0 for per_scenario."""
    seed: int = 0
    """Another seed gives other worlds."""
    plain: bool = False
    """Give all of practice the real names."""


class Errands(Environment):
    @dataclass(frozen=True)
    class Options(TaskOptions):
        careless: float = 0.0
        """Share of turns that the expert gets wrong: a teacher for novices."""
        mistakes: float = 0.0
        """Share of turns that the expert gets wrong at first, notices and mends: a teacher of recovery from errors."""
        thorough: bool = False
        """Let the expert go step by step, from what an app can do to the API that it picks, and say why. That is how an
        agent finds its way in kinds of errands that it has not seen."""
        example: bool = True
        """Begin with a worked example, another task done step by step as turns of the conversation (1,286 tokens with
        the tokenizer of Qwen2.5). It is for models as they come; one that was taught Errands does without."""

    options: Options
    version = __version__
    reward_range = (0.0, 1.0)
    splits = ("train", "unseen_worlds", "practice", "dev", "validation", "test_normal", "test_challenge")
    """`unseen_worlds`: the scenarios of train in worlds that train never shows. The other splits have scenarios of
    their own. Those of `practice` are many and small; they cover what the apps of train can do, half under other
    names. `dev` and `validation` are for making choices; `test_normal` and `test_challenge` are only for measuring, and
    `test_challenge` needs apps that train never uses."""

    stop = ("\n```\n",)
    """An action ends where its code does."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._session: Session | None = None
        self._results: dict[str, str] = {}
        """What came back from each piece of code."""

    @classmethod
    def tasks(cls, split: str, options: TaskOptions) -> Sequence[Task]:
        practice = split == "practice"
        each = options.per_drill if practice and options.per_drill else options.per_scenario
        return [
            Task(
                id=f"{split}/{kind.name()}/{number}",
                split=split,
                data={
                    "scenario": kind.name(),
                    "world": f"{split}/{options.seed}/{number}" + (PLAIN if options.plain and practice else ""),
                    "difficulty": kind.difficulty,
                    "apps": kind.apps(),
                },
                scenario=kind.name() if number < _TOGETHER else f"{kind.name()}/{number // _TOGETHER}",
            )
            for number in range(each)
            for kind in of_split(split)
            if options.difficulty in (0, kind.difficulty)
        ]

    @classmethod
    def scenarios(cls) -> list[tuple[str, str, int, list[str]]]:
        """(name, split, difficulty, apps) of each."""
        order = {split: place for place, split in enumerate(cls.splits)}
        kinds = sorted(by_name().values(), key=lambda kind: (order[kind.split], kind.difficulty, kind.name()))
        return [(kind.name(), kind.split, kind.difficulty, kind.apps()) for kind in kinds]

    def start(self, task: Task) -> Sequence[Message]:
        self._setting = setting(task.data["scenario"], task.data["world"])
        self._world = self._setting.world()
        self._session = Session(self._world)
        task_text = opening(self._world, self._setting.instruction)
        said = after_example(task_text) if self.options.example else [Message("user", task_text)]
        return [Message("system", SYSTEM), *said]

    def step(self, action: Message) -> Step:
        assert self._session is not None, "step() before start()"
        code = code_of(action.content)
        seen = self._session.run(code) if code.strip() else _NO_CODE
        failed = self._session.failed or not code.strip()
        done = self._world.done is not None
        notes = []
        if action.content.count("```") > 2:
            notes.append(_FIRST_BLOCK)
        if self._results.get(code) == seen and not done:
            notes.append(_REPEATED)
        self._results[code] = seen
        shown = "\n".join([seen, *notes])
        state = self.state_key(changed(self._setting.goal, self._world), sorted(self._world.tokens), shown)
        return Step([Message("user", shown)], done=done, info={"state": state, "failed": failed})

    def finish(self) -> Outcome:
        if self._session is None:
            return Outcome(0.0, False)
        self._session.close()
        reached = outcome(self._setting.goal, self._world)
        self._world.close()
        return reached

    @property
    def world(self) -> World:
        """The world of the attempt, once it has started."""
        return self._world

    def fork(self) -> "Errands":
        """An independent copy at this turn, database and Python session."""
        assert self._session is not None, "fork() before start()"
        copy = Errands(self.options)
        copy._setting = self._setting
        copy._world = self._world.fork()
        copy._session = Session(copy._world, self._session.dump())
        copy._results = dict(self._results)
        return copy

    def expert(self, task: Task) -> "Expert":
        """Someone who can do the task, from the instruction and what comes back."""
        made = setting(task.data["scenario"], task.data["world"])
        turns = expert(task.data["scenario"], made.goal.slots, made if self.options.thorough else None)
        apis = by_name()[task.data["scenario"]].apis
        turns = mistaken(turns, apis, made, self.options.mistakes, random.Random(f"{task.id}/mistakes"))
        turns = careless(turns, self.options.careless, random.Random(f"{task.id}/careless"))
        return Expert(turns, made.disguise)

    def baselines(self, task: Task) -> dict[str, Player]:
        """Agents that must not succeed."""
        return baselines(task)

    @classmethod
    def audit(cls, seeds: int, progress: Callable[[list[Any]], Iterable[Any]]) -> Iterator[str]:
        """More proof for `longloop check`: every scenario in other worlds, and wrong end states. A line that starts
        with FAULT is one."""
        return report(lambda: cls(cls.Options()), seeds, progress)


class Expert:
    """Plays a task turn by turn, with the names that the APIs have in it."""

    def __init__(self, turns: Turns, disguise: Disguise | None = None) -> None:
        self._turns, self._disguise = turns, disguise
        self._begun = False

    def act(self, messages: Sequence[Message]) -> str:
        try:
            thought, code = self._turns.send(messages[-1].content) if self._begun else next(self._turns)
        except StopIteration:
            return ""
        self._begun = True
        return react(*(self._disguise.turn(thought, code) if self._disguise else (thought, code)))
