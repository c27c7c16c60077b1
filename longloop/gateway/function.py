"""The program of an agent that is a Python function: `python -m longloop.gateway.function module:function`.

The function is called with the task, the endpoint's address and the key; it may be a coroutine. What it returns, unless
it is None, is the agent's report of itself.
"""

import asyncio
import inspect
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from longloop.envs.judge import found, outcome_of
from longloop.types import Task


def main() -> None:
    function = found(sys.argv[1], "agent")
    task = Task(**json.loads(os.environ.pop("LONGLOOP_WHOLE_TASK")))
    answer = function(task, os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"])
    if inspect.iscoroutine(answer):
        answer = asyncio.run(answer)
    file = os.environ.get("LONGLOOP_OUTCOME")
    if answer is not None and file:
        Path(file).write_text(json.dumps(asdict(outcome_of(answer, "the agent"))))


if __name__ == "__main__":
    main()
