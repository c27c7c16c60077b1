"""Line charts as SVG, drawn on the server: nothing to load, crisp at any size, colors from the page's style sheet.

The numbers are also put into the picture as an attribute, where the page's script finds them to show under the pointer.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from markupsafe import Markup, escape

Point = tuple[float, float]
Scale = Callable[[float], float]

_WIDTH, _HEIGHT = 360, 168
_LEFT, _RIGHT, _TOP, _BOTTOM = 42, 8, 8, 20
_MOST = 400
"""Points of a line; a longer one is averaged piece by piece."""
_NOISY = 30
"""A line with more points is drawn faintly, with its running mean over it, unless smoothing was chosen."""
SMOOTHINGS = {"": "automatic", "0": "off", **{str(steps): f"{steps} steps" for steps in (5, 10, 20, 50, 100, 200)}}
"""How addresses name the running means that can be chosen."""


@dataclass(frozen=True)
class Line:
    name: str
    points: Sequence[Point]
    color: int = 0
    band: Sequence[tuple[float, float, float]] = ()
    """(x, low, high): around a mean, or of a measurement."""
    dots: bool = False
    """Few measurements, each marked and with its interval as a bar."""
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    title: str
    lines: Sequence[Line]
    share: bool = False
    """Between 0 and 1, shown as per cent."""
    note: str = ""
    smooth: int | None = None
    """Steps of the running mean: 0 for none, None to choose by the length of the line."""
    log: bool = False

    @property
    def empty(self) -> bool:
        return not any(line.points for line in self.lines)

    def __html__(self) -> str:
        xs, ys = _range([x for line in self.lines for x, _ in line.points]), self._height()

        def across(x: float) -> float:
            return _LEFT + (x - xs[0]) / (xs[1] - xs[0]) * (_WIDTH - _LEFT - _RIGHT)

        def up(y: float) -> float:
            if self.log:
                part = math.log(max(y, ys[0]) / ys[0]) / math.log(ys[1] / ys[0])
            else:
                part = (y - ys[0]) / (ys[1] - ys[0])
            return _HEIGHT - _BOTTOM - part * (_HEIGHT - _TOP - _BOTTOM)

        parts = []
        for y in powers(*ys) if self.log else ticks(*ys, 4):
            parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{up(y):.1f}" y2="{up(y):.1f}"/>')
            parts.append(f'<text class="y" x="{_LEFT - 6}" y="{up(y) + 3.5:.1f}">{number(y, self.share)}</text>')
        for x in ticks(*xs, 5):
            if x == int(x):
                parts.append(f'<text class="x" x="{across(x):.1f}" y="{_HEIGHT - 4}">{int(x)}</text>')
        for line in self.lines:
            shown = replace(line, points=[point for point in line.points if point[1] > 0]) if self.log else line
            parts += _drawn(shown, across, up, self.smooth)
        data = {
            "left": _LEFT,
            "right": _WIDTH - _RIGHT,
            "x": xs,
            "share": self.share,
            "lines": [[line.name, line.color, [(x, _short(y)) for x, y in _thin(line.points)]] for line in self.lines],
        }
        return Markup(
            '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}" data-chart="{}">{}</svg>'
        ).format(_WIDTH, _HEIGHT, self.title, json.dumps(data, separators=(",", ":")), Markup("".join(parts)))

    def _height(self) -> tuple[float, float]:
        values = [y for line in self.lines for _, y in line.points]
        values += [y for line in self.lines for _, *ends in line.band for y in ends]
        if self.log:
            low, high = min(y for y in values if y > 0), max(values)
            return (low, high) if high > low else (low / 2, high * 2)
        low, high = _range([*values, 0.0])
        if self.share and high > 0.6:
            high = 1.0
        return low, high


def styled(charts: Sequence[Chart], smooth: str, log: bool) -> list[Chart]:
    """Charts in the style that was chosen; `smooth` is one of SMOOTHINGS. Those with negative numbers stay linear."""
    found = []
    for chart in charts:
        values = [y for line in chart.lines for _, y in line.points]
        possible = min(values, default=0.0) >= 0 and max(values, default=0.0) > 0
        note = chart.note if possible or not log else f"{chart.note} (stays linear)".strip()
        found.append(replace(chart, smooth=int(smooth) if smooth else None, log=log and possible, note=note))
    return found


def sparkline(points: Sequence[Point], high: float = 1.0) -> Markup:
    """A curve the size of a word."""
    if len(points) < 2:
        return Markup("")
    points = _thin(_smooth(points), 60)
    (first, _), (last, _) = points[0], points[-1]
    drawn = [(2 + 96 * (x - first) / (last - first), 22 - 20 * min(1, max(0, y / high))) for x, y in points]
    area = Markup('<path class="area c0" d="{}L98 23L2 23Z"/>').format(_path(drawn))
    end = Markup('<circle class="c0" cx="{:.1f}" cy="{:.1f}" r="2"/>').format(*drawn[-1])
    line = Markup('<path class="line c0" d="{}"/>').format(_path(drawn))
    return Markup('<svg class="spark" viewBox="0 0 102 24" aria-hidden="true">{}{}{}</svg>').format(area, line, end)


def number(value: float | None, share: bool = False) -> str:
    """A number as a person writes it."""
    if value is None or not math.isfinite(value):
        return "-"
    if share:
        return f"{100 * value:.3g}%"
    if value == 0:
        return "0"
    if abs(value) >= 1e5 or abs(value) < 1e-3:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa.removesuffix('.0')}e{int(exponent)}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers between two ends."""
    rough = (high - low) / about
    unit = 10 ** math.floor(math.log10(rough))
    size = next(size * unit for size in (1, 2, 5, 10) if size * unit >= rough * 0.999)
    first, last = math.ceil(low / size - 1e-9), math.floor(high / size + 1e-9)
    return [round(number * size, 12) for number in range(first, last + 1)]


