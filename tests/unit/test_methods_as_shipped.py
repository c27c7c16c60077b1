"""What each method is set to and made of where nobody says otherwise.

`PUBLISHED` has the numbers that a method's paper or code gives, as they were read there: where a default differs, it is
the default that is wrong, or the method's page that must say why. The tables after it were written from our own code.
They pin the rest, for which nothing published was found or which is ours, so that it does not change unnoticed.

A new method needs no entry here, and should have one in `PUBLISHED`.

tests/contract/test_methods.py compares methods at neutral settings with each other; here nothing is neutral.
"""

import math
from dataclasses import fields, replace
from importlib import import_module
from typing import Any, get_args, get_type_hints

import pytest

from longloop.algos.base import Algorithm
from longloop.algos.compose import SLOTS, kinds
from longloop.algos.composed import Composed, Parts
from longloop.algos.parts import branches, critic
from longloop.algos.parts.branches import PlusTurns, ValueSteps
from longloop.algos.parts.choose import Corrected, Curvature, DampDrift, DropCovarying, DropSmall, Extremes, TopTokens
from longloop.algos.parts.credit import (
    Anchors,
    BetaNormalized,
    Centered,
    NormalizedRewards,
    Returns,
    Risk,
    Standardized,
)
from longloop.algos.parts.critic import AfterWarmup, Gae, TurnCritic, ValueLoss
from longloop.algos.parts.hold import Anchor, Corridor, HoldCovarying, HoldRare, Kl, ReverseKl
from longloop.algos.parts.objective import (
    Balanced,
    Clipped,
    Implicit,
    KeepGradient,
    Reinforce,
    Summed,
    TrustRegion,
    Unclipped,
    Weighted,
)
from longloop.algos.parts.part import snake
from longloop.algos.parts.rewards import Discounted, Economy, Effort, Gains, Rewards, TurnRewards, Votes
from longloop.algos.parts.rollouts import BestRefinement, Blueprints, FreshActions, FromStates, Resets, UnsureForks
from longloop.algos.parts.shape import EntropyDown, EntropyUp, Nudge, SemanticEntropy, Thermostat, TurnEntropy
from longloop.algos.parts.tasks import Bandit, EveryTwice, Horizon
from longloop.algos.tppo import Tppo
from longloop.algos.turn_ppo import TurnPpo
from longloop.registry import ALGOS

