"""A headless Chromium, driven through the DevTools protocol over a pipe: no driver and no library of its own."""

import json
import os
import select
import shutil
import subprocess
import time
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE = 60.0
"""Seconds; a busy machine may be slow, and nothing here waits for so long unless something is broken."""

_ARGUMENTS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--hide-scrollbars", "--disable-background-networking", "--window-size=1300,900"),
)


class Browser:
    """One page of a browser that ends with the `with` block."""

    def __init__(self, folder: Path) -> None:
        assert CHROMIUM is not None
        reads, self._to = os.pipe()
        self._from, writes = os.pipe()
        # The browser reads from descriptor 3 and writes to 4.
        command = ["bash", "-c", f'exec "$0" "$@" 3<&{reads} 4>&{writes}', CHROMIUM, *_ARGUMENTS]
        self._process = subprocess.Popen(
            [*command, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(reads, writes),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(reads)
        os.close(writes)
        self._rest = b""
        self._count = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        """What the browser logged as an error: a blocked script, a file that was not there."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for part in ("Page", "Log", "Runtime"):
            self.call(f"{part}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self._session = None
        try:
            self.call("Browser.close")
            self._process.wait(10)
        except (OSError, EOFError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def open(self, address: str) -> None:
        failed = self.call("Page.navigate", url=address).get("errorText")
        assert not failed, f"{address}: {failed}"
        self.until(f"document.readyState === 'complete' && location.href === {json.dumps(address)}")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, script: str) -> Any:
        """Wait for an expression to be true; it may fail while a page is being left."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                value = self.run(script)
            except (AssertionError, KeyError):
                value = None
            if value:
                return value
            assert time.monotonic() < deadline, f"never came true: {script}"
            time.sleep(0.05)

    def text(self, selector: str = "main") -> str:
        return self.run(f"document.querySelector({json.dumps(selector)}).innerText")

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            extra = {"text": key} if len(key) == 1 and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **extra)

    def type(self, text: str) -> None:
        """Into what has the focus."""
        self.call("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        path.write_bytes(b64decode(self.call("Page.captureScreenshot")["data"]))

    def dark(self) -> None:
        features = [{"name": "prefers-color-scheme", "value": "dark"}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        number = self._count
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        return self._hear(lambda heard: heard.get("id") == number)

    def _hear(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while True:
            while b"\0" not in self._rest:
                ready, _, _ = select.select([self._from], [], [], PATIENCE)
                piece = os.read(self._from, 1 << 20) if ready else b""
                if not piece:
                    raise EOFError("the browser has gone, or is silent")
                self._rest += piece
            line, _, self._rest = self._rest.partition(b"\0")
            heard = json.loads(line)
            if heard.get("method") == "Log.entryAdded" and heard["params"]["entry"]["level"] == "error":
                entry = heard["params"]["entry"]
                self.complaints.append(f"{entry['text']} {entry.get('url', '')}".strip())
            if wanted(heard):
                if "error" in heard:
                    raise AssertionError(heard["error"])
                return heard["result"]