def powers(low: float, high: float) -> list[float]:
    """Round numbers between two ends for a logarithmic scale: 1, 2, 5, 10, 20, ..., fewer where there is no room."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [float(f"{digit}e{exponent}") for exponent in exponents for digit in (1, 2, 5)]
    fine = [value for value in fine if low * 0.999 <= value <= high * 1.001]
    if len(fine) < 2:
        return ticks(low, high, 3)
    if len(fine) <= 6:
        return fine
    whole = [float(f"1e{exponent}") for exponent in exponents if low * 0.999 <= float(f"1e{exponent}") <= high * 1.001]
    return whole[:: math.ceil(len(whole) / 6)]


def finite(points: Sequence[tuple[float, float | None]]) -> list[Point]:
    """The points that can be drawn."""
    return [(x, float(y)) for x, y in points if isinstance(y, int | float) and math.isfinite(y)]


def _drawn(line: Line, across: Scale, up: Scale, smooth: int | None) -> list[str]:
    color = f"c{line.color % 8}"
    parts = []
    if line.dots:
        for x, low, high in line.band:
            parts.append(
                f'<line class="line bar {color}" x1="{across(x):.1f}" x2="{across(x):.1f}" '
                f'y1="{up(low):.1f}" y2="{up(high):.1f}"/>'
            )
    elif line.band:
        upper = [(across(x), up(high)) for x, _, high in line.band]
        lower = [(across(x), up(low)) for x, low, _ in reversed(line.band)]
        parts.append(f'<path class="band {color}" d="{_path([*upper, *lower])}Z"/>')
    points = _thin(line.points)
    noisy = len(points) > _NOISY and not line.band if smooth is None else smooth > 1
    noisy = noisy and bool(points) and not line.dashed and not line.dots
    drawn = [(across(x), up(y)) for x, y in points]
    if len(drawn) == 1 or line.dots:
        parts += [f'<circle class="{color}" cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>' for x, y in drawn]
    dashed = " dashed" if line.dashed else ""
    parts.append(f'<path class="line {color}{" faint" if noisy else dashed}" d="{_path(drawn)}"/>')
    if noisy:
        drawn = [(across(x), up(y)) for x, y in _smooth(points, smooth)]
        parts.append(f'<path class="line {color}" d="{_path(drawn)}"/>')
    return parts


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values, default=0.0), max(values, default=1.0)
    return (low, high) if high > low else (low - (0 if low == 0 else 0.5), high + (1 if low == 0 else 0.5))


def _path(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) if points else ""


def _thin(points: Sequence[Point], most: int = _MOST) -> list[Point]:
    if len(points) <= most:
        return list(points)
    ends = [round(part * len(points) / most) for part in range(most + 1)]
    pieces = [points[start:end] for start, end in pairwise(ends)]
    return [(piece[len(piece) // 2][0], sum(y for _, y in piece) / len(piece)) for piece in pieces]


def _smooth(points: Sequence[Point], steps: int | None = None) -> list[Point]:
    """The running mean over that many steps, half of them on either side; by default over a fifteenth of the line."""
    apart = (points[-1][0] - points[0][0]) / max(1, len(points) - 1) or 1.0
    reach = max(1, len(points) // 30) if steps is None else round(steps / apart / 2)
    values = [y for _, y in points]
    windows = [values[max(0, at - reach) : at + reach + 1] for at in range(len(values))]
    return [(x, sum(window) / len(window)) for (x, _), window in zip(points, windows, strict=True)]


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def legend(lines: Sequence[Line]) -> Markup:
    """The names of lines beside their colors; none for a single line."""
    if len(lines) < 2:
        return Markup("")
    items = [Markup('<span><i class="key c{}"></i>{}</span>').format(line.color % 8, line.name) for line in lines]
    return Markup('<div class="legend">{}</div>').format(Markup("").join(escape(item) for item in items))