PUBLISHED: dict[str, tuple[str, dict[str, Any]]] = {
    "loop": (
        "paper and code: the norm is the paper's, epochs and the clip are the code's",
        {"k": 6, "lr": 5e-5, "weight_decay": 0.01, "epochs": 2, "minibatch": 32, "clip": 0.1, "drop_below": 0.01}
        | {"kl_guard": 20.0, "max_grad_norm": 1.0, "ratio": "token", "normalize": False},
    ),
    "rloo": ("LOOP's paper", {"k": 6, "lr": 5e-5, "epochs": 1, "minibatch": 0, "drop_below": 0.01}),
    "grpo": ("LOOP's paper; the clip is verl's", {"k": 6, "lr": 5e-5, "epochs": 1, "minibatch": 0, "clip": 0.2}),
    "ppo": (
        "LOOP's paper",
        {"gamma": 1.0, "lam": 1.0, "warmup": 10, "value_weight": 0.1, "value_weight_end": 0.001, "value_steps": 200},
    ),
    "ei": ("LOOP's paper", {"k": 6, "lr": 5e-5, "epochs": 2, "minibatch": 32, "least_reward": 1.0}),
    "rft": ("LOOP's paper", {"k": 20, "coldest": 0.05, "hottest": 1.0, "epochs": 30, "least_reward": 1.0}),
    "tree_dpo": ("LOOP's paper", {"k": 30}),
    "dmpo": ("code; K is LOOP's", {"k": 2, "gamma": 0.7, "beta": 0.1, "lr": 1e-6, "epochs": 3}),
    "dapo": ("verl", {"clip_low": 0.2, "clip_high": 0.28, "tries": 10}),
    "gspo": ("verl", {"clip_low": 3e-4, "clip_high": 4e-4}),
    "sft": ("StepAgent's paper", {"lr": 1e-5, "minibatch": 64, "warmup": 0.03}),
    "eto": ("code", {"lr": 1e-6, "beta": 0.1, "later_beta": 0.5, "epochs": 3, "minibatch": 32, "longer": 10}),
    "stepagent_implicit": ("paper", {"lr": 5e-7, "minibatch": 16, "epochs": 1, "practice": 3}),
    "stepagent_inverse": ("paper", {"lr": 5e-7, "minibatch": 16, "epochs": 1, "practice": 3}),
    "mcts_ipl": ("code", {"k": 64, "explore": 1.0, "beta": 0.1, "lr": 1e-6, "minibatch": 64}),
    "inpo": ("a port", {"eta": 0.0075, "tau": 0.0025, "lr": 1e-6, "epochs": 1}),
    "vineppo": ("code", {"k": 8, "m": 9, "max_states": 20, "epochs": 2, "clip": 0.2, "kl": 1e-4}),
    "pav": ("notes on the paper", {"best_of": 4}),
    "drpo": ("code", {"beta": 1.0, "epochs": 4, "clip": 0.2, "kl": 0.05}),
    "arpo": ("code", {"k": 16, "first": 8, "w": 0.2, "threshold": 0.5}),
    "himac": ("notes on the paper", {"clip": 0.2, "kl": 0.01}),
    "critique_grpo": ("code", {"k": 8, "minibatch": 64, "gamma": 0.1}),
    "gigpo": ("code", {"k": 8, "w": 1.0, "gamma": 0.95, "clip": 0.2, "kl": 0.01}),
    "igpo": ("paper and code", {"gain": 1.0, "gamma": 1.0, "normalize": "joint", "kl": 0.001}),
    "gtpo": ("a port", {"gamma": 0.9, "failed": -0.1, "pool": "turns", "kl": 0.01}),
    "digirl": ("code", {"margin": 0.05}),
    "archer": ("code", {"gamma": 0.95, "slow": 0.1}),
    "bnpo": ("code", {"share": 1 / 3}),
    "riskpo": ("code", {"k": 5, "bundle": 5, "low": 0.2, "high": 0.9, "weight": 1.5, "rate": 0.1}),
    "empg": ("the authors' web page", {"scale": 1.0, "future": 1.0, "zeta": 0.1}),
    "aspo": ("a port", {"k": 8, "delta": -2.0, "bound": 0.7}),
    "aepo": ("a fork of the code", {"k": 16, "branch_w": 0.2, "threshold": 0.5, "penalty": 0.05, "w": 0.2}),
    "empo": ("code", {"k": 7}),
    "ares": ("code", {"alpha": 0.5}),
    "dump": ("code", {"k": 16, "temperature": 0.1, "window": 300, "kl": 0.001}),
    "scaling_inter": ("code", {"rounds": [10, 20, 30], "every": 100, "kl": 0.001}),
    "bapo": (
        "code: its README, the step of its yaml",
        {"target": 0.5, "low_start": 0.6, "low_end": 0.9, "high_start": 1.2, "high_end": 3.0}
        | {"range_step": 0.05, "dual": 3.0},
    ),
    "nft": ("code", {"negatives": 1.0, "divisor": 1000.0}),
    "clip_cov": ("code", {"share": 2e-4, "low": 1.0, "high": 5.0, "clip": 1.0}),
    "kl_cov": ("code", {"share": 0.002, "coefficient": 1.0}),
    "tis": ("verl", {"cap": 2.0}),
    "mis": ("verl", {"cap": 2.0}),
    "capo": ("code", {"policy_shift": 1e-4, "objective_shift": 0.01}),
    "steer": ("code", {"least": 0.8, "clip_low": 0.2, "clip_high": 0.28, "dual": 10.0}),
    "epo": ("code: its README", {"bonus": 0.001, "penalty": 0.05, "low": 0.0, "high": 2.0}),
    "siren": ("code", {"coefficient": 0.005, "nucleus": 0.8, "quantile": 0.8, "clip": 0.2}),
    "lp_reg": ("code", {"share": 0.01, "floor": 0.02, "coefficient": 1.0, "high": 10.0, "epochs": 1, "minibatch": 0}),
    "aepo_entropy": ("code", {"target": 0.5, "most": 0.1, "hot": 1.2, "cold": 0.8}),
}
"""Where they were read, and the settings."""

