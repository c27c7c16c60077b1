"""The data: what an attempt at a task is, and what of it is trained on.

Plain frozen dataclasses; no tokenizer, no I/O, and tensors only in `Batch` and `Scored`. Token ids are kept as they
were sent to and sampled from the model, so every view below (`Trajectory.stretches`) is pure slicing.

A worked example. Two turns; `P0` is the opening prompt, `A0` the first action, `E1` what the environment answered
(with the chat framing around it), `A1` the second action:

    ids      = P0 + A0 + E1 + A1
    mask     = 0..  1..  0..  1..        1 where the model chose the token
    logprobs = 0..  a0.  0..  a1.        as sampled, 0 elsewhere
    turns    = 0..  0..  1..  1..        which turn a token belongs to
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor


class UserError(Exception):
    """Something the user can mend. Shown as it is, without a traceback: what was wrong, where, what to do."""


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: str
    """system, user, assistant or tool; the chat template decides which exist."""
    content: str
    """The text. Nothing in it is ever read as a special token."""


@dataclass(frozen=True)
class Task:
    """One thing to do."""

    id: str
    """Unique within its environment."""
    split: str
    """train, dev, test, ... as the environment names them."""
    data: dict[str, Any] = field(default_factory=dict)
    """What the environment needs to set the task up. JSON values only."""
    scenario: str = ""
    """Tasks made from one template share it; scenario completion counts a scenario whose tasks all succeed."""


@dataclass(frozen=True)
class Step:
    """What an environment answers to an action."""

    messages: Sequence[Message] = ()
    """What the agent sees next; may be empty when the episode is done."""
    reward: float = 0.0
    """Stored with the turn and shown; no algorithm uses it. What is trained on is `Outcome.reward`."""
    done: bool = False
    """True when the environment accepts no further action."""
    info: dict[str, Any] = field(default_factory=dict)
    """Anything worth storing. JSON values only."""


@dataclass(frozen=True)
class Outcome:
    """The verifier's verdict on the state an attempt left behind."""

    reward: float
    """The score that is trained on."""
    success: bool
    """Whether the task was done, all of it."""
    info: dict[str, Any] = field(default_factory=dict)
    """For instance which tests passed. JSON values only."""


class StopReason(StrEnum):
    """Why an attempt ended. Only a scored attempt has a reward and takes part in its group's baseline."""

    FINISHED = "finished"
    MAX_TURNS = "max_turns"
    CONTEXT_FULL = "context_full"
    ENV_ERROR = "env_error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    PRACTISED = "practised"
    SET_ASIDE = "set_aside"

    @property
    def scored(self) -> bool:
        return self in (StopReason.FINISHED, StopReason.MAX_TURNS, StopReason.CONTEXT_FULL)

    @property
    def sentence(self) -> str:
        return {
            StopReason.FINISHED: "The environment said the episode was over.",
            StopReason.MAX_TURNS: "The agent used all its turns; the state it reached was scored.",
            StopReason.CONTEXT_FULL: "The conversation no longer fitted the context; the state it reached was scored.",
            StopReason.ENV_ERROR: "The environment raised an error; no reward was taken from it.",
            StopReason.TIMEOUT: "The environment or the episode overran its deadline; no reward was taken from it.",
            StopReason.CANCELLED: "The attempt was a straggler and was abandoned; no reward was taken from it.",
            StopReason.PRACTISED: "The agent acted once at a state of the expert's; no environment took part.",
            StopReason.SET_ASIDE: "The environment had failed at the task too often; it was not tried again.",
        }[self]


class Fault(Exception):
    """An environment, or an expert, failed: why, and a sentence that names the method, what it owes and the line."""

    def __init__(self, stop: StopReason, text: str) -> None:
        super().__init__(text)
        self.stop = stop


@dataclass(frozen=True)
class SamplingParams:
    """How an engine samples one continuation."""

    temperature: float = 1.0
    """The logits are divided by it; at 0 the likeliest token is taken."""
    top_p: float = 1.0
    """Draw from the fewest likeliest tokens whose probabilities add up to this; 1 draws from all.

    Log-probs stay those of the whole distribution at the temperature. Below 1 they do not describe how tokens were
    drawn, and importance ratios taken against them would be wrong: for evaluation only.
    """
    max_tokens: int = 1024
    """The most tokens to sample."""
    seed: int = 0
    """Of the request's own random numbers."""
    stop_ids: frozenset[int] = frozenset()
    """Token ids that end the continuation; the one that was sampled is its last."""
    stop: tuple[str, ...] = ()
    """Strings that end it, with the token that completes one."""


