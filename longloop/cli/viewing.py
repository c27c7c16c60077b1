"""`longloop view` and `longloop show`: serve pages, write them into one file, or print one attempt."""

from collections.abc import Sequence
from pathlib import Path

from longloop.viewer.library import Library


def view(runs: Sequence[Path], port: int, html: Path | None) -> None:
    library = Library(runs or [Path("runs")])
    if html is not None:
        from longloop.viewer.html_export import write

        shown, size = write(library, html)
        print(f"{html} has {shown} pages in {size / 1e6:.1f} MB. It needs no server and loads nothing.")
        return
    from longloop.viewer.pages import Pages
    from longloop.viewer.server import listen, serve

    bound = listen(port)
    print(f"http://127.0.0.1:{bound.getsockname()[1]}/  (this machine only; Ctrl-C ends it)", flush=True)
    serve(Pages(library), bound)


def show(run: Path, attempt_id: str) -> None:
    from rich.console import Console

    from longloop.viewer.terminal import show

    show(run, attempt_id, Console(highlight=False, markup=False, emoji=False))
