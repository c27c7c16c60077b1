"""A report as Markdown. All text is escaped, so that none of it can become a link, an image, HTML, or another cell."""

import re
from collections.abc import Mapping

from longloop.analysis.report import AttemptIds, Cell, Report, Table

_MARKS = re.compile(r"[\\`*_{}\[\]|~!@$]")
_BEGIN = re.compile(r"^(\d*)([-+.)#=])")
"""What would begin a list or a heading."""
_LINK = re.compile(r":(?=//)|www(?=\.)", re.IGNORECASE)
"""What would become a link by itself."""


def markdown(name: str, facts: str, report: Report, pictures: Mapping[str, str]) -> str:
    """`facts` is what the run was, in a line; `pictures` has a section's picture file, by the section's name."""
    parts = [f"# Analysis of {escaped(name)}", escaped(facts), f"**{escaped(report.headline)}**"]
    for section in report.sections:
        parts.append(f"## {escaped(section.title)}")
        parts += [escaped(text) for text in section.text]
        if section.name in pictures:
            parts.append(f"![{escaped(section.title)} over the steps]({pictures[section.name]})")
        parts += [_table(table) for table in section.tables]
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """A paragraph, every mark in it as itself."""
    return _BEGIN.sub(r"\1\\\2", _inline(text))


def _inline(text: str) -> str:
    text = "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text)
    text = _LINK.sub(r"\g<0>\\", _MARKS.sub(r"\\\g<0>", text.strip()))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _table(table: Table) -> str:
    head, *rows = (f"| {' | '.join(map(_cell, cells))} |" for cells in (table.head, *table.rows))
    return "\n".join([head, "|" + "---|" * len(table.head), *rows])


def _cell(cell: Cell) -> str:
    if isinstance(cell, AttemptIds):
        return " ".join(f"`{one}`" for one in cell.ids)
    return _inline(cell)
