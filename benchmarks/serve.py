"""How much of the engine's speed `longloop serve` passes on: 64 clients at once, as a ratio to the engine alone.

    .venv/bin/python benchmarks/serve.py
    .venv/bin/python benchmarks/serve.py --shape 135m --device cuda --answer 200

Every client holds a conversation: it asks, waits for the whole answer, and asks again with the answer in its history.
The engine alone samples the same conversations, with the same seeds, without HTTP and without a chat template. Both
sample the same tokens; what counts is tokens per second. Clients run in a process of their own, over connections that
they keep. Runs alternate, and ratios are those of the medians. On a machine that is busy with other work, or with the
clients, the clock says little, and the CPU time of the serving thread more: tokens per second of it, and the share of
it that the engine's passes took. The rest went into HTTP, the chat template and everything between.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import common

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from longloop.engines.engine import NativeEngine
from longloop.gateway.server import Server
from longloop.gateway.serving import Served
from longloop.tokens.chat import Chat
from longloop.tokens.transcript import Transcript
from longloop.types import Message, SamplingParams

CLIENTS = """
import asyncio, json, sys, time
port, clients, turns, question, answer, stream = json.loads(sys.argv[1])

async def ask(reader, writer, body):
    sent = json.dumps(body).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\\r\\nhost: localhost\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(sent)
    writer.write(head + sent)
    head = (await reader.readuntil(b"\\r\\n\\r\\n")).decode().lower()
    assert " 200 " in head.splitlines()[0], head
    if "content-length" in head:
        return await reader.readexactly(int(head.split("content-length: ")[1].split()[0]))
    parts = []
    while size := int(await reader.readline(), 16):
        parts.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return b"".join(parts)

async def client(number):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    messages, tokens = [], 0
    for turn in range(turns):
        words = " ".join(f"w{(number * 7 + turn + n) % 90}" for n in range(question))
        messages.append({"role": "user", "content": words})
        body = {"messages": messages, "seed": number * 100 + turn, "max_tokens": answer, "stream": stream}
        if stream:
            body["stream_options"] = {"include_usage": True}
        reply = await ask(reader, writer, body)
        if stream:
            found = [json.loads(line[6:]) for line in reply.decode().splitlines() if line.startswith("data: {")]
            said = "".join(one["choices"][0]["delta"].get("content", "") for one in found if one["choices"])
            usage = found[-1]["usage"]
        else:
            found = json.loads(reply)
            said, usage = found["choices"][0]["message"]["content"], found["usage"]
        tokens += usage["completion_tokens"]
        messages.append({"role": "assistant", "content": said})
    writer.close()
    return tokens

async def main():
    began = time.perf_counter()
    tokens = sum(await asyncio.gather(*map(client, range(clients))))
    print(json.dumps([tokens, time.perf_counter() - began]))

asyncio.run(main())
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="small", choices=common.SHAPES)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--question", type=int, default=100, help="words of each question")
    parser.add_argument("--answer", type=int, default=60, help="tokens of each answer, at most")
    parser.add_argument("--runs", type=int, default=3, help="of each kind, after one that does not count")
    options = parser.parse_args()
    print(f"{common.machine()}, load {os.getloadavg()[0]:.1f}\n")
    print(
        f"{options.shape} on {options.device}, {options.clients} clients, {options.turns} turns each, questions of "
        f"{options.question} words, answers of at most {options.answer} tokens\n"
    )
    policy = common.policy(common.random_model(options.shape, device=options.device))
    chat = Chat(policy.tokenizer, policy.end_ids)
    limit = (options.question + options.answer + 8) * options.turns
    engine = NativeEngine(policy, chat, slots=options.clients, context=limit)
    served = Served(engine, chat, SamplingParams(), options.answer, limit)
    kinds = ("engine alone", "whole answers", "streamed")
    speeds: dict[str, list[float]] = {kind: [] for kind in kinds}
    cpu_speeds: dict[str, list[float]] = {kind: [] for kind in kinds}
    shares: dict[str, list[float]] = {kind: [] for kind in kinds}
    spent = timed(engine)
    for number in range(options.runs + 1):
        counts = set()
        for kind in kinds:
            engine.release()
            spent[0] = 0.0
            if kind == "engine alone":
                began = time.thread_time()
                tokens, seconds = asyncio.run(alone(engine, chat, options))
                busy = time.thread_time() - began
            else:
                tokens, seconds, busy = over_http(Server(served.find, "m"), options, kind == "streamed")
            counts.add(tokens)
            if number:
                speeds[kind].append(tokens / seconds)
                cpu_speeds[kind].append(tokens / busy)
                shares[kind].append(spent[0] / busy)
        assert len(counts) == 1, f"all sample the same: {counts}"
    print("| | tokens/s | of the engine alone | tokens per CPU second | of the engine alone | CPU time in passes |")
    print("|---|---:|---:|---:|---:|---:|")
    for kind in kinds:
        cells = []
        for found in (speeds, cpu_speeds):
            speed = median(found[kind])
            cells += [f"{speed:,.0f}", f"{speed / median(found[kinds[0]]):.0%}"]
        print(f"| {kind} | " + " | ".join(cells) + f" | {median(shares[kind]):.1%} |")


def timed(engine: NativeEngine) -> list[float]:
    """The CPU seconds that an engine spends in its passes from now on."""
    spent = [0.0]

    def wrapped(function: Any) -> Any:
        def run(*arguments: Any) -> Any:
            began = time.thread_time()
            try:
                return function(*arguments)
            finally:
                spent[0] += time.thread_time() - began

        return run

    engine._begin, engine._end = wrapped(engine._begin), wrapped(engine._end)  # type: ignore[method-assign]
    return spent


async def alone(engine: NativeEngine, chat: Chat, options: argparse.Namespace) -> tuple[int, float]:
    """Tokens that the engine samples in all conversations, and the seconds that it takes."""

    async def talk(number: int) -> int:
        transcript, tokens = Transcript(chat), 0
        for turn, messages in enumerate(asked[number]):
            transcript.receive(messages)
            params = SamplingParams(max_tokens=options.answer, seed=number * 100 + turn, stop_ids=chat.end_ids)
            sampled = await engine.sample(transcript.ids, params, session=f"{number}")
            transcript.act(sampled)
            tokens += len(sampled.ids)
        engine.forget(f"{number}")
        return tokens

    asked = [
        [
            [Message("user", " ".join(f"w{(number * 7 + turn + n) % 90}" for n in range(options.question)))]
            for turn in range(options.turns)
        ]
        for number in range(options.clients)
    ]
    began = time.perf_counter()
    tokens = sum(await asyncio.gather(*map(talk, range(options.clients))))
    return tokens, time.perf_counter() - began


def over_http(server: Server, options: argparse.Namespace, stream: bool) -> tuple[int, float, float]:
    """The same as clients see it, and the CPU seconds of the thread that serves them."""
    busy: list[float] = []

    def run() -> None:
        asyncio.run(server.run(bound, ready.set))
        busy.append(time.thread_time())

    bound, ready = socket.create_server(("127.0.0.1", 0)), threading.Event()
    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    port = bound.getsockname()[1]
    told: list[Any] = [port, options.clients, options.turns, options.question, options.answer, stream]
    command = [sys.executable, "-S", "-c", CLIENTS, json.dumps(told)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    server.stop()
    thread.join()
    tokens, seconds = json.loads(done.stdout)
    return tokens, seconds, busy[0]


if __name__ == "__main__":
    main()
