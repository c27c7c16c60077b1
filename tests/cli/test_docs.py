"""The docs are true: what is generated is up to date, links resolve, commands parse, the guides' code runs."""

import asyncio
import importlib
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from longloop import config
from longloop.cli.main import app, main
from longloop.envs.play import Script, play
from longloop.registry import ALGOS, ENVS
from longloop.store.metrics import Metrics
from longloop.types import UserError
from tests.support.processes import Program

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), ROOT / "benchmarks" / "README.md"])
GUIDES = sorted((DOCS / "guides").glob("*.md"))

FENCE = re.compile(r"^(`{3,})(\w*)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.(?:py|toml))\n")
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]*))?(?: \"[^\"]*\")?\)")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> Iterator[str]:
    """The code blocks of a page in these languages."""
    return (body for _, language, body in FENCE.findall(page.read_text()) if language in languages)


def commands(page: Path) -> list[list[str]]:
    """The `longloop` commands that a page's consoles show, as words."""
    lines = "".join(blocks(page, "console")).replace("\\\n", " ").splitlines()
    parts = (part.strip() for line in lines if line.startswith("$ ") for part in line[2:].split(" && "))
    return [shlex.split(part, comments=True) for part in parts if part.startswith("longloop ")]


def write_files(page: Path, folder: Path) -> list[str]:
    """Write the blocks that begin with a comment naming a file; return the names."""
    named = [(found[1], body) for body in blocks(page, "python", "toml") if (found := FILE.match(body))]
    for name, body in named:
        (folder / name).write_text(body)
    return [name for name, _ in named]


def run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as exit:
        main()
    assert not exit.value.code, shlex.join(words)


def prose(page: Path) -> str:
    """A page without its code."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text()))


def anchor(heading: str) -> str:
    """What a heading is linked by, on a forge and in the site."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


# What is generated