SHIPPED: dict[str, tuple[tuple[int, int, int], Parts]] = {
    "compose": ((6, 2, 32), Parts()),
    "vineppo": (
        (8, 2, 32),
        Parts(
            rollouts=FromStates(9, 1, 20),
            credit=ValueSteps(),
            choose=(),
            objective=Clipped(low=0.8, high=1.2),
            hold=(Kl(0.0001),),
        ),
    ),
    "pav": ((6, 2, 32), Parts(rollouts=FromStates(9, 1, 20), rewards=branches.Progress(3.0, 4), credit=PlusTurns())),
    "drpo": (
        (6, 4, 32),
        Parts(rollouts=Resets(1.0), choose=(), objective=Clipped(low=0.8, high=1.2), hold=(Kl(0.05),)),
    ),
    "arpo": (
        (16, 2, 32),
        Parts(
            rollouts=UnsureForks(8, 0.2, 0.5, 0.0),
            credit=Standardized(),
            choose=(),
            objective=Clipped(low=0.8, high=1.2),
        ),
    ),
    "himac": (
        (8, 2, 32),
        Parts(
            tasks=EveryTwice(),
            rollouts=Blueprints(8, "First plan: list the sub-goals, one a line.", "Follow this plan:"),
            credit=Standardized(),
            choose=(),
            objective=Clipped(low=0.8, high=1.2),
            hold=(Kl(0.01),),
        ),
    ),
    "critique_grpo": (
        (8, 1, 64),
        Parts(
            rollouts=BestRefinement(2000), credit=Centered(), choose=(), objective=Unclipped(divisor=1024.0, gamma=0.1)
        ),
    ),
    "gigpo": (
        (8, 1, 0),
        Parts(
            credit=Anchors(1.0, 0.95, 0, 1.0),
            choose=(),
            objective=Clipped(low=0.8, high=1.2),
            hold=(Kl(0.01),),
        ),
    ),
    "igpo": (
        (6, 2, 32),
        Parts(
            rewards=Gains("Thought: I can answer now.\nAction: Finish[", 1.0),
            credit=NormalizedRewards(1.0, "joint"),
            choose=(),
            objective=Clipped(low=0.8, high=1.2),
            hold=(Kl(0.001),),
        ),
    ),
    "gtpo": (
        (6, 2, 32),
        Parts(
            rewards=TurnRewards(1.0, -0.1),
            credit=Returns(0.9, "turns"),
            choose=(),
            objective=Clipped("tokens", 0.8, 1.2),
            hold=(Kl(0.01),),
        ),
    ),
    "turn_ppo": (
        (6, 2, 32),
        Parts(
            rewards=TurnRewards(1.0, 0.0),
            credit=Gae("turn", 1.0, 1.0, 0.0, 1.0, False),
            choose=(),
            objective=AfterWarmup(objective=Clipped(low=1 / 1.1, high=1.1), steps=10),
            hold=(ValueLoss(("value",), 0.1, 0.001, 200, "turn", False),),
        ),
    ),
    "reinforce_value": (
        (6, 1, 0),
        Parts(
            rewards=TurnRewards(1.0, 0.0),
            credit=Gae("turn", 1.0, 1.0, 0.0, 1.0, False),
            choose=(),
            objective=AfterWarmup(objective=Summed(), steps=10),
            hold=(ValueLoss(("value",), 0.1, 0.1, 200, "turn", False),),
        ),
    ),
    "tppo": (
        (6, 2, 32),
        Parts(
            rewards=TurnRewards(0.0, 0.0),
            credit=Gae("token", 1.0, 1.0, 0.0, 1.0, True),
            choose=(),
            objective=AfterWarmup(objective=Clipped(low=1 / 1.1, high=1.1), steps=10),
            hold=(ValueLoss(("value",), 0.1, 0.001, 200, "token", False),),
        ),
    ),
    "eapo": (
        (6, 1, 60),
        Parts(
            rewards=Discounted(0.995, 0.0),
            credit=Returns(0.0, "turns"),
            choose=(),
            objective=Clipped(low=0.9997, high=1.0004, ratio="turn", geometric=True),
        ),
    ),
    "digirl": (
        (6, 1, 0),
        Parts(
            rewards=TurnRewards(1.0, 0.0),
            credit=critic.Progress("turn", 1.0, 0.05),
            choose=(),
            objective=Reinforce("tokens"),
            hold=(ValueLoss(("success_1", "success_2"), 1.0, 1.0, 200, "turn", True),),
        ),
    ),
    "archer": (
        (6, 1, 0),
        Parts(
            rollouts=FreshActions(4, 64),
            rewards=TurnRewards(1.0, 0.0),
            credit=TurnCritic(0.95, 4, 0.1, 0.003, 200, TurnRewards(1.0, 0.0)),
            choose=(),
            objective=Summed(),
        ),
    ),
    "bnpo": (
        (6, 2, 32),
        Parts(credit=BetaNormalized(1 / 3, 5.0, 0.0, 1.0), objective=Clipped(low=0.8, high=1.2)),
    ),
    "riskpo": (
        (5, 2, 32),
        Parts(credit=Risk(5, 0.2, 0.9, 1.5, 0.1, True), objective=Clipped(low=0.8, high=1.2)),
    ),
    "empg": ((6, 2, 32), Parts(credit=Standardized(), shape=(TurnEntropy(1.0, 1.0, 0.1, True),))),
    "seed_grpo": ((6, 2, 32), Parts(credit=Centered(), shape=(SemanticEntropy(0.5, "shannon"),))),
    "aspo": (
        (8, 1, 32),
        Parts(
            credit=Standardized(),
            shape=(Nudge(-2.0, 0.7, "```|<tool_call>|(?i:\\bsearch\\[)"),),
            objective=Clipped("tokens", 0.8, 1.28),
        ),
    ),
    "aepo": (
        (16, 2, 32),
        Parts(
            rollouts=UnsureForks(0, 0.2, 0.5, 0.05),
            credit=Standardized(),
            shape=(EntropyUp(0.2),),
            choose=(),
            objective=KeepGradient(low=0.8, high=1.28, tokens="uncertain"),
        ),
    ),
    "ettrl": (
        (6, 2, 32),
        Parts(
            rewards=Votes("majority", 1.0),
            credit=Standardized(),
            shape=(EntropyDown(1.0),),
            objective=Clipped(low=0.8, high=1.2),
        ),
    ),
    "empo": (
        (7, 1, 0),
        Parts(rewards=Votes("share", 1.0), credit=Standardized(), objective=Clipped(low=0.8, high=1.2)),
    ),
    "otc": (
        (6, 1, 0),
        Parts(
            rewards=Economy(1.0, 4.0, ""),
            credit=Standardized(),
            choose=(),
            objective=Clipped(low=0.8, high=1.2),
            hold=(Kl(0.001),),
        ),
    ),
    "ares": (
        (6, 1, 0),
        Parts(
            rewards=Effort(0.5, 4, 0.95, 0.99),
            credit=Standardized(),
            choose=(),
            objective=Clipped(low=0.8, high=1.2),
            hold=(Kl(0.01),),
        ),
    ),
    "dump": (
        (16, 1, 0),
        Parts(
            tasks=Bandit(0.1, 300),
            credit=Standardized(),
            choose=(),
            objective=Clipped(low=0.8, high=1.2),
            hold=(Kl(0.001),),
        ),
    ),
    "scaling_inter": (
        (6, 1, 0),
        Parts(
            tasks=Horizon((10, 20, 30), 100),
            credit=Standardized(),
            choose=(),
            objective=Clipped(low=0.8, high=1.2),
            hold=(Kl(0.001),),
        ),
    ),
    "cispo": ((6, 2, 32), Parts(credit=Standardized(), objective=Weighted("tokens", 0.0, 5.0))),
    "bapo": (
        (6, 2, 32),
        Parts(credit=Standardized(), objective=Balanced("tokens", 0.5, (0.6, 0.9), (1.2, 3.0), 0.05, 3.0)),
    ),
    "nft": ((6, 2, 32), Parts(credit=Centered(), objective=Implicit(divisor=1000.0, negatives=1.0))),
    "clip_cov": (
        (6, 2, 32),
        Parts(
            credit=Standardized(),
            choose=(DropSmall(0.01), DropCovarying(0.0002, 1.0, 5.0)),
            objective=Clipped("tokens", 0.0, 2.0),
        ),
    ),
    "kl_cov": (
        (6, 2, 32),
        Parts(
            credit=Standardized(),
            objective=Clipped("tokens", 0.0, math.inf),
            hold=(HoldCovarying(0.002, 1.0),),
        ),
    ),
    "d3s": ((6, 2, 32), Parts(credit=Standardized(), choose=(Extremes(0.25), TopTokens(0.2)))),
    "tis": ((6, 2, 32), Parts(choose=(DropSmall(0.01), Corrected(2.0, "token", "cap")))),
    "mis": ((6, 2, 32), Parts(choose=(DropSmall(0.01), Corrected(2.0, "turn", "drop")))),
    "trm": (
        (6, 2, 32),
        Parts(objective=TrustRegion(low=1 / 1.1, high=1.1, delta=0.05, unit="turn", divergence="k3")),
    ),
    "capo": (
        (6, 2, 32),
        Parts(
            credit=Standardized(),
            choose=(DropSmall(0.01), Curvature(5e-05, 0.0001, 0.01, 0.02)),
            objective=Clipped("tokens", 0.8, 1.2),
        ),
    ),
    "steer": (
        (6, 2, 32),
        Parts(
            credit=Standardized(),
            choose=(DropSmall(0.01), DampDrift(0.8)),
            objective=Clipped("tokens", 0.8, 1.28, dual=10.0),
        ),
    ),
    "epo": ((6, 2, 32), Parts(choose=(), hold=(Corridor(0.001, 0.05, 0.0, 2.0, 1.0),))),
    "siren": (
        (6, 2, 32),
        Parts(
            credit=Centered(),
            choose=(),
            objective=Clipped(divisor=1024.0, low=0.8, high=1.2),
            hold=(Anchor(0.005, 0.8, 0.8),),
        ),
    ),
    "lp_reg": (
        (6, 1, 0),
        Parts(credit=Standardized(), objective=Clipped("tokens", 0.0, 10.0), hold=(HoldRare(0.01, 0.02, 1.0),)),
    ),
    "demo_rl": ((6, 2, 32), Parts(choose=(), hold=(ReverseKl(0.05),))),
    "aepo_entropy": (
        (6, 2, 32),
        Parts(
            credit=Standardized(),
            shape=(Thermostat(0.5, 0.1, 1.2, 0.8),),
            objective=Clipped("tokens", 0.8, 1.2),
        ),
    ),
}
"""Attempts at a task, epochs and the size of a mini-batch; and the parts."""


