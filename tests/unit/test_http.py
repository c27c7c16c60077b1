"""The gateway's HTTP, byte by byte over real sockets: what a request may look like, what is refused, who is waited
for."""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from longloop.gateway import http, http_request
from longloop.gateway.http import Connection, listen
from longloop.gateway.http_request import HttpRequest
from longloop.gateway.server import Server

BODY = b"POST /echo?q=1 HTTP/1.1\r\nHost: x\r\nX-Two: a\r\nx-two:  b \r\ncontent-length: 5\r\n\r\nhello"
CHUNKED = (
    b"POST /echo HTTP/1.1\r\nhost: x\r\nTransfer-Encoding: Chunked\r\n\r\n"
    b"3\r\nhel\r\n2;note=1\r\nlo\r\n0\r\nafter: this\r\n\r\n"
)
"""The same, in chunks, the second with an extension; and with a header behind it."""


async def echo(request: HttpRequest, client: Connection) -> None:
    """Says what it heard; /stream, in three parts."""
    said = f"{request.method} {request.path} {request.headers.get('x-two', '')} ".encode() + request.body
    if request.path != "/stream":
        client.send(200, said, "text/plain")
        return
    for part in (b"one ", b"two ", b"three"):
        client.part(part)
        await asyncio.sleep(0)


def never(request: HttpRequest, client: Connection) -> Any:
    raise AssertionError


@contextmanager
def listening(answer: http.Answer, faults: list[Any] | None = None) -> Iterator[tuple[str, int]]:
    """A server's address. What its event loop would log as an error is put into `faults`."""
    bound, ready, stopped = socket.create_server(("127.0.0.1", 0)), threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        if faults is not None:
            loops[0].set_exception_handler(lambda _, fault: faults.append(fault))
        await listen(bound, answer, stopped, ready.set)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    address = bound.getsockname()
    thread.start()
    assert ready.wait(30)
    try:
        yield address
    finally:
        loops[0].call_soon_threadsafe(stopped.set)
        thread.join(30)
        assert not thread.is_alive()


