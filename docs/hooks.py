"""For mkdocs: files outside docs/ that pages link to (source, configs, recipes) become pages of the site."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\(((?:\.\./)+[^)\s#]+)(?:#L(\d+))?((?: \"[^\"]*\")?)\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Lead links that leave docs/ to the copy in the site."""
    here = Path(page.file.src_uri).parent

    def lead(found: re.Match[str]) -> str:
        target = (ROOT / "docs" / here / found[1]).resolve()
        if target.is_relative_to(ROOT / "docs") or not target.is_file():
            return found[0]
        uri = f"source/{target.relative_to(ROOT).as_posix()}.html"
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, content=_shown(target)))
        up = "../" * len(here.parts)
        return f"]({up}{uri}{f'#L-{found[2]}' if found[2] else ''}{found[3]})"

    return LINK.sub(lead, markdown)


def _shown(path: Path) -> str:
    formatter = HtmlFormatter(full=True, title=path.relative_to(ROOT).as_posix(), linenos="inline", lineanchors="L")
    lexer = get_lexer_for_filename(path.with_suffix(".json" if path.suffix == ".ipynb" else path.suffix).name)
    return highlight(path.read_text(), lexer, formatter)