DEFAULTS: dict[str, dict[str, dict[str, Any]]] = {
    "tasks": {
        "every_twice": {},
        "in_order": {},
        "bandit": {"temperature": 0.1, "window": 300},
        "horizon": {"rounds": (), "every": 100},
    },
    "rollouts": {
        "blueprints": {"plans": 8, "ask": "First plan: list the sub-goals, one a line.", "follow": "Follow this plan:"},
        "unsure_forks": {"first": 8, "w": 0.2, "threshold": 0.5, "penalty": 0.0},
        "best_refinement": {"max_chars": 2000},
        "attempts": {},
        "from_states": {"m": 9, "every": 1, "max_states": 20},
        "resets": {"beta": 1.0},
        "fresh_actions": {"replay": 4, "states": 64},
    },
    "rewards": {
        "progress": {"alpha": 3.0, "best_of": 4},
        "rewards": {},
        "votes": {"by": "share", "w": 1.0},
        "economy": {"w": 1.0, "c": 4.0, "calls": ""},
        "discounted": {"gamma": 0.995, "turn_weight": 1.0},
        "judged": {"scale": 0.1, "limit": 0.5, "judgment": "(?i)\\bjudge\\W{0,3}(useful|not)\\b"},
        "explored": {"scale": 0.1, "limit": 0.5, "query": "(?is)```sql\\s(.*?)```", "error": "(?i)\\berror\\b"},
        "effort": {"alpha": 0.5, "window": 4, "quantile": 0.95, "decay": 0.99},
        "turn_rewards": {"weight": 1.0, "failed": 0.0},
        "gains": {"prefix": "", "weight": 1.0},
    },
    "credit": {
        "value_steps": {},
        "plus_turns": {},
        "leave_one_out": {},
        "standardized": {},
        "centered": {},
        "anchors": {"w": 1.0, "gamma": 0.95, "history": 0, "alpha": 1.0},
        "returns": {"gamma": 0.9, "pool": "turns"},
        "normalized_rewards": {"gamma": 1.0, "normalize": "joint"},
        "beta_normalized": {"share": 1 / 3, "most": 5.0, "low": 0.0, "high": 1.0},
        "gae": {"unit": "turn", "gamma": 1.0, "lam": 1.0, "low": 0.0, "high": 1.0, "cut": False},
        "progress": {"unit": "turn", "weight": 1.0, "margin": 0.05},
        "risk": {"bundle": 5, "low": 0.2, "high": 0.9, "weight": 1.5, "rate": 0.1, "normalize": True},
        "turn_critic": {"gamma": 0.95, "replay": 4, "slow": 0.1, "lr": 0.003, "steps": 200, "rewards": Rewards()},
    },
    "shape": {
        "turn_entropy": {"scale": 1.0, "future": 1.0, "zeta": 0.1, "center": True},
        "semantic_entropy": {"alpha": 0.5, "estimate": "shannon"},
        "nudge": {"delta": -2.0, "bound": 0.7, "behavior": ""},
        "entropy_up": {"w": 0.2},
        "entropy_down": {"w": 1.0},
        "thermostat": {"target": 0.5, "most": 0.1, "hot": 1.2, "cold": 0.8},
    },
    "choose": {
        "drop_small": {"below": 0.01},
        "extremes": {"share": 0.25},
        "top_tokens": {"share": 0.2},
        "corrected": {"cap": 2.0, "unit": "token", "beyond": "cap"},
        "drop_covarying": {"share": 0.0002, "low": 1.0, "high": 5.0},
        "damp_drift": {"least": 0.8},
        "curvature": {"lr": 5e-05, "policy_shift": 0.0001, "objective_shift": 0.01, "max_share": 0.02},
    },
    "objective": {
        "summed": {"average": "trajectories", "divisor": 0.0},
        "after_warmup": {"average": "trajectories", "divisor": 0.0, "objective": Clipped(), "steps": 0},
        "clipped": {
            "average": "trajectories",
            "divisor": 0.0,
            "low": 1 / 1.1,
            "high": 1.1,
            "ratio": "token",
            "geometric": False,
            "dual": math.inf,
        },
        "reinforce": {"average": "trajectories", "divisor": 0.0},
        "weighted": {"average": "trajectories", "divisor": 0.0, "low": 0.0, "high": 5.0},
        "keep_gradient": {
            "average": "trajectories",
            "divisor": 0.0,
            "low": 1 / 1.1,
            "high": 1.1,
            "ratio": "token",
            "geometric": False,
            "dual": math.inf,
            "tokens": "uncertain",
        },
        "trust_region": {
            "average": "trajectories",
            "divisor": 0.0,
            "low": 1 / 1.1,
            "high": 1.1,
            "ratio": "token",
            "geometric": False,
            "dual": math.inf,
            "delta": 0.05,
            "unit": "turn",
            "divergence": "k3",
        },
        "balanced": {
            "average": "trajectories",
            "divisor": 0.0,
            "target": 0.5,
            "lows": (0.6, 0.9),
            "highs": (1.2, 3.0),
            "step": 0.05,
            "dual": 3.0,
        },
        "implicit": {"average": "trajectories", "divisor": 0.0, "negatives": 1.0},
        "unclipped": {"average": "trajectories", "divisor": 1024.0, "gamma": 0.1},
    },
    "hold": {
        "value_loss": {"of": ("value",), "start": 0.1, "end": 0.001, "steps": 200, "unit": "turn", "logits": False},
        "kl": {"coefficient": 0.04},
        "reverse_kl": {"coefficient": 0.05},
        "hold_covarying": {"share": 0.002, "coefficient": 1.0},
        "hold_rare": {"share": 0.01, "floor": 0.02, "coefficient": 1.0},
        "corridor": {"bonus": 0.001, "penalty": 0.05, "low": 0.0, "high": 2.0, "decay": 1.0},
        "anchor": {"coefficient": 0.005, "nucleus": 0.8, "quantile": 0.8},
    },
}
"""The settings of every part that `compose` is not given."""

