"""AppWorld: a person's everyday digital chores, done by writing Python against the APIs of simulated apps.

Trivedi et al. 2024, on the `appworld` package and its own evaluator. The package needs pydantic 1 and freezes the clock
of its process from start to finish, so it runs in a virtualenv and a process of its own, one world per process. The
data is the benchmark's, or the small world that recipes/appworld/mini.py writes. The reward is the share of the task's
tests that pass; success is all of them.
"""

import importlib
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from longloop.envs.base import Environment, Player
from longloop.envs.play import Script, Silent
from longloop.envs.react import code_of, react
from longloop.types import Message, Outcome, Step, Task, UserError

VERSION = "0.1.3.post1"
SYSTEM = """You do what your supervisor asks by writing Python that calls the APIs of their apps. In each turn write a \
thought, then code:

Thought: I look up what the phone can do.
```python
print(apis.api_docs.show_api_descriptions(app_name="phone"))
```

What the code prints comes back; variables stay. Call an API as apis.<app>.<api>(...), with named arguments. Do not \
guess: apis.api_docs.show_app_descriptions() lists the apps, apis.api_docs.show_api_doc(app_name=..., api_name=...) \
explains an API. Most need an access_token, which apis.<app>.login(username=..., password=...) gives; the username is \
the email address (the phone's is the phone number), and apis.supervisor.show_account_passwords() has the passwords. \
Long lists come in pages. Decide everything yourself. At the end call apis.supervisor.complete_task(), with answer=... \
if something was asked."""
_RUN = "longloop"
"""The name of the library's experiment, which is a folder."""


class AppWorld(Environment):
    @dataclass(frozen=True)
    class Options:
        data: str = ""
        """The folder that holds AppWorld's `data`; empty for $APPWORLD_ROOT or $LONGLOOP_DATA/appworld."""
        hardest: int = 3
        """Leave out the tasks of a higher difficulty. LOOP trains on those up to 2 (of 3)."""
        observation: int = 9000
        """Characters of a turn's output that the agent sees: three for each of LOOP's 3,000 tokens, since an
        environment has no tokenizer."""
        code_seconds: int = 30
        """Seconds after which a turn's code is interrupted; must be well below rollout.step_seconds."""

    options: Options
    isolation = "venv"
    requires = (f"appworld=={VERSION}",)
    prepare = (("appworld", "install"),)  # unpacks the apps
    variables = ("APPWORLD_ROOT",)
    reward_range = (0.0, 1.0)
    splits = ("train", "dev", "test_normal", "test_challenge")
    expert_splits = ("train", "dev")

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._world: Any = None
        _library(options.data)  # takes seconds in a new process, which no step's deadline should pay for

    @classmethod
    def tasks(cls, split: str, options: Options) -> Sequence[Task]:
        folder = _folder(options.data)
        if not (folder / "datasets" / f"{split}.txt").is_file():
            return []
        names = _library(options.data).load_task_ids(split)
        tasks = [Task(name, split, _known(folder, name), name.partition("_")[0]) for name in names]
        return [task for task in tasks if task.data["difficulty"] <= options.hardest]

    def start(self, task: Task) -> Sequence[Message]:
        # The library interrupts code by a signal, which only a main thread gets.
        seconds = self.options.code_seconds if threading.current_thread() is threading.main_thread() else None
        self._world = _library(self.options.data).AppWorld(task.id, experiment_name=_RUN, timeout_seconds=seconds)
        who = self._world.task.supervisor
        opening = (
            f"I am {who.first_name} {who.last_name} (email {who.email}, phone number {who.phone_number}). "
            f"{self._world.task.instruction}"
        )
        return [Message("system", SYSTEM), Message("user", opening)]

    def step(self, action: Message) -> Step:
        try:
            printed = self._world.execute(code_of(action.content))
        except BaseException as error:  # what the library does not catch: KeyboardInterrupt, NUL, lone surrogates
            self._world.safety_guard.disable()
            self._world.environment_io.clear()
            printed = f"Execution failed. {type(error).__name__}: {error}"
        printed = printed.rstrip().encode(errors="replace").decode()
        return Step([Message("user", cut(printed, self.options.observation))], done=self._world.task_completed())

    def finish(self) -> Outcome:
        if self._world is None:
            return Outcome(0.0, False)
        try:
            found = self._world.evaluate()
        finally:
            self._world.close()  # the clock runs again
            shutil.rmtree(self._world.output_directory, ignore_errors=True)
        passed = [{"name": test["requirement"], "passed": True} for test in found.passes]
        failed = [{"name": test["requirement"], "passed": False} for test in found.failures]
        return Outcome(found.pass_count / found.num_tests, found.success, {"tests": passed + failed})

    def expert(self, task: Task) -> Player:
        """Return a player of the stored solution. Our small world stores it turn by turn; the benchmark has, for its
        train and dev tasks only, a solution that does everything in one turn."""
        truth = _folder(self.options.data) / "tasks" / task.id / "ground_truth"
        if (truth / "turns.json").is_file():
            return Script([react(*turn) for turn in json.loads((truth / "turns.json").read_text())])
        if not (truth / "compiled_solution.py").is_file():
            raise UserError(f"AppWorld has no solution for {task.id!r}: only train and dev come with them.")
        code = (truth / "compiled_solution.py").read_text()
        return Script([react("I do all of it.", f"{code}\nsolution(apis, requester)")])

    def baselines(self, task: Task) -> dict[str, Player]:
        at_once = Script([react("Done.", "apis.supervisor.complete_task()")])
        return {"nothing": Silent(), "complete at once": at_once}


