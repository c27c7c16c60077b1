"""The data: what an attempt at a task is, and what of it is trained on.

Plain frozen dataclasses; no tokenizer, no I/O, and tensors only in `Batch` and `Scored`. Token ids are kept as they
were sent to and sampled from the model, so every view below (`Trajectory.stretches`) is pure slicing. What there is for
each token is a *column*: a read-only array, from the engine to the batch. Constructors take any sequence for one.

A worked example. Two turns; `P0` is the opening prompt, `A0` the first action, `E1` what the environment answered
(with the chat framing around it), `A1` the second action:

    ids      = P0 + A0 + E1 + A1
    mask     = 0..  1..  0..  1..        1 where the model chose the token
    logprobs = 0..  a0.  0..  a1.        as sampled, 0 elsewhere
    turns    = 0..  0..  1..  1..        which turn a token belongs to
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    Ids = NDArray[np.integer[Any]]
    Mask = NDArray[np.bool_]
    Floats = NDArray[np.floating[Any]]
else:  # workers load this module in virtualenvs that have no numpy
    Ids = Mask = Floats = Any

_INT, _BOOL, _FLOAT = "int64", "bool", "float64"
"""Floats are kept as Python computes them; tensors are float32."""


class UserError(Exception):
    """Something the user can mend. Shown as it is, without a traceback: what was wrong, where, what to do."""

    exit_status = 2
    """Of the command that it ends."""


class RankLost(UserError):
    """A rank of the run is gone, or something else that a cluster should have. The run can be resumed."""

    exit_status = 3


class RankFull(UserError):
    """The card of another rank has no memory left. Whether it sampled is said here: its traceback stays there."""

    def __init__(self, text: str, sampling: bool) -> None:
        super().__init__(text)
        self.sampling = sampling


class HostLost(RankLost):
    """A machine with environments is gone. What was played there can be played again."""


def column(values: Any, dtype: str) -> NDArray[Any]:
    """The values as a read-only array."""
    import numpy as np

    array = np.asarray(values, dtype)
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


class HasColumns:
    """Base of the dataclasses that have columns: makes them arrays, and compares them as values."""

    columns_of: Mapping[str, str] = {}
    """The names of its columns, and what they hold."""

    def __post_init__(self) -> None:
        for name, dtype in self.columns_of.items():
            object.__setattr__(self, name, column(getattr(self, name), dtype))

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(_equal(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))  # type: ignore[arg-type]


def _equal(one: Any, other: Any) -> bool:
    import numpy as np

    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    return bool(one == other)


@dataclass(frozen=True)
class Call:
    """A call of a tool, as an assistant asked for it."""

    id: str
    """The tool's answer names it (`Message.call`)."""
    name: str
    """The tool."""
    arguments: str
    """A JSON object, as text."""
    text: str = ""
    """How the policy said it: a part of its message's content. Empty for a call that somebody else made."""


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: str
    """system, user, assistant or tool; the chat template decides which exist."""
    content: str
    """The text. Nothing in it is ever read as a special token, but the marks of an assistant's own `calls`."""
    calls: tuple[Call, ...] = ()
    """The tools that an assistant asked for. What the policy said stands in `content` as well, word for word."""
    call: str = ""
    """Of a tool's answer: the id of the call."""

    @property
    def words(self) -> str:
        """The content without the calls that were read from it."""
        words = self.content
        for call in self.calls:
            words = words.replace(call.text, "", 1)
        return words.strip() if words != self.content else words


@dataclass(frozen=True)
class Task:
    """One thing to do."""

    id: str
    """Unique within its environment."""
    split: str
    """train, dev, test, ... as the environment names them."""
    data: dict[str, Any] = field(default_factory=dict)
    """What the environment needs to set the task up. JSON values only. Where the task asks for an answer, `answers` may
    hold the right ones, as texts: methods such as IGPO read them."""
    scenario: str = ""
    """Tasks made from one template share it; scenario completion counts a scenario whose tasks all succeed."""


@dataclass(frozen=True)
class Step:
    """What an environment answers to an action."""

    messages: Sequence[Message] = ()
    """What the agent sees next; may be empty when the episode is done."""
    reward: float = 0.0
    """Stored with the turn and shown. Most methods train on `Outcome.reward` alone; some (GTPO, Turn-PPO) use both."""
    done: bool = False
    """True when the environment accepts no further action."""
    info: dict[str, Any] = field(default_factory=dict)
    """Anything worth storing. JSON values only. `state` is a key of the state that the next action meets."""
    rebuild: bool = False
    """True when the messages are the whole conversation anew: the agent no longer sees what came before them."""
    thread: str = ""
    """Which conversation of the attempt the messages belong to, where it has several, such as those of sub-agents. One
    that was not named before begins with them. Each has a context of its own."""
    tools: tuple[dict[str, Any], ...] = ()
    """The tools that the agent may call, as JSON schemas: `{"type": "function", "function": {"name": ...}}`. Read
    only where a conversation begins."""
    stop: tuple[str, ...] = ()
    """Further texts that end the next action."""
    max_tokens: int = 0
    """The most tokens of the next action; 0 for the run's limit, which holds in any case."""

    @classmethod
    def of(cls, opening: Sequence[Message] | Step) -> Step:
        """What `start` returned: messages alone, or a step."""
        return opening if isinstance(opening, Step) else Step(opening)


