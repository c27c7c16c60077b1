"""What the gateway adds to an agent's call: 64 agents at once, each a process that talks to its own conversation.

    .venv/bin/python benchmarks/gateway.py
    .venv/bin/python benchmarks/gateway.py --engine native --calls 4

The policy is an engine that sleeps, as one that is busy on a GPU would, so that the machine's cores are free for the
gateway; or, with `--engine native`, longloop's own with a random model of 6M weights, whose passes take the event loop
and a core: a call that comes in the middle of one waits for its end.

Each call is measured twice. The agent does, from before it sends the request until it has read the answer, over one
connection as API clients keep it. And the server does: from the request's first bytes until the policy is asked, and
from the policy's answer until the response has been written. What the policy took is subtracted; the rest was added by
HTTP, the worker's pipe, the chat template and everything between. The last columns are CPU time for a call, of the
trainer's process and, where agents run in workers, of the worker's: what a busy machine changes least. On one, the
clock measures the others' work: give this benchmark priority (`chrt -r 1`), which takes little with an engine that
sleeps.
"""

import argparse
import asyncio
import contextlib
import os
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

import common
import numpy as np
from gateway_agent import Measured

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from longloop.config import RolloutConfig
from longloop.engines.engine import NativeEngine
from longloop.isolation.environments import Environments
from longloop.isolation.pool import Pool
from longloop.rollout.episode import RolloutContext
from longloop.rollout.groups import GroupRollouts
from longloop.tokens.chat import Chat
from longloop.types import Sampled, SamplingParams, Start, Task, Trajectory

AGENT = """
import http.client, json, os, sys, time
from urllib.parse import urlsplit
task, url = json.loads(os.environ["LONGLOOP_TASK"]), urlsplit(os.environ["OPENAI_BASE_URL"])
head = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
connection = http.client.HTTPConnection(url.hostname, url.port)
messages, seconds = [{"role": "user", "content": " ".join(f"w{n}" for n in range(100))}], []
for _ in range(task["calls"]):
    began = time.perf_counter()
    connection.request("POST", url.path + "/chat/completions", json.dumps({"messages": messages}), head)
    said = json.loads(connection.getresponse().read())["choices"][0]["message"]["content"]
    seconds.append(time.perf_counter() - began)
    messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "w1 w2"}]
json.dump({"reward": 1, "info": {"outside": seconds}}, open(os.environ["LONGLOOP_OUTCOME"], "w"))
"""
ANSWER = 40
"""The most tokens of an answer; of the sleeping engine's, there are eight."""


class Timed:
    """An engine with a record of its calls: when each began and ended, by session; and the CPU time of the process."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.calls: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        self.cpu: list[float] = []
        self.forget, self.release = engine.forget, engine.release

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
        began = time.perf_counter()
        self.cpu.append(time.process_time())
        sampled: Sampled = await self._engine.sample(ids, params, session=session)
        self.calls[session].append((began, time.perf_counter()))
        return sampled


class Sleeping:
    """An engine that takes its time, and no processor."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._random = seconds, random.Random(0)

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
        await asyncio.sleep(self._seconds * self._random.uniform(0.5, 1.5))
        said = np.array([3, 1, 4, 1, 5, 9, 2, min(params.stop_ids)])
        return Sampled(said, np.zeros(len(said)), "stop")

    def forget(self, session: str) -> None: ...

    def release(self) -> None: ...


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=64)
    parser.add_argument("--calls", type=int, default=20, help="of each agent")
    parser.add_argument("--engine", choices=("sleeping", "native"), default="sleeping")
    parser.add_argument("--sampling", type=float, default=2.0, help="mean seconds that the sleeping engine takes")
    options = parser.parse_args()
    print(f"{common.machine()}, load {os.getloadavg()[0]:.1f}\n")
    print(f"{options.agents} agents at once, {options.calls} calls each, engine: {options.engine}\n")
    print("| agents in | calls | added, median | 95% | inside, before | after | both, 95% | CPU, trainer | worker |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for isolation in ("inline", "process"):
        engine, trajectories = played(isolation, options)
        outside, before, after, worker = [], [], [], []
        for t in trajectories:
            calls = engine.calls[f"gateway/0/{t.attempt}"]
            rows = zip(t.info["outside"], t.info["inside"], calls, strict=True)
            for whole, (first, last, _), (asked, answered) in list(rows)[1:]:  # the first waits for others to start
                outside.append(whole - (answered - asked))
                before.append(asked - first)
                after.append(last - answered)
            worker.append((t.info["inside"][-1][2] - t.info["inside"][0][2]) / (len(calls) - 1))
        both = [one + other for one, other in zip(before, after, strict=True)]
        begun = options.agents  # starting the agents is not part of a call
        trainer = (engine.cpu[-1] - engine.cpu[begun]) / (len(engine.cpu) - 1 - begun)
        cells = [marks(outside, 50), marks(outside, 95), marks(before, 50), marks(after, 50), marks(both, 95)]
        cpu = [f"{1e3 * trainer:.1f} ms", f"{1e3 * fmean(worker):.1f} ms" if isolation == "process" else ""]
        print(f"| {isolation} | {len(outside)} | " + " | ".join(cells + cpu) + " |", flush=True)


def marks(seconds: Sequence[float], percent: int) -> str:
    return f"{1e3 * quantiles(seconds, n=100)[percent - 1]:.1f} ms"


def played(isolation: str, options: argparse.Namespace) -> tuple[Timed, list[Trajectory]]:
    policy = common.policy(common.random_model("small"))
    chat = Chat(policy.tokenizer, policy.end_ids)
    limits = RolloutConfig(
        max_turns=options.calls + 1,
        turn_tokens=ANSWER,
        context=120 + options.calls * (ANSWER + 10),
        concurrency=options.agents,
        seconds=600.0,
    )
    if options.engine == "native":
        engine = Timed(NativeEngine(policy, chat, slots=options.agents, context=limits.context))
    else:
        engine = Timed(Sleeping(options.sampling))
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as after:
        (Path(folder) / "agent.py").write_text(AGENT)
        chosen = Measured.Options(command=[sys.executable, "-S", str(Path(folder) / "agent.py")])
        pool = None
        if isolation == "process":
            most: dict[str, Any] = {"memory": 2000, "disk": 200, "cpu": 600.0, "episodes": 100}
            pool = Pool(Measured, chosen, python=sys.executable, path=sys.path, size=options.agents, **most)
            after.callback(pool.close)
        world = Environments(Measured, chosen, pool)
        context = RolloutContext(world.make, chat, engine, limits, SamplingParams())
        start = Start(Task("t", "train", {"calls": options.calls}))
        (group,) = asyncio.run(GroupRollouts(context, "gateway").play([start], options.agents, seed=0))
    for one in group.trajectories:
        assert one.reward == 1.0, one.error
    return engine, list(group.trajectories)


if __name__ == "__main__":
    main()