COMMON: dict[str, Any] = {
    "k": 6,
    "epochs": 1,
    "minibatch": 0,
    "lr": 5e-5,
    "weight_decay": 0.01,
    "max_grad_norm": 1.0,
    "kl_guard": 20.0,
}

SETTINGS: dict[str, dict[str, Any]] = {
    "loop": {"epochs": 2, "minibatch": 32, "drop_below": 0.01, "clip": 0.1, "ratio": "token", "normalize": False},
    "reinforce": {},
    "rloo": {"drop_below": 0.01},
    "grpo": {"clip": 0.2, "kl": 0.04},
    "dr_grpo": {"clip": 0.2, "divisor": 1024.0},
    "dapo": {"minibatch": 32, "clip_low": 0.2, "clip_high": 0.28, "tries": 10},
    "gspo": {"minibatch": 60, "clip_low": 3e-4, "clip_high": 4e-4},
    "ppo": {
        "epochs": 2,
        "minibatch": 32,
        "clip": 0.1,
        "gamma": 1.0,
        "lam": 1.0,
        "warmup": 10,
        "value_weight": 0.1,
        "value_weight_end": 0.001,
        "value_steps": 200,
    },
    "sft": {"k": 1, "minibatch": 64, "lr": 1e-5, "least_reward": 1.0, "warmup": 0.03, "everything": False},
    "sft_gt": {"k": 1, "minibatch": 64, "lr": 1e-5, "least_reward": 1.0, "warmup": 0.03, "everything": False},
    "ei": {"epochs": 2, "minibatch": 32, "least_reward": 1.0},
    "rft": {
        "k": 20,
        "epochs": 30,
        "minibatch": 32,
        "least_reward": 1.0,
        "coldest": 0.05,
        "hottest": 1.0,
        "with_expert": False,
    },
    "nat": {
        "k": 1,
        "epochs": 2,
        "minibatch": 64,
        "weight_decay": 0.0,
        "least_reward": 1.0,
        "warmup": 0.03,
        "note": "Do this in a way that is incorrect.",
    },
    "dpo": {"k": 1, "minibatch": 64, "lr": 1e-6, "weight_decay": 0.0, "beta": 0.1, "warmup": 0.0},
    "dmpo": {
        "k": 2,
        "epochs": 3,
        "minibatch": 32,
        "lr": 1e-6,
        "weight_decay": 0.0,
        "beta": 0.1,
        "warmup": 0.1,
        "gamma": 0.7,
        "gap": 0.0,
    },
    "eto": {
        "k": 1,
        "epochs": 3,
        "minibatch": 32,
        "lr": 1e-6,
        "weight_decay": 0.0,
        "beta": 0.1,
        "warmup": 0.1,
        "later_beta": 0.5,
        "longer": 10,
    },
    "spin": {"k": 1, "epochs": 3, "minibatch": 64, "lr": 5e-7, "weight_decay": 0.0, "beta": 0.1, "warmup": 0.1},
    "tree_dpo": {
        "k": 30,
        "epochs": 3,
        "minibatch": 32,
        "lr": 1e-6,
        "weight_decay": 0.0,
        "beta": 0.1,
        "warmup": 0.0,
        "gap": 0.2,
        "explore": 1.0,
    },
    "agent_q": {
        "k": 30,
        "epochs": 3,
        "minibatch": 32,
        "lr": 1e-6,
        "weight_decay": 0.0,
        "beta": 0.1,
        "warmup": 0.0,
        "gap": 0.2,
        "explore": 1.0,
        "alpha": 0.5,
        "rankings": 1,
        "logged": True,
    },
    "mcts_ipl": {
        "k": 64,
        "minibatch": 64,
        "lr": 1e-6,
        "weight_decay": 0.0,
        "beta": 0.1,
        "warmup": 0.0,
        "gap": 0.0,
        "explore": 1.0,
        "smooth": 1.0,
    },
    "inpo": {
        "minibatch": 32,
        "lr": 1e-6,
        "weight_decay": 0.0,
        "beta": 0.1,
        "warmup": 0.0,
        "eta": 0.0075,
        "tau": 0.0025,
    },
    "stepagent_implicit": {
        "k": 1,
        "minibatch": 16,
        "lr": 5e-7,
        "weight_decay": 0.0,
        "beta": 0.1,
        "warmup": 0.0,
        "practice": 3,
        "least_reward": 1.0,
    },
    "stepagent_inverse": {
        "minibatch": 16,
        "lr": 5e-7,
        "clip": 0.2,
        "practice": 3,
        "least_reward": 1.0,
        "head_lr": 0.001,
        "head_steps": 200,
        "smoothing": 0.1,
        "most": 5.0,
        "final": 0.0,
    },
}
"""The settings of the methods that are not composed, besides those that are the `COMMON` ones."""


