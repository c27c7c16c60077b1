"""What StepAgent-Inverse's discriminator pays own actions that it was fitted on, and what it pays held-out ones.

The novice in Errands, one iteration's demonstrations and own actions; the head that comes with longloop, and one of
1,024 units. Right actions are those that say what the expert said.

    python benchmarks/discriminator.py [SEED ...]
"""

import asyncio
import sys
from pathlib import Path
from statistics import fmean, pstdev
from tempfile import TemporaryDirectory

import torch

from longloop import api, config
from longloop.algos.reduce import last_action
from longloop.algos.stepagent import states
from longloop.learners import local
from longloop.training import TaskStream
from longloop.types import Now

TASKS = 24
HEAD = "discriminator"
SHIPPED = local._head


def wide(policy: local.Policy, seed: int) -> torch.nn.Module:
    """A head that learns by heart."""
    torch.manual_seed(seed)
    width = policy.module.config.get_text_config().hidden_size
    return torch.nn.Sequential(torch.nn.Linear(width, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1))


def measure(seed: int, folder: str) -> None:
    overrides = [f"seed={seed}", "algo.name=stepagent_inverse", f"tasks_per_step={TASKS}", f"folder={folder}"]
    settings = config.load(Path("compare"), overrides)
    parts = api.prepared(settings)
    algo, learner = parts.algo, parts.learner
    groups = asyncio.run(algo.collect(parts.rollouts, TaskStream(parts.tasks, seed), TASKS, Now(1, 1)))
    at = [(index, expert, own) for index, group in enumerate(groups) for expert, own in states(group)]
    samples = [last_action(one, index) for index, _, own in at for one in own]
    right = [one.turns[-1].action_key == expert.turns[-1].action_key for _, expert, own in at for one in own]
    print(f"seed {seed}: {len(at)} states, {len(samples)} own actions, {sum(right)} of them right")
    for name, head in (("shipped", SHIPPED), ("1,024 wide", wide)):
        local._head, learner.heads[HEAD] = head, head(learner.policy, seed)
        algo.tell_apart(at, learner)
        fitted = [min(max(logit, -algo.most), algo.most) for (logit,) in learner.judge(HEAD, samples)]
        held_out = [reward for (reward,) in algo.rewards(groups, samples, learner)]
        for how, paid in (("fitted on them", fitted), ("held out", held_out)):
            good = [reward for reward, is_right in zip(paid, right, strict=True) if is_right]
            bad = [reward for reward, is_right in zip(paid, right, strict=True) if not is_right]
            above = fmean((a > b) + (a == b) / 2 for a in good for b in bad)
            print(
                f"  {name} head, {how}: right ones are paid {fmean(good):.2f}, wrong ones {fmean(bad):.2f} "
                f"(standard deviation {pstdev(bad):.2f}), a right one more than a wrong one in {above:.0%}"
            )


if __name__ == "__main__":
    torch.set_num_threads(1)
    for seed in map(int, sys.argv[1:] or ["0", "1"]):
        with TemporaryDirectory() as folder:
            measure(seed, folder)
