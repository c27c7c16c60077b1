"""A table of results in Errands, from files that `longloop eval --json --split ...` wrote:

    python -m errands.leaderboard "SmolLM2, as it is=base.json" "SmolLM2, LOOP=loop-0.json,loop-1.json,loop-2.json"

Each argument is a row: its name, and a file for each seed. A file is a JSON object: split -> `success` (the share of
tasks done, TGC), `success_interval`, `scenarios` (the share of scenarios whose tasks are all done, SGC), `env_version`.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from errands.env import Errands

Results = Mapping[str, Sequence[Mapping[str, Any]]]
"""The name of a row -> what each seed scored, by split."""

_NOTE = """
Tasks done (TGC) and, after the slash, scenarios done (SGC), in percent. Brackets: for one seed the 95% interval over
tasks, for several the lowest and the highest seed. Errands {version}."""


def table(rows: Results) -> str:
    """A Markdown table with the splits that every row has. Raises ValueError for results of different versions."""
    every = [seed for seeds in rows.values() for seed in seeds]
    versions = sorted({measured.get("env_version", "") for seed in every for measured in seed.values()})
    if len(versions) != 1:
        known = ", ".join(version or "before versions" for version in versions)
        raise ValueError(f"results of one version of Errands can share a table, and these are of: {known or 'none'}")
    splits = [split for split in Errands.splits if all(split in seed for seed in every)]
    lines = [["", "seeds", *splits], ["---"] * (len(splits) + 2)]
    for name, seeds in rows.items():
        lines.append([name, str(len(seeds)), *(_cell([seed[split] for seed in seeds]) for split in splits)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n" + _NOTE.format(version=versions[0])


def _cell(seeds: Sequence[Mapping[str, Any]]) -> str:
    success = [seed["success"] for seed in seeds]
    low, high = seeds[0]["success_interval"] if len(seeds) == 1 else (min(success), max(success))
    scenarios = fmean(seed["scenarios"] for seed in seeds)
    return f"{100 * fmean(success):.1f} [{100 * low:.1f}, {100 * high:.1f}] / {100 * scenarios:.1f}"


def main() -> None:
    rows = {}
    for argument in sys.argv[1:]:
        name, equals, files = argument.rpartition("=")
        if not equals:
            sys.exit(f"{argument!r} is not a row. Write it as NAME=FILE.json, or NAME=FILE.json,FILE.json for seeds.")
        rows[name] = [json.loads(Path(file).read_text()) for file in files.split(",")]
    try:
        print(table(rows))
    except ValueError as error:
        sys.exit(f"No table: {error}.")


if __name__ == "__main__":
    main()
