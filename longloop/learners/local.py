"""The learner in one process: scores samples, takes gradient steps, saves and loads.

An update is: forward and backward over micro-batches, with the loss's sum divided by the mini-batch's one norm; then
the guards; then one optimizer step. A guard that fires leaves the weights untouched. Of the algorithm it knows what
that asks for (`Needs`) and the loss that it is called with.

Whatever takes a pass of the model is a method that gets shares of micro-batches (shares.py), so that several ranks can
divide it among them: `scores`, `previews`, `gradients`. What is made of their results is decided once, on the first.
"""

import copy
import json
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from longloop.config import ALONE, LearnerConfig, RanksConfig
from longloop.learners.agreement import Agreement, check, compare, still_good
from longloop.learners.batching import PackedBatch, microbatches, pack
from longloop.learners.peak import peak
from longloop.learners.shares import Gradients, Microbatch, OneRank, Ranks, add_up
from longloop.learners.slices import owners
from longloop.model import attention, checkpoint
from longloop.model.fp32_weights import FP32Weights
from longloop.model.policy import Policy
from longloop.protocols import HeadsLoss, Loss, OfEach
from longloop.tokens.chat import Chat
from longloop.types import Floats, Learned, Metrics, Minibatch, Needs, Sample, Scored, Update, UserError

_AGREEMENT = "agreement.json"
"""Whose log-probs ratios are taken against, in a checkpoint's folder."""
_LATE = 10**9
"""A step past every warm-up: what a loss clips there."""
_FILLER = Sample(np.zeros(2, int), np.arange(2) > 0, np.zeros(2), np.zeros(2, int), np.zeros(2), np.zeros(2))
"""The shortest sample that takes a pass."""
_MOST_NAN = 20
"""Updates in a row that were not finite before the run is given up."""


