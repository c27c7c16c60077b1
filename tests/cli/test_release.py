"""What is published: an sdist that holds all the wheel needs, and a wheel that trains without the checkout."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from longloop.version import __version__

ROOT = Path(__file__).parents[2]
PACKAGES = ("longloop", "errands")
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
"""Builds what its first argument says into the folder that its second one names, as a front end such as `build` has it
done: with the project in the current folder."""


def run(*command: object, folder: Path, **variables: str) -> str:
    """What a command printed. It must succeed."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = list(map(str, command))
    done = subprocess.run(words, cwd=folder, env=kept | variables, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> tuple[Path, Path]:
    """The sdist of this checkout, and the wheel made from the sdist alone."""
    if find_spec("setuptools") is None or find_spec("pip") is None:
        pytest.skip("building needs setuptools and pip in this virtualenv: `pip install setuptools`")
    made = tmp_path_factory.mktemp("dist")
    checkout = made / "checkout"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, checkout / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    sdist = made / run(sys.executable, "-c", BUILD, "build_sdist", made, folder=checkout).split()[-1]
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(made / "unpacked")
    source = made / "unpacked" / sdist.name.removesuffix(".tar.gz")
    wheel = made / run(sys.executable, "-c", BUILD, "build_wheel", made, folder=source).split()[-1]
    return sdist, wheel


def test_names_and_contents(published):
    sdist, wheel = published
    assert (sdist.name, wheel.name) == (f"longloop-{__version__}.tar.gz", f"longloop-{__version__}-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()]
    ours = {str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts}
    assert len(ours) > 200 and not ours - names, "configs, Errands with its novice, type marks"
    assert {name.split("/")[0] for name in names} == {*PACKAGES, f"longloop-{__version__}.dist-info"}


def test_the_wheel_trains_in_a_virtualenv_without_the_checkout(published, tmp_path):
    """Its dependencies are lent by this virtualenv, whose own longloop is not: that is an editable one, by a .pth file,
    and such files count in a virtualenv's own folder alone."""
    _, wheel = published
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "alone", folder=tmp_path)
    python = tmp_path / "alone" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps")
    run(*pip, "--disable-pip-version-check", wheel, folder=tmp_path)
    own = next((tmp_path / "alone").glob("lib/python*/site-packages"))
    (own / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    empty = tmp_path / "empty"
    empty.mkdir()
    found = run(python, "-c", "import longloop, errands; print(longloop.__file__, errands.__file__)", folder=empty)
    assert [Path(file).parents[1] for file in found.split()] == [own, own]
    small = ("steps=1", "tasks_per_step=1", "algo.k=2", "doctor=false", "eval.every=0", "eval.tasks=1")
    lent = {"HOME": str(empty), "MONTY_BIN": str(Path(sys.executable).with_name("monty"))}
    said = run(python.with_name("longloop"), "train", "quickstart", *small, folder=empty, **lent)
    assert "loop on errands with novice" in said
    assert tomllib.loads((empty / "runs" / "quickstart" / "config.toml").read_text())["steps"] == 1


def test_the_changelog_has_this_version():
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    assert next(line for line in lines if line.startswith("## ")).split()[1] == __version__