def answers(client: socket.socket, count: int = 1) -> list[bytes]:
    """The bodies of so many answers that say how long they are; what one was refused with, or how a stream went."""
    found, received = [], b""
    while len(found) < count:
        while b"\r\n\r\n" not in received:
            received += more(client)
        head, received = received.split(b"\r\n\r\n", 1)
        if b"100 Continue" in head:
            found.append(head)
            continue
        (size,) = (int(line.split(b": ")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
        while len(received) < size:
            received += more(client)
        found.append(head.split(b" ")[1] + b" " + received[:size])
        received = received[size:]
    assert not received
    return found


def more(client: socket.socket) -> bytes:
    part = client.recv(1 << 16)
    assert part, "the server closed the connection"
    return part


def rest(client: socket.socket) -> bytes:
    """All until the server closes the connection."""
    found = b""
    while part := client.recv(1 << 16):
        found += part
    return found


@pytest.mark.parametrize("sent", [BODY, CHUNKED])
def test_a_request_may_come_in_any_pieces(sent: bytes) -> None:
    """Cut in two at every byte, and byte by byte; the connection is kept."""
    heard = b"200 POST /echo a, b hello" if sent is BODY else b"200 POST /echo  hello"
    with listening(echo) as address, socket.create_connection(address) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for cut in range(1, len(sent)):
            client.sendall(sent[:cut])
            client.sendall(sent[cut:])
            assert answers(client) == [heard]
        for byte in sent:
            client.sendall(bytes([byte]))
        assert answers(client) == [heard]


def test_requests_that_come_together_are_answered_in_turn() -> None:
    with listening(echo) as address, socket.create_connection(address) as client:
        client.sendall(BODY + CHUNKED + b"GET /last HTTP/1.1\r\nhost: x\r\n\r\n")
        assert answers(client, 3) == [b"200 POST /echo a, b hello", b"200 POST /echo  hello", b"200 GET /last  "]


def test_requests_that_come_during_an_answer_wait_for_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many: those that are not read yet stay with the client."""
    monkeypatch.setattr(http, "_AHEAD", 1 << 16)
    begun, go = threading.Event(), threading.Event()
    inside: list[int] = []
    waiting: list[int] = []

    async def slow(request: HttpRequest, client: Connection) -> None:
        inside.append(1)
        assert len(inside) == 1
        begun.set()
        while not go.is_set():
            await asyncio.sleep(0.01)
        waiting.append(len(client._later))
        client.send(200, b"")
        inside.clear()

    asked = b"GET / HTTP/1.1\r\nhost: x\r\npad: " + b"x" * 4000 + b"\r\n\r\n"
    with listening(slow) as address, socket.create_connection(address, timeout=30) as client:
        client.sendall(asked)
        assert begun.wait(30)
        sending = threading.Thread(target=client.sendall, args=(asked * 3000,))  # 12 MB
        sending.start()
        sending.join(0.5)
        go.set()
        assert len(answers(client, 3001)) == 3001
        sending.join(30)
    assert max(waiting) < 1 << 20


def test_a_long_request_may_come_during_an_answer() -> None:
    go = threading.Event()

    async def slow(request: HttpRequest, client: Connection) -> None:
        while not go.is_set():
            await asyncio.sleep(0.01)
        client.send(200, str(len(request.body)).encode())

    long = BODY.replace(b"length: 5", b"length: 300005") + b"x" * 300_000
    with listening(slow) as address, socket.create_connection(address, timeout=30) as client:
        client.sendall(BODY)
        sending = threading.Thread(target=client.sendall, args=(long + BODY,))
        sending.start()
        sending.join(0.5)
        go.set()
        assert answers(client, 3) == [b"200 5", b"200 300005", b"200 5"]
        sending.join(30)


def test_a_stream_is_told_apart_by_chunks_and_its_end() -> None:
    with listening(echo) as address, socket.create_connection(address) as client:
        client.sendall(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n")
        client.sendall(b"GET /stream HTTP/1.1\r\nhost: x\r\nconnection: Close\r\n\r\n")
        streams = rest(client).split(b"HTTP/1.1 200 OK\r\n")[1:]
        for head, body in (stream.split(b"\r\n\r\n", 1) for stream in streams):
            assert b"transfer-encoding: chunked" in head.lower()
            assert body == b"4\r\none \r\n4\r\ntwo \r\n5\r\nthree\r\n0\r\n\r\n"
        assert [b"connection: close" in stream.lower() for stream in streams] == [False, True]


def test_a_client_of_http_1_0_gets_it_plain_and_the_end_is_the_end() -> None:
    with listening(echo) as address, socket.create_connection(address) as client:
        client.sendall(b"GET /stream HTTP/1.0\r\nhost: x\r\n\r\n")
        head, body = rest(client).split(b"\r\n\r\n", 1)
        assert body == b"one two three" and b"chunked" not in head
    with listening(echo) as address, socket.create_connection(address, timeout=30) as client:
        client.sendall(b"GET /echo HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
        assert rest(client).endswith(b"GET /echo  "), "it is not told that the connection would be kept"


def test_a_header_behind_the_body_overrules_nothing() -> None:
    with listening(echo) as address, socket.create_connection(address) as client:
        client.sendall(CHUNKED.replace(b"after: this", b"x-two: evil") + BODY)
        assert answers(client, 2) == [b"200 POST /echo  hello", b"200 POST /echo a, b hello"]


@pytest.mark.parametrize("sent", [BODY, CHUNKED])
def test_an_offer_to_speak_another_protocol_is_not_taken(sent: bytes) -> None:
    """Java's client makes one with every request. Its body comes all the same, here in two parts, and then another."""
    offer = b"connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nhttp2-settings: AA\r\n"
    offered = sent.replace(b"\r\n", b"\r\n" + offer, 1)
    heard = b"200 POST /echo a, b hello" if sent is BODY else b"200 POST /echo  hello"
    with listening(echo) as address, socket.create_connection(address) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for cut in range(len(offered) - 12, len(offered)):
            client.sendall(offered[:cut])
            client.sendall(offered[cut:] + BODY)
            assert answers(client, 2) == [heard, b"200 POST /echo a, b hello"]


def test_a_request_and_then_none() -> None:
    """Each gets its answer, also where they come together."""
    with listening(echo) as address, socket.create_connection(address) as client:
        client.sendall(BODY + b"GET / echo HTTP/1.1\r\n\r\n")
        assert rest(client).count(b"HTTP/1.1 ") == 2
    with listening(echo) as address, socket.create_connection(address) as client:
        client.sendall(BODY.replace(b"Host", b"connection: close\r\nHost") + BODY)
        only = rest(client)
        assert only.startswith(b"HTTP/1.1 200 ") and only.count(b"HTTP/1.1 ") == 1


def test_an_answer_to_head_has_no_body() -> None:
    with listening(echo) as address, socket.create_connection(address) as client:
        head = b"HEAD /echo HTTP/1.1\r\nhost: x\r\n"
        client.sendall(head + b"\r\n" + head + b"connection: close\r\n\r\n")
        first, second, nothing = rest(client).split(b"\r\n\r\n")
        assert nothing == b"" and b"content-length: 12" in first and second.endswith(b"connection: close")


def test_a_client_that_asks_before_it_sends_is_told_to() -> None:
    with listening(echo) as address, socket.create_connection(address) as client:
        client.sendall(b"POST /echo HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        assert answers(client) == [b"HTTP/1.1 100 Continue"]
        client.sendall(b"ok")
        assert answers(client) == [b"200 POST /echo  ok"]
        asks = b"POST /echo HTTP/1.1\r\nhost: x\r\nExpect: 100-Continue\r\ncontent-length: 2\r\n\r\n"
        client.sendall(BODY + asks)  # once it is its turn
        assert answers(client, 2) == [b"200 POST /echo a, b hello", b"HTTP/1.1 100 Continue"]
        client.sendall(b"ok" + asks + b"o")  # and not where it did not wait
        assert answers(client) == [b"200 POST /echo  ok"]
        threading.Event().wait(0.1)
        client.sendall(b"k")
        assert answers(client) == [b"200 POST /echo  ok"]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\n\r\n", 400),
        (b"GET / echo HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n", 400),
        (b"GET /echo HTTP/1.0\r\nhost: x\r\nhost: y\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\nhost: x\r\nnul: a\0b\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\nhost: x\r\nfolded: a\r\n b\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\nhost: x\n\n", 400),
        (b"GET /echo HTTP/1.1\r\nhost: x\r\nno colon\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\nhost: x\r\nspace : 1\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 1_0\r\n\r\n0123456789", 400),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999999999999\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n0\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n", 501),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: identity\r\n\r\n", 501),
        (b"CONNECT x:443 HTTP/1.1\r\nhost: x\r\n\r\n", 501),
        (b"GET /echo HTTP/2.0\r\nhost: x\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01", 400),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0x2\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabc\r\n", 400),
        (b"GET /echo HTTP/1.1\r\nhost: x\r\na: " + b"x" * http_request._LONGEST, 431),
        (b"GET /echo HTTP/1.1\r\nhost: x\r\na: " + b"x" * http_request._LONGEST + b"\r\n\r\n", 431),
        (b"GET /" + b"x" * http_request._LONGEST + b" HTTP/1.1\r\nhost: x\r\n\r\n", 431),
        (b"GET /echo HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * (http_request._LONGEST // 6) + b"\r\n", 431),
        (b"\r\n" * http_request._LONGEST, 431),
        (CHUNKED.partition(b"1\r\nlo")[0] + b"x" * (1 << 20), 431),
        (CHUNKED[:-2] + b"more: of these\r\n" * (1 << 16), 431),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (http_request._LARGEST + 1), 413),
    ],
)
def test_what_is_no_request_is_refused_and_the_connection_ends(sent: bytes, status: int) -> None:
    with listening(never) as address, socket.create_connection(address, timeout=30) as client:
        client.sendall(sent)
        assert rest(client).startswith(b"HTTP/1.1 %d " % status)


