"""vLLM servers as an engine, for those who have an inference fleet: ids in; ids and log-probs out.

A server holds weights of its own, a second copy that has to be told of every update. Before anything is sampled, the
engine looks whether the policy has changed since it was last told, and if so it syncs:

1. It writes the weights to a folder that the servers see, under a name that was never used before. A server keeps keys
   and values by name: with an old name it would go on from those of the old weights.
2. Each server loads them: adapters under the name, all weights in place of its own.
3. Each server says how likely it finds a text that was drawn when the run began, and so does the policy. If they differ
   by more than rounding, or if the server says what it said before although the policy has moved, the run ends: the
   server samples from another policy.

All of this waits for one thing after the other, since nothing can be sampled meanwhile. What a server cannot do is
refused when the engine is made. One that fails while it samples is asked again for a while; then the run ends, and can
be resumed. Nothing of vLLM is imported. Tried with vLLM 0.32.
"""

import os
import secrets
import shutil
import socket
import weakref
from asyncio import sleep
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from tempfile import gettempdir
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import psutil
import torch

from longloop.model.attention import VarlenPlan
from longloop.model.checkpoint import save_weights
from longloop.model.policy import Policy
from longloop.tokens.chat import Chat
from longloop.types import Floats, Message, RankLost, Sampled, SamplingParams, UserError

_SHORTEST, _LONGEST = 0.5, 10.0
"""Seconds between two tries: twice as many each time."""
_PASSING = (408, 425, 429)
"""Refusals that may pass, besides all of the 500s."""
_TEXT = 32
"""Tokens of the text by which servers are checked."""
_COOL = 0.5
"""The temperature it is drawn at. Log-probs of the plain logits are others there."""
_EXACT, _FAR = 1e-4, 0.2
"""The largest gap there may be, abs(ratio - 1) on average over the text: in float32, and in bfloat16."""
_COLDEST = 0.01
"""vLLM takes this temperature in place of a lower one, other than 0."""
_NONE = -9999.0
"""What vLLM writes for a log-prob that it does not have."""
_MOVED = 1e-3
"""A server must notice that the policy's log-probs of the text moved this far on average. In bfloat16 a gap does not
show it."""