@dataclass(frozen=True)
class Outcome:
    """The verifier's verdict on the state an attempt left behind."""

    reward: float
    """The score that is trained on."""
    success: bool
    """Whether the task was done, all of it."""
    info: dict[str, Any] = field(default_factory=dict)
    """For instance which tests passed. JSON values only. `output`, a text, is what a program of the agent's printed; it
    is kept of attempts without a score too. `key`, a string, says what the attempt came to (an answer, a
    digest of the state): methods that compare outcomes take attempts at a task with equal keys for equal. Without one
    they compare the last actions' texts; an empty key is no outcome."""


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


Watch = Callable[[int], None]
"""Called with each token as soon as it is known."""

Finish = Literal["stop", "length"]
"""How a turn's sampling ended: an end token or stop string, or the limit on tokens."""


@dataclass(frozen=True)
class Action(Message):
    """What the policy said, and how it came to it."""

    finish: Finish = "stop"
    """How the sampling ended."""
    prompt_tokens: int = 0
    """Tokens of the conversation before it."""
    tokens: int = 0
    """Tokens of the action."""


@dataclass(frozen=True, eq=False)
class Sampled(HasColumns):
    """What an engine returns for one request."""

    columns_of = {"ids": _INT, "logprobs": _FLOAT}

    ids: Ids
    """The sampled token ids, the end token included when there was one."""
    logprobs: Floats
    """Of each id, at the sampling temperature."""
    finish: Finish
    """How the sampling ended."""


@dataclass(frozen=True, eq=False)
class Turn(HasColumns):
    """What arrived since the last action, and the action."""

    columns_of = {"context_ids": _INT, "action_ids": _INT, "action_logprobs": _FLOAT}

    context: tuple[Message, ...]
    """The messages that arrived."""
    context_ids: Ids
    """The ids sent for them, chat framing included. Appended to the ids so far, unless `restarts_context`."""
    action: Message
    """What the model said, as text. For people and environments; never encoded again."""
    action_ids: Ids
    """Exactly as sampled."""
    action_logprobs: Floats
    """Exactly as sampled, at the sampling temperature."""
    restarts_context: bool = False
    """True when history was rewritten, by the template or by the environment, or another conversation begins:
    `context_ids` is then the whole conversation anew."""
    rebuilt: bool = False
    """True when the environment did it (`Step.rebuild`, `Step.thread`): `context` is then the whole conversation as
    well."""
    reward: float = 0.0
    """`Step.reward`, which methods with turn rewards use."""
    finish: Finish = "stop"
    """How the sampling of the action ended."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time spent: `sample` and `env`."""
    info: dict[str, Any] = field(default_factory=dict)
    """What the environment said about the step."""
    tools: tuple[dict[str, Any], ...] = ()
    """The tools of the conversation that begins with this turn, for the first time or anew (`Step.tools`)."""
    thread: str = ""
    """The conversation that it belongs to, where the attempt has several (`Step.thread`)."""
    stop: tuple[str, ...] = ()
    """Texts that ended this action beside the run's (`Step.stop`)."""
    max_tokens: int = 0
    """The most tokens that this action could have, if fewer than the run's (`Step.max_tokens`)."""

    @property
    def action_key(self) -> tuple[int, ...]:
        """The action's ids as something that can be looked up: equal for equal actions."""
        return tuple(self.action_ids.tolist())


@dataclass(frozen=True, eq=False)
class Stretch(HasColumns):
    """A run of token ids that the model saw as one sequence. Usually a whole trajectory."""

    columns_of = {"ids": _INT, "mask": _BOOL, "logprobs": _FLOAT, "turns": _INT}

    ids: Ids
    mask: Mask
    logprobs: Floats
    turns: Ids


