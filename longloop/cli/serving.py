"""`longloop serve`: listen, load the policy, say where it answers, and answer until interrupted."""

import asyncio
import ipaddress
import socket

from longloop import api
from longloop.types import UserError


def serve(
    target: str,
    overrides: list[str],
    host: str,
    port: int,
    key: str,
    step: api.WhichStep,
    temperature: float | None,
    top_p: float,
) -> None:
    if not key and not _is_loopback(host):
        raise UserError(
            f"--host {host} lets other machines call, and there is no key: set one with --key, or in LONGLOOP_KEY."
        )
    with _listen(host, port) as bound:  # before a model loads for nothing
        server = api.server(target, overrides, step=step, temperature=temperature, top_p=top_p, key=key)
        shown = f"[{host}]" if ":" in host else host
        where = f"http://{shown}:{bound.getsockname()[1]}"
        said = f"{target} answers at {where}/v1 (OPENAI_BASE_URL; for Anthropic's clients {where}). Ctrl-C ends it."
        asyncio.run(server.run(bound, ready=lambda: print(said, flush=True)))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise UserError(
            f"Cannot listen on {host}, port {port}: {error.strerror}. Choose another --host, or any free port with "
            "--port 0."
        ) from error
