"""`longloop doctor`: all findings, or with `--memory` a forecast of the memory that a run needs."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from longloop import api
from longloop import config as configs
from longloop.cli import findings
from longloop.config import Config
from longloop.types import UserError

if TYPE_CHECKING:
    from longloop.memory.forecast import Ledger

console = Console(highlight=False)

_PARTS = {
    "weights": "weights",
    "adapters": "adapters",
    "fp32_weights": "float32 weights",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "second_copy": "second copy",
    "activations": "activations",
    "working": "working memory",
    "kv": "KV cache",
}
_UPDATE_ALONE = ("gradients", "activations", "working")
_PEAKS = {"update": "peak of an update", "collect": "peak while sampling", "peak": "peak"}
_RANK = 16
"""Rank of the adapters that are forecast or advised when the config has none."""
_TIGHT = 0.9
"""Fraction of the free memory above which a forecast is tight: it does not see all that is allocated. Advice stays
below it."""
_SHORT = 2000
"""Advice does not lower `rollout.context` below this."""


def doctor(config_path: Path, overrides: list[str], memory: bool, gpu_gib: float | None, as_json: bool) -> None:
    config = configs.load(config_path, overrides)
    if not memory:
        if gpu_gib is not None:
            raise UserError("--gpu-gib asks about a GPU that need not be here, which only --memory can answer.")
        sys.exit(findings.show(config, as_json, console))
    if gpu_gib is not None:
        config = changed(config, {"model.device": "cuda"})
    room = api.free_memory(config) if gpu_gib is None else int(gpu_gib * 2**30)
    with console.status("Following an update without weights"):
        foresee = _remembering()
        books = {name: foresee(variant) for name, variant in variants(config).items()}
        settings, then = remedy(config, room, foresee)
    if as_json:
        print(json.dumps(to_json(config, books, room, settings, then)))
        return
    from longloop.memory.forecast import limits

    longest, sessions, _ = limits(config)
    console.print(
        f"{config.model.path}: {max(longest, config.learner.micro_tokens):,} tokens in the largest micro-batch, "
        f"{sessions} sessions of {longest:,} tokens",
        soft_wrap=True,
    )
    console.print(table(books, _name(config)))
    console.print()
    if config.ranks.count > 1:
        said = books[_name(config)].copies_in_words
        console.print(f"Each of {config.ranks.count} ranks; {said}.", soft_wrap=True)
    if config.engine.get("url"):
        console.print(_of_server(config), soft_wrap=True)
    console.print(verdict(books[_name(config)], room, settings, then), soft_wrap=True)


def variants(config: Config) -> dict[str, Config]:
    """The config and its alternatives by name: all weights or adapters, activations kept or recomputed. A model in
    shards, or in 4 bits, has adapters."""
    adapters = config.model.lora_rank or _RANK
    ranks = [adapters] if config.ranks.shard > 1 or config.model.quantize else [0, adapters]
    all_of_them = (
        changed(config, {"model.lora_rank": rank, "learner.checkpointing": checkpointing})
        for rank in ranks
        for checkpointing in (False, True)
    )
    return {_name(one): one for one in all_of_them}


def remedy(config: Config, room: int, foresee: "Callable[[Config], Ledger]") -> "tuple[dict[str, Any], Ledger]":
    """Settings that make a run fit, and the forecast with them; no settings if it fits as it is.

    They are lowered one after another, until the run fits or none is left."""
    settings: dict[str, Any] = {}
    book = foresee(config)
    if book.peak <= room:
        return settings, book
    while book.peak > _TIGHT * room and (setting := _lower(config, book, int(_TIGHT * room))):
        settings |= setting
        config = changed(config, setting)
        book = foresee(config)
    return settings, book


def _lower(config: Config, book: "Ledger", room: int) -> dict[str, Any]:
    """The next setting to change: first for the update, then for sampling; the cheapest change first."""
    rollout = config.rollout
    if book.update > room:
        if not config.learner.checkpointing:
            return {"learner.checkpointing": True}
        if config.learner.micro_tokens > rollout.context:
            return {"learner.micro_tokens": rollout.context}
    else:
        from longloop.memory.forecast import kv_tokens, limits

        tokens = kv_tokens(book, room - book.held, *limits(config))
        if tokens >= rollout.context:
            return {"engine.tokens": tokens}
    if not config.model.lora_rank:
        return {"model.lora_rank": _RANK}
    if 2 * book.weights > room and not config.model.quantize and config.ranks.shard == 1:
        return {"model.quantize": "nf4"}
    return {"rollout.context": rollout.context // 2} if rollout.context >= 2 * _SHORT else {}


def verdict(book: "Ledger", room: int, settings: dict[str, Any], then: "Ledger") -> str:
    updating = book.update >= book.collect
    there = [name for name in _PARTS if name not in (("kv",) if updating else _UPDATE_ALONE)]
    largest = max(there, key=lambda name: getattr(book, name))
    said = (
        f"The peak is {'the update' if updating else 'sampling'}: {_gib(book.peak)}, the largest part of it "
        f"{_PARTS[largest]}."
    )
    if book.peak <= _TIGHT * room:
        return f"{said} It fits into the {_gib(room)} that are free."
    if book.peak <= room:
        return f"{said} It just fits into the {_gib(room)} that are free: what an allocator keeps may be too much."
    words = " ".join(f"{key}={str(value).lower()}" for key, value in settings.items())
    said += f" It does not fit into {_gib(room)}."
    if then.peak <= room:
        return f"{said} With {words} the peak would be {_gib(then.peak)}."
    even = f" Even with {words} the peak would be {_gib(then.peak)}." if words else ""
    return f"{said}{even} Take a smaller model or a larger card."


def table(books: "dict[str, Ledger]", configured: str) -> Table:
    """A column for each way to train, a row for each use of memory."""
    grid = Table(box=None, pad_edge=False)
    large = any(book.peak >= 2**31 for book in books.values())
    grid.add_column("GiB" if large else "MiB", overflow="fold")
    for name in books:
        mark = name == configured
        heading = name.replace(", ", "\n") + "\n(configured)" * mark
        grid.add_column(heading, justify="right", style="bold" if mark else "", overflow="fold")
    sizes = [book.to_json() for book in books.values()]
    for key, title in (_PARTS | _PEAKS).items():
        grid.add_row(title, *(f"{size[key] / 2 ** (30 if large else 20):,.1f}" for size in sizes))
        if key == "kv":
            grid.add_row()
    return grid


def to_json(
    config: Config, books: "dict[str, Ledger]", room: int, settings: dict[str, Any], then: "Ledger"
) -> dict[str, Any]:
    """The forecast in bytes, with `advice` if the run would not fit."""
    book = books[_name(config)]
    return {
        "model": config.model.path,
        "configured": _name(config),
        "room": room,
        "fits": book.peak <= room,
        "copies": book.copies,
        "advice": {"settings": settings, "fits": then.peak <= room, "memory": then.to_json()} if settings else None,
        "memory": {name: one.to_json() for name, one in books.items()},
    }


def _remembering() -> "Callable[[Config], Ledger]":
    """A forecast that remembers its results, because each takes seconds."""
    made: dict[str, Ledger] = {}

    def foresee(config: Config) -> "Ledger":
        key = config.to_toml()
        if key not in made:
            made[key] = api.forecast(config)
        return made[key]

    return foresee


def changed(config: Config, settings: dict[str, Any]) -> Config:
    """The config with some `section.key` changed."""
    for dotted, value in settings.items():
        section, _, key = dotted.partition(".")
        part = getattr(config, section)
        part = part | {key: value} if isinstance(part, dict) else part.model_copy(update={key: value})
        config = config.model_copy(update={section: part})
    return config


def _of_server(config: Config) -> str:
    from longloop.memory.forecast import sampled_by

    url = config.engine["url"]
    if sampled_by(config.engine) == "server here":
        return f"The second copy is that of the server at {url}, on this machine. Its KV cache is not counted."
    return f"The server at {url} holds a second copy of the weights elsewhere, and the KV cache. They are not counted."


def _name(config: Config) -> str:
    trained = f"LoRA r={config.model.lora_rank}" if config.model.lora_rank else "full"
    trained += f", {config.model.quantize}" if config.model.quantize else ""
    return f"{trained}, checkpointing" if config.learner.checkpointing else trained


def _gib(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:,.1f} MiB"