def cut(text: str, limit: int) -> str:
    """Return at most `limit` characters of what was printed, whole lines if possible, and say how much was cut off."""
    if len(text) <= limit:
        return text
    end = text.rfind("\n", limit // 2, limit)
    end = limit if end < 0 else end
    return f"{text[:end]}\n[{len(text) - end} more characters were cut off. Print less at a time.]"


@cache
def _folder(data: str) -> Path:
    """Return the folder of AppWorld's data. Cached, because the library overwrites APPWORLD_ROOT."""
    given = os.environ.get("LONGLOOP_DATA")
    root = data or os.environ.get("APPWORLD_ROOT") or (given and os.path.join(given, "appworld"))
    if not root or not os.path.isdir(os.path.join(root, "data", "tasks")):
        where = f"{root} has no AppWorld data" if root else "It is not said where AppWorld's data is"
        raise UserError(
            f"{where}. Put it there with `appworld download data --root FOLDER` (in the virtualenv of `longloop envs "
            "install appworld`), or build our small world with `python recipes/appworld/mini.py FOLDER`, and set "
            "APPWORLD_ROOT or env.data to that folder."
        )
    return Path(root, "data").resolve()


def _known(folder: Path, name: str) -> dict[str, Any]:
    """Return a task's difficulty and, where the data says so, the apps it needs."""
    known = {"difficulty": _truth(folder, name, "metadata")["difficulty"]}
    told = (folder / "tasks" / name / "ground_truth" / "required_apps.json").is_file()
    return known | ({"apps": _truth(folder, name, "required_apps")} if told else {})


def _truth(folder: Path, name: str, what: str) -> Any:
    return json.loads((folder / "tasks" / name / "ground_truth" / f"{what}.json").read_text())


@cache
def _library(data: str) -> Any:
    """Return the package, set up to read this folder's data and to write to a folder of this process alone: attempts at
    one task in several processes do not interfere, and the data may be read-only."""
    folder = _folder(data)
    for left in Path(tempfile.gettempdir()).glob("longloop-appworld-*-*"):
        if not Path("/proc", left.name.split("-")[2]).exists():  # of a process that was killed
            shutil.rmtree(left, ignore_errors=True)
    home = tempfile.mkdtemp(prefix=f"longloop-appworld-{os.getpid()}-")
    os.symlink(folder, os.path.join(home, "data"))
    os.environ["APPWORLD_ROOT"] = home
    os.environ["IPYTHONDIR"] = os.path.join(home, "ipython")  # its shell would write to the user's home folder
    try:
        library = importlib.import_module("appworld")
        version = importlib.import_module("appworld.common.constants").DB_VERSION
    except ImportError as error:
        raise UserError(
            f"AppWorld cannot be imported here ({error}). It runs in a virtualenv of its own: `longloop envs install "
            "appworld` builds it."
        ) from error
    if library.__version__ != VERSION:
        raise UserError(
            f"AppWorld is {library.__version__} here and must be {VERSION}: `longloop envs install appworld` installs "
            "that."
        )
    specs = json.loads(next(folder.glob("tasks/*/specs.json")).read_text())
    if specs["db_version"] != version:
        raise UserError(
            f"The AppWorld data in {folder} is of version {specs['db_version']}, and appworld {VERSION} needs "
            f"{version}: get it with `appworld download data --root FOLDER`."
        )
    library.update_root(home)
    for app in importlib.import_module("appworld.apps").get_all_apps():
        importlib.import_module(f"appworld.apps.{app}.apis")
    return library
