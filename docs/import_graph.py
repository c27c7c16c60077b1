"""Draws who imports whom in the tree of a commit: `.venv/bin/python docs/import_graph.py [COMMIT] > picture.svg`.

A box is a folder or a top-level module with its lines; it stands above all that it imports. Arrows that follow from
others are left out. Files that import each other in a circle are counted in their box, which is then red. Without a
commit, the working tree is read.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean

sys.path[:0] = [str(Path(__file__).parent)]

import svg  # noqa: E402

ROOT = Path(__file__).parents[1]
PACKAGES = ("longloop", "errands")

Graph = dict[str, set[str]]


def sources(commit: str) -> Iterator[tuple[str, str]]:
    """The Python files of both packages, as (module, text)."""
    if not commit:
        for package in PACKAGES:
            for path in sorted((ROOT / package).rglob("*.py")):
                yield module_of(path.relative_to(ROOT).as_posix()), path.read_text()
        return
    names = git("ls-tree", "-r", "--name-only", commit).splitlines()
    for name in names:
        if name.endswith(".py") and name.partition("/")[0] in PACKAGES:
            yield module_of(name), git("show", f"{commit}:{name}")


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def part_of(module: str) -> str:
    """The box that a module stands in."""
    names = module.split(".")
    if names[0] == "errands" or names[1:3] == ["envs", "errands"]:
        return "errands"
    return names[1] if len(names) > 1 else "__init__"


def imported(text: str, modules: Mapping[str, str]) -> set[str]:
    """The modules of ours that a file imports, wherever in the file it does."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {
                name if (name := f"{node.module}.{alias.name}") in modules else node.module for alias in node.names
            }
    return found & modules.keys()


def circles(graph: Graph) -> list[set[str]]:
    """The sets of nodes that reach each other, of two or more."""
    below = {node: reach(graph, node) for node in graph}
    found = {frozenset(other for other in below[node] if node in below[other]) for node in graph if node in below[node]}
    return [set(circle) for circle in found if len(circle) > 1]


def reach(graph: Graph, start: str) -> set[str]:
    """All that a node imports, straight or through others."""
    seen: set[str] = set()
    todo = list(graph[start])
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo += graph[node]
    return seen


def draw(commit: str) -> str:
    modules = dict(sources(commit))
    files: Graph = {name: imported(text, modules) - {name} for name, text in modules.items()}
    parts: Graph = {part_of(name): set() for name in modules}
    lines = dict.fromkeys(parts, 0)
    for name, targets in files.items():
        parts[part_of(name)] |= {part_of(target) for target in targets} - {part_of(name)}
        lines[part_of(name)] += modules[name].count("\n")
    for empty in [part for part in parts if part == "__init__"]:
        del parts[empty]
    parts = {part: targets & parts.keys() for part, targets in parts.items()}
    loops = circles(files)
    between = circles(parts)
    inside = {part: sum({part_of(name) for name in loop} == {part} for loop in loops) for part in parts}

    def floor(part: str, path: tuple[str, ...] = ()) -> int:
        """How many boxes stand below it at least; a circle is followed once."""
        return 1 + max((floor(target, (*path, part)) for target in parts[part] - {*path, part}), default=0)

    floors = {part: floor(part) for part in parts}
    rows = [[part for part in parts if floors[part] == number] for number in range(max(floors.values()), 0, -1)]
    width, height, gap = 132, 38, 34
    wide = max(map(len, rows)) * (width + 14) + 130
    at: dict[str, float] = {}
    for floor_number, row in enumerate(rows):  # each part near the middle of those that import it
        shift = (floor_number % 3 - 1) * 44  # so that an arrow between distant floors does not end behind a box
        row.sort(key=lambda part: fmean([at[above] for above in at if part in parts[above]] or [wide / 2]))
        for number, part in enumerate(row):
            at[part] = wide / 2 + shift + (number - (len(row) - 1) / 2) * (width + 14)
    top = {part: 34 + number * (height + gap) for number, row in enumerate(rows) for part in row}
    direct = {
        (part, target)
        for part in parts
        for target in parts[part]
        if not any(target in reach(parts, other) for other in parts[part] - {target})
    }
    upward = {(a, b) for loop in between for a in loop for b in parts[a] & loop}
    arrows = [
        svg.line(
            [
                (at[a], top[a] + (height if top[a] < top[b] else 0)),
                (at[b], top[b] + (0 if top[a] < top[b] else height)),
            ],
            color=svg.RED if (a, b) in upward else svg.PALE,
            width=1.2,
            arrow=True,
        )
        for a, b in sorted(direct | upward)
    ]
    boxes = [
        svg.box(
            at[part] - width / 2,
            top[part],
            width,
            height,
            part,
            f"{lines[part]:,} lines" + (f", {inside[part]} circles" if inside[part] else ""),
            fill="#fbe3e3" if inside[part] else "#eef3fa",
            size=11,
        )
        for part in parts
    ]
    counted = (
        f"{commit or 'today'}: {sum(lines.values()):,} lines, {len(loops)} circles of files, {len(between)} of folders"
    )
    return svg.picture(
        round(wide),
        round(34 + len(rows) * (height + gap)),
        counted,
        svg.text(14, 20, counted, anchor="start"),
        *arrows,
        *boxes,
    )


if __name__ == "__main__":
    sys.stdout.write(draw(sys.argv[1] if len(sys.argv) > 1 else ""))