def test_generated_parts_are_up_to_date(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    stale = [relative(path) for path in importlib.import_module("generate").outdated()]
    assert not stale, f"run `make docs`: {stale}"


def test_a_link_to_a_definition_gets_its_line(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    generate = importlib.import_module("generate")
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    (tmp_path / "code.py").write_text("X = 1\n\n\nclass A:\n    b: int = 0\n\n    def c(self): ...\n")
    page = tmp_path / "page.md"
    page.write_text('[b](code.py "A.b"), [c](code.py#L99 "A.c"), [X](code.py#L9 "X"), [plain](code.py)')
    assert (
        generate.generated(page)
        == '[b](code.py#L5 "A.b"), [c](code.py#L7 "A.c"), [X](code.py#L1 "X"), [plain](code.py)'
    )
    page.write_text('[gone](code.py#L3 "A.gone")')
    with pytest.raises(SystemExit, match=r"code\.py defines no A\.gone"):
        generate.generated(page)


@pytest.mark.parametrize("name", ALGOS)
def test_an_algorithm_has_a_whole_page(name):
    """Pseudo-code, numbered details with links to lines, how it differs from its paper, settings, a curve."""
    page = (DOCS / "algorithms" / f"{name}.md").read_text()
    details = page.partition("## Implementation details\n")[2].partition("\n## ")[0]
    assert re.search(r"^1\. .*\n2\. ", details, re.MULTILINE) and re.search(r"\.py#L\d+ \"", details)
    assert "```text\n" in page.partition("## Implementation details")[0]
    for heading in ("## Differs from the paper", "## Settings", "## Learning curve"):
        assert heading in page
    if "![" in page:
        assert (DOCS / "algorithms" / "curves" / f"{name}.svg").stat().st_size < 30_000
    else:
        (test,) = re.findall(r"\]\(\.\./\.\./(tests/learning/\w+\.py)\)", page)
        assert f'"{name}": ' in (ROOT / test).read_text(), "it has neither a curve nor a test"


def test_every_page_is_in_the_site():
    def named(entry: Any) -> Iterator[str]:
        match entry:
            case str():
                yield entry
            case list() | dict():
                for inner in entry.values() if isinstance(entry, dict) else entry:
                    yield from named(inner)

    shown = set(named(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert shown <= pages
    assert {page for page in pages - shown if not page.startswith("decisions/0")} == set()
    assert {f"environments/{name}.md" for name in ENVS} | {f"algorithms/{name}.md" for name in ALGOS} <= shown


# Links


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_resolve(page):
    for path, heading in LINK.findall(prose(page)):
        if ":" in path:
            continue  # an address elsewhere
        target = page.parent / path if path else page
        assert target.exists(), f"{relative(page)} links to {path}"
        if heading and target.suffix == ".md":
            headings = map(anchor, re.findall(r"^#+ (.*)$", FENCE.sub("", target.read_text()), re.MULTILINE))
            assert heading in headings, f"{relative(page)} links to {path}#{heading}"


def test_pages_that_the_code_names_exist():
    """Messages and docstrings lead readers to pages by their path."""
    named = 0
    for folder in ("longloop", "errands", "recipes", "benchmarks", "tests"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".sh", ".toml"):
                for page in re.findall(r"\bdocs/[\w/-]+\.(?:md|py)\b", path.read_text()):
                    named += 1
                    assert (ROOT / page).exists(), f"{relative(path)} names {page}"
    assert named > 10


# Commands and configs, on every page


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_commands_parse(page):
    """The real command line accepts every command, and the config knows every setting that it is given."""
    group = typer.main.get_command(app)
    for words in commands(page):
        top = group.make_context("longloop", words[1:], resilient_parsing=False)
        name, command, rest = group.resolve_command(top, words[1:])
        context = command.make_context(name, list(rest), parent=top)  # exits on an unknown option
        start = context.params.get("config") or context.params.get("target")
        if start is not None and (str(start) in config.SHIPPED or (ROOT / str(start)).is_file()):
            known_settings(str(start), context.params["overrides"] or [])


def known_settings(start: str, overrides: list[str]) -> None:
    """Fails where a config has no such setting, or one of another type. N stands for a number."""
    path = Path(start) if start in config.SHIPPED else ROOT / start
    words = [re.sub(r"(?<=[=-])N$", "0", word) for word in overrides]
    resolved = config.load(path, [word for word in words if not word.startswith("methods.")])
    known = {setting.key for setting in config.settings(resolved.model_dump())}
    for word in words:
        key = word.partition("=")[0]
        if not key.startswith("methods.") and key not in config.TABLES and key not in known:
            raise UserError(f"{start} has no setting {key}.")


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_listing_commands_run(page, tmp_path, monkeypatch):
    """Those that only look something up take no time."""
    monkeypatch.chdir(tmp_path)
    for words in commands(page):
        if words[1:] in (["envs"], ["algos"], ["models"]) or words[1:3] == ["config", "quickstart"]:
            run(words, monkeypatch)


# The guides


@pytest.mark.parametrize("guide", GUIDES, ids=relative)
def test_code_blocks_of_a_guide_run(guide, tmp_path, monkeypatch):
    """Python is executed from the top of the page to its end; TOML is loaded as a config."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    write_files(guide, tmp_path)
    names: dict[str, Any] = {"__name__": "guide"}
    for body in blocks(guide, "python"):
        exec(compile(body, relative(guide), "exec"), names)
    for body in blocks(guide, "toml"):
        (tmp_path / "block.toml").write_text(body)
        config.load(tmp_path / "block.toml")


def follow(guide: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *shorter: str) -> int:
    """Write a guide's files into the folder and run its commands there; return how many. `shorter` is added to those
    that train, evaluate, or look at what a run would be."""
    monkeypatch.chdir(folder)
    write_files(DOCS / "guides" / guide, folder)
    done = [
        [*words, *(shorter if words[1] in ("train", "eval", "doctor") else ())]
        for words in commands(DOCS / "guides" / guide)
    ]
    for words in done:
        run(words, monkeypatch)
    return len(done)


@pytest.mark.parametrize(("guide", "name", "count"), [("environment.md", "letters", 4), ("algorithm.md", "cispo", 1)])
def test_following_a_guide_makes_the_agent_better(guide, name, count, tmp_path, monkeypatch):
    """After 25 steps, which are fewer than the guides' own."""
    assert follow(guide, tmp_path, monkeypatch, "steps=25") == count
    steps = [line for line in Metrics(tmp_path / "runs" / name / "metrics.jsonl").read() if "success" in line]
    first, last = (sum(step["success"] for step in part) / 5 for part in (steps[:5], steps[-5:]))
    assert last > first + 0.2


def test_the_way_of_the_users_own_agent(tmp_path, monkeypatch):
    """Every command works and fits the next. That an agent learns as an environment does is in tests/contract."""
    monkeypatch.chdir(tmp_path)
    write_files(DOCS / "guides" / "own-agent.md", tmp_path)
    exec((tmp_path / "make_tasks.py").read_text(), {})
    short = ("steps=2", "eval.attempts=1", "tasks_per_step=2", "algo.k=2", "save.every=1")
    assert follow("own-agent.md", tmp_path, monkeypatch, *short) == 3
    lines = Metrics(tmp_path / "runs" / "own" / "metrics.jsonl").read()
    assert [line["step"] for line in lines if "success" in line] == [1, 2]


def test_a_script_takes_ten_lines_to_its_first_training_step(tmp_path, monkeypatch):
    """A newcomer's way: the script stays as it is, and what is added is run as it stands, as a program."""
    guide = DOCS / "guides" / "ten-lines.md"
    write_files(guide, tmp_path)
    script, added = ((tmp_path / name).read_text() for name in ("quiz.py", "train_quiz.py"))
    lines = [line for line in added.splitlines()[1:] if line.strip()]
    assert "longloop" not in script and len(lines) <= 10 and max(map(len, lines)) <= 120
    monkeypatch.chdir(tmp_path)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    program = Program(tmp_path / "train_quiz.py", folder=tmp_path, variables=environment)
    assert program.finish()[0] == 0, program.errors
    (step,) = [line for line in Metrics(tmp_path / "runs" / "quiz" / "metrics.jsonl").read() if "update" in line]
    assert step["attempts"] == 12 and step["update"]["grad_norm"] > 0 and step["update"]["ratio_gap"] < 1e-4
    for words in commands(guide):
        run(words, monkeypatch)


def test_the_way_from_nothing_to_a_trained_agent(tmp_path, monkeypatch):
    """Every command works and fits the next; the numbers, which take minutes, are in the guide."""
    short = ("steps=2", "eval.tasks=2", "tasks_per_step=4", "eval.every=1", "doctor=false")
    assert follow("train-an-agent.md", tmp_path, monkeypatch, *short) == 7
    lines = Metrics(tmp_path / "runs" / "practice" / "metrics.jsonl").read()
    assert [line["step"] for line in lines] == [0, 1, 2]


def test_the_expert_of_the_guide_can_do_its_tasks(tmp_path, monkeypatch):
    """It is handed only what has just arrived, and finds its way."""
    write_files(DOCS / "guides" / "environment.md", tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    letters, speller = (importlib.import_module(name) for name in ("letters", "speller"))
    options = letters.LastLetter.Options
    for task in letters.LastLetter.tasks("train", options()):
        assert asyncio.run(play(letters.LastLetter(options()), task, speller.Speller())).outcome.success
    lost = letters.LastLetter.tasks("dev", options())[0]
    assert asyncio.run(play(letters.LastLetter(options(tries=3)), lost, Script(["?", "?", "?"]))).ending == (
        "it was paid 0 after 3 turns; its last words were '?'"
    )
