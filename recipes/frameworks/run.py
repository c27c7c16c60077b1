"""Does a model learn inside an agent what it learns in the environment? LOOP trains it in `examples/frameworks` through
the agents of four frameworks, and in the same game as a plain environment, with equal seeds.

    python recipes/frameworks/run.py [--only NAME] [--steps N]      # what was run already is not run again
    python recipes/frameworks/run.py --table

It needs the frameworks' virtualenvs in `.venv-agents` (`make test-all` makes them). Each attempt is a process of its
own; unless `--cold` is given, it is forked from one that has imported the framework (`warm.py`).
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "frameworks"
WARM = Path(__file__).with_name("warm.py")
RUNS = Path("runs/frameworks")
SEEDS = (0, 1, 2)
CLIENT = "; import openai; openai.OpenAI(api_key='none').chat.completions"
"""What of OpenAI's client is imported when it is first used."""
FRAMEWORKS = {
    "openai": ("openai", "import openai" + CLIENT),
    "langgraph": ("langgraph", "import langchain_openai, langgraph.graph, langgraph.prebuilt" + CLIENT),
    "agents_sdk": ("openai-agents", "import agents" + CLIENT.replace("chat.completions", "responses")),
    "smolagents": ("smolagents", "import smolagents" + CLIENT),
}
"""Agent -> its virtualenv, and what is imported before attempts begin."""
TITLES = {"openai": "OpenAI's client", "langgraph": "LangGraph", "agents_sdk": "Agents SDK", "smolagents": "smolagents"}

sys.path[:0] = [str(ROOT), str(EXAMPLES)]

from longloop.stats import seed_interval  # noqa: E402
from longloop.store.run_reader import RunReader, load_run  # noqa: E402
from longloop.types import Group  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cold", action="store_true", help="start every agent anew, as training does")
    parser.add_argument("--only", choices=FRAMEWORKS, help="one framework")
    parser.add_argument("--steps", type=int, help="train and compare so many steps, in place of those of agent.toml")
    parser.add_argument("--table", action="store_true", help="print what was found")
    options = parser.parse_args()
    if not options.table:
        if not (RUNS / "model").exists():
            import small_model

            small_model.make(RUNS / "model")
        for name in [options.only] if options.only else FRAMEWORKS:
            measure(name, options.cold, [f"steps={options.steps}"] if options.steps else [])
    table(options.steps)


def measure(name: str, cold: bool, more: list[str]) -> None:
    """Train through a framework's agent, and in the plain environment."""
    virtualenv, imports = FRAMEWORKS[name]
    python, script = str(ROOT / ".venv-agents" / virtualenv / "bin" / "python"), str(EXAMPLES / f"{name}_agent.py")
    with contextlib.ExitStack() as after:
        command = [python, script]
        if not cold:
            command = [python, "-S", str(WARM), "run", after.enter_context(imported(python, imports)), script]
        for seed in SEEDS:
            agent = [f"env.command={json.dumps(command)}", f"env.tasks={EXAMPLES / 'tasks.jsonl'}"]
            train(f"{name}-{seed}", EXAMPLES / "agent.toml", f"seed={seed}", *more, *agent, "env.isolation=inline")
            train(f"plain-{name}-{seed}", plain_config(), f"seed={seed}", *more, f"env.framework={name}")


def plain_config() -> Path:
    """The agents' config, with the plain environment in place of theirs."""
    text = (EXAMPLES / "agent.toml").read_text()
    table = text[text.index("[env]") : text.index("[model]")]
    path = RUNS / "plain.toml"
    path.write_text(text.replace(table, '[env]\nname = "plain:GuessWithTool"\n\n'))
    return path


