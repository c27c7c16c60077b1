"""Agents that must never succeed: what they score is the floor that any result must be read against."""

import random

from errands.apps import BY_NAME
from errands.catalog import by_name, setting
from errands.people import FIRST, LAST
from errands.written import login_code
from longloop import Player, Task
from longloop.envs.play import Script, Silent
from longloop.envs.react import react

_DESTROYS = ("delete", "clear", "remove", "cancel", "empty", "decline", "leave", "withdraw")
_IDS = 60
"""Rows of each kind that the destroyer tries; the tables it finds are about that long."""


def baselines(task: Task) -> dict[str, Player]:
    """The agents, by what they do."""
    rng = random.Random(f"baseline/{task.id}")
    turns = _destruction(by_name()[task.data["scenario"]].apps())
    if disguise := setting(task.data["scenario"], task.data["world"]).disguise:
        turns = [disguise.turn(*turn) for turn in turns]
    answers = (rng.randrange(100), f"{rng.choice(FIRST)} {rng.choice(LAST)}", round(rng.uniform(1, 200), 2))
    return {
        "nothing": Silent(),
        "complete at once": Script([react("Done.", "apis.owner.complete_task()")]),
        "answer at random": Script([react("A guess.", f"apis.owner.complete_task(answer={rng.choice(answers)!r})")]),
        "delete everything": Script([react(*turn) for turn in turns]),
    }


def _destruction(apps: list[str]) -> list[tuple[str, str]]:
    """Everything in the errand's apps that can be deleted by a number, for every number."""
    turns = []
    for app in (BY_NAME[name] for name in apps):
        turns.append(("I log in.", login_code(app.name)))
        for api in app.apis.values():
            needed = [p.name for p in api.parameters.values() if p.name != "access_token" and p.text.find("=") < 0]
            if not api.name.startswith(_DESTROYS) or len(needed) > 1:
                continue
            argument = f"{needed[0]}=i, " if needed else ""
            call = f"apis.{app.name}.{api.name}({argument}access_token={app.name})"
            loop = f"for i in range(1, {_IDS if needed else 2}):"
            turns.append((f"{api.name}.", f"{loop}\n    try:\n        {call}\n    except Exception:\n        pass"))
    return [*turns, ("Done.", "apis.owner.complete_task()")]