class LocalLearner:
    """The learner of the rank with number `rank`. Where all weights are trained, it optimizes that one's slice of them
    (slices.py). `deterministic`: updates take kernels that add up in one order alone, where torch has others, too."""

    def __init__(
        self,
        policy: Policy,
        needs: Needs,
        config: LearnerConfig,
        temperature: float,
        seed: int,
        ranks: RanksConfig = ALONE,
        rank: int = 0,
        deterministic: bool = False,
    ) -> None:
        if deterministic and config.compile:
            raise UserError(
                "engine.batch_invariant=true promises equal runs, which learner.compile=true cannot keep: which of its "
                "kernels is fastest is measured in each run anew. Leave one of them out."
            )
        self.policy = policy
        self.config = config
        self.needs = needs
        self.temperature = temperature
        self.heads = {name: _head(policy, seed + number) for number, name in enumerate(needs.heads)}
        self.second_copy: Any = None
        if needs.reference and policy.adapters is None:
            self.second_copy = copy.deepcopy(policy.module).requires_grad_(False)
        sliced = policy.adapters is None and ranks.count > 1
        self.owners: dict[str, int] = owners(policy.trainable(), ranks.count) if sliced else {}
        """The rank that optimizes each tensor; tensors that are not here are optimized by each."""
        elsewhere = {name for name, owner in self.owners.items() if owner != rank}
        self.fp32_weights = FP32Weights(policy.trainable(), elsewhere)
        self.parameters = dict(self.fp32_weights.parameters)
        for head, module in self.heads.items():
            self.parameters |= {f"{head}_head.{name}": p for name, p in module.named_parameters()}
        self.elsewhere = {name: self.parameters[name] for name in elsewhere}
        """The parameters that other ranks optimize."""
        self.norm_P: Tensor | None = None
        """The norms of the gradients of `owners` when several ranks have added them up; -1 for one that is missing."""
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(), lr=needs.lr, weight_decay=needs.weight_decay, fused=True
        )
        if config.checkpointing:
            policy.module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self.agreement: Agreement | None = None
        self.ranks_config = ranks
        self.shares = ranks.shares if policy.adapters is not None else 1
        self.ranks: Ranks = OneRank(self.shares)
        """Who computes; a run on several ranks puts them here."""
        self._not_finite = 0
        self._seed = seed
        self._deterministic = deterministic

    def read(self, samples: Sequence[Sample], *columns: str) -> list[Sample]:
        """Adapters off, or the stated second copy, gives the `reference`; one pass of the policy all the rest."""
        rows: dict[str, list[Floats]] = {}
        if "reference" in columns:
            rows |= self._read(samples, ["logprobs"], called=["reference"], reference=True)
        others = [name for name in columns if name != "reference"]
        if others:
            rows |= self._read(samples, others, called=others)
        return [sample.with_columns(**{name: rows[name][n] for name in columns}) for n, sample in enumerate(samples)]

    def logprobs(self, samples: Sequence[Sample]) -> list[Floats]:
        """What the policy says now of each sample's ids (0 where the mask is off)."""
        return [sample.columns["logprobs"] for sample in self.read(samples, "logprobs")]

    def encode(self, text: str) -> tuple[int, ...]:
        return self._chat.action_ids(text)[:-1]

    @cached_property
    def _chat(self) -> Chat:
        return Chat(self.policy.tokenizer, self.policy.end_ids)

    def fit(
        self, head: str, samples: Sequence[Sample], targets: OfEach, weights: OfEach, lr: float, steps: int
    ) -> None:
        """What the head reads is computed once, so that training it costs next to nothing."""
        module = self.heads[head]
        seed = self._seed + list(self.heads).index(head)
        module.load_state_dict(_head(self.policy, seed).state_dict())
        read_AD = torch.cat(self._actions(samples))
        target_A, weight_A = (torch.tensor(x, device=read_AD.device) for x in (targets, weights))
        optimizer = torch.optim.AdamW(module.parameters(), lr=lr, weight_decay=self.needs.weight_decay)
        for _ in range(steps):
            logit_A = module(read_AD)[:, 0]
            loss = binary_cross_entropy_with_logits(logit_A, target_A, weight_A, reduction="sum") / weight_A.sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        self.ranks.follow(heads=True)

    def fit_heads(self, samples: Sequence[Sample], loss: HeadsLoss, lr: float, steps: int, slow: float) -> None:
        """The heads are fitted to standardized hidden states, for what tells two actions apart is small beside what all
        states share; in the end their first layers are changed to read them as they are."""
        read_ND = self._hidden(samples)
        mean_D, scale_D = read_ND.mean(0), read_ND.std(0, correction=0).clamp(min=1e-4)
        read_ND = (read_ND - mean_D) / scale_D
        for number, head in enumerate(self.heads.values()):
            head.load_state_dict(_head(self.policy, self._seed + number).state_dict())
        copies = copy.deepcopy(self.heads)
        optimizer = torch.optim.AdamW(
            [p for head in self.heads.values() for p in head.parameters()],
            lr=lr,
            weight_decay=self.needs.weight_decay,
            fused=True,
        )
        for _ in range(steps):
            with torch.no_grad():
                slowly = {name: head(read_ND)[:, 0] for name, head in copies.items()}
            loss({name: head(read_ND)[:, 0] for name, head in self.heads.items()}, slowly).backward()
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                for name, head in self.heads.items():
                    for old, new in zip(copies[name].parameters(), head.parameters(), strict=True):
                        old.lerp_(new, slow)
        with torch.no_grad():
            for head in self.heads.values():
                first = next(head.children())
                assert isinstance(first, torch.nn.Linear)
                first.weight.div_(scale_D)
                first.bias.sub_(first.weight @ mean_D)
        self.ranks.follow(heads=True)

    @torch.no_grad()
    def _hidden(self, samples: Sequence[Sample]) -> Tensor:
        """The hidden states from which the samples' masked tokens are drawn, [N, D]."""
        self._refuse_shards()
        found: dict[int, Tensor] = {}
        for piece in microbatches(samples, self.config.micro_tokens, whole_units=False):
            packed = pack(piece, 0, self.policy.device)
            plan = attention.VarlenPlan(packed.lengths, packed.after)
            hidden_ND = self.policy.hidden(packed.ids_T, packed.position_T, plan)[packed.at_N].float()
            found |= zip(map(id, piece), hidden_ND.split([s.action_tokens for s in piece]), strict=True)
        return torch.cat([found[id(sample)] for sample in samples])

    @torch.no_grad()
    def judge(self, head: str, samples: Sequence[Sample]) -> list[list[float]]:
        return [self.heads[head](read_AD)[:, 0].tolist() for read_AD in self._actions(samples)]

    @torch.no_grad()
    def _actions(self, samples: Sequence[Sample]) -> list[Tensor]:
        """For each sample the mean hidden state over the tokens of each of its actions, [A, D]."""
        self._refuse_shards()
        means: dict[int, Tensor] = {}
        for piece in microbatches(samples, self.config.micro_tokens, whole_units=False):
            packed = pack(piece, 0, self.policy.device)
            plan = attention.VarlenPlan(packed.lengths, packed.after)
            hidden_TD = self.policy.hidden(packed.ids_T, packed.position_T, plan)
            hidden_ND = hidden_TD[packed.at_N + 1].float()  # at an action's tokens, not where they are drawn
            for sample, own_ND in zip(piece, hidden_ND.split([s.action_tokens for s in piece]), strict=True):
                _, sizes = np.unique(sample.turns[sample.mask], return_counts=True)
                means[id(sample)] = torch.stack([part_ND.mean(0) for part_ND in own_ND.split(sizes.tolist())])
        return [means[id(sample)] for sample in samples]

    def _refuse_shards(self) -> None:
        if self.policy.shards is not None:
            raise UserError(
                "This algorithm fits heads to hidden states that one rank reads alone, which a model in shards does "
                "not allow: set ranks.shard=1."
            )

    def with_behavior_logprobs(
        self, epoch: Sequence[Minibatch], loss: Loss, tell: Callable[[str], None]
    ) -> list[Sample]:
        """The samples of a step's first epoch with the log-probs that ratios are taken against.

        The first step that has samples of the policy's own decides whose these are. While they are the sampler's, every
        step's first mini-batch can still change that (`update`). The learner's are computed in the very micro-batches
        of the updates: in bfloat16 a product rounds differently in another one, most of all an adapter's, and a ratio
        would begin as far from 1 as with the sampler's. The sampler's are then compared with them, at every step: an
        engine with weights of its own may have lost touch since.
        """
        samples = [sample for minibatch in epoch for sample in minibatch.samples]
        own = [sample for sample in samples if sample.own]
        if not own or (self.agreement is not None and self.agreement.old == "sampler"):
            return samples
        if self.agreement is None:
            rows, clipped = self._preview([replace(m, samples=[s for s in m.samples if s.own]) for m in epoch], loss)
            self.agreement = compare(own, [rows[id(sample)] for sample in own], clipped)
            check(self.agreement, self.policy.bf16)
            tell(str(self.agreement))
            if self.agreement.old == "sampler":
                return samples
        rows, _ = self._preview(epoch, loss)
        check(compare(own, [rows[id(sample)] for sample in own]), self.policy.bf16)
        return [replace(sample, logprobs=rows[id(sample)]) if sample.own else sample for sample in samples]

    def _preview(self, epoch: Sequence[Minibatch], loss: Loss) -> tuple[dict[int, Floats], float]:
        """The learner's log-probs by the samples' ids, and the share of units that the loss clips against theirs."""
        pieces = [
            piece
            for minibatch in epoch
            for piece in microbatches(minibatch.samples, self.config.micro_tokens, minibatch.whole_units)
        ]
        rows: dict[int, Floats] = {}
        sums: Metrics = {}
        for piece, (metrics, found) in zip(pieces, self.ranks.map(self.previews, pieces, loss), strict=True):
            rows |= zip(map(id, piece), found, strict=True)
            _add(sums, metrics)
        clipped, units = sums.get("clipped", (0.0, 1))
        return rows, float(clipped) / units

    @torch.no_grad()
    def previews(self, shares: Sequence[Sequence[Microbatch]], loss: Loss) -> list[tuple[Metrics, list[Floats]]]:
        """Of each micro-batch the loss's metrics, as late in a run as can be, and the samples' log-probs."""
        found: list[tuple[Metrics, list[Floats]]] = []
        with self._as_in_updates():
            for piece in (piece for share in shares for piece in share):
                packed = pack(piece, _LATE, self.policy.device)
                scored = self._score(packed)
                found.append((_plain(loss(scored, packed.batch)[1]), _rows(piece, scored.logp_N)))
        return found

    def update(self, minibatch: Minibatch, loss: Loss) -> Update:
        self.optimizer.zero_grad()
        values, learned = self._gradient(minibatch, loss)
        stop = self._guard(values)
        if not stop:
            self.ranks.add_up()
            values["grad_norm"] = self.clip()
            stop = self._not_finite_stop(values["grad_norm"])
        self.step(None if stop else minibatch.lr_scale)
        self.ranks.step(None if stop else minibatch.lr_scale)
        if not stop:
            self._not_finite = 0
        return Update(values, stop, learned)

    def step(self, lr_scale: float | None) -> None:
        """Take the optimizer's step with the gradient that the parameters hold, unless None, and drop the gradient."""
        if lr_scale is not None:
            for parameter in self.elsewhere.values():
                parameter.grad = None
            for group in self.optimizer.param_groups:
                group["lr"] = self.needs.lr * lr_scale
            self.optimizer.step()
            self.fp32_weights.publish()
            self.policy.version += 1
        self.optimizer.zero_grad()  # gradients are not held while the engine samples

    def gradient(self, minibatch: Minibatch, loss: Loss) -> dict[str, float]:
        """Add the mini-batch's gradient to what the parameters hold, and return its metrics."""
        return self._gradient(minibatch, loss)[0]

    def gradients(
        self, shares: Sequence[Sequence[Microbatch]], minibatch: Minibatch, loss: Loss
    ) -> list[tuple[Metrics, list[Floats]]]:
        """Add the gradient of shares of a mini-batch, whose samples are these, to what the parameters hold. Returns the
        metrics of each micro-batch and, if the policy is still the one that sampled, the samples' log-probs."""
        found: list[tuple[Metrics, list[Floats]]] = []

        def of(share: Sequence[Microbatch]) -> Gradients:
            for samples in share:
                packed = pack(samples, minibatch.step, self.policy.device)
                scored = self._score(packed)
                total, metrics = loss(scored, replace(packed.batch, facts=minibatch.facts))
                (total / minibatch.norm).backward()
                rows = _rows(samples, scored.logp_N) if minibatch.on_policy else []
                found.append((_plain(metrics | _standard_metrics(scored, packed, total)), rows))
                del packed, scored, total  # or its hidden states would stay beside the next micro-batch
            held: Gradients = [parameter.grad for parameter in self.parameters.values()]
            self.optimizer.zero_grad()
            return held

        with self._kernels():
            total = add_up(shares, of)
        for parameter, gradient in zip(self.parameters.values(), total, strict=True):
            parameter.grad = gradient
        return found

    def fill(self, passes: int, backward: bool) -> None:
        """Take part in passes that other ranks, with shards of the same weights, make with micro-batches of theirs."""
        held = [parameter.grad for parameter in self.parameters.values()]
        self.optimizer.zero_grad()  # or these would be added to
        for _ in range(passes):
            with self._kernels(), torch.set_grad_enabled(backward):
                scored = self._score(pack([_FILLER], 0, self.policy.device))
                if backward:
                    scored.logp_N.sum().backward()
        for parameter, gradient in zip(self.parameters.values(), held, strict=True):
            parameter.grad = gradient

    def _gradient(self, minibatch: Minibatch, loss: Loss) -> tuple[dict[str, float], Learned]:
        pieces = microbatches(minibatch.samples, self.config.micro_tokens, minibatch.whole_units)
        computed = self.ranks.map(self.gradients, pieces, replace(minibatch, samples=()), loss)
        sums: Metrics = {}
        scores: list[tuple[Sample, Floats]] = []
        for samples, (metrics, rows) in zip(pieces, computed, strict=True):
            _add(sums, metrics)
            scores += [(sample, row) for sample, row in zip(samples, rows, strict=bool(rows)) if sample.own]
        values = {name: float(total) / count for name, (total, count) in sums.items()}
        values["loss"] = float(sums["loss"][0]) / minibatch.norm
        # Per trajectory of the mini-batch, not of its pieces: these may share one.
        own = {sample.source for sample in minibatch.samples if sample.own}
        values["kl"] = float(sums["kl"][0]) / max(1, len(own))
        if not own:
            del values["kl"]  # the policy did not choose these actions
        if scores:
            # The policy is still the one that sampled: every ratio must be 1.
            agreement = compare([sample for sample, _ in scores], [row for _, row in scores])
            check(agreement, self.policy.bf16)
            values["ratio_gap"] = agreement.worst
            # `clipped` is the share of all units; those of others may be clipped before any weight has moved.
            if self.agreement is not None and len(scores) == len(minibatch.samples):
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
            _deterministic() if self._deterministic else nullcontext(),
        ):
            yield

    @contextmanager
    def on_trial(self) -> Iterator[None]:
        """What is done to the weights meanwhile is undone, to the bit. They are kept in the machine's memory."""
        own = {name: p for name, p in self.parameters.items() if name not in self.elsewhere}
        kept = {name: p.detach().to("cpu", copy=True) for name, p in own.items()}
        try:
            yield
        finally:
            with torch.no_grad():
                for name, parameter in own.items():
                    parameter.copy_(kept[name])
            self.fp32_weights.publish()
            self.optimizer.zero_grad()
            self.optimizer.state.clear()
            self._not_finite = 0
            self.policy.version += 1

    def moved(self) -> list[str]:
        """The parameters that every rank has moments of: those that have had a gradient."""
        everywhere = (name for name in self.parameters if name not in self.owners)
        return [name for name in everywhere if self.optimizer.state.get(self.parameters[name])]

    def trained_tensors(self, moved: Collection[str]) -> list[Tensor]:
        """All that training changes and every rank holds, in a fixed order: the weights, and the moments of the
        parameters that have moved, which are made where they are missing."""
        everywhere = {name: p for name, p in self.parameters.items() if name not in self.owners}
        trained = self.policy.trainable()
        tensors: list[Tensor] = [*everywhere.values(), *(trained[name] for name in self.owners)]
        for name, parameter in everywhere.items():
            if name not in moved:
                self.optimizer.state.pop(parameter, None)
                continue
            state = self.optimizer.state[parameter]
            if not state:
                state["step"] = torch.zeros((), device=parameter.device)
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
            tensors += [state["step"], state["exp_avg"], state["exp_avg_sq"]]
        return tensors

    def sliced_tensors(self) -> list[tuple[Tensor, int]]:
        """The module's weights that one rank optimizes for all, and which."""
        trained = self.policy.trainable()
        return [(trained[name], owner) for name, owner in self.owners.items()]

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """What this rank holds for the optimizer, by the names of a checkpoint: moments, step counts, and float32
        weights."""
        moments = {
            f"{kind}/{name}": value
            for name, parameter in self.parameters.items()
            for kind, value in self.optimizer.state.get(parameter, {}).items()
        }
        return moments | {f"master/{name}": weight.detach() for name, weight in self.fp32_weights.apart.items()}

    def hold(self, name: str, value: Tensor) -> None:
        """Take over one of the optimizer's tensors."""
        kind, _, parameter_name = name.partition("/")
        parameter = self.parameters[parameter_name]
        if kind == "master":
            parameter.data.copy_(value)
            return
        self.optimizer.state[parameter][kind] = value.to(parameter.device)

    def restart(self) -> None:
        """Begin anew with the module's weights, where this rank alone optimizes a tensor: without moments."""
        self.fp32_weights.restart()
        for name in self.owners:
            self.optimizer.state.pop(self.parameters[name], None)

    def head_tensors(self) -> list[Tensor]:
        return [parameter for head in self.heads.values() for parameter in head.parameters()]

    def republish(self) -> None:
        """Let the model and the engine see weights that somebody else has changed."""
        self.fp32_weights.publish()
        self.policy.version += 1

    def peak_memory(self) -> dict[str, int]:
        return peak(self.policy.device)

    def rank_times(self) -> dict[str, Any]:
        found = self.ranks.seconds()
        return {"ranks": found} if found else {}

    def save(self, folder: Path) -> None:
        checkpoint.save(folder, self.policy, self.heads, self.optimizer_tensors() | dict(self.ranks.gather()))
        if self.agreement is not None:
            decided = asdict(self.agreement) | {"bf16": self.policy.bf16}
            (folder / _AGREEMENT).write_text(json.dumps(decided))

    def load(self, folder: Path) -> None:
        """Also what was saved in another precision, as `model.dtype=auto` is on a machine of another kind."""
        stored = checkpoint.load(folder, self.policy, self.heads)
        self.fp32_weights.restart()
        own = {name: value for name, value in stored.items() if name.partition("/")[2] not in self.elsewhere}
        self.optimizer.state.clear()
        for name, value in own.items():
            self.hold(name, value)
        if (folder / _AGREEMENT).exists():
            known = json.loads((folder / _AGREEMENT).read_text())
            if "most" in known:  # longloop 0.1
                known["p99"] = known.pop("most")
            if known.pop("bf16", self.policy.bf16) == self.policy.bf16:  # or it is to be decided anew
                self.agreement = Agreement(**known)
        self.policy.version += 1
        self.ranks.follow(stored={name: value for name, value in stored.items() if name not in own})

    def _score(self, packed: PackedBatch) -> Scored:
        plan = attention.VarlenPlan(packed.lengths, packed.after)
        hidden_TD = self.policy.hidden(packed.ids_T, packed.position_T, plan)
        hidden_ND = hidden_TD[packed.at_N]
        logp_N, entropy_N, numbers = self.policy.score(
            hidden_ND, packed.target_N, self.temperature, self.config.chunk, self.needs.of_logits
        )
        # Detached: a head's loss must not reach the policy.
        heads = {name: head(hidden_ND.detach().float())[:, 0] for name, head in self.heads.items()}
        return Scored(logp_N, entropy_N, heads, numbers)

    def _read(
        self, samples: Sequence[Sample], columns: Sequence[str], called: Sequence[str], reference: bool = False
    ) -> dict[str, list[Floats]]:
        """Columns of `Scored` for each sample, aligned with its ids, from one forward pass."""
        pieces = microbatches(samples, self.config.micro_tokens, whole_units=False)
        rows: dict[tuple[str, int], Floats] = {}
        for piece, found in zip(pieces, self.ranks.map(self.scores, pieces, columns, reference), strict=True):
            for name, column in zip(called, found, strict=True):
                rows |= {(name, id(sample)): row for sample, row in zip(piece, column, strict=True)}
        return {name: [rows[name, id(sample)] for sample in samples] for name in called}

    @torch.no_grad()
    def scores(
        self, shares: Sequence[Sequence[Microbatch]], columns: Sequence[str], reference: bool
    ) -> list[list[list[Floats]]]:
        """Of each micro-batch the columns of `Scored`, for each sample, of the policy or of the reference."""
        found: list[list[list[Floats]]] = []
        with self._as_reference() if reference else nullcontext(), self._as_in_updates():
            for piece in (piece for share in shares for piece in share):
                scored = self._score(pack(piece, 0, self.policy.device))
                known = {"logprobs": scored.logp_N, "entropy": scored.entropy_N, **scored.heads, **scored.numbers}
                found.append([_rows(piece, known[column]) for column in columns])
        return found

    def clip(self) -> float:
        """Clip the policy's gradient, and each head's apart from it: none may shrink another's step. Returns the norm
        of the policy's before that."""
        limit = self.needs.max_grad_norm
        for head in self.heads.values():
            torch.nn.utils.clip_grad_norm_(head.parameters(), limit)
        if self.norm_P is None:
            return torch.nn.utils.clip_grad_norm_(self.fp32_weights.parameters.values(), limit).item()
        norm = torch.linalg.vector_norm(self.norm_P[~(self.norm_P < 0)])  # one that is not a number counts
        torch.nn.utils.clip_grads_with_norm_(self.fp32_weights.parameters.values(), limit, norm)
        return norm.item()

    def _guard(self, values: dict[str, float]) -> str:
        if abs(values.get("kl", 0.0)) > self.needs.kl_guard:
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