class VllmEngine:
    """Servers that were started with `vllm serve`. docs/guides/vllm.md has the line.

    url: the address of the server, such as http://127.0.0.1:8000; several are separated by commas.
    folder: a folder that this machine and the servers' see by the same path, for weights on their way; empty for a
        temporary one on this machine.
    key_variable: the environment variable that holds the servers' key, if they want one. It is stored nowhere.
    context: the most tokens that a conversation may have. In a run, rollout.context unless it is set.
    seconds: how long to wait for an answer.
    patience: how long to repeat a request, in seconds, while a server is failing or silent.
    """

    def __init__(
        self,
        policy: Policy,
        chat: Chat,
        url: str = "",
        folder: str = "",
        key_variable: str = "VLLM_API_KEY",
        context: int = 0,
        seconds: float = 600.0,
        patience: float = 120.0,
    ) -> None:
        if not url:
            raise UserError("engine.name=vllm needs the address of a vLLM server, engine.url.")
        if policy.config.quantize:
            raise UserError("engine.name=vllm samples with whole weights: leave model.quantize out.")
        self._policy = policy
        start = _start_line(policy)
        self._servers = [_Server(one, key_variable, seconds, patience, start) for one in _addresses(url)]
        self._sessions: dict[str, _Server] = {}
        for server in self._servers:
            server.connect(context)
        self._folder = Path(folder or gettempdir()).absolute() / _new_name()
        self._folder.mkdir(0o755 if folder else 0o700, parents=True)
        weakref.finalize(self, _leave, self._servers, self._folder)
        self._used: set[str] = set()
        self._checked: dict[str, tuple[Floats, Floats]] = {}
        """What each server said of the text at the last sync, and the policy."""
        self._text: list[int] = []
        self._sync()
        opening = chat.encode(chat.render([Message("user", "Hello.")]))
        self._text, *_ = [self._drawn(server, opening) for server in self._servers]
        self._check()

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
        if self._version != self._policy.version:
            self._sync()
        if session not in self._sessions:
            sessions = list(self._sessions.values())
            self._sessions[session] = min(self._servers, key=sessions.count)
        server = self._sessions[session]
        return server.sampled(await server.complete(server.request(ids, params)), params.max_tokens)

    def forget(self, session: str) -> None:
        self._sessions.pop(session, None)

    def release(self) -> None:
        self._sessions.clear()

    def _sync(self) -> None:
        """Give the policy's weights to all servers, under a new name."""
        name = _new_name()
        if name in self._used:
            raise UserError(
                f"New weights were to be given to a vLLM server under the name {name!r}, which had others before. A "
                "server keeps what it has computed by name, and would mix the two: names must differ."
            )
        self._used.add(name)
        folder = self._folder / name
        save_weights(folder, self._policy)
        for server in self._servers:
            server.load(name, folder, adapters=self._policy.adapters is not None)
        for old in self._folder.iterdir():
            if old != folder:
                shutil.rmtree(old)
        self._check()
        self._version = self._policy.version

    def _drawn(self, server: "_Server", opening: Sequence[int]) -> list[int]:
        """A text that begins so, the rest drawn by a server at a temperature that its log-probs must have."""
        params = SamplingParams(_COOL, max_tokens=_TEXT)
        drawn = server.sampled(server.ask_for(server.request(opening, params)), _TEXT)
        text = [*opening, *drawn.ids.tolist()]
        own, plain = (self._policy_says(text, temperature)[len(opening) - 1 :] for temperature in (_COOL, 1.0))
        if _gap(own, drawn.logprobs) > self._bound >= _gap(plain, drawn.logprobs):
            raise UserError(
                f"The vLLM server {server.url} returns log-probs without the temperature, which cannot be trained on. "
                f"Start it with --logprobs-mode processed_logprobs: {server.start}"
            )
        return text

    def _check(self) -> None:
        """Refuse a server that samples from another policy."""
        if not self._text:
            return  # nothing has been drawn yet
        own = self._policy_says(self._text)[-_TEXT:]
        for server in self._servers:
            said = server.score(self._text)[-_TEXT:]
            gap, moved = _gap(own, said), 0.0
            if server.url in self._checked:
                said_before, own_before = self._checked[server.url]
                moved = float(np.abs(own - own_before).mean()) if np.array_equal(said, said_before) else 0.0
            if moved > _MOVED or gap > self._bound:
                seen = f"abs(ratio - 1) is {gap:.2g} on average over {len(own)} tokens, and may be {self._bound:g}"
                if moved > _MOVED:
                    seen = f"its log-probs are those of before, and the policy's have moved by {moved:.2g} on average"
                raise UserError(
                    f"The vLLM server {server.url} is stale, or runs another model: it was given the policy's weights, "
                    f"and does not sample from them ({seen}). Start it again, with the model and the precision of this "
                    f"run: {server.start} `longloop train --resume` then goes on from the last checkpoint."
                )
            self._checked[server.url] = said, own

    @property
    def _bound(self) -> float:
        return _FAR if self._policy.bf16 else _EXACT

    @torch.no_grad()
    def _policy_says(self, ids: Sequence[int], temperature: float = 1.0) -> Floats:
        """The policy's own log-probs of all ids but the first."""
        ids_T = torch.tensor(ids, device=self._policy.device)
        position_T = torch.arange(len(ids), device=self._policy.device)
        hidden_TD = self._policy.hidden(ids_T, position_T, VarlenPlan([len(ids)]))
        logp_N, _, _ = self._policy.score(hidden_TD[:-1], ids_T[1:], temperature, len(ids))
        return logp_N.double().cpu().numpy()


class _Failing(RankLost):
    """A server that fails, or does not answer. It may yet."""