@dataclass(frozen=True)
class Trajectory:
    """One attempt at a task."""

    task: Task
    attempt: int
    """0..K-1 within its group."""
    turns: tuple[Turn, ...]
    """In the order of time; of an attempt with several conversations (`Step.thread`), one conversation after the other,
    in the order in which they began."""
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
    replayed: int = 0
    """Turns at its beginning that were taken over from a recorded attempt. They are read, never trained on."""
    side: bool = False
    """True for a side rollout: it was made to find something out, such as the value of the state it began in. It is
    never trained on and belongs to no baseline."""

    @property
    def action_tokens(self) -> int:
        return sum(len(turn.action_ids) for turn in self.turns)

    @property
    def played(self) -> tuple[Turn, ...]:
        """The turns that were not taken over."""
        return self.turns[self.replayed :]

    @property
    def action_texts(self) -> tuple[str, ...]:
        """What the agent said, turn by turn. Attempts at a task that say the same teach the same."""
        return tuple(turn.action.content for turn in self.turns)

    def read_before(self, turn: int) -> Ids:
        """What the policy had read when it acted at a turn."""
        import numpy as np

        ids: list[Ids] = []
        for one in self.turns[: turn + 1]:
            if one.restarts_context:
                ids.clear()
            ids += [one.context_ids, one.action_ids]
        return np.concatenate(ids[:-1])

    def stretches(self) -> list[Stretch]:
        """The token sequences that were sampled from: one, plus one for every turn that rewrote history or began
        another conversation."""
        import numpy as np

        stretches: list[Stretch] = []
        parts: list[tuple[Ids, Mask, Floats, Ids]] = []

        def close() -> None:
            if any(mask.any() for _, mask, _, _ in parts):
                stretches.append(Stretch(*map(np.concatenate, zip(*parts, strict=True))))
            parts.clear()

        for number, turn in enumerate(self.turns):
            if turn.restarts_context:
                close()
            context, action = len(turn.context_ids), len(turn.action_ids)
            parts.append(
                (
                    np.concatenate([turn.context_ids, turn.action_ids]),
                    np.arange(context + action) >= context,
                    np.concatenate([np.zeros(context), turn.action_logprobs]),
                    np.full(context + action, number),
                )
            )
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
        return tuple(t for t in self.trajectories if t.stop.scored and not t.side)

    @property
    def sides(self) -> tuple[Trajectory, ...]:
        """The side rollouts whose reward means something."""
        return tuple(t for t in self.trajectories if t.stop.scored and t.side)

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


class SampleSource(NamedTuple):
    """The trajectory that a sample was made from."""

    group: int
    """The index of its group in the step."""
    attempt: int
    """Its index in the group."""


@dataclass(frozen=True, eq=False)
class Sample(HasColumns):
    """One stretch of a trajectory, ready to train on. All columns have one length."""

    columns_of = {
        "ids": _INT,
        "mask": _BOOL,
        "logprobs": _FLOAT,
        "turns": _INT,
        "advantages": _FLOAT,
        "weights": _FLOAT,
    }

    ids: Ids
    mask: Mask
    """True for the tokens that are trained on; only these are ever scored. Usually those that the model chose."""
    logprobs: Floats
    """Of the policy that sampled."""
    turns: Ids
    """The turn a token belongs to."""
    advantages: Floats
    """What the algorithm made of the reward."""
    weights: Floats
    """How much a token counts; the loss is a weighted sum, divided once by the batch's norm."""
    source: SampleSource = SampleSource(0, 0)  # noqa: RUF009
    stretch: int = 0
    """Which stretch of the trajectory."""
    pair: int = -1
    """Which of the step's pairs it belongs to, where the loss compares two; -1 elsewhere."""
    own: bool = True
    """Whether the policy being trained drew its tokens, and `logprobs` are that policy's. Only such samples are checked
    to have ratios of 1 before an update, and guarded against moving too far."""
    columns: Mapping[str, Floats] = field(default_factory=dict)
    """Further columns, by the names that the algorithm or `Learner.read` gave them; a loss finds them in its batch."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "source", SampleSource(*self.source))
        object.__setattr__(self, "columns", {name: column(x, _FLOAT) for name, x in self.columns.items()})
        every = {name: getattr(self, name) for name in self.columns_of} | dict(self.columns)
        for name, values in every.items():
            if len(values) != len(self.ids):
                raise ValueError(f"Sample.{name} has {len(values)} entries for {len(self.ids)} ids.")
        if self.mask[:1].any():
            raise ValueError("A sample's first token has nothing before it and cannot be an action.")

    def with_columns(self, **columns: Floats | float) -> Sample:
        """The sample with these columns added; a number fills its column."""
        import numpy as np

        added = {name: np.full(len(self.ids), x) if isinstance(x, int | float) else x for name, x in columns.items()}
        return replace(self, columns={**self.columns, **added})

    @property
    def action_tokens(self) -> int:
        return int(self.mask.sum())

    @property
    def unit(self) -> tuple[int, ...]:
        """What is trained on together and counts as one: its pair, or its trajectory."""
        return self.source if self.pair < 0 else (self.pair,)


@dataclass(frozen=True)
class Start:
    """Where an attempt begins: at the beginning of a task, or at a turn of a recorded attempt at it."""

    task: Task
    recorded: Trajectory | None = None
    turn: int = 0
    """The first turn that is played anew; those before it are taken over as they were recorded."""
    preface: tuple[Message, ...] = ()
    """Messages that follow the environment's opening: a plan, a critique, an example."""

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns that are taken over."""
        return () if self.recorded is None else self.recorded.turns[: self.turn]


@dataclass(frozen=True)
class Now:
    """Where a run is, and what an algorithm remembers of it."""

    step: int
    """The training step, from 1."""
    steps: int
    """Steps of the whole run."""
    memory: dict[str, Any] = field(default_factory=dict)
    """The algorithm's own, for it to change. JSON values only: they are saved with every checkpoint."""
    past: Callable[[int], list[Group]] = lambda step: []
    """The groups of an earlier step, as they were stored."""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What an algorithm asks of its learner."""

    lr: float
    """Learning rate of AdamW."""
    weight_decay: float
    max_grad_norm: float
    """Gradients with a larger norm are scaled down to it."""
    kl_guard: float
    """Refuse an update when the policy's own trajectories have a mean summed log-ratio beyond this."""
    heads: tuple[str, ...] = ()
    """Small networks on the policy's last hidden states, by name."""
    reference: bool = False
    """Whether the policy before training must stay readable."""
    of_logits: Mapping[str, OfLogits] = field(default_factory=dict)
    """Numbers of each trained token that are computed from its distribution, by name."""


