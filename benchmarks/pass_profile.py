"""Where a recorded pass of the engine goes on a GPU: its kernels, by the time they take.

    python benchmarks/pass_profile.py [135m:128 135m:512 7b:64 135m:128:16]

A case is SHAPE:BATCH, with :RANK for adapters. The engine decodes as in decode.py, compiled; then the largest recording
of single tokens is replayed with what its buffers hold: sequences at the end of their run, some perhaps over.
"""

import gc
import re
import sys
from collections import Counter

import common
import decode
import torch
from torch.profiler import ProfilerActivity, profile

from longloop.engines.engine import NativeEngine

REPLAYS = 5


def measure(shape: str, batch: int, rank: int) -> None:
    rows = decode.prompts(batch, 512, common.SHAPES[shape]["vocab_size"])
    policy = common.policy(common.random_model(shape, device="cuda"), lora_rank=rank)
    engine = NativeEngine(policy, common.Silent(), slots=batch, step_tokens=16384, compile=True)
    decode.engine_rate(engine, rows, 128)  # records the passes
    rate = decode.engine_rate(engine, rows, 128)[0]
    recordings = engine._pass._graphs
    replay = recordings[max(key for key in recordings if key[1])]._recording._graph.replay
    for _ in range(3):
        replay()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(REPLAYS):
            replay()
        torch.cuda.synchronize()
    times: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for event in seen.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            name = re.sub(r"<.*", "", event.name)[:90]
            times[name] += event.device_time
            counts[name] += 1
    print(f"\n{shape}, batch {batch}, rank {rank}: {rate:,.0f} tokens a second, {1e3 * batch / rate:.3f} ms a pass")
    print(
        f"kernels together {sum(times.values()) / REPLAYS / 1e3:.3f} ms, {sum(counts.values()) / REPLAYS:.0f} of them"
    )
    for name, time in times.most_common(16):
        print(
            f"{time / REPLAYS:9.1f} µs {counts[name] / REPLAYS:6.0f} x {time / counts[name]:7.2f}  {name}", flush=True
        )
    engine.release()


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("This needs a CUDA device.")
    for case in sys.argv[1:] or ["135m:128", "135m:512", "7b:64"]:
        shape, batch, rank = f"{case}:0".split(":")[:3]
        measure(shape, int(batch), int(rank))
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