@contextmanager
def _deterministic() -> Iterator[None]:
    """torch's setting for it, which is the process's. An operation that has no such kernel raises torch's error. With
    `warn_only`, attention's backward pass would still add in any order."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    settings: Any = torch.utils.deterministic
    fills = settings.fill_uninitialized_memory
    settings.fill_uninitialized_memory = False  # that costs time, and nothing here reads such memory
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        settings.fill_uninitialized_memory = fills


def _rows(samples: Sequence[Sample], column_N: Tensor) -> list[Floats]:
    """A column of `Scored` for each sample, aligned with its ids (0 where the mask is off)."""
    values_N = column_N.detach().double().cpu().numpy()
    rows: list[Floats] = [np.zeros(len(sample.ids)) for sample in samples]
    cuts = np.cumsum([sample.action_tokens for sample in samples])[:-1]
    for row, sample, values in zip(rows, samples, np.split(values_N, cuts), strict=True):
        row[sample.mask] = values
    return rows


def _standard_metrics(scored: Scored, packed: PackedBatch, total: Tensor) -> Metrics:
    with torch.no_grad():
        moved = ((packed.batch.old_N - scored.logp_N) * packed.batch.own_N).sum()
        return {
            "loss": (total.detach(), 1),
            "kl": (moved, 1),
            "entropy": (scored.entropy_N.sum(), scored.entropy_N.numel()),
        }


def _plain(metrics: Metrics) -> Metrics:
    """Sums as numbers of double precision, which are not read yet: that would make a GPU wait."""
    return {name: (torch.as_tensor(total).detach().double(), count) for name, (total, count) in metrics.items()}


def _add(sums: Metrics, more: Metrics) -> None:
    for name, (total, count) in more.items():
        before, counted = sums.get(name, (0.0, 0))
        sums[name] = (before + total, counted + count)


def _head(policy: Policy, seed: int) -> torch.nn.Module:
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
