"""A vLLM server as its API describes it, in this process: small, slow, and faulty if need be.

It computes with transformers and peft alone, from the files that it is told to load.
"""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, PreTrainedModel

from longloop.model import tiny

Reply = tuple[int, Any] | None
"""A status and a content; None hangs up."""


class FakeVllm:
    """What it has loaded, what it was asked, and what is wrong with it."""

    def __init__(self) -> None:
        self.url = ""
        self.models: dict[str, PreTrainedModel | PeftModel] = {"base": tiny.model(0).eval()}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.keys: list[str] = []
        self.salts: dict[str, str] = {}
        self.max_model_len = 512
        self.key = ""
        self.lora = self.dev = True
        self.stale = False
        """It says that it has loaded adapters, and serves the first ones under the new name."""
        self.lists = True
        """Whether it lists what it has loaded."""
        self.raw = False
        """Log-probs are those of the logits, without the temperature."""
        self.failing = 0
        """So many completions fail."""
        self.dead = False
        self.spoil: dict[str, Any] = {}
        """Fields that its choices have instead of the true ones."""
        self._said: dict[tuple[Any, tuple[int, ...]], torch.Tensor] = {}

    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    def reply(self, path: str, body: dict[str, Any]) -> Reply:
        self.asked.append((path, body))
        if self.dead:
            return None
        if self.key and self.keys[-1] != f"Bearer {self.key}":
            return 401, {"error": "Unauthorized"}
        if path == "/v1/models":
            return 200, {"data": [self._card(name) for name in self.models if self.lists or name == "base"]}
        if path == "/v1/completions":
            if self.failing:
                self.failing -= 1
                return 500, {"error": {"message": "EngineCore encountered an issue."}}
            return self._complete(body)
        if path == "/v1/load_lora_adapter" and self.lora:
            return self._load(body["lora_name"], body["lora_path"])
        if path == "/v1/unload_lora_adapter" and self.lora:
            return (200, "Success") if self.models.pop(body["lora_name"], None) else (404, "cannot be found")
        if path == "/collective_rpc" and self.dev and body["method"] == "reload_weights":
            if not self.stale:
                self.models["base"] = AutoModelForCausalLM.from_pretrained(body["kwargs"]["weights_path"])
            return 200, {"results": [None]}
        return 404, {"detail": "Not Found"}

    def _card(self, name: str) -> dict[str, Any]:
        if name == "base":
            return {"id": name, "parent": None, "max_model_len": self.max_model_len}
        return {"id": name, "parent": "base"}

    def _load(self, name: str, path: str) -> Reply:
        if name in self.models:
            return 400, {"error": {"message": f"The lora adapter '{name}' has already been loaded."}}
        first = next((model for loaded, model in self.models.items() if loaded != "base"), None)
        if self.stale and first is not None:
            self.models[name] = first
        else:
            self.models[name] = PeftModel.from_pretrained(tiny.model(0), path).eval()
        return 200, f"Success: LoRA adapter '{name}' added successfully."

    @torch.no_grad()
    def _complete(self, body: dict[str, Any]) -> Reply:
        name, prompt, temperature = body["model"], body["prompt"], body["temperature"]
        if name not in self.models:
            return 404, {"error": {"message": f"The model `{name}` does not exist."}}
        if len(prompt) + body["max_tokens"] > self.max_model_len:
            return 400, {"error": {"message": "max_tokens cannot be greater than max_model_len."}}
        model, ids, logprobs, finish = self.models[name], list(prompt), [], "length"
        self.salts.setdefault(body["cache_salt"], name)
        generator = torch.Generator().manual_seed(body["seed"])
        for _ in range(body["max_tokens"]):
            logits = self._logits(model, ids)
            own = (logits / (temperature or 1.0)).log_softmax(-1)
            drawn = int(torch.multinomial(own.exp(), 1, generator=generator) if temperature else own.argmax())
            ids.append(drawn)
            logprobs.append(float((logits.log_softmax(-1) if self.raw else own)[drawn]))
            if drawn in body["stop_token_ids"]:
                finish = "stop"
                break
        choice = {"token_ids": ids[len(prompt) :], "finish_reason": finish, "logprobs": {"token_logprobs": logprobs}}
        if "prompt_logprobs" in body:
            logp = model(torch.tensor([prompt])).logits[0].log_softmax(-1)
            scored = [{str(id): {"logprob": float(logp[i, id])}} for i, id in enumerate(prompt[1:])]
            choice["prompt_logprobs"] = [None, *scored]
        return 200, {"choices": [choice | self.spoil]}

    def _logits(self, model: PreTrainedModel | PeftModel, ids: list[int]) -> torch.Tensor:
        """What a model says after these ids. In a small game the same ones come again and again."""
        asked = model, tuple(ids)
        if asked not in self._said:
            self._said[asked] = model(torch.tensor([ids])).logits[0, -1]
        return self._said[asked]


@contextmanager
def serving(fake: FakeVllm | None = None) -> Iterator[FakeVllm]:
    """A server that listens on this machine."""
    fake, lock = fake or FakeVllm(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            sent = self.rfile.read(length)
            if len(sent) < length:
                return  # whoever asked has hung up
            with lock:
                fake.keys.append(self.headers.get("authorization") or "")
                reply = fake.reply(self.path, json.loads(sent or "{}"))
            if reply is None:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            status, content = reply
            body = (content if isinstance(content, str) else json.dumps(content)).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            with suppress(ConnectionError):  # the same
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *args: Any) -> None: ...

    class Listener(ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = False  # all are waited for

    server = Listener(("127.0.0.1", 0), Handler)
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