Finish = Literal["stop", "length"]
"""How a turn's sampling ended: an end token or stop string, or the limit on tokens."""


@dataclass(frozen=True)
class Sampled:
    """What an engine returns for one request."""

    ids: tuple[int, ...]
    """The sampled token ids, the end token included when there was one."""
    logprobs: tuple[float, ...]
    """Of each id, at the sampling temperature."""
    finish: Finish
    """How the sampling ended."""


@dataclass(frozen=True)
class Turn:
    """What arrived since the last action, and the action."""

    context: tuple[Message, ...]
    """The messages that arrived."""
    context_ids: tuple[int, ...]
    """The ids sent for them, chat framing included. Appended to the ids so far, unless `restarts_context`."""
    action: Message
    """What the model said, as text. For people and environments; never encoded again."""
    action_ids: tuple[int, ...]
    """Exactly as sampled."""
    action_logprobs: tuple[float, ...]
    """Exactly as sampled, at the sampling temperature."""
    restarts_context: bool = False
    """True when the template rewrote history: `context_ids` is then the whole conversation anew."""
    reward: float = 0.0
    """`Step.reward`: stored and shown; no algorithm uses it."""
    finish: Finish = "stop"
    """How the sampling of the action ended."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time spent: `sample` and `env`."""
    info: dict[str, Any] = field(default_factory=dict)
    """What the environment said about the step."""


@dataclass(frozen=True)
class Stretch:
    """A run of token ids that the model saw as one sequence. Usually a whole trajectory."""

    ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    turns: tuple[int, ...]


@dataclass(frozen=True)
class Trajectory:
    """One attempt at a task."""

    task: Task
    attempt: int
    """0..K-1 within its group."""
    turns: tuple[Turn, ...]
    reward: float
    """What the verifier paid. 0 when the attempt was not scored; look at `stop` before using it."""
    success: bool
    stop: StopReason
    error: str = ""
    """What went wrong, when the environment did."""
    info: dict[str, Any] = field(default_factory=dict)
    """The verifier's own notes."""
    expert: bool = False
    """True when it is there to be learned from: an expert's, or a stored one. The policy did not choose its actions."""
    unread: tuple[Message, ...] = ()
    """The messages that came last and were not answered: they no longer fitted the context, or the episode was over."""

    @property
    def action_tokens(self) -> int:
        return sum(len(turn.action_ids) for turn in self.turns)

    @property
    def action_texts(self) -> tuple[str, ...]:
        """What the agent said, turn by turn. Attempts at a task that say the same teach the same."""
        return tuple(turn.action.content for turn in self.turns)

    def stretches(self) -> list[Stretch]:
        """The token sequences that were sampled from: one, plus one for every turn that rewrote history."""
        stretches: list[Stretch] = []
        ids: list[int] = []
        mask: list[int] = []
        logprobs: list[float] = []
        turns: list[int] = []

        def close() -> None:
            if any(mask):
                stretches.append(Stretch(tuple(ids), tuple(mask), tuple(logprobs), tuple(turns)))
            for column in (ids, mask, logprobs, turns):
                column.clear()

        for number, turn in enumerate(self.turns):
            if turn.restarts_context:
                close()
            context, action = len(turn.context_ids), len(turn.action_ids)
            ids += turn.context_ids + turn.action_ids
            mask += [0] * context + [1] * action
            logprobs += (0.0,) * context + turn.action_logprobs
            turns += [number] * (context + action)
        close()
        return stretches


@dataclass(frozen=True)
class Group:
    """The K attempts at one task."""

    task: Task
    trajectories: tuple[Trajectory, ...]

    @property
    def scored(self) -> tuple[Trajectory, ...]:
        """The attempts whose reward means something: a faulty environment's or an abandoned one's does not."""
        return tuple(t for t in self.trajectories if t.stop.scored)

    def merged_with(self, other: Group) -> Group:
        """With the attempts of another group at the task, numbered on from these."""
        first = max((t.attempt for t in self.trajectories), default=-1) + 1
        more = (replace(t, attempt=first + number) for number, t in enumerate(other.trajectories))
        return Group(self.task, (*self.trajectories, *more))

    @property
    def policy_trajectories(self) -> tuple[Trajectory, ...]:
        """The scored attempts of the policy itself."""
        return tuple(t for t in self.scored if not t.expert)

    @property
    def expert(self) -> Trajectory | None:
        """The expert's scored attempt, where there is one."""
        return next((t for t in self.scored if t.expert), None)


