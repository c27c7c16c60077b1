"""Models by name: from a hub, here a small one on this machine, and what is said when there is none."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub
import pytest

from longloop.config import ModelConfig
from longloop.model import download, tiny
from longloop.model.policy import load
from longloop.types import UserError

NAME, COMMIT = "someone/tiny", "a" * 40


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A model as the hub has it, with a second format that is not to be fetched."""
    folder = tmp_path_factory.mktemp("model")
    tiny.model(3).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()} | {"model.gguf": b"the same once more"}


@pytest.fixture
def asked(files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A hub that has this one model, and the files it was asked for."""
    asked: list[str] = []

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            name = path.rpartition("/")[2]
            if path.startswith(f"/api/models/{NAME}/tree/"):
                tree = [{"type": "file", "path": f, "size": len(b), "oid": f} for f, b in files.items()]
                self._answer(json.dumps(tree).encode())
            elif path.startswith(f"/api/models/{NAME}"):
                self._answer(json.dumps({"id": NAME, "sha": COMMIT, "siblings": []}).encode())
            elif path == f"/{NAME}/resolve/{COMMIT}/{name}":
                if self.command == "GET":
                    asked.append(name)
                self._answer(files[name], ETag=f'"{name}"', **{"X-Repo-Commit": COMMIT})
            else:
                self._answer(b"", 404, **{"X-Error-Code": "RepoNotFound"})

        do_HEAD = do_GET

        def _answer(self, body: bytes, status: int = 200, **headers: str) -> None:
            self.send_response(status)
            for key, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", url)
        monkeypatch.setattr(
            huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        yield asked
        server.shutdown()


def test_a_name_on_the_hub_is_fetched_once(asked: list[str], files: dict[str, bytes]) -> None:
    folder = download.get(NAME, print)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        name: content for name, content in files.items() if name != "model.gguf"
    }
    assert sorted(asked) == sorted(files.keys() - {"model.gguf"})
    assert download.get(NAME, print) == folder and len(asked) == len(files) - 1
    assert load(ModelConfig(path=str(folder), device="cpu"), seed=0).layers == 2


def test_what_the_hub_lacks_is_said_in_a_sentence(asked: list[str]) -> None:
    with pytest.raises(UserError, match=r"Cannot fetch 'gpt-9' from the .* hub \(404 .*The package index has smollm2"):
        download.get("gpt-9", print)


def test_without_a_hub_it_says_so(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UserError, match=r"Cannot fetch 'someone/tiny' from the Hugging Face hub \(.*the connection"):
        download.get(NAME, print)
