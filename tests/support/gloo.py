"""Ranks in processes of their own that Ray knows nothing of: they are forked, and find each other through gloo."""

import multiprocessing
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from longloop.cluster.exchange import Exchange

_PATIENCE = 100.0


def together(count: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Call `work(exchange, *arguments)` on each of `count` ranks at once; what each returned, in order. It must be
    plain data: numbers, bytes, arrays."""
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    forks = multiprocessing.get_context("fork")
    results = forks.Queue()
    processes = [
        forks.Process(target=_rank, args=(rank, count, store.port, results, work, arguments), daemon=True)
        for rank in range(count)
    ]
    for process in processes:
        process.start()
    found = dict(results.get(timeout=_PATIENCE) for _ in processes)
    for process in processes:
        process.join(_PATIENCE)
    failed = [said for said in found.values() if isinstance(said, _Failed)]
    assert not failed, "\n".join(said.text for said in failed)
    return [found[rank] for rank in range(count)]


class _Failed:
    def __init__(self, text: str) -> None:
        self.text = text


def _rank(rank: int, count: int, port: int, results: Any, work: Callable[..., Any], arguments: Any) -> None:
    torch.set_num_threads(1)
    try:
        exchange = Exchange(dist.TCPStore("localhost", port, is_master=False), rank, count, torch.device("cpu"), 60.0)
        results.put((rank, work(exchange, *arguments)))
        exchange.close()
    except BaseException:
        results.put((rank, _Failed(f"rank {rank}: {traceback.format_exc()}")))