@dataclass(frozen=True)
class Sample:
    """One stretch of a trajectory, ready to train on. All columns have one length."""

    ids: tuple[int, ...]
    mask: tuple[int, ...]
    """1 where the model chose the token; only these are ever scored."""
    logprobs: tuple[float, ...]
    """Of the policy that sampled."""
    turns: tuple[int, ...]
    """The turn a token belongs to."""
    advantages: tuple[float, ...]
    """What the algorithm made of the reward."""
    weights: tuple[float, ...]
    """How much a token counts; the loss is a weighted sum, divided once by the batch's norm."""
    trajectory: tuple[int, int] = (0, 0)
    """Where it came from: the group's place in its step, and the attempt."""
    stretch: int = 0
    """Which stretch of the trajectory."""
    pair: int = -1
    """Which of the step's pairs it belongs to, where the loss compares two; -1 elsewhere."""
    reference: tuple[float, ...] = ()
    """Log-probs of the reference policy, for algorithms that ask for one."""
    returns: tuple[float, ...] = ()
    """What a value head should have predicted, for algorithms that have one."""

    def __post_init__(self) -> None:
        for name in ("mask", "logprobs", "turns", "advantages", "weights", "reference", "returns"):
            length = len(getattr(self, name))
            if length != len(self.ids) and not (length == 0 and name in ("reference", "returns")):
                raise ValueError(f"Sample.{name} has {length} entries for {len(self.ids)} ids.")
        if self.mask[:1] == (1,):
            raise ValueError("A sample's first token has nothing before it and cannot be an action.")

    @property
    def action_tokens(self) -> int:
        return sum(self.mask)

    @property
    def unit(self) -> tuple[int, ...]:
        """What is trained on together and counts as one: its pair, or its trajectory."""
        return self.trajectory if self.pair < 0 else (self.pair,)


@dataclass(frozen=True)
class Minibatch:
    """The samples of one gradient step."""

    samples: Sequence[Sample]
    norm: float
    """The one denominator of the step, whatever the number of micro-batches or devices."""
    step: int
    on_policy: bool
    """True for the first of a step: the policy is still the one that sampled, so every ratio must be 1."""
    lr_scale: float = 1.0
    """The share of the learning rate to take the step with."""
    whole_trajectories: bool = False
    """True when the loss needs all of a trajectory, or of a pair, in one micro-batch."""


@dataclass(frozen=True)
class Batch:
    """What a loss may look at. Everything is flat over the N action tokens of a micro-batch; environment tokens are
    not here, so they cannot leak into a loss."""

    old_N: Tensor
    """Log-prob under the policy that sampled."""
    adv_N: Tensor
    weight_N: Tensor
    turn_N: Tensor
    """Which turn of the micro-batch a token belongs to, 0..turns-1."""
    traj_N: Tensor
    """Which trajectory of the micro-batch, or which pair, 0..trajectories-1."""
    turns: int
    trajectories: int
    step: int
    """The training step, from 1, for schedules."""
    reference_N: Tensor | None = None
    returns_N: Tensor | None = None


@dataclass(frozen=True)
class Scored:
    """What the model says now about the N action tokens of a micro-batch."""

    logp_N: Tensor
    """At the sampling temperature, with gradient."""
    entropy_N: Tensor
    """Of the distribution each token was drawn from; no gradient."""
    value_N: Tensor | None = None
    """From the value head, where there is one, with gradient into the head alone."""


Metrics = dict[str, tuple["Tensor | float", int]]
"""Name -> (sum, count), so that micro-batches can be added up before dividing.

A sum may stay a tensor: asking for its value would make the GPU wait for us at every micro-batch.
"""

Learned = tuple[tuple[Sample, tuple[float, ...]], ...]
"""Samples, each with the learner's log-probs of its ids."""


@dataclass(frozen=True)
class Update:
    """What a gradient step did."""

    metrics: dict[str, float]
    stop: str = ""
    """Not empty when a guard fired: no step was taken, and the rest of this iteration must be skipped."""
    learned: Learned = ()
    """Of the first mini-batch: what the learner said of each sample's ids while it was the policy that sampled."""
