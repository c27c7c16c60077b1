"""What longloop needs where it is to run, as this virtualenv has it: a line `name==version` for each, pip's way."""

import sys
from importlib.metadata import requires, version

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

WANTED = ["longloop[gguf]", "setuptools", "hypothesis", "pytest", "pytest-timeout", "pytest-xdist"]


def add(text: str, found: set[str], left_out: set[str]) -> None:
    """A requirement and, in turn, its own."""
    wanted = Requirement(text)
    name = canonicalize_name(wanted.name)
    if name in found or name in left_out:
        return
    found.add(name)
    for more in requires(name) or []:
        marker = Requirement(more).marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in wanted.extras or [""]):
            add(more, found, left_out)


if __name__ == "__main__":
    found: set[str] = set()
    for wanted in WANTED:
        add(wanted, found, {canonicalize_name(name) for name in sys.argv[1:]})
    print("\n".join(f"{name}=={version(name)}" for name in sorted(found - {"longloop"})))