def as_shipped(name: str) -> Algorithm:
    module, _, attribute = ALGOS[name].partition(":")
    made: Algorithm = getattr(import_module(module), attribute)()
    return made


def composed(name: str) -> Composed:
    algo = as_shipped(name)
    assert isinstance(algo, Composed)
    return algo


COMPOSED = [name for name in ALGOS if isinstance(as_shipped(name), Composed)]


@pytest.mark.parametrize("name", PUBLISHED)
def test_it_has_the_numbers_of_its_source(name: str) -> None:
    algo, (source, numbers) = as_shipped(name), PUBLISHED[name]
    assert {setting: getattr(algo, setting) for setting in numbers} == numbers, source


@pytest.mark.parametrize("name", SHIPPED)
def test_what_it_is_made_of(name: str) -> None:
    algo = composed(name)
    assert ((algo.k, algo.epochs, algo.minibatch), algo.parts) == SHIPPED[name]


@pytest.mark.parametrize("name", [name for name in COMPOSED if name != "compose"])
def test_each_of_its_settings_changes_a_part(name: str) -> None:
    algo = composed(name)
    hints = get_type_hints(type(algo))
    own = {field.name for field in fields(algo)} - {field.name for field in fields(Composed)}
    own -= {"tries"}  # DAPO refills a step itself
    for setting in own:
        value, choices = getattr(algo, setting), get_args(hints[setting])
        others: list[Any]
        match value:
            case str():
                others = [choice for choice in choices if choice != value] or [f"{value}."]
            case bool():
                others = [not value]
            case int():
                others = [value + 1]
            case float():
                others = [round(value + 0.05, 9)]
            case _:
                others = [[7]]
        for other in others:
            assert replace(algo, **{setting: other}).parts != algo.parts, setting


