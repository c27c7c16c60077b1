"""An endpoint that answers as it is told to, badly if need be."""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = str | tuple[int, dict[str, str], bytes] | dict[str, Any]
"""A text, a message, or a whole reply: status, headers, body. `hang` never answers, and `drop` hangs up."""


class Endpoint:
    """Where it is, and what it was asked."""

    def __init__(self, answers: Sequence[Answer] | Callable[[dict[str, Any]], Answer]) -> None:
        self._answers = answers
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""
        self.over = threading.Event()

    def next(self, body: dict[str, Any]) -> Answer:
        self.asked.append(body)
        if callable(self._answers):
            return self._answers(body)
        return self._answers[min(len(self.asked), len(self._answers)) - 1]


def completion(message: dict[str, Any], finish: str = "stop") -> bytes:
    usage = {"prompt_tokens": 10, "completion_tokens": 3}
    return json.dumps({"choices": [{"message": message, "finish_reason": finish}], "usage": usage}).encode()


def refusal(status: int, text: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    return status, headers, json.dumps({"error": {"message": text}}).encode()


@contextmanager
def answering(answers: Sequence[Answer] | Callable[[dict[str, Any]], Answer]) -> Iterator[Endpoint]:
    """An endpoint with these answers, one after the other; the last is repeated."""
    endpoint, lock = Endpoint(answers), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                endpoint.headers.append({"path": self.path, **{k.lower(): v for k, v in self.headers.items()}})
                answer = endpoint.next(body)
            if answer == "hang":
                endpoint.over.wait(30)
            if answer in ("hang", "drop"):
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            if isinstance(answer, str):
                answer = {"role": "assistant", "content": answer}
            status, headers, sent = (200, {}, completion(answer)) if isinstance(answer, dict) else answer
            self.send_response(status)
            for name, value in {"content-length": str(len(sent)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    endpoint.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield endpoint
    finally:
        endpoint.over.set()
        server.shutdown()
        thread.join()
        server.server_close()
