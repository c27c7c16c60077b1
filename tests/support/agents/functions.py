"""Agents that are functions, and judges."""

import json
import os
import sys
import urllib.request

from longloop.envs.judge import Attempt
from longloop.types import Outcome, Task


def ask(base_url: str, api_key: str, text: str) -> str:
    body = json.dumps({"messages": [{"role": "user", "content": text}]}).encode()
    head = {"authorization": f"Bearer {api_key}", "content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{base_url}/chat/completions", body, head)) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]


async def solve(task: Task, base_url: str, api_key: str) -> dict[str, object]:
    said = ask(base_url, api_key, f"{task.id}: {task.data['question']}")
    return {"reward": 0.5, "info": {"said": said, "data": sorted(task.data), "python": sys.version_info[0]}}


def number(task: Task, base_url: str, api_key: str) -> float:
    ask(base_url, api_key, "go")
    return 1.0


def nothing(task: Task, base_url: str, api_key: str) -> None:
    ask(base_url, api_key, "go")


def looks(attempt: Attempt) -> Outcome:
    """Pays 0.25, and shows what it was given."""
    files = {path.name: json.loads(path.read_text()) for path in sorted(attempt.folder.glob("*.json"))}
    said = [[message.content for message in one] for one in attempt.conversations]
    info = {"files": files, "said": said, "finished": attempt.finished, "output": attempt.output[-20:]}
    return Outcome(0.25, False, info | {"secret": attempt.task.data.get("judge"), "pid": os.getpid()})


async def pays(attempt: Attempt) -> bool:
    return True


def raises(attempt: Attempt) -> float:
    raise ValueError("cannot tell")


def wrong(attempt: Attempt) -> str:
    return "very good"
