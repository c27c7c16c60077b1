"""A small MCP server: notes, which are files in the folder where it was started."""

import os
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("notes")


@server.tool()
def list_notes() -> str:
    """List the notes."""
    return ", ".join(sorted(path.name for path in Path().iterdir()))


@server.tool()
def read_note(name: str) -> str:
    """Read a note."""
    return Path(name).read_text()


@server.tool()
def write_note(name: str, text: str) -> str:
    """Write a note, in place of one with the same name."""
    Path(name).write_text(text)
    return "written"


@server.tool()
def end() -> str:
    """End the server, as a fault would."""
    os._exit(3)


if __name__ == "__main__":
    server.run()
