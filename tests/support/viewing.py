"""A viewer as a process of its own, and how to ask it."""

import http.client
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path


@contextmanager
def server(*runs: Path) -> Iterator[tuple[int, int]]:
    """The port and the process of a viewer."""
    command = [sys.executable, "-m", "longloop.cli.main", "view", *map(str, runs), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        said = process.stdout.readline()
        yield int(re.match(r"http://127\.0\.0\.1:(\d+)/", said)[1]), process.pid
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)
        process.stdout.close()


def ask(port: int, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str, dict[str, str]]:
    """Get a page, or post a body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest("GET" if body is None else "POST", path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    if body is not None:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body, {name.lower(): value for name, value in answer.getheaders()}


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag, attributes):
        self.found.update(value for name, value in attributes if name in ("href", "src") and value)


def links(html: str) -> set[str]:
    parser = Links()
    parser.feed(html)
    return parser.found
