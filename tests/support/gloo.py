"""Ranks in processes of their own that Ray knows nothing of: they find each other through torch.distributed."""

import multiprocessing
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from longloop.cluster.exchange import Exchange
from tests.support.processes import FORKS

_PATIENCE = 240.0
"""Seconds for what ranks do."""
_ENDING = 30.0
"""Seconds for them to end afterwards."""


def together(
    count: int, work: Callable[..., Any], *arguments: Any, spawned: bool = False, device: str = "cpu"
) -> list[Any]:
    """Call `work(exchange, *arguments)` on each of `count` ranks at once; what each returned, in order. It must be
    plain data: numbers, bytes, arrays. `work` is a function of a module, which a rank finds by its name.

    Ranks are not forks of this process: they would have what tests before this one left in it, locks of threads that
    they do not have among it.

    spawned: begun from nothing, as those that use a card must be.
    device: of the exchange. Ranks that share a card have one for CPUs, gloo, which takes tensors of a card, too.
    """
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    context: Any = multiprocessing.get_context("spawn") if spawned else FORKS
    results = context.Queue()
    processes = [
        context.Process(target=_rank, args=(rank, count, store.port, device, results, work, arguments), daemon=True)
        for rank in range(count)
    ]
    for process in processes:
        process.start()
    try:
        found = dict(results.get(timeout=_PATIENCE) for _ in processes)
        for process in processes:
            process.join(_ENDING)
        lasting = [rank for rank, process in enumerate(processes) if process.is_alive()]
    finally:
        for process in processes:
            process.kill()
    failed = [said for said in found.values() if isinstance(said, _Failed)]
    assert not failed, "\n".join(said.text for said in failed)
    assert not lasting, f"ranks {lasting} did not end by themselves"
    return [found[rank] for rank in range(count)]


class _Failed:
    def __init__(self, text: str) -> None:
        self.text = text


def _rank(
    rank: int, count: int, port: int, device: str, results: Any, work: Callable[..., Any], arguments: Any
) -> None:
    torch.set_num_threads(1)
    try:
        exchange = Exchange(dist.TCPStore("localhost", port, is_master=False), rank, count, torch.device(device), 60.0)
        results.put((rank, work(exchange, *arguments)))
        exchange.close()
    except BaseException:
        results.put((rank, _Failed(f"rank {rank}: {traceback.format_exc()}")))
