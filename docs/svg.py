"""Small pictures as SVG text: lines, boxes and arrows. They look the same on a forge and in the site.

Pictures have a white ground, so that they can be read on dark pages too.
"""

from collections.abc import Sequence
from html import escape

Point = tuple[float, float]

INK, PALE, BLUE, RED = "#222", "#999", "#2266bb", "#cc3333"


def picture(width: int, height: int, title: str, *parts: str) -> str:
    marker = (
        '<marker id="{0}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="{1}"/></marker>'
    )
    markers = "".join(marker.format(color[1:], color) for color in (INK, PALE, BLUE, RED))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="13" fill="{INK}"><title>{escape(title)}</title><defs>{markers}</defs>\n'
        f'<rect width="{width}" height="{height}" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def text(
    x: float, y: float, words: str, *, anchor: str = "middle", size: int = 13, color: str = INK, bold: bool = False
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    style = f'text-anchor="{anchor}" font-size="{size}" fill="{color}"{weight}'
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, *lines: str, fill: str = "#eef3fa", size: int = 13) -> str:
    """A box with lines of text in its middle; the first is bold."""
    first = y + height / 2 - (len(lines) - 1) * (size + 4) / 2 + size / 3
    words = [text(x + width / 2, first + n * (size + 4), line, size=size, bold=n == 0) for n, line in enumerate(lines)]
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" fill="{fill}" stroke="{PALE}"/>'
        + "".join(words)
    )


def line(
    points: Sequence[Point], *, color: str = INK, width: float = 1.5, arrow: bool = False, dashed: bool = False
) -> str:
    """A line through the points, with an arrow at its end where it has one."""
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    extra = (f' marker-end="url(#{color[1:]})"' if arrow else "") + (' stroke-dasharray="4 3"' if dashed else "")
    return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{width:g}"{extra}/>'


def area(points: Sequence[Point], *, color: str = BLUE, opacity: float = 0.2) -> str:
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    return f'<polygon points="{path}" fill="{color}" fill-opacity="{opacity:g}"/>'