class _Server:
    """One server: where it is, what it runs, and how it is asked."""

    def __init__(self, url: str, key_variable: str, seconds: float, patience: float, start: str) -> None:
        import httpx2

        self.url, self.start = url, start
        self.loaded: list[str] = []
        """The adapters that were loaded here; the last is the policy."""
        self._model = ""
        self._salt = ""
        """Keys and values are shared among requests with the same."""
        self._key_variable, self._seconds, self._patience = key_variable, seconds, patience
        # A new connection for each call: one that is kept belongs to an event loop, of which a run has several.
        once = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        self._client = httpx2.Client(timeout=seconds, limits=once, verify=_certificates())
        self._async_client = httpx2.AsyncClient(timeout=seconds, limits=once, verify=_certificates())

    def connect(self, context: int) -> None:
        """Find out what the server runs."""
        try:
            status, found = self._ask("/v1/models")
        except RankLost as error:
            raise UserError(f"{error} Start one: {self.start}") from error
        try:
            base = next(model for model in found["data"] if not model["parent"])
            self._model, longest = base["id"], int(base["max_model_len"])
        except (KeyError, IndexError, TypeError, StopIteration):
            self._refuse_key(status)
            raise UserError(f"What answers at {self.url} is no vLLM server: {_said(status, found)}.") from None
        if longest < context:
            raise UserError(
                f"The vLLM server {self.url} takes {longest:,} tokens, and rollout.context is {context:,}: lower it, "
                f"or start the server with --max-model-len {context}."
            )

    def load(self, name: str, folder: Path, adapters: bool) -> None:
        """Load weights: adapters beside the model, or all weights in place of its own."""
        if adapters:
            status, found = self._ask("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
        else:
            reload = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
            status, found = self._ask("/collective_rpc", reload)
        if status == 200 and adapters and name not in self._names():
            status, found = 0, f"it says that it loaded {name}, and does not list it"
        if status != 200:
            self._refuse_key(status)
            raise UserError(
                f"The vLLM server {self.url} did not load the weights of {folder}: {_said(status, found)}. It must see "
                f"that folder (engine.folder), and be started like this: {self.start}"
            )
        self._salt = name
        if adapters:
            self._model = name
            self.loaded.append(name)
            self.unload(self.loaded[:-1])

    def unload(self, names: Sequence[str], seconds: float | None = None) -> None:
        """Forget adapters. It does no harm if one is not there."""
        for name in names:
            self._ask("/v1/unload_lora_adapter", {"lora_name": name}, seconds)
            self.loaded.remove(name)

    def request(self, ids: Sequence[int], params: SamplingParams) -> dict[str, Any]:
        """A request for a continuation. Whatever else a server or a model may set is set here."""
        return {
            "model": self._model,
            "prompt": [int(id) for id in ids],
            "temperature": params.temperature,
            "max_tokens": params.max_tokens,
            "seed": params.seed % 2**63,
            "stop": list(params.stop),
            "stop_token_ids": sorted(params.stop_ids),
            "ignore_eos": True,
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "logprobs": 0,
            "return_token_ids": True,
            "cache_salt": self._salt,
        }

    def score(self, ids: Sequence[int]) -> Floats:
        """The log-probs that the server gives to all ids but the first."""
        request = self.request(ids, SamplingParams(max_tokens=1)) | {"prompt_logprobs": 0}
        found = self.ask_for(request)
        try:
            columns = found["choices"][0]["prompt_logprobs"][1:]
            return np.array([column[str(id)]["logprob"] for column, id in zip(columns, ids[1:], strict=True)])
        except (KeyError, IndexError, TypeError, ValueError):
            raise UserError(
                f"The vLLM server {self.url} returns no log-probs of a prompt: {_said(200, found)}."
            ) from None

    def sampled(self, found: Any, most: int) -> Sampled:
        """What a completion says, if it has an id and a log-prob for each token."""
        try:
            choice = found["choices"][0]
            finish, ids, logprobs = choice["finish_reason"], choice["token_ids"], choice["logprobs"]["token_logprobs"]
            sampled = Sampled(ids, np.array(logprobs, np.float64), finish)
        except (KeyError, IndexError, TypeError, ValueError):
            raise UserError(f"The vLLM server {self.url} sent no tokens with log-probs: {_said(200, found)}.") from None
        good = np.isfinite(sampled.logprobs) & (sampled.logprobs > _NONE)
        if not 0 < len(ids) == good.sum() == len(logprobs) <= most or finish not in ("stop", "length"):
            raise UserError(
                f"The vLLM server {self.url} was asked for up to {most} tokens, and sent {len(ids)} ids with "
                f"{good.sum()} log-probs, and as the reason for the end {finish!r}: that cannot be trained on."
            )
        return sampled

    def ask_for(self, request: Mapping[str, Any]) -> Any:
        """A completion, for which nobody else waits."""
        return self._completion(*self._ask("/v1/completions", request))

    async def complete(self, request: Mapping[str, Any]) -> Any:
        """A completion, however often it takes to get one."""
        began, pause = monotonic(), _SHORTEST
        while True:
            try:
                with self._failures():
                    url = f"{self.url}/v1/completions"
                    reply = await self._async_client.post(url, json=request, headers=self._headers())
                return self._completion(reply.status_code, _content(reply))
            except _Failing:
                if monotonic() - began + pause > self._patience:
                    raise
            await sleep(pause)
            pause = min(2 * pause, _LONGEST)

    def _completion(self, status: int, found: Any) -> Any:
        """A reply to a request for a completion, if it is one."""
        if status == 200:
            return found
        self._refuse_key(status)
        said = _said(status, found)
        if status >= 500 or status in _PASSING:
            raise _Failing(f"The vLLM server {self.url} fails: {said}.")
        if status == 404:
            raise RankLost(
                f"The vLLM server {self.url} no longer has the policy's weights: it was started anew, or somebody "
                f"unloaded them ({said})."
            )
        raise UserError(f"The vLLM server {self.url} refused a request: {said}.")

    def _names(self) -> set[str]:
        """The models and adapters that the server lists."""
        return {model["id"] for model in self._ask("/v1/models")[1]["data"]}

    def _ask(self, path: str, body: Mapping[str, Any] | None = None, seconds: float | None = None) -> tuple[int, Any]:
        """The status and the content of a reply. A server that does not reply is lost."""
        with self._failures():
            method, timeout = "GET" if body is None else "POST", seconds or self._seconds
            url, headers = f"{self.url}{path}", self._headers()
            reply = self._client.request(method, url, json=body, headers=headers, timeout=timeout)
        return reply.status_code, _content(reply)

    def _headers(self) -> dict[str, str]:
        key = os.environ.get(self._key_variable)
        return {"authorization": f"Bearer {key}"} if key else {}

    def _refuse_key(self, status: int) -> None:
        if status == 401:
            raise UserError(
                f"The vLLM server {self.url} wants a valid key in the environment variable {self._key_variable}."
            )

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """A server that cannot be reached is lost."""
        import httpx2

        try:
            yield
        except httpx2.TimeoutException:
            raise _Failing(f"The vLLM server {self.url} has not replied within {self._seconds:g} s.") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            said = f"{type(error).__name__}: {error}".rstrip(": .")
            raise _Failing(f"The vLLM server {self.url} does not answer ({said}).") from None


def check_sampling(*params: SamplingParams) -> None:
    """Refuse ways to sample that vLLM would change, or return other log-probs of."""
    for one in params:
        if one.top_p < 1:
            raise UserError(
                "engine.name=vllm returns log-probs of the tokens it draws from, and not of all as the others do: "
                "leave out eval.top_p."
            )
        if 0 < one.temperature < _COLDEST:
            raise UserError(
                f"vLLM samples at a temperature of {_COLDEST:g} where less is asked for: raise rollout.temperature or "
                f"eval.temperature from {one.temperature:g}, or set the latter to 0."
            )


def is_here(url: str) -> bool:
    """Whether one of the servers at these addresses is on this machine, as far as an address tells."""
    return any(_is_own(urlsplit(one).hostname or "") for one in _addresses(url))


def _is_own(host: str) -> bool:
    """Whether a host is this machine. Its name is compared as it is: nobody is asked for the address behind it."""
    try:
        address = ip_address(host)
    except ValueError:
        return host in ("localhost", socket.gethostname().lower())
    own = (one.address.partition("%")[0] for each in psutil.net_if_addrs().values() for one in each)
    return address.is_loopback or address.is_unspecified or str(address) in own


def _addresses(url: str) -> list[str]:
    """The servers' addresses, without the /v1 that other clients want."""
    return [one.strip().rstrip("/").removesuffix("/v1") for one in url.split(",")]


def _start_line(policy: Policy) -> str:
    """How a server for this policy is started."""
    config = policy.config
    common = f"--dtype {'bfloat16' if policy.bf16 else 'float32'} --logprobs-mode processed_logprobs"
    if policy.adapters is None:
        return f"`VLLM_SERVER_DEV_MODE=1 vllm serve {config.path} {common}`."
    lora = f"--enable-lora --max-lora-rank {max(8, 1 << (config.lora_rank - 1).bit_length())}"  # it takes powers of two
    return f"`VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve {config.path} {lora} {common}`."


@cache
def _certificates() -> Any:
    """A client would read them anew, which takes a tenth of a second even if no address begins with https."""
    import httpx2

    return httpx2.create_ssl_context()


def _new_name() -> str:
    """A name that no run has used, on any server."""
    return f"longloop-{secrets.token_hex(12)}"


def _gap(own: Floats, said: Floats) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.nan_to_num(np.abs(np.exp(own - said) - 1), nan=np.inf).mean())


def _content(reply: Any) -> Any:
    try:
        return reply.json()
    except ValueError:
        return reply.text


def _said(status: int, found: Any) -> str:
    """What a server replied, in short."""
    error = found.get("error", found) if isinstance(found, dict) else found
    said = error.get("message", error) if isinstance(error, dict) else error
    return f"{status or ''} {str(said)[:300]}".strip().rstrip(".")


def _leave(servers: Sequence[_Server], folder: Path) -> None:
    """Take back what was put on the servers and on disk."""
    for server in servers:
        with suppress(RankLost):
            server.unload(list(server.loaded), seconds=5.0)
    shutil.rmtree(folder, ignore_errors=True)
