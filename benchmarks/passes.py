"""What the engine's passes read and how long they took, beside what the card's memory and arithmetic allow."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from longloop.types import Sample


@dataclass
class OnePass:
    """A pass of the engine: what it read, and when."""

    tokens: int
    drawn: int
    """Spans, each of which ends with a token drawn."""
    decodes: bool
    """Whether it read single tokens only."""
    keys: int
    """What its tokens attended to, added up."""
    begun: float
    ended: float = 0.0
    disturbed: bool = False
    """Whether another pass was recorded meanwhile."""


class Watched:
    """A pass that takes down what each one read and how long it took."""

    def __init__(self, inner: Any, cache: Any) -> None:
        self._inner, self._cache, self.ahead = inner, cache, inner.ahead
        self.all: list[OnePass] = []
        self.kv = 0
        """The most bytes that keys and values have had."""
        self.recording = 0.0
        """Seconds in which passes were recorded."""

    def __call__(self, row: Any, *numbers: Any) -> Any:
        recorded, begun = self.recorded, time.perf_counter()
        self.kv = max(self.kv, self._cache.bytes)
        drawn = self._inner(row, *numbers)
        single = row.singles == len(row.slot_R)
        now = OnePass(len(row.ids_T), len(row.slot_R), single, int((row.position_T + 1).sum()), begun)
        if self.recorded > recorded:
            self.recording += time.perf_counter() - begun
            for one in (*self.all[-1:], now):
                one.disturbed = True
        self.all.append(now)

        def ready() -> None:
            drawn.ready()
            now.ended = time.perf_counter()

        return replace(drawn, ready=ready)

    @property
    def recorded(self) -> int:
        return len(getattr(self._inner, "_graphs", ()))

    def release(self) -> None:
        self._inner.release()

    def timed(self) -> list[tuple[OnePass, float]]:
        """Each pass, and the seconds that it took: it begins when the one before has ended."""
        before = [0.0, *(one.ended for one in self.all)]
        return [(one, one.ended - max(one.begun, end)) for one, end in zip(self.all, before, strict=False)]


class Work:
    """What passes and updates of a model must read and compute at least."""

    def __init__(self, module: Any) -> None:
        config, size = module.config, module.dtype.itemsize
        embeddings = module.get_input_embeddings().weight.nbytes * (not config.tie_word_embeddings)
        head = config.hidden_size // config.num_attention_heads
        width, narrow = config.num_attention_heads * head, config.num_key_value_heads * head
        layer = 2 * config.hidden_size * (width + narrow) + 3 * config.hidden_size * config.intermediate_size
        self.weights = sum(p.nbytes for p in module.parameters()) - embeddings
        """Their bytes, without the table of embeddings, of which a pass reads a few rows."""
        self.inside = layer * config.num_hidden_layers
        """Weights of the layers."""
        self.head = config.hidden_size * config.vocab_size
        self.kv = 2 * config.num_hidden_layers * narrow * size
        """Bytes of a token's keys and values."""
        self.attention = 4 * width * config.num_hidden_layers
        """Operations for a token and one that it attends to."""

    def bytes(self, one: OnePass) -> float:
        return self.weights + self.kv * one.keys

    def flops(self, one: OnePass) -> float:
        return 2 * self.inside * one.tokens + 2 * self.head * one.drawn + self.attention * one.keys

    def of_update(self, samples: Sequence[Sample], frozen: bool) -> float:
        tokens, chosen = sum(len(s.ids) for s in samples), sum(s.action_tokens for s in samples)
        with_weights = 2 * self.inside * tokens + 2 * self.head * chosen
        attention = self.attention * sum(len(s.ids) ** 2 / 2 for s in samples)
        return (2 if frozen else 3) * with_weights + 3 * attention


def rates(timed: list[tuple[OnePass, float]], work: Work, speed: float, flops: float) -> list[str]:
    """Lines of the table for decoding and for reading."""
    lines = []
    for name, decodes in (("decoding", True), ("reading", False)):
        chosen = [(one, took) for one, took in timed if one.decodes == decodes and not one.disturbed]
        seconds, tokens = sum(took for _, took in chosen), sum(one.tokens for one, _ in chosen)
        least = sum(work.bytes(one) / speed if decodes else work.flops(one) / flops for one, _ in chosen)
        if seconds:
            kind = "of the memory limit" if decodes else "of the matmul peak"
            lines.append(
                f"| {name} | {tokens:,} tokens in {len(chosen)} passes | {seconds:.1f} | {tokens / seconds:,.0f} | "
                f"{least / seconds:.0%} {kind} |"
            )
    return lines
