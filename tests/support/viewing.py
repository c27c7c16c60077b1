"""A viewer, as a process of its own or in this one, and how to ask it."""

import http.client
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

import uvicorn

from longloop.viewer.library import Library
from longloop.viewer.pages import Pages
from longloop.viewer.server import app, listen


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


@contextmanager
def served(*runs: Path) -> Iterator[int]:
    """The port of a viewer in a thread of this process: the same pages at once, where a process has to begin first."""
    bound = listen(0)
    pages = app(Pages(Library(runs)))
    config = uvicorn.Config(pages, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    viewer = uvicorn.Server(config)
    thread = threading.Thread(target=viewer.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        yield bound.getsockname()[1]
    finally:
        viewer.should_exit = True
        thread.join(30)
        assert not thread.is_alive(), "the viewer does not end"
        bound.close()


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
