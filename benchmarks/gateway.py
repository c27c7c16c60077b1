"""What the gateway adds to an agent's call: 64 agents at once, each a process that talks to its own conversation.

    .venv/bin/python benchmarks/gateway.py

The policy is an engine that sleeps, as one that is busy on a GPU would, so that the machine's cores are free for the
gateway. An agent measures each of its calls, from before it sends the request until it has read the answer, over one
connection as API clients keep it. What the policy took is subtracted; the rest was added by HTTP, the worker's pipe,
the chat template and everything between.
"""

import argparse
import asyncio
import contextlib
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any

import common
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from longloop.gateway.env import Agent
from longloop.isolation.environments import Environments
from longloop.isolation.pool import Pool
from longloop.types import Sampled, SamplingParams, Start, Task, Trajectory
from tests.support.worlds import CHAT, rollouts

AGENT = """
import http.client, json, os, sys, time
from urllib.parse import urlsplit
task, url = json.loads(os.environ["LONGLOOP_TASK"]), urlsplit(os.environ["OPENAI_BASE_URL"])
head = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
connection = http.client.HTTPConnection(url.hostname, url.port)
messages, seconds = [{"role": "user", "content": "go " * 100}], []
for _ in range(task["calls"]):
    began = time.perf_counter()
    connection.request("POST", url.path + "/chat/completions", json.dumps({"messages": messages}), head)
    said = json.loads(connection.getresponse().read())["choices"][0]["message"]["content"]
    seconds.append(time.perf_counter() - began)
    messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "on"}]
json.dump({"reward": 1, "info": {"seconds": seconds}}, open(os.environ["LONGLOOP_OUTCOME"], "w"))
"""


class Sleeping:
    """An engine that takes its time, and no processor."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._random = seconds, random.Random(0)

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
        await asyncio.sleep(self._seconds * self._random.uniform(0.5, 1.5))
        said = np.array(CHAT.action_ids("i will look at the next one"))
        return Sampled(said, np.zeros(len(said)), "stop")

    def forget(self, session: str) -> None: ...

    def release(self) -> None: ...


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=64)
    parser.add_argument("--calls", type=int, default=20, help="of each agent")
    parser.add_argument("--sampling", type=float, default=2.0, help="mean seconds that the policy takes for an answer")
    options = parser.parse_args()
    print(f"{common.machine()}, load {os.getloadavg()[0]:.1f}\n")
    print(f"{options.agents} agents at once, {options.calls} calls each, answers after {options.sampling:g} s (mean)\n")
    print("| | calls | added, median | 90% | 99% |\n|---|---:|---:|---:|---:|")
    for isolation in ("inline", "process"):
        added = [1e3 * one for t in played(isolation, options) for one in differences(t)]
        marks = quantiles(added, n=100)
        print(f"| {isolation} | {len(added)} | {marks[49]:.1f} ms | {marks[89]:.1f} ms | {marks[98]:.1f} ms |")


def played(isolation: str, options: argparse.Namespace) -> list[Trajectory]:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as after:
        (Path(folder) / "agent.py").write_text(AGENT)
        chosen = Agent.Options(command=[sys.executable, "-S", str(Path(folder) / "agent.py")])
        pool = None
        if isolation == "process":
            limits: dict[str, Any] = {"memory": 2000, "disk": 200, "cpu": 600.0, "episodes": 100}
            pool = Pool(Agent, chosen, python=sys.executable, path=sys.path, size=options.agents, **limits)
            after.callback(pool.close)
        world = Environments(Agent, chosen, pool)
        what = rollouts(world.make, max_turns=options.calls + 1, concurrency=options.agents, seconds=600.0)
        what.context.engine.sample = Sleeping(options.sampling).sample  # type: ignore[method-assign]
        start = Start(Task("t", "train", {"calls": options.calls}))
        (group,) = asyncio.run(what.play([start], options.agents, seed=0))
    for one in group.trajectories:
        assert one.reward == 1.0, one.error
    return list(group.trajectories)


def differences(trajectory: Trajectory) -> list[float]:
    """What each call took beyond the policy's time; not the first, which also waits for other agents to be started."""
    pairs = zip(trajectory.info["seconds"], trajectory.turns, strict=True)
    return [seconds - turn.seconds["sample"] for seconds, turn in pairs][1:]


if __name__ == "__main__":
    main()