@pytest.mark.parametrize(
    "name", [name for name in COMPOSED if any(isinstance(hold, Kl) for hold in composed(name).parts.hold)]
)
def test_without_a_penalty_no_reference_is_needed(name: str) -> None:
    algo = composed(name)
    assert algo.needs_reference and not replace(algo, kl=0.0).needs_reference  # type: ignore[call-arg]


@pytest.mark.parametrize(("method", "more"), [(Tppo, {}), (TurnPpo, {"critic": "token", "ratio": "turn"})])
def test_both_bounds_follow_the_clip_and_the_loss_its_critic(method: type[Composed], more: dict[str, Any]) -> None:
    parts = method(clip=0.25, **more).parts  # type: ignore[call-arg]
    assert parts.objective == AfterWarmup(
        objective=Clipped(low=0.8, high=1.25, ratio=more.get("ratio", "token")), steps=10
    )
    assert parts.hold == (ValueLoss(("value",), 0.1, 0.001, 200, "token"),)


@pytest.mark.parametrize("slot", SLOTS)
def test_parts_have_these_settings_unless_told_otherwise(slot: str) -> None:
    found = {snake(kind.__name__): kind() for kind in kinds(slot)}
    for name, defaults in DEFAULTS[slot].items():
        assert {field.name: getattr(found[name], field.name) for field in fields(found[name])} == defaults, name


@pytest.mark.parametrize("name", SETTINGS)
def test_what_it_is_set_to(name: str) -> None:
    algo = as_shipped(name)
    assert {field.name: getattr(algo, field.name) for field in fields(algo)} == COMMON | SETTINGS[name]
