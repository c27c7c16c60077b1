"""What an attempt at an ALFWorld game costs: upstream's engine and ours, in seconds of CPU.

    ALFWORLD_DATA=FOLDER ~/.cache/longloop/envs/alfworld/bin/python benchmarks/alfworld.py [--games 6] [--attempts 8]

Run it with the Python of ALFWorld's virtualenv. Every side plays the walkthroughs of the same games in a process of its
own, each game several times in a row, as the K rollouts of a task are. `first` has nothing on disk; `another worker`
comes after it, and finds its translations. Imports are not counted.

With `--floors SPLIT` instead: what the experts and the baselines score on a split.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean, median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # not this folder, in which a module is called alfworld


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=6)
    parser.add_argument("--attempts", type=int, default=8, help="at each game")
    parser.add_argument("--floors", metavar="SPLIT", help="print scores on this split, and nothing else")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(side(options.side == "upstream", options.games, options.attempts)))
        return
    if options.floors:
        floors(options.floors)
        return
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; Python {sys.version.split()[0]}"
    )
    print(f"{options.games} games of valid_seen, {options.attempts} attempts each\n")
    print("| engine | first start, s | next start, s | all attempts at a game, s | steps a second | peak MB |")
    print("|---|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as cache:
        for name in ("upstream", "first", "another worker"):
            arguments = ["--side", name, "--games", str(options.games), "--attempts", str(options.attempts)]
            done = subprocess.run(
                [sys.executable, __file__, *arguments],
                env=os.environ | {"XDG_CACHE_HOME": cache},
                stdout=subprocess.PIPE,
                check=True,
            )
            found = json.loads(done.stdout.splitlines()[-1])
            first, following, whole = (median_range(found[key]) for key in ("first", "next", "whole"))
            print(f"| {name} | {first} | {following} | {whole} | {found['rate']:.0f} | {found['peak']:.0f} |")


def floors(split: str) -> None:
    """Everyone who needs no model: 150 turns for the handcoded expert, 40 for the others."""
    from longloop.envs.alfworld.env import Alfworld
    from longloop.envs.play import Played, play

    tasks = Alfworld.tasks(split, Alfworld.Options())
    found: dict[str, list[Played]] = {}
    for task in tasks:
        for name in ("walkthrough", "handcoded", "random", "nothing"):
            expert = name in ("walkthrough", "handcoded")
            env = Alfworld(Alfworld.Options(expert=name if expert else "walkthrough"))
            player = env.expert(task) if expert else env.baselines(task)[name]
            turns = 150 if name == "handcoded" else 40
            found.setdefault(name, []).append(asyncio.run(play(env, task, player, turns)))
    print(f"| {split}, {len(tasks)} games | success | turns, mean (most) |\n|---|---:|---:|")
    for name, played in found.items():
        turns_taken = [one.turns for one in played]
        success = fmean(one.outcome.success for one in played)
        print(f"| {name} | {success:.3f} | {fmean(turns_taken):.1f} ({max(turns_taken)}) |")


def side(upstream: bool, games: int, attempts: int) -> dict[str, Any]:
    files = sorted(Path(os.environ["ALFWORLD_DATA"]).glob("json_2.1.1/valid_seen/*/*/game.tw-pddl"))
    random.Random(0).shuffle(files)
    opened = theirs if upstream else ours
    import alfworld.agents.environment.alfred_tw_env  # noqa: F401  (what is imported is not counted)
    import textworld.envs  # noqa: F401

    starts: list[list[float]] = []
    wholes, steps, stepping = [], 0, 0.0
    for file in files[:games]:
        lines = json.loads(file.read_text())["walkthrough"]
        began, costs = time.process_time(), []
        for _ in range(attempts):
            start = time.process_time()
            step = opened(file)
            costs.append(time.process_time() - start)
            start = time.process_time()
            won = [step(line) for line in lines][-1]
            stepping += time.process_time() - start
            steps += len(lines)
            assert won, file
        wholes.append(time.process_time() - began)
        starts.append(costs)
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return {
        "first": [costs[0] for costs in starts],
        "next": [cost for costs in starts for cost in costs[1:]],
        "whole": wholes,
        "rate": steps / stepping,
        "peak": int(peak.split()[1]) / 1024,
    }


def theirs(file: Path) -> Any:
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
    from textworld import EnvInfos
    from textworld.envs import PddlEnv

    env = AlfredDemangler(env=PddlEnv(EnvInfos(won=True, admissible_commands=True)))
    env.load(str(file))
    env.reset()
    return lambda line: env.step(line)[0]["won"]


def ours(file: Path) -> Any:
    from longloop.envs.alfworld.pddl import Game

    game = Game(file)

    def step(line: str) -> bool:
        game.step(line)
        return game.won

    return step


def median_range(values: list[float]) -> str:
    """`median [lowest..highest]`."""
    return f"{median(values):.2f} [{min(values):.2f}..{max(values):.2f}]"


if __name__ == "__main__":
    main()
