"""Measures the learning curve of every algorithm's page: `.venv/bin/python docs/curves.py [NAME ...]`.

Each command is run with seeds 0, 1 and 2; the evaluations of its runs are written to docs/algorithms/curves.json, from
which `make docs` draws the pictures. NAMEs are algorithms; without one, all are measured.
"""

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).parent
CONFIG = "docs/algorithms/curve.toml"
MEASURED = DOCS / "algorithms" / "curves.json"
SEEDS = (0, 1, 2)

START = "name=start algo.name=sft algo.k=1 algo.lr=3e-3 steps=12 tasks_per_step=3 eval.every=0"
"""A short imitation of the expert, from which methods begin that do not start from random weights."""

SETTINGS = {
    "loop": "algo.lr=1.5e-3",
    "reinforce": "algo.lr=3e-3 rollout.turn_tokens=1",
    "rloo": "algo.lr=3e-3 rollout.turn_tokens=1",
    "grpo": "algo.lr=2e-3 algo.kl=0.001 rollout.turn_tokens=1",
    "dr_grpo": "algo.lr=3e-3 algo.divisor=4.0 rollout.turn_tokens=1",
    "dapo": "algo.lr=3e-3 algo.tries=3 rollout.turn_tokens=1",
    "gspo": "algo.lr=1.5e-3 algo.clip_low=0.1 algo.clip_high=0.1 algo.epochs=2 algo.minibatch=32",
    "ppo": "algo.lr=1.5e-3 algo.warmup=3",
    "sft": "algo.lr=3e-3 algo.k=1 tasks_per_step=3 steps=60",
    "sft_gt": "algo.lr=3e-3 algo.k=1 tasks_per_step=3 steps=60",
    "ei": "algo.lr=2e-3 steps=60 model.path=runs/start",
    "rft": "algo.lr=1e-3 algo.epochs=20 algo.k=20 steps=5 eval.every=1 model.path=runs/start",
    "nat": "algo.lr=3e-3 algo.k=2 steps=50 model.path=runs/start",
    "dpo": "algo.lr=1.5e-3 algo.minibatch=8 tasks_per_step=3 steps=30 eval.every=3 model.path=runs/start",
    "dmpo": "algo.lr=1e-3 algo.k=6 algo.epochs=1 algo.minibatch=64 algo.weight_decay=0.01 steps=80 "
    "model.path=runs/start",
    "eto": "algo.lr=2e-3 algo.minibatch=8 tasks_per_step=3 steps=12 eval.every=2 model.path=runs/start",
    "spin": "algo.lr=2e-3 algo.minibatch=8 tasks_per_step=3 steps=12 eval.every=2 model.path=runs/start",
    "tree_dpo": "algo.lr=5e-4 algo.k=12 algo.minibatch=8 steps=15 eval.every=3 model.path=runs/start",
    "stepagent_implicit": "algo.lr=2e-3 algo.k=1 steps=30 eval.every=5 model.path=runs/start",
    "stepagent_inverse": "algo.lr=1e-3 algo.practice=12 algo.head_lr=1e-2 steps=30 eval.every=5 model.path=runs/start",
}
"""What each method is given besides the config. The papers' learning rates are for models a thousand times larger."""

sys.path.insert(0, str(DOCS.parent))
from tests.learning.test_composed import COMMON, LEARNS  # noqa: E402

_SAME = ("algo.k=8", "tasks_per_step=6", "eval.every=0", "save.every=60")
"""Settings of the learning tests that the config has, or that a curve must have otherwise."""
SETTINGS |= {
    name: " ".join(
        f"{key}={value}"
        for key, value in dict(word.split("=", 1) for word in (*COMMON, *own)).items()
        if f"{key}={value}" not in _SAME
    )
    for name, own in LEARNS.items()
}


def commands(name: str) -> list[str]:
    """The commands that a reader types to see the curve of a method for themselves."""
    start = [f"longloop train {CONFIG} {START}"] if "runs/start" in SETTINGS[name] else []
    return [*start, f"longloop train {CONFIG} name={name}-N seed=N algo.name={name} {SETTINGS[name]}"]


def measure(name: str, folder: Path) -> dict[str, list]:
    """The steps at which a method was evaluated, and its success there, one list for each seed."""
    curves = []
    for seed in SEEDS:
        settings = SETTINGS[name].replace("runs/start", f"{folder}/start")
        run(f"name={name}-{seed} seed={seed} algo.name={name} {settings}", folder)
        lines = [json.loads(line) for line in (folder / f"{name}-{seed}" / "metrics.jsonl").read_text().splitlines()]
        curves.append({line["step"]: line["eval"]["success"] for line in lines if "eval" in line})
    return {"steps": list(curves[0]), "success": [[round(value, 4) for value in curve.values()] for curve in curves]}


def run(settings: str, folder: Path) -> None:
    """`longloop train` with these settings, in a process forked from this one, which has imported torch already."""
    import longloop.build  # noqa: F401
    from longloop.cli.main import main

    child = os.fork()
    if child == 0:
        sys.argv = ["longloop", "train", str(DOCS.parent / CONFIG), *settings.split(), f"folder={folder}"]
        code = 1
        try:
            with (folder / "log").open("a") as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
                main()
        except SystemExit as exit:
            code = exit.code or 0
        finally:
            os._exit(code)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{settings}: the run failed.\n{(folder / 'log').read_text()[-2000:]}")


if __name__ == "__main__":
    measured = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        run(START, Path(temporary))
        for name in sys.argv[1:] or SETTINGS:
            measured[name] = measure(name, Path(temporary))
            print(name, *(curve[-1] for curve in measured[name]["success"]), flush=True)
            MEASURED.write_text(json.dumps({name: measured[name] for name in SETTINGS if name in measured}) + "\n")
