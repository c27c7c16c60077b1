"""The learner in one process: scores samples, takes gradient steps, saves and loads.

An update is: forward and backward over micro-batches, with the loss's sum divided by the mini-batch's one norm; then
the guards; then one optimizer step. A guard that fires leaves the weights untouched.
"""

import copy
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from longloop.algos.base import Algorithm
from longloop.config import LearnerConfig
from longloop.learners.agreement import Agreement, check, compare, still_good
from longloop.learners.batching import PackedBatch, microbatches, pack
from longloop.learners.peak import peak
from longloop.model import attention, checkpoint
from longloop.model.fp32_weights import FP32Weights
from longloop.model.policy import Policy
from longloop.protocols import Loss
from longloop.types import Learned, Metrics, Minibatch, Sample, Scored, Update, UserError

_AGREEMENT = "agreement.json"
"""Whose log-probs ratios are taken against, in a checkpoint's folder."""
_LATE = 10**9
"""A step past every warm-up: what a loss clips there."""
_MOST_NAN = 20
"""Updates in a row that were not finite before the run is given up."""


class LocalLearner:
    def __init__(self, policy: Policy, algo: Algorithm, config: LearnerConfig, temperature: float, seed: int) -> None:
        self.policy = policy
        self.config = config
        self.algo = algo
        self.temperature = temperature
        self.value_head = _value_head(policy, seed) if algo.value_head else None
        self.second_copy: Any = None
        if algo.needs_reference and policy.adapters is None:
            self.second_copy = copy.deepcopy(policy.module).requires_grad_(False)
        self.masters = FP32Weights(policy.trainable())
        self.parameters = dict(self.masters.parameters)
        if self.value_head is not None:
            self.parameters |= {f"value_head.{name}": p for name, p in self.value_head.named_parameters()}
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(),
            lr=algo.lr,
            weight_decay=algo.weight_decay,
            fused=True,
        )
        if config.checkpointing:
            policy.module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self.agreement: Agreement | None = None
        self._not_finite = 0
        self._seed = seed

    def with_reference(self, samples: Sequence[Sample]) -> list[Sample]:
        """Adapters off, or the stated second copy, gives the log-probs of the model before training."""
        with self._as_reference():
            rows = self._scores(samples, "logp_N")
        return [replace(sample, reference=row) for sample, row in zip(samples, rows, strict=True)]

    def values(self, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        return self._scores(samples, "value_N")

    def fit_head(
        self, samples: Sequence[Sample], targets: Sequence[float], weights: Sequence[float], lr: float, steps: int
    ) -> None:
        """What the head reads is computed once, so that training it costs next to nothing."""
        assert self.value_head is not None
        self.value_head.load_state_dict(_value_head(self.policy, self._seed).state_dict())
        read_AD = torch.cat(self._actions(samples))
        target_A, weight_A = (torch.tensor(x, device=read_AD.device) for x in (targets, weights))
        optimizer = torch.optim.AdamW(self.value_head.parameters(), lr=lr, weight_decay=self.algo.weight_decay)
        for _ in range(steps):
            logit_A = self.value_head(read_AD)[:, 0]
            loss = binary_cross_entropy_with_logits(logit_A, target_A, weight_A, reduction="sum") / weight_A.sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    @torch.no_grad()
    def judge(self, samples: Sequence[Sample]) -> list[list[float]]:
        assert self.value_head is not None
        return [self.value_head(read_AD)[:, 0].tolist() for read_AD in self._actions(samples)]

    @torch.no_grad()
    def _actions(self, samples: Sequence[Sample]) -> list[Tensor]:
        """For each sample the mean hidden state over the tokens of each of its actions, [A, D]."""
        means: dict[int, Tensor] = {}
        for piece in microbatches(samples, self.config.micro_tokens, whole_trajectories=False):
            packed = pack(piece, 0, self.policy.device)
            plan = attention.VarlenPlan(packed.lengths, packed.after)
            hidden_TD = self.policy.hidden(packed.ids_T, packed.position_T, plan)
            hidden_ND = hidden_TD[packed.at_N + 1].float()  # at an action's tokens, not where they are drawn
            for sample, own_ND in zip(piece, hidden_ND.split([s.action_tokens for s in piece]), strict=True):
                sizes = Counter(turn for turn, chosen in zip(sample.turns, sample.mask, strict=True) if chosen)
                means[id(sample)] = torch.stack([part_ND.mean(0) for part_ND in own_ND.split(list(sizes.values()))])
        return [means[id(sample)] for sample in samples]

    def with_behavior_logprobs(self, samples: Sequence[Sample], tell: Callable[[str], None]) -> list[Sample]:
        """The samples with the log-probs that ratios are taken against.

        The first step that has samples decides whose these are. While they are the sampler's, every step's first
        mini-batch can still change that (`update`).
        """
        if self.agreement is None:
            if not samples:
                return []
            self.agreement = compare(samples, *self._preview(samples))
            check(self.agreement, self.policy.bf16)
            tell(str(self.agreement))
        if self.agreement.old == "sampler":
            return list(samples)
        return [replace(sample, logprobs=row) for sample, row in zip(samples, self.logprobs(samples), strict=True)]

    @torch.no_grad()
    def _preview(self, samples: Sequence[Sample]) -> tuple[list[tuple[float, ...]], float]:
        """The learner's log-probs of samples, and the share of units that the loss clips against the sampler's."""
        rows: dict[int, tuple[float, ...]] = {}
        sums: Metrics = {}
        with self._as_in_updates():
            for piece in microbatches(samples, self.config.micro_tokens, self.algo.whole_trajectories):
                packed = pack(piece, _LATE, self.policy.device)
                scored = self._score(packed)
                rows |= zip(map(id, piece), _rows(piece, scored.logp_N), strict=True)
                _add(sums, self.algo.loss(scored, packed.batch)[1])
        clipped, units = sums.get("clipped", (0.0, 1))
        return [rows[id(sample)] for sample in samples], float(clipped) / units

    def logprobs(self, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        """What the policy says now, aligned with each sample's ids (0 where the mask is 0)."""
        return self._scores(samples, "logp_N")

    def update(self, minibatch: Minibatch, loss: Loss) -> Update:
        self.optimizer.zero_grad()
        values, learned = self._gradient(minibatch, loss)
        stop = self._guard(values)
        if not stop:
            values["grad_norm"] = self._clip()
            stop = self._not_finite_stop(values["grad_norm"])
        if not stop:
            for group in self.optimizer.param_groups:
                group["lr"] = self.algo.lr * minibatch.lr_scale
            self.optimizer.step()
            self.masters.publish()
            self.policy.version += 1
            self._not_finite = 0
        self.optimizer.zero_grad()  # gradients are not held while the engine samples
        return Update(values, stop, learned)

    def gradient(self, minibatch: Minibatch, loss: Loss) -> dict[str, float]:
        """Add the mini-batch's gradient to what the parameters hold, and return its metrics."""
        return self._gradient(minibatch, loss)[0]

    def _gradient(self, minibatch: Minibatch, loss: Loss) -> tuple[dict[str, float], Learned]:
        sums: Metrics = {}
        scores: list[tuple[Sample, tuple[float, ...]]] = []
        with self._kernels():
            for samples in microbatches(minibatch.samples, self.config.micro_tokens, minibatch.whole_trajectories):
                packed = pack(samples, minibatch.step, self.policy.device)
                scored = self._score(packed)
                if minibatch.on_policy:
                    scores += zip(samples, _rows(samples, scored.logp_N), strict=True)
                total, metrics = loss(scored, packed.batch)
                (total / minibatch.norm).backward()
                _add(sums, metrics | _standard_metrics(scored, packed, total))
                del packed, scored, total  # or its hidden states would stay beside the next micro-batch
        values = {name: float(total) / count for name, (total, count) in sums.items()}
        values["loss"] = float(sums["loss"][0]) / minibatch.norm
        # Per trajectory of the mini-batch, not of its pieces: these may share one.
        values["kl"] = float(sums["kl"][0]) / len({sample.trajectory for sample in minibatch.samples})
        if self.algo.imitates:
            del values["kl"]  # the policy did not choose these actions
        if minibatch.on_policy:
            # The policy is still the one that sampled: every ratio must be 1.
            agreement = compare([sample for sample, _ in scores], [row for _, row in scores])
            check(agreement, self.policy.bf16)
            values["ratio_gap"] = agreement.worst
            if self.agreement is not None:
                self.agreement = still_good(self.agreement, values.get("clipped", 0.0))
        return values, tuple(scores)

    @contextmanager
    def _as_in_updates(self) -> Iterator[None]:
        """Compute with the kernels of an update, whose rounding old log-probs must share.

        A compiled pass without gradients would be another program: on an H200 its log-probs were as far off as the
        sampler's.
        """
        if not self.config.compile:
            yield
            return
        with self._kernels(), torch.enable_grad():
            yield

    @contextmanager
    def _kernels(self) -> Iterator[None]:
        """Those of an update. Training mode only where activation checkpointing asks for it: neither has dropout."""
        with (
            self.policy.recomputing() if self.config.checkpointing else nullcontext(),
            self.policy.fused() if self.config.compile else nullcontext(),
        ):
            yield

    @contextmanager
    def on_trial(self) -> Iterator[None]:
        """What is done to the weights meanwhile is undone, to the bit. They are kept in the machine's memory."""
        kept = {name: p.detach().to("cpu", copy=True) for name, p in self.parameters.items()}
        try:
            yield
        finally:
            with torch.no_grad():
                for name, parameter in self.parameters.items():
                    parameter.copy_(kept[name])
            self.masters.publish()
            self.optimizer.zero_grad()
            self.optimizer.state.clear()
            self._not_finite = 0
            self.policy.version += 1

    def peak_memory(self) -> dict[str, int]:
        return peak(self.policy.device)

    def save(self, folder: Path) -> None:
        checkpoint.save(folder, self.policy, self.value_head, self.masters, self.parameters, self.optimizer)
        if self.agreement is not None:
            (folder / _AGREEMENT).write_text(json.dumps(asdict(self.agreement)))

    def load(self, folder: Path) -> None:
        checkpoint.load(folder, self.policy, self.value_head, self.masters, self.parameters, self.optimizer)
        if (folder / _AGREEMENT).exists():
            self.agreement = Agreement(**json.loads((folder / _AGREEMENT).read_text()))
        self.policy.version += 1

    def _score(self, packed: PackedBatch) -> Scored:
        plan = attention.VarlenPlan(packed.lengths, packed.after)
        hidden_TD = self.policy.hidden(packed.ids_T, packed.position_T, plan)
        hidden_ND = hidden_TD[packed.at_N]
        logp_N, entropy_N = self.policy.score(hidden_ND, packed.target_N, self.temperature, self.config.chunk)
        value_N = None
        if self.value_head is not None:
            # Detached: the value loss must not reach the policy.
            value_N = self.value_head(hidden_ND.detach().float())[:, 0]
        return Scored(logp_N, entropy_N, value_N)

    @torch.no_grad()
    def _scores(self, samples: Sequence[Sample], what: str) -> list[tuple[float, ...]]:
        """One of the columns of `Scored` for each sample, aligned with its ids."""
        rows: dict[int, tuple[float, ...]] = {}
        with self._as_in_updates():
            for piece in microbatches(samples, self.config.micro_tokens, whole_trajectories=False):
                column_N = getattr(self._score(pack(piece, 0, self.policy.device)), what)
                rows |= zip(map(id, piece), _rows(piece, column_N), strict=True)
        return [rows[id(sample)] for sample in samples]

    def _clip(self) -> float:
        """Clip the policy's gradient, and the value head's apart from it: neither may shrink the other's step."""
        limit = self.algo.max_grad_norm
        if self.value_head is not None:
            torch.nn.utils.clip_grad_norm_(self.value_head.parameters(), limit)
        return torch.nn.utils.clip_grad_norm_(self.masters.parameters.values(), limit).item()

    def _guard(self, values: dict[str, float]) -> str:
        if abs(values.get("kl", 0.0)) > self.algo.kl_guard:
            return f"KL guard: the policy moved {values['kl']:.1f} nats per trajectory in this step"
        return self._not_finite_stop(values["loss"])

    def _not_finite_stop(self, number: float) -> str:
        if math.isfinite(number):
            return ""
        self._not_finite += 1
        if self._not_finite >= _MOST_NAN:
            raise UserError(
                f"The loss or its gradient was not finite in {_MOST_NAN} updates in a row; the run is given up. The "
                "last checkpoint is good. Lower algo.lr or algo.max_grad_norm and resume."
            )
        return "NaN guard: the loss or its gradient was not finite"

    @contextmanager
    def _as_reference(self) -> Iterator[None]:
        if self.second_copy is None:
            with self.policy.without_adapters():
                yield
            return
        with self.policy.using(self.second_copy):
            yield


def _rows(samples: Sequence[Sample], column_N: Tensor) -> list[tuple[float, ...]]:
    """A column of `Scored` for each sample, aligned with its ids (0 where the mask is 0)."""
    values = iter(column_N.detach().tolist())
    return [tuple(next(values) if chosen else 0.0 for chosen in sample.mask) for sample in samples]


def _standard_metrics(scored: Scored, packed: PackedBatch, total: Tensor) -> Metrics:
    with torch.no_grad():
        moved = (packed.batch.old_N - scored.logp_N).sum()
        return {
            "loss": (total.detach(), 1),
            "kl": (moved, 1),
            "entropy": (scored.entropy_N.sum(), scored.entropy_N.numel()),
        }


def _add(sums: Metrics, more: Metrics) -> None:
    for name, (total, count) in more.items():
        before, counted = sums.get(name, (0.0, 0))
        sums[name] = (before + torch.as_tensor(total).double(), counted + count)


def _value_head(policy: Policy, seed: int) -> torch.nn.Module:
    """Three layers, narrowing as in LOOP's appendix (5120-3072-2048-1); the last starts at zero."""
    width = policy.module.config.get_text_config().hidden_size
    sizes = [width, max(8, width * 3 // 5), max(8, width * 2 // 5)]
    torch.manual_seed(seed)
    last = torch.nn.Linear(sizes[2], 1)
    torch.nn.init.zeros_(last.weight)
    torch.nn.init.zeros_(last.bias)
    return torch.nn.Sequential(
        torch.nn.Linear(sizes[0], sizes[1]),
        torch.nn.ReLU(),
        torch.nn.Linear(sizes[1], sizes[2]),
        torch.nn.ReLU(),
        last,
    ).to(policy.device)