@dataclass(frozen=True)
class Minibatch:
    """The samples of one gradient step."""

    samples: Sequence[Sample]
    norm: float
    """The one denominator of the step, whatever the number of micro-batches or devices."""
    step: int
    on_policy: bool
    """True for the first of a step: the policy is still the one that sampled, so ratios of its own samples are 1."""
    lr_scale: float = 1.0
    """The share of the learning rate to take the step with."""
    whole_units: bool = False
    """True when the loss needs all of a trajectory, or of a pair, in one micro-batch."""
    facts: Mapping[str, float] = field(default_factory=dict)
    """What the algorithm found out about these samples as a whole (`Algorithm.look`)."""


@dataclass(frozen=True)
class Batch:
    """What a loss may look at. Everything is flat over the N trained tokens of a micro-batch; environment tokens are
    not here, so they cannot leak into a loss."""

    old_N: Tensor
    """Log-prob under the policy that sampled."""
    adv_N: Tensor
    weight_N: Tensor
    own_N: Tensor
    """1 where the policy being trained drew the token, else 0."""
    turn_N: Tensor
    """Which turn of the micro-batch a token belongs to, 0..turns-1."""
    unit_N: Tensor
    """Which trajectory of the micro-batch, or which pair, 0..units-1."""
    turns: int
    units: int
    step: int
    """The training step, from 1, for schedules."""
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    """`Sample.columns`: those that all samples of the micro-batch have."""
    facts: Mapping[str, float] = field(default_factory=dict)
    """`Minibatch.facts`: the same for all micro-batches."""


@dataclass(frozen=True)
class Scored:
    """What the model says now about the N trained tokens of a micro-batch."""

    logp_N: Tensor
    """At the sampling temperature, with gradient."""
    entropy_N: Tensor
    """Of the distribution each token was drawn from; no gradient."""
    heads: Mapping[str, Tensor] = field(default_factory=dict)
    """What each head says at the state a token is drawn from, with gradient into the head alone."""
    numbers: Mapping[str, Tensor] = field(default_factory=dict)
    """`Needs.of_logits`, each [N], with gradient."""


OfLogits = Callable[["Tensor", "Tensor"], "Tensor"]
"""(log-probs of the whole vocabulary [n, V], hidden states [n, D]) -> a number for each token, [n]. It is called on
pieces of a micro-batch, so it looks at each token alone."""

Metrics = dict[str, tuple["Tensor | float", int]]
"""Name -> (sum, count), so that micro-batches can be added up before dividing.

A sum may stay a tensor: asking for its value would make the GPU wait for us at every micro-batch.
"""

Learned = tuple[tuple[Sample, Floats], ...]
"""Samples, each with the learner's log-probs of its ids."""


@dataclass(frozen=True)
class Update:
    """What a gradient step did."""

    metrics: dict[str, float]
    stop: str = ""
    """Not empty when a guard fired: no step was taken, and the rest of this iteration must be skipped."""
    learned: Learned = ()
    """Of the first mini-batch: what the learner said of its own samples' ids while it was the policy that sampled."""