@contextlib.contextmanager
def imported(python: str, statement: str) -> Iterator[str]:
    """The socket of a process that has imported what a framework needs."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/socket"
        command = [python, str(WARM), "serve", path, statement]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            yield path
        finally:
            process.kill()
            process.wait()


def train(name: str, config: Path, *settings: str) -> None:
    """`longloop train`, in a process forked from this one, unless there is such a run."""
    if (RUNS / name).exists():
        return
    from longloop import build  # noqa: F401  (so that the fork has imported torch)
    from longloop.cli.main import main as longloop

    child = os.fork()
    if child == 0:
        places = [f"name={name}", f"folder={RUNS}", f"model.path={RUNS / 'model'}"]
        sys.argv = ["longloop", "train", str(config), *places, "doctor=false", *settings]
        code = 1
        try:
            longloop()
            code = 0
        except SystemExit as ended:
            code = int(bool(ended.code))
        finally:
            os._exit(code)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{RUNS / name} failed; delete it, and run this again.")


def table(steps: int | None) -> None:
    print(
        "| | attempts | failed | contexts restarted, of turns | largest ratio gap | success, first five steps, % |",
        end="",
    )
    print(" last five | last five, plain environment | steps equal to the bit |")
    print("|---|---:|---:|---:|---:|---|---|---|---:|")
    for name, title in TITLES.items():
        pairs = [
            (load_run(RUNS / f"{name}-{seed}"), load_run(RUNS / f"plain-{name}-{seed}"))
            for seed in SEEDS
            if (RUNS / f"plain-{name}-{seed}").exists()
        ]
        if pairs:
            print(f"| {title} | " + " | ".join(cells(pairs, steps)) + " |")


def cells(pairs: list[tuple[RunReader, RunReader]], most: int | None) -> list[str]:
    """What the runs through a framework and their twins in the plain environment came to."""
    found = [list(zip(steps_of(ours), steps_of(plain), strict=False))[:most] for ours, plain in pairs]
    through = [step for steps in found for step, _ in steps]
    trajectories = [t for step in through for group in step.groups for t in group.trajectories]
    turns = [turn for t in trajectories for turn in t.turns]
    first, last, plain = (
        [fmean(pair[side].metrics["success"] for pair in steps[some]) for steps in found]
        for side, some in ((0, slice(5)), (0, slice(-5, None)), (1, slice(-5, None)))
    )
    same = sum(one.equals(other) for steps in found for one, other in steps)
    return [
        f"{len(trajectories):,}",
        str(sum(not t.stop.scored for t in trajectories)),
        f"{sum(turn.restarts_context for turn in turns):,} of {len(turns):,}",
        f"{max(step.metrics['update']['ratio_gap'] for step in through if step.metrics['updates']):.1e}",
        percent(first),
        percent(last),
        percent(plain),
        f"{same} of {len(through)}",
    ]


@dataclass(frozen=True)
class TrainingStep:
    """What a run kept of a step."""

    metrics: dict[str, Any]
    groups: list[Group]

    def equals(self, other: "TrainingStep") -> bool:
        """Whether ids, log-probs, rewards and updates are the same, to the bit."""
        ours, theirs = ([t for group in step.groups for t in group.trajectories] for step in (self, other))
        return self.metrics["update"] == other.metrics["update"] and all(
            t.reward == u.reward
            and len(t.turns) == len(u.turns)
            and all(
                np.array_equal(getattr(a, column), getattr(b, column))
                for a, b in zip(t.turns, u.turns, strict=True)
                for column in ("context_ids", "action_ids", "action_logprobs")
            )
            for t, u in zip(ours, theirs, strict=True)
        )


def steps_of(run: RunReader) -> list[TrainingStep]:
    trained = [metrics for metrics in run.metrics if "success" in metrics]
    return [TrainingStep(metrics, run.trajectories(metrics["step"])) for metrics in trained]


def percent(shares: list[float]) -> str:
    """The mean over seeds with its 95% interval, in percent."""
    mean, interval = seed_interval(shares)
    return f"{100 * mean:.1f}" + (f" [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]" if interval else "")


if __name__ == "__main__":
    main()
