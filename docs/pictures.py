"""The pictures that are drawn, not measured or photographed: the flow of a step, and the learning curves."""

from collections.abc import Sequence
from statistics import fmean

import svg


def flow() -> str:
    """One step of training: what is done by whom, and what is handed on."""
    top, middle, bottom = 30, 150, 265
    green, amber = "#e9f5ea", "#fdf3e0"
    return svg.picture(
        880,
        345,
        "One training step: collect, credit, update; the engine samples from the weights that the learner trains",
        svg.box(20, top, 120, 60, "tasks", "n per step"),
        svg.box(210, top, 180, 60, "rollout", "K trajectories per task"),
        svg.box(460, top, 150, 60, "credit", "the algorithm"),
        svg.box(690, top, 170, 60, "update", "the learner"),
        svg.line([(140, 60), (210, 60)], arrow=True),
        svg.line([(390, 60), (460, 60)], arrow=True),
        svg.line([(610, 60), (690, 60)], arrow=True),
        svg.text(425, 50, "groups", size=12),
        svg.text(650, 50, "samples", size=12),
        svg.box(130, middle + 10, 150, 60, "environment", "answers messages", fill=green),
        svg.box(330, middle + 10, 150, 60, "engine", "samples tokens", fill=green),
        svg.line([(255, 90), (215, 160)], arrow=True),
        svg.line([(235, 160), (275, 90)], arrow=True),
        svg.line([(325, 90), (385, 160)], arrow=True),
        svg.line([(405, 160), (345, 90)], arrow=True),
        svg.text(200, 120, "actions", anchor="end", size=12),
        svg.text(395, 120, "token ids, log-probs", anchor="start", size=12),
        svg.box(330, bottom, 530, 50, "one copy of the weights", fill=amber),
        svg.line([(405, bottom), (405, 220)], arrow=True),
        svg.line([(775, 90), (775, bottom)], arrow=True),
        svg.text(415, 247, "read", anchor="start", size=12),
        svg.text(785, 180, "gradient step", anchor="start", size=12),
        svg.box(560, middle + 10, 150, 60, "run folder", "metrics, checkpoints", fill=green),
        svg.line([(690, 85), (650, 160)], arrow=True),
        svg.line([(80, bottom + 25), (80, 90)], arrow=True),
        svg.line([(330, bottom + 25), (80, bottom + 25)]),
        svg.text(205, bottom + 18, "next step", size=12),
    )


def curve(title: str, steps: Sequence[int], seeds: Sequence[Sequence[float]]) -> str:
    """Success over steps: the mean of the seeds, and a band from the lowest of them to the highest."""
    left, right, top, bottom = 46, 400, 14, 176

    def at(step: float, share: float) -> svg.Point:
        return round(left + (right - left) * step / steps[-1], 1), round(bottom - (bottom - top) * share, 1)

    columns = list(zip(*seeds, strict=True))
    lows, highs, means = ([f(column) for column in columns] for f in (min, max, fmean))
    parts = [svg.line([at(0, share), at(steps[-1], share)], color="#ddd", width=1) for share in (0.25, 0.5, 0.75, 1.0)]
    parts += [svg.text(left - 6, at(0, share)[1] + 4, f"{share:.0%}", anchor="end", size=11) for share in (0, 0.5, 1.0)]
    parts += [svg.text(at(step, 0)[0], bottom + 16, str(step), size=11) for step in (0, steps[-1] // 2, steps[-1])]
    band = [at(s, v) for s, v in zip(steps, lows, strict=True)] + [
        at(s, v) for s, v in reversed(list(zip(steps, highs, strict=True)))
    ]
    parts += [
        svg.area(band),
        svg.line([at(s, v) for s, v in zip(steps, means, strict=True)], color=svg.BLUE, width=2),
        svg.line([at(0, 0), at(steps[-1], 0)], width=1),
        svg.text((left + right) / 2, bottom + 32, "step", size=11),
    ]
    return svg.picture(420, 214, title, *parts)