def test_each_part_of_a_request_may_have_its_length() -> None:
    """Head, the line of a chunk, and what comes behind the body: they are not counted together."""
    pad = b"x" * (http_request._LONGEST * 2 // 3)
    head = b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\na: " + pad + b"\r\n\r\n"
    with listening(echo) as address, socket.create_connection(address) as client:
        for _ in range(2):
            for part in (head, b"1;" + pad + b"\r\nx\r\n", b"0\r\nafter: " + pad + b"\r\n\r\n"):
                client.sendall(part[:-5])
                threading.Event().wait(0.1)  # for the server to read it without its end
                client.sendall(part[-5:])
            assert answers(client) == [b"200 POST /echo  x"]


TOO_LONG = b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (http_request._LARGEST + 1)


def test_a_client_that_is_refused_and_goes_on_to_send_reads_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is cut off at once would tell it nothing."""
    monkeypatch.setattr(http, "_GRACE", 600.0)
    faults: list[Any] = []
    with listening(never, faults) as address, socket.create_connection(address, timeout=30) as client:
        client.sendall(TOO_LONG)
        client.sendall(BODY * 1000)
        assert rest(client).startswith(b"HTTP/1.1 413 ")
        client.sendall(BODY * 1000)
    assert not faults


def test_a_client_that_is_refused_has_some_time_to_read_why_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_GRACE", 0.1)
    with listening(never) as address, socket.create_connection(address, timeout=30) as client:
        client.sendall(TOO_LONG)
        with pytest.raises(ConnectionError):
            for _ in range(3000):
                client.sendall(BODY)
                threading.Event().wait(0.01)


def test_chunks_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_request, "_LARGEST", 100)
    with listening(echo) as address, socket.create_connection(address) as client:
        head, chunk = (
            b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n",
            b"32\r\n" + b"x" * 50 + b"\r\n",
        )
        client.sendall(head + chunk * 2 + b"0\r\n\r\n")
        assert answers(client) == [b"200 POST /echo  " + b"x" * 100]
        client.sendall(head + chunk * 2 + b"1\r\nx\r\n0\r\n\r\n")
        assert rest(client).startswith(b"HTTP/1.1 413 ")


def test_a_client_that_does_not_read_is_waited_for() -> None:
    """What it has not taken is not made: a stream without an end takes so much memory and no more."""
    made = [0]
    gone = threading.Event()

    async def endless(request: HttpRequest, client: Connection) -> None:
        try:
            while True:
                client.part(b"x" * (1 << 16))
                made[0] += 1
                await client.room()
                await asyncio.sleep(0)
        finally:
            gone.set()

    with listening(endless) as address, socket.create_connection(address) as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        before = -1
        while made[0] != before or not before:  # until it has stopped
            before = made[0]
            threading.Event().wait(0.2)
        for _ in range(64):
            more(client)
        while made[0] == before:
            more(client)
        client.close()
        assert gone.wait(30), "and when it hangs up, the answer ends"


def test_a_mistake_ends_the_connection_without_an_end_of_the_answer() -> None:
    """Nobody takes half an answer for a whole one, and the next client is answered."""

    async def half(request: HttpRequest, client: Connection) -> None:
        if request.path == "/":
            client.part(b"half")
            raise ZeroDivisionError
        await echo(request, client)

    with listening(half) as address:
        with socket.create_connection(address) as client:
            client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            found = b""
            with suppress(ConnectionResetError):
                while part := client.recv(1 << 16):
                    found += part
            assert not found.endswith(b"0\r\n\r\n")
        with socket.create_connection(address) as client:
            client.sendall(BODY)
            assert answers(client) == [b"200 POST /echo a, b hello"]


def test_a_server_that_ends_lets_answers_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_GRACE", 60.0)
    begun, go = threading.Event(), threading.Event()

    async def slow(request: HttpRequest, client: Connection) -> None:
        begun.set()
        while not go.is_set():
            await asyncio.sleep(0.01)
        client.send(200, b"done")

    with socket.socket() as client, socket.socket() as idle:
        with listening(slow) as address:
            client.connect(address)
            idle.connect(address)
            client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            assert begun.wait(30)
            threading.Timer(0.1, go.set).start()
        assert rest(client).endswith(b"done")
        assert rest(idle) == b""


def test_a_polite_kill_ends_a_server() -> None:
    """In the main thread, as `longloop serve` runs it."""

    def never(key: str) -> Any:
        raise AssertionError

    bound = socket.create_server(("127.0.0.1", 0))
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Ray, in another file's tests, leaves one of its own
    try:
        asyncio.run(Server(never, "m").run(bound, ready=lambda: os.kill(os.getpid(), signal.SIGTERM)))
        assert bound.fileno() == -1 and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_what_is_not_there_is_said() -> None:
    async def run() -> bytes:
        reader, writer = await asyncio.open_connection(*bound.getsockname())
        writer.write(b"GET /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        found = await reader.read()
        writer.close()
        server.stop()
        return found

    async def both() -> bytes:
        running = asyncio.ensure_future(server.run(bound))
        await asyncio.sleep(0)
        found = await run()
        await running
        return found

    def nobody(key: str) -> Any:
        raise AssertionError

    bound, server = socket.create_server(("127.0.0.1", 0)), Server(nobody, "m")
    found = asyncio.run(both())
    assert found.startswith(b"HTTP/1.1 404 Not Found") and b"There is no GET /v1/chat/completions." in found
