"""Build a small world of our own for AppWorld's engine: `python mini.py FOLDER`, with the Python that has `appworld`.

Five scenarios with three tasks each over five apps, in the layout that the benchmark's data has: what runs on the one
runs on the other. People, notes, instructions, tests and solutions are ours; the engine, the apps and
their documentation come from the installed package, and what is taken from it stays in FOLDER. Its licence asks that
this part is never published in plain text: do not put FOLDER into a repository.

A scenario is a file in `scenarios/`. It is also what AppWorld imports to judge its tasks: it has `evaluate`.
"""

import importlib
import json
import os
import re
import shutil
import sys
import warnings
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NOW = datetime(2026, 5, 1, 9)
APPS = ("simple_note", "phone", "venmo", "file_system", "todoist")
"""Those in which people have accounts."""


@dataclass
class Person:
    first: str
    last: str
    phone: str
    birthday: str
    tokens: dict[str, str] = field(default_factory=dict)
    """What each app gave at log-in."""

    @property
    def name(self) -> str:
        return f"{self.first} {self.last}"

    @property
    def email(self) -> str:
        return f"{self.first}.{self.last}@example.com".lower()

    @property
    def profile(self) -> dict[str, str]:
        return {
            "first_name": self.first,
            "last_name": self.last,
            "email": self.email,
            "phone_number": self.phone,
        }

    def password(self, app: str) -> str:
        return f"{self.first.lower()}-{app}"

    def login(self, app: str) -> str:
        return self.phone if app == "phone" else self.email


OWNERS = (
    Person("Nora", "Lindt", "5550100001", "1990-02-03"),
    Person("Tariq", "Bell", "5550100002", "1984-11-21"),
    Person("Sofie", "Marin", "5550100003", "1997-07-30"),
)
"""Whose task it is: the first task of a scenario is the first one's, and so on."""
FRIENDS = (
    Person("Mira", "Cole", "5550100011", "1991-01-09"),
    Person("Jonas", "Falk", "5550100012", "1988-04-17"),
    Person("Ruth", "Amsel", "5550100013", "1979-09-05"),
    Person("Leo", "Sanz", "5550100014", "1995-12-12"),
)


def build(folder: Path) -> None:
    os.environ["APPWORLD_ROOT"] = str(folder.resolve())  # read when the package is imported
    data = folder.resolve() / "data"
    if data.exists():
        shutil.rmtree(data)
    (data / "base_dbs").mkdir(parents=True)
    _documentation(data)
    _accounts(data)
    splits: dict[str, list[str]] = {}
    for path in sorted((HERE / "scenarios").glob("*.py")):
        scenario = importlib.import_module(f"scenarios.{path.stem}")
        for number, task in enumerate(scenario.TASKS, start=1):
            name = f"{path.stem}_{number}"
            _task(data, name, scenario, task, OWNERS[number - 1])
            splits.setdefault(scenario.SPLIT, []).append(name)
            shutil.copy(path, data / "tasks" / name / "ground_truth" / "evaluation.py")
    (data / "datasets").mkdir()
    for split, names in splits.items():
        (data / "datasets" / f"{split}.txt").write_text("\n".join(names) + "\n")


def _documentation(data: Path) -> None:
    """What the `api_docs` app shows, made from the installed apps."""
    from appworld.apps import get_all_apps
    from appworld.collections.api_docs import ApiDocCollection

    docs = ApiDocCollection.build(load_apps=tuple(get_all_apps(skip_admin=True)))
    for app, by_name in docs.items():
        _write(
            data / "api_docs" / "standard" / f"{app}.json",
            {name: {**doc, "canary_string": ""} for name, doc in by_name.items()},
        )


