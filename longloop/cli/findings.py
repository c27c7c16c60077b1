"""The findings of `longloop doctor`, at a terminal or as JSON. Text of models and environments cannot act on the
terminal: control characters are printed as their escapes."""

import asyncio
import json
from collections.abc import AsyncGenerator

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from longloop.api import checkup, cluster_findings, prepared
from longloop.config import Config
from longloop.diagnose.finding import Finding
from longloop.printable import visible

_COLORS = {"pass": "green", "warning": "yellow", "fail": "bold red"}
_PIECE = 400
"""Characters that are shown of a piece of a conversation."""


def show(config: Config, as_json: bool, console: Console) -> int:
    """Print each finding as it comes, and return the exit status."""
    return asyncio.run(_show(config, as_json, console))


async def _show(config: Config, as_json: bool, console: Console) -> int:
    found = []
    progress = Console(stderr=True, quiet=as_json)
    with progress.status("Looking"):
        async for finding in _findings(config):
            found.append(finding)
            if as_json:
                continue
            line = Text.assemble((f"{finding.verdict:8}", _COLORS[finding.verdict]), (f"{finding.name:14}", "bold"))
            console.print(line + Text(visible(str(finding))), soft_wrap=True)
            if finding.text:
                marked = console.no_color or not console.is_terminal
                console.print(Padding(conversation(finding.text, marked), (0, 0, 0, 8)))
    failed = sum(finding.verdict == "fail" for finding in found)
    warned = sum(finding.verdict == "warning" for finding in found)
    if as_json:
        print(json.dumps({"findings": [finding.to_json() for finding in found], "fails": failed, "warnings": warned}))
    else:
        console.print(f"{len(found)} findings: {failed} fail, {warned} warning{'s' * (warned != 1)}.")
    return int(failed > 0)


async def _findings(config: Config) -> AsyncGenerator[Finding]:
    """The cluster first: without hosts for its environment, nothing else can be looked at."""
    for finding in cluster_findings(config):
        yield finding
        if finding.name == "hosts" and finding.verdict == "fail":
            return
    async for finding in checkup(prepared(config)):
        yield finding


def conversation(pieces: tuple[tuple[bool, str], ...], marked: bool) -> Text:
    """A conversation, bright green where it is trained on; with `marked` in brackets too, for output without colors."""
    text = Text()
    for trained, piece in pieces:
        shown = visible(piece)
        if len(shown) > _PIECE:
            shown = f"{shown[: _PIECE // 2]} [...] {shown[-_PIECE // 2 :]}"
        text.append(f"[[{shown}]]" if trained and marked else shown, "bold green" if trained else "dim")
    return text
