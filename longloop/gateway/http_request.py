"""A request of HTTP, and how it is read from what a client sends.

httptools reads it, which is the parser of Node.js in C: what strangers send should be read by a library that many use.
What it leaves to a server stands here: the limits, what HTTP 1.1 asks of a request, and what is not spoken here.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser

from longloop.gateway.request import Refused

_LARGEST = 1 << 24
"""Bytes of a request's body."""
_LONGEST = 1 << 16
"""Bytes of a request's first line and headers, and of anything else between two pieces of a body."""


@dataclass(frozen=True)
class HttpRequest:
    method: str
    path: str
    """Without a query."""
    headers: Mapping[str, str]
    """By names in lower case."""
    body: bytes
    version: str
    """1.0 or 1.1."""
    keeps: bool
    """Whether the connection is kept for another request."""


class RequestReader:
    """Reads the requests of a connection. The parser calls the methods that begin with `on`."""

    def __init__(self) -> None:
        self.read: deque[HttpRequest | Refused] = deque()
        """Whole requests in their order, for others to take. After them may come why what followed is none; nothing is
        read then."""
        self.expected = False
        """Whether the client waits to be told that it may send the body (`Expect: 100-continue`)."""
        self._parser = HttpRequestParser(self)
        self._since = 0
        """Bytes since a head or a piece of a body was complete."""

    def feed(self, data: bytes) -> None:
        """Read more of what the client sent."""
        self._since += len(data)
        try:
            self._parser.feed_data(data)
            if self._since > _LONGEST:
                raise Refused(431, f"The head of a request may have {_LONGEST >> 10} KB.")
        except HttpParserUpgrade as upgrade:
            self._without_upgrade(data[upgrade.args[0] :])
        except HttpParserCallbackError as error:
            if not isinstance(error.__context__, Refused):
                raise
            self.read.append(error.__context__)
        except HttpParserError as error:
            self.read.append(Refused(400, f"This is no request of HTTP 1.1: {error}"))
        except Refused as refused:
            self.read.append(refused)

    def on_message_begin(self) -> None:
        self._target, self._body = b"", bytearray()
        self._fields: list[tuple[bytes, bytes]] = []

    def on_url(self, part: bytes) -> None:
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        headers: dict[str, str] = {}  # those behind the body come later, and could overrule what was checked: not heard
        for name, value in ((name.decode("ascii").lower(), value.decode("latin-1")) for name, value in self._fields):
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        self._headers, self._since = headers, 0
        hosts = [name for name, _ in self._fields if name.lower() == b"host"]
        self._version, method = self._parser.get_http_version(), self._parser.get_method()
        if len(self._target) + sum(len(name) + len(value) + 4 for name, value in self._fields) > _LONGEST:
            raise Refused(431, f"The head of a request may have {_LONGEST >> 10} KB.")
        if self._version not in ("1.0", "1.1"):
            raise Refused(505, f"HTTP {self._version} is not spoken here.")
        if len(hosts) > 1 or (not hosts and self._version == "1.1"):
            raise Refused(400, "A request must name one host.")
        if method == b"CONNECT" or headers.get("transfer-encoding", "chunked").lower() != "chunked":
            raise Refused(501, "Neither tunnels nor transfer encodings other than chunked are known here.")
        self._expect(int(headers.get("content-length", 0)))
        self.expected = self._version == "1.1" and headers.get("expect", "").lower() == "100-continue"

    def on_body(self, part: bytes) -> None:
        self._body += part
        self._since, self.expected = 0, False
        self._expect(len(self._body))

    def on_message_complete(self) -> None:
        self._since, self.expected = 0, False
        if self._parser.should_upgrade():
            return
        method, path = self._parser.get_method().decode(), self._target.decode("latin-1").partition("?")[0]
        keeps = self._version == "1.1" and self._parser.should_keep_alive()
        self.read.append(HttpRequest(method, path, self._headers, bytes(self._body), self._version, keeps))
        self._body.clear()

    def _expect(self, size: int) -> None:
        if size > _LARGEST:
            raise Refused(413, f"A request may have {_LARGEST >> 20} MB.")

    def _without_upgrade(self, rest: bytes) -> None:
        """Read a request again without its offer to speak another protocol, which is not taken: the parser ends the
        request there, and its body would be left."""
        head = b"%b %b HTTP/%b\r\n" % (self._parser.get_method(), self._target, self._version.encode())
        fields = [field for field in self._fields if field[0].lower() != b"upgrade"]
        self._parser = HttpRequestParser(self)
        self.feed(head + b"".join(b"%b: %b\r\n" % field for field in fields) + b"\r\n" + rest)