def _accounts(data: Path) -> None:
    """The databases that all tasks start from: everyone has an account in every app, and nothing else is there."""
    from appworld.apps import get_all_apps
    from appworld.apps.api_lib import set_local_date_and_time, unset_local_date_and_time
    from appworld.collections.models import ModelCollection

    clock = set_local_date_and_time(NOW)
    base = str(data / "base_dbs")
    models = ModelCollection.load(base, base, load_apps=get_all_apps(), create_db=True)
    for person in OWNERS + FRIENDS:
        models.admin.MainUser(**person.profile, birthday=person.birthday).save()
        for app in APPS:
            profile = person.profile
            profile.pop("email" if app == "phone" else "phone_number")
            extra: dict[str, Any] = {} if app == "phone" else {"verified": True}
            extra |= {"venmo_balance": 500.0} if app == "venmo" else {}
            models[app].User(**profile, password=person.password(app), **extra).save()
    models.close()
    unset_local_date_and_time(clock)


def _task(data: Path, name: str, scenario: Any, task: dict[str, Any], owner: Person) -> None:
    from appworld.apps import get_all_apps
    from appworld.collections.apis import ApiCollection
    from appworld.collections.models import ModelCollection
    from appworld.common.constants import DB_VERSION

    instruction = scenario.INSTRUCTION.format(**task)
    base, memory = str(data / "base_dbs"), f":memory:mini-{name}"
    apps = get_all_apps()
    models = ModelCollection.load(memory, base, load_apps=apps)
    apis, _ = ApiCollection.load(memory, base, date_and_time=NOW, load_apps=apps)
    for person in (owner, *FRIENDS):
        person.tokens = {app: _log_in(apis, person, app) for app in scenario.APPS}
    scenario.prepare(apis, owner, {friend.name: friend for friend in FRIENDS}, task)
    supervisor = models.supervisor.Supervisor(**owner.profile, birthday=owner.birthday)
    supervisor.save()
    for app in APPS:
        row = {"supervisor_id": supervisor.id, "account_name": app, "password": owner.password(app)}
        models.supervisor.AccountPassword(**row).save()
    models.supervisor.Task(supervisor_id=supervisor.id, instruction=instruction).save()
    folder = data / "tasks" / name
    models.save(str(folder / "dbs"), format="changes", app_names=list(apps))
    apis.close()
    models.close()

    specs = {"instruction": instruction, "supervisor": owner.profile, "datetime": NOW.isoformat()}
    _write(folder / "specs.json", {**specs, "db_version": DB_VERSION, "canary_string": ""})
    truth = folder / "ground_truth"
    labels = {False: "no_op_fail", True: "no_op_pass"}
    turns = _turns(scenario, task, owner)
    code = "\n".join(code for _, code in turns)
    metadata = {
        "difficulty": scenario.DIFFICULTY,
        "mode": "minimal",
        "num_apps": len(scenario.APPS),
        "num_apis": len(set(re.findall(r"apis\.\w+\.\w+", code))),
        "num_solution_code_lines": len(code.splitlines()),
    }
    _write(truth / "metadata.json", metadata)
    _write(truth / "answer.json", scenario.answer(task))
    _write(truth / "public_data.json", {})
    _write(truth / "private_data.json", task)
    _write(
        truth / "test_data.json", [{"requirement": test, "label": labels[met]} for test, met in scenario.TESTS.items()]
    )
    _write(truth / "turns.json", turns)


def _log_in(apis: Any, person: Person, app: str) -> str:
    return apis[app].login(username=person.login(app), password=person.password(app))["access_token"]


def _turns(scenario: Any, task: dict[str, Any], owner: Person) -> list[tuple[str, str]]:
    """How the task is done, as thoughts and code."""
    lines = [
        "rows = apis.supervisor.show_account_passwords()",
        "passwords = {r['account_name']: r['password'] for r in rows}",
    ]
    for app in scenario.APPS:
        call = f"apis.{app}.login(username={owner.login(app)!r}, password=passwords[{app!r}])"
        lines.append(f"{app} = {call}['access_token']")
    given = "" if scenario.answer(task) is None else "answer=answer"
    return [
        ("I log in where I need to.", "\n".join(lines)),
        *scenario.turns(task),
        ("That is all.", f"apis.supervisor.complete_task({given})"),
    ]


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python mini.py FOLDER")
    warnings.simplefilter("ignore")
    build(Path(sys.argv[1]))
    print(f"Built. To use it: export APPWORLD_ROOT={Path(sys.argv[1]).resolve()}")
