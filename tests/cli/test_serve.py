"""`longloop serve` as a person types it."""

import json
import re
import socket
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longloop import api
from longloop.cli import serving
from longloop.gateway.server import Server
from tests.support.endpoints import answering
from tests.support.helpers import write_config

ROOT = Path(__file__).parents[2]


def test_serve_says_where_and_answers_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Server] = []

    def server(*args: Any, **options: Any) -> Server:
        made.append(make(*args, **options))
        return made[0]

    make = api.server
    monkeypatch.setattr(api, "server", server)
    chosen: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "key": "k", "step": None, "temperature": 0, "top_p": 1}
    overrides = ["rollout.turn_tokens=3", "model.threads=1"]
    thread = threading.Thread(target=lambda: serving.serve("tiny", overrides, **chosen))
    thread.start()
    printed = ""
    while "Ctrl-C" not in printed:
        printed += capsys.readouterr().out
        assert thread.is_alive()
        threading.Event().wait(0.05)
    (url,) = (word for word in printed.split() if word.endswith("/v1"))
    assert printed.startswith("tiny answers at http://127.0.0.1:")
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode()
    request = urllib.request.Request(f"{url}/chat/completions", body, {"authorization": "Bearer k"})
    with urllib.request.urlopen(request) as reply:
        assert json.load(reply)["usage"]["completion_tokens"] <= 3
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    app: dict[str, Any] = {"__name__": "app"}
    (source,) = re.findall(r"```python\n# app.py\n(.*?)```", (ROOT / "docs/guides/serve.md").read_text(), re.DOTALL)
    exec(source, app)
    assert len(app["talk"]("hello", "and then?")) == 2, "the guide's app works"
    made[0].stop()
    thread.join(30)
    assert not thread.is_alive()


def test_serve_refuses_with_a_sentence(
    command: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LONGLOOP_KEY", raising=False)
    code, _, said = command("serve", "tiny", "--host", "0.0.0.0")
    assert code == 2 and "--key" in said and "LONGLOOP_KEY" in said
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, said = command("serve", "tiny", "--port", taken.getsockname()[1])
    assert code == 2 and "--port 0" in said
    code, _, said = command("serve", "tiny", "rollout.contxt=3", "--port", "0")
    assert code == 2 and "rollout.context" in said


def test_eval_measures_an_endpoint(
    command: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "cache_dir", lambda: tmp_path)
    file = write_config(tmp_path)
    with answering(["2"]) as endpoint:
        words = ("eval", file, "--engine", "openai", "--url", endpoint.url, "--model", "big")
        code, said, error = command(*words)
        assert not code, error
        assert "big on guess" in said and "cost" in said and "50 + 15 tokens in 5 calls, 0 repeated" in said
        code, said, _ = command(*words, "--json", "eval.attempts=2", "engine.extra={top_k=3}")
        assert json.loads(said)["usage"]["calls"] == 10 and endpoint.asked[-1]["top_k"] == 3
    code, _, error = command("eval", file, "--url", "http://x/v1")
    assert code == 2 and "--engine openai" in error
    code, _, error = command("eval", file, "--engine", "openai")
    assert code == 2 and "engine.url" in error
