"""Mutation testing: change one thing in the source, run the tests that execute it, and see whether one of them fails.

    .venv/bin/python benchmarks/mutation.py                                  all files of the targets below
    .venv/bin/python benchmarks/mutation.py longloop/algos/grpo.py           some files or folders
    .venv/bin/python benchmarks/mutation.py --sample 300 --seed 1            a random sample, the same for equal seeds
    .venv/bin/python benchmarks/mutation.py --retry                          survivors once more, after new tests
    .venv/bin/python benchmarks/mutation.py --match LocalLearner.clip       those of a function, a line or an operator
    .venv/bin/python benchmarks/mutation.py --report                         the tables of what has been run so far

Results go to `.mutation/results.jsonl`; a run that is interrupted goes on where it stopped. A mutant is known by its
file, function, source line and change, so that results outlive edits elsewhere. Delete the folder to begin anew.

A mutant is *killed* when a test fails or takes ten times its usual CPU time, and *survives* otherwise. Those that
no test could kill, because the changed program does the same, are listed in benchmarks/equivalent_mutants.toml with the
reason, and are left out of the share.

How it is fast: the tree is copied to a temporary folder, where the tests are collected once. Each test is run once (and
again when it or the source changes) to see which statements it executes. For each mutant a child is forked that
replaces the code of the mutated function and runs only the tests that execute the statement, shortest first, up to
`--budget` seconds of them. Nothing is imported twice, so that most mutants take a few tenths of a second. What runs at
import (defaults, constants) needs a child that imports everything anew, which takes seconds. Linux only. On machines
with a GPU set CUDA_VISIBLE_DEVICES= : autograd's threads for a device do not survive a fork.
"""

import argparse
import ast
import builtins
import contextlib
import copy
import ctypes
import gc
import hashlib
import importlib
import importlib.util
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGETS = ["longloop/algos", "longloop/learners/batching.py", "longloop/learners/local.py", "longloop/rollout"]
TESTS = ["tests/unit", "tests/invariant", "tests/contract/test_methods.py"]
SKIPPED = {
    *("test_analysis_markdown", "test_analysis_rules", "test_analyze", "test_chat", "test_compiled_update"),
    *("test_config", "test_failure_kinds"),
    *("test_graphs", "test_fused_projections", "test_kernels", "test_layers", "test_memory_forecast", "test_resume"),
    *("test_unearned", "test_view_analysis", "test_view_attempts", "test_worker_faults", "test_worker_settings"),
    *("test_engine", "test_unnoticed", "test_workers"),
}
"""Tests that say nothing of the targets, run them in other processes, where a mutant does not reach, or take long."""
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
KILLED, SURVIVED, TIMEOUT, UNTESTED = "killed", "survived", "timeout", "not executed"
INVALID = "invalid"
"""The changed source is no program."""
_ANEW, _BROKEN = 77, 70
"""A child's exit status when the mutant's function cannot be replaced in a running process, and when it failed before
any test."""

# --- mutants ---

_COMPARE: dict[type[ast.cmpop], list[type[ast.cmpop]]] = {
    ast.Lt: [ast.LtE, ast.GtE],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_SWAPPED = {"min": "max", "any": "all", "minimum": "maximum", "zeros_like": "ones_like"}
_SWAPPED |= {other: name for name, other in _SWAPPED.items()}
_UNWRAPPED = {"abs", "sorted", "reversed", "float", "set", "round", "exp", "clamp", "detach", "mean", "sum", "list"}
"""Calls that are replaced by what they are given: `f(x)` and `x.f()` by x."""
_MESSAGES = {"UserError", "Fault", "tell", "print", "note", "_tell"}
"""What people read is not mutated: that a message is worded so and not otherwise is not what tests are for."""


@dataclass(frozen=True)
class Mutant:
    file: str
    function: str
    """Qualified name; empty for what runs at import."""
    statement: int
    """The line where the statement begins that is changed."""
    text: str
    """The source line of the changed part."""
    operator: str
    change: str
    occurrence: int
    """Of several equal ones in the function."""
    node: int
    """The number of the changed node in ast.walk's order, and which of its changes this is."""
    choice: int

    @property
    def key(self) -> str:
        return f"{self.file} {self.function} | {self.text} | {self.operator}: {self.change} #{self.occurrence}"


def changes(node: ast.AST, parent: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What can be put in place of a node: the operator's name, and the new node."""

    def with_(**fields: Any) -> Any:
        other = copy.copy(node)
        for name, value in fields.items():
            setattr(other, name, value)
        return other

    match node:
        case ast.Compare():
            for place, op in enumerate(node.ops):
                for new in _COMPARE[type(op)]:
                    yield "compare", with_(ops=[*node.ops[:place], new(), *node.ops[place + 1 :]])
        case ast.BoolOp():
            yield "and/or", with_(op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield "drop sign", node.operand
        case ast.BinOp() | ast.AugAssign() if type(node.op) in _ARITHMETIC:
            yield "arithmetic", with_(op=_ARITHMETIC[type(node.op)]())
        case ast.Constant(value=bool(value)):
            yield "constant", with_(value=not value)
        case ast.Constant(value=int(value)):
            yield "constant", with_(value=value + 1)
            if value > 0:
                yield "constant", with_(value=value - 1)
        case ast.Constant(value=float(value)):
            yield "constant", with_(value=2 * value if value else 1.0)
        case ast.If() | ast.While() | ast.IfExp() if not isinstance(node.test, ast.Compare):
            yield "negate", with_(test=ast.UnaryOp(ast.Not(), node.test))
        case ast.comprehension() if node.ifs:
            for place in range(len(node.ifs)):
                yield "drop condition", with_(ifs=node.ifs[:place] + node.ifs[place + 1 :])
        case ast.Slice():
            if node.lower is not None:
                yield "drop bound", with_(lower=None)
            if node.upper is not None:
                yield "drop bound", with_(upper=None)
        case ast.FormattedValue() if isinstance(parent, ast.JoinedStr):
            yield "drop from string", ast.Constant("")
        case ast.Call():
            yield from _calls(node, with_)
        case ast.Return(value=ast.expr()) if not isinstance(node.value, ast.Constant):
            yield "return None", with_(value=ast.Constant(None))
        case ast.Raise() | ast.Continue() | ast.Break() | ast.Delete():
            yield "drop statement", ast.Pass()
        case ast.Expr(value=ast.Call() | ast.Await() | ast.Yield() | ast.YieldFrom()):
            yield "drop statement", ast.Pass()
        case ast.With() | ast.AsyncWith() if not any(item.optional_vars for item in node.items):
            yield "drop with", ast.If(ast.Constant(True), node.body, [])
    if isinstance(node, ast.AugAssign) or (
        isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript)
    ):
        yield "drop statement", ast.Pass()


def _calls(node: ast.Call, with_: Callable[..., Any]) -> Iterator[tuple[str, ast.AST]]:
    called = node.func
    name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
    if name in _SWAPPED:
        other = copy.copy(called)
        setattr(other, "id" if isinstance(called, ast.Name) else "attr", _SWAPPED[name])
        yield "swap function", with_(func=other)
    of_module = isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "torch"
    if name in _UNWRAPPED:
        if isinstance(called, ast.Attribute) and not of_module:
            yield "drop call", called.value
        elif node.args and not isinstance(node.args[0], ast.Starred | ast.GeneratorExp):
            yield "drop call", node.args[0]
    for place, keyword in enumerate(node.keywords):
        if keyword.arg is not None and keyword.arg != "strict":
            yield "drop argument", with_(keywords=node.keywords[:place] + node.keywords[place + 1 :])


def _mutable(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.AST, str, int]]:
    """Nodes that may be changed, each with its parent, the function it is in, and the line where its statement begins.

    Nothing that is only read by people or type checkers.
    """

    def visit(node: Any, parent: Any, function: str, around: str, line: int) -> Iterator[Any]:
        if (
            isinstance(node, ast.Assert | ast.Import | ast.ImportFrom | ast.arg)
            or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
            or (isinstance(node, ast.keyword) and node.arg == "strict")  # which only checks
        ):
            return
        line = node.lineno if isinstance(node, ast.stmt) else line
        yield node, parent, function, line
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and _name(node) in _MESSAGES):
            return
        inside = f"{around}.<locals>." if function else f"{around}." if around else ""
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "bases"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST):
                    continue
                if field == "body" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield from visit(child, node, inside + node.name, inside + node.name, line)
                elif field == "body" and isinstance(node, ast.ClassDef):
                    yield from visit(child, node, "", inside + node.name, line)
                else:
                    yield from visit(child, node, function, around, line)

    for node in tree.body:
        yield from visit(node, tree, "", "", 0)


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def mutants_of(file: str) -> list[Mutant]:
    source = (ROOT / file).read_text()
    tree = ast.parse(source)
    number = {id(node): n for n, node in enumerate(ast.walk(tree))}
    lines = source.splitlines()
    found: list[Mutant] = []
    seen: Counter[tuple[str, ...]] = Counter()
    for node, parent, function, statement in _mutable(tree):
        for choice, (operator, new) in enumerate(changes(node, parent)):
            place = node.target if isinstance(node, ast.comprehension) else node if hasattr(node, "lineno") else parent
            text = lines[place.lineno - 1].strip()  # type: ignore[attr-defined]
            change = f"{_short(node)} -> {_short(new)}"
            same = function, text, operator, change
            seen[same] += 1
            found.append(
                Mutant(file, function, statement, text, operator, change, seen[same], number[id(node)], choice)
            )
    return found


def _short(node: ast.AST) -> str:
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        return f"{type(node).__name__.lower()} {ast.unparse(node.test)}"
    if isinstance(node, ast.With | ast.AsyncWith):
        return f"with {', '.join(map(ast.unparse, node.items))}"
    text = " ".join(ast.unparse(ast.fix_missing_locations(copy.deepcopy(node))).split())
    return text if len(text) <= 90 else f"{text[:60]} ... {text[-25:]}"


def mutated(mutant: Mutant, path: Path) -> CodeType:
    """The file's code with the change in it."""
    tree = ast.parse(path.read_text())
    nodes = list(ast.walk(tree))
    node = nodes[mutant.node]
    parent = next(p for p in nodes for child in ast.iter_child_nodes(p) if child is node)
    _, new = list(changes(node, parent))[mutant.choice]
    for name, value in ast.iter_fields(parent):
        if value is node:
            setattr(parent, name, new)
        elif isinstance(value, list) and any(child is node for child in value):
            setattr(parent, name, [new if child is node else child for child in value])
    ast.copy_location(new, node)
    return compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True)


# --- children ---

Task = tuple[Any, Callable[[], int], float]
"""A key, what to do in a child, and the seconds it may take."""


def forked(tasks: Iterable[Task], jobs: int) -> Iterator[tuple[Any, str]]:
    """Each task in a child of its own, a few at a time; the key and how it ended."""
    running: dict[int, tuple[Any, float]] = {}
    waiting = iter(tasks)
    more = True
    while more or running:
        while more and len(running) < jobs:
            task = next(waiting, None)
            if task is None:
                more = False
                break
            key, work, seconds = task
            pid = os.fork()
            if pid == 0:
                _child(work)
            running[pid] = key, time.monotonic() + seconds
        for pid, (key, deadline) in list(running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            late = time.monotonic() > deadline
            if not ended and late:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            if ended or late:
                del running[pid]
                _end_group(pid)
                yield key, _verdict(status) if ended else TIMEOUT
        time.sleep(0.005)


def _verdict(status: int) -> str:
    if os.WIFSIGNALED(status):
        return TIMEOUT if os.WTERMSIG(status) in (signal.SIGALRM, signal.SIGPROF) else KILLED
    return {0: SURVIVED, _ANEW: "", _BROKEN: INVALID}.get(os.WEXITSTATUS(status), KILLED)


def _child(work: Callable[[], int]) -> None:
    code = _BROKEN
    try:
        _die_with_the_parent()
        os.setsid()
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
        folder = Path(tempfile.gettempdir()) / f"child-{os.getpid()}"
        folder.mkdir()
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder)
        for alarm in (signal.SIGALRM, signal.SIGPROF):
            signal.signal(alarm, signal.SIG_DFL)
        code = work()
    finally:
        os._exit(code)


def _die_with_the_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _end_group(pid: int) -> None:
    """What the child started and left running, and its files."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    shutil.rmtree(Path(tempfile.gettempdir()) / f"child-{pid}", ignore_errors=True)


class Deadlines:
    """A pytest plugin that ends the process when a test takes ten times as long as it did, or hangs."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        usual = self._seconds.get(nodeid, 1.0)
        signal.setitimer(signal.ITIMER_PROF, 5 + 10 * usual)
        signal.setitimer(signal.ITIMER_REAL, 30 + 50 * usual)


# --- who executes what ---


@dataclass
class Coverage:
    seconds: dict[str, float]
    """How long each test takes."""
    lines: dict[str, dict[str, list[int]]]
    """The lines of each target file that each test executes."""

    def tests(self, file: str, lines: Iterable[int]) -> list[str]:
        """Those that execute one of the lines, the shortest first."""
        wanted = set(lines)
        hit = [test for test, files in self.lines.items() if wanted & set(files.get(file, ()))]
        return sorted(hit, key=lambda test: (self.seconds[test], test))

    def within(self, tests: Sequence[str], budget: float) -> list[str]:
        chosen, total = [], 0.0
        for test in tests:
            total += self.seconds[test]
            if chosen and total > budget:
                break
            chosen.append(test)
        return chosen


def run_items(items: Sequence[Any], killer: Path) -> int:
    """1 as soon as one fails, whose name is written down."""
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if item.session.testsfailed:
            killer.write_text(item.nodeid)
            return 1
    return 0


def instrumented(path: Path) -> CodeType:
    """The file's code, every statement in a function preceded by a call that says that it is reached."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if isinstance(node, ast.Module | ast.ClassDef | ast.Lambda | ast.IfExp) or not isinstance(body, list):
                continue
            first = 1 if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node) else 0
            marked = body[:first]
            for statement in body[first:]:
                call = ast.parse(f"__reached__({str(path)!r}, {statement.lineno})").body[0]
                for part in ast.walk(call):
                    if hasattr(part, "lineno"):
                        ast.copy_location(part, statement)
                marked += [call, statement]
            setattr(node, field, marked)
    return compile(tree, str(path), "exec", dont_inherit=True)


def trace(items: Sequence[Any], functions: dict[str, list[FunctionType]], files: Sequence[str], where: Path) -> int:
    """Run the items and write down which statements of the files each executes; failing ones are left out."""
    names = {str(Path(file).resolve()): file for file in files}
    hits: dict[str, set[int]] = defaultdict(set)
    builtins.__reached__ = lambda path, line: hits[names[path]].add(line)  # type: ignore[attr-defined]
    for path in names:
        replace_code(functions[path], instrumented(Path(path)))
    coverage: dict[str, Any] = {}
    for item, following in zip(items, [*items[1:], None], strict=True):
        hits.clear()
        failed, start = item.session.testsfailed, time.process_time()
        signal.alarm(600)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        seconds = time.process_time() - start
        if item.session.testsfailed == failed:
            coverage[item.nodeid] = [round(seconds, 3), {file: sorted(lines) for file, lines in hits.items()}]
        else:
            coverage[item.nodeid] = None
        where.write_text(json.dumps(coverage))
    return 0


class Session:
    """A pytest plugin that, instead of running the collected tests once, runs them for each mutant."""

    def __init__(self, options: Any, mutants: Sequence[Mutant], record: Callable[[Mutant, str], None]) -> None:
        self.options, self.mutants, self.record = options, mutants, record
        self.killers: dict[str, Counter[str]] = defaultdict(Counter)
        """How many mutants of a file each test has killed."""
        self.left: list[str] = []
        """Mutants that need a process of their own."""

    def pytest_runtestloop(self, session: Any) -> bool:
        files = sorted({mutant.file for mutant in self.mutants})
        every = [file for target in TARGETS for file in files_of(target)]
        for file in {*files, *every}:
            importlib.import_module(module_of(file))
        functions: dict[str, list[FunctionType]] = defaultdict(list)
        for thing in gc.get_objects():
            if isinstance(thing, FunctionType):
                functions[thing.__code__.co_filename].append(thing)
        self.coverage = traced(session.items, functions, sorted({*files, *every}), self.options)
        session.config.pluginmanager.register(Deadlines(self.coverage.seconds))
        gc.freeze()
        for mutant, verdict in forked(self._tasks(session.items, functions), self.options.jobs):
            killer = _killer(mutant)
            if killer.exists():
                self.killers[mutant.file][killer.read_text()] += 1
            if verdict:
                self.record(mutant, verdict)
            else:
                self.left.append(mutant.key)
        return True

    def _tasks(self, collected: Sequence[Any], functions: dict[str, list[FunctionType]]) -> Iterator[Task]:
        """Tests that have killed mutants of the file come first, then short ones."""
        items = {item.nodeid: item for item in collected}
        for mutant in self.mutants:
            killers = self.killers[mutant.file]
            tests = self.coverage.tests(mutant.file, [mutant.statement])
            chosen = self.coverage.within(sorted(tests, key=lambda test: -killers[test]), self.options.budget)
            if not chosen:
                self.record(mutant, UNTESTED)
                continue
            path = Path(mutant.file).resolve()

            def work(mutant: Mutant = mutant, chosen: list[str] = chosen, path: Path = path) -> int:
                if not replace_code(functions[str(path)], mutated(mutant, path)):
                    return _ANEW
                return run_items([items[test] for test in chosen], _killer(mutant))

            yield mutant, work, 60 + 50 * sum(self.coverage.seconds[test] + 2 for test in chosen)


def _killer(mutant: Mutant) -> Path:
    """Where a child writes down which test failed."""
    return Path(tempfile.gettempdir()) / f"killer-{hashlib.sha256(mutant.key.encode()).hexdigest()}"


def replace_code(functions: Iterable[FunctionType], module: CodeType) -> bool:
    """Give functions the code that the mutated module has for them; False where one cannot take it."""
    new: dict[tuple[str, int], CodeType] = {}
    waiting = [module]
    while waiting:
        for constant in waiting.pop().co_consts:
            if isinstance(constant, CodeType):
                new[constant.co_qualname, constant.co_firstlineno] = constant
                waiting.append(constant)
    for function in functions:
        code = new.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
        if code is not None:
            if code.co_freevars != function.__code__.co_freevars:  # a change that drops the use of super(), say
                return False
            function.__code__ = code
    return True


def traced(
    items: Sequence[Any], functions: dict[str, list[FunctionType]], files: Sequence[str], options: Any
) -> Coverage:
    """The coverage of all tests, remembered from file to file as long as neither it nor the source changes."""
    place = options.folder / "coverage.json"
    known = json.loads(place.read_text()) if place.exists() else {}
    source = [*Path("longloop").rglob("*.py"), *Path("tests").glob("*.py")]
    common = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(source))).hexdigest()
    by_file: dict[str, list[Any]] = defaultdict(list)
    for item in items:
        by_file[item.nodeid.partition("::")[0]].append(item)
    keys = {file: hashlib.sha256(common.encode() + Path(file).read_bytes()).hexdigest() for file in by_file}
    new = [file for file in by_file if keys[file] not in known]
    out = {file: Path(tempfile.gettempdir()) / f"{keys[file]}.json" for file in new}
    tasks: list[Task] = [
        (file, lambda file=file: trace(by_file[file], functions, files, out[file]), 1800.0)  # type: ignore[misc]
        for file in new
    ]
    for number, (file, _) in enumerate(forked(tasks, options.jobs), 1):
        known[keys[file]] = json.loads(out[file].read_text()) if out[file].exists() else {}
        print(f"traced {number} of {len(new)}: {file}", file=sys.stderr, flush=True)
        place.write_text(json.dumps({key: known[key] for key in known if key in keys.values()}))
    coverage = {test: found for key in keys.values() for test, found in known[key].items()}
    failing = sorted(test for test, found in coverage.items() if found is None)
    if failing:
        print(f"These tests fail without any mutant and are left out: {failing}", file=sys.stderr, flush=True)
    good = {test: found for test, found in coverage.items() if found is not None and found[0] <= options.longest}
    return Coverage({test: found[0] for test, found in good.items()}, {test: found[1] for test, found in good.items()})


# --- what runs at import ---


class Mutated(SourceFileLoader):
    """Loads one module with a change in it."""

    code: CodeType

    def get_code(self, fullname: str) -> CodeType:
        return self.code


def imported_anew(mutant: Mutant, tests: Sequence[str], seconds: dict[str, float]) -> int:
    """Run tests in a process that has not imported longloop yet, with the mutated module."""
    import pytest

    path, name = Path(mutant.file).resolve(), module_of(mutant.file)
    loader = Mutated(name, str(path))
    loader.code = mutated(mutant, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    finder: Any = SimpleNamespace(find_spec=lambda fullname, path, target=None: spec if fullname == name else None)
    sys.meta_path.insert(0, finder)
    return int(pytest.main([*tests, *PYTEST, "-x"], plugins=[Deadlines(seconds)]))


def users(mutant: Mutant) -> list[int]:
    """The statements that use the name that a constant is given to, or the function whose default it is."""
    tree = ast.parse(Path(mutant.file).read_text())
    names: set[str] = set()
    lines: list[int] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.lineno == mutant.statement:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno == mutant.statement:
            lines = [part.lineno for part in ast.walk(node) if isinstance(part, ast.stmt) and part is not node]
    for node, _, _, line in _mutable(tree):
        if getattr(node, "attr", None) in names or (
            isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names
        ):
            lines.append(line)
    return lines


# --- all of it ---

PYTEST = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:timeout", "-p", "no:xdist", "-W", "ignore"]


def module_of(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def files_of(target: str) -> list[str]:
    path = ROOT / target
    found = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [str(file.relative_to(ROOT)) for file in found]


def test_files() -> list[str]:
    files = (Path(file) for target in TESTS for file in files_of(target))
    return [str(file) for file in files if file.name.startswith("test_") and file.stem not in SKIPPED]


def copied(where: Path) -> None:
    """The tree as it is now, without what git ignores."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (where / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, where / name)


Known = set[tuple[str, str, str, str]]
"""File, function (empty for any), source line and change of mutants that cannot be killed. A change may end in #n: of
several equal ones."""


def equivalents() -> Known:
    listed = tomllib.loads(EQUIVALENT.read_text())["equivalent"]
    return {(one["file"], one.get("function", ""), one["line"], change) for one in listed for change in one["changes"]}


def names(mutant: Mutant) -> Known:
    """What it may be listed as."""
    changes = mutant.change, f"{mutant.change} #{mutant.occurrence}"
    return {(mutant.file, name, mutant.text, change) for name in ("", mutant.function) for change in changes}


def is_equivalent(mutant: Mutant, listed: Known) -> bool:
    return bool(names(mutant) & listed)


def outdated(mutants: Sequence[Mutant]) -> Known:
    """What is listed for files of these mutants and is none of them: the line has changed since."""
    files = {mutant.file for mutant in mutants}
    found = {name for mutant in mutants for name in names(mutant)}
    return {listed for listed in equivalents() if listed[0] in files} - found


def report(mutants: Sequence[Mutant], verdicts: dict[str, str]) -> None:
    same = equivalents()
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    alive: list[Mutant] = []
    for mutant in mutants:
        verdict = verdicts.get(mutant.key, "not run")
        if verdict not in (KILLED, TIMEOUT) and is_equivalent(mutant, same):
            verdict = "equivalent"
        elif verdict in (SURVIVED, UNTESTED):
            alive.append(mutant)
        kinds[mutant.file][verdict] += 1
    columns = [KILLED, TIMEOUT, SURVIVED, UNTESTED, "equivalent", INVALID, "not run"]
    print(f"{'file':42}", *(f"{name:>12}" for name in columns), f"{'share':>7}")
    for file, found in [*sorted(kinds.items()), ("all", sum(kinds.values(), Counter()))]:
        dead = found[KILLED] + found[TIMEOUT]
        tried = dead + found[SURVIVED] + found[UNTESTED]
        share = f"{100 * dead / tried:.1f}%" if tried else "-"
        print(f"{file:42}", *(f"{found[name]:12}" for name in columns), f"{share:>7}")
    for mutant in alive:
        print(f"\n{mutant.file}:{mutant.statement} in {mutant.function or 'the module'} ({verdicts[mutant.key]})")
        print(f"    {mutant.text}\n    {mutant.operator}: {mutant.change}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", default=TARGETS, help="files or folders")
    parser.add_argument("--match", default="", help="only mutants whose function, line or change has this in it")
    parser.add_argument("--sample", type=int, default=0, help="so many of the mutants, at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--jobs", type=int, default=1, help="children at once")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of tests for one mutant")
    parser.add_argument("--longest", type=float, default=15.0, help="leave out tests that take longer")
    parser.add_argument("--retry", action="store_true", help="run survivors once more")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--folder", type=Path, default=ROOT / ".mutation", help="where results are kept")
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    options.folder = options.folder.resolve()
    mutants = [mutant for target in options.targets for file in files_of(target) for mutant in mutants_of(file)]
    for file, _, line, change in sorted(outdated(mutants)):
        print(f"{EQUIVALENT.name} is out of date: {file} has no `{line}` with {change}", file=sys.stderr)
    mutants = [mutant for mutant in mutants if options.match in mutant.key]
    if options.sample:
        mutants = random.Random(options.seed).sample(mutants, min(options.sample, len(mutants)))
    results = options.folder / "results.jsonl"
    verdicts: dict[str, str] = {}
    if results.exists():
        verdicts = dict(json.loads(line) for line in results.read_text().splitlines())
    if options.report:
        report(mutants, verdicts)
        return
    again = (SURVIVED, UNTESTED) if options.retry else ()
    same = equivalents()
    todo = [
        mutant
        for mutant in mutants
        if (mutant.key not in verdicts or verdicts[mutant.key] in again) and not is_equivalent(mutant, same)
    ]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that the folder is removed
    with tempfile.TemporaryDirectory(prefix="mutation-") as scratch:
        _run(options, todo, results, Path(scratch))
    report(mutants, dict(json.loads(line) for line in results.read_text().splitlines()))


def _run(options: Any, todo: Sequence[Mutant], results: Path, scratch: Path) -> None:
    tree = scratch / "tree"
    copied(tree)
    os.chdir(tree)
    sys.path[0] = str(tree)
    sys.dont_write_bytecode = False
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRITON_INTERPRET": "1", "PYTHONPATH": str(tree)}
    tempfile.tempdir = str(scratch)
    import peft  # noqa: F401
    import pytest
    import torch
    import transformers  # noqa: F401

    torch.set_num_threads(1)
    done = 0

    def record(mutant: Mutant, verdict: str) -> None:
        nonlocal done
        done += 1
        with results.open("a") as file:
            file.write(json.dumps([mutant.key, verdict]) + "\n")
        if verdict in (SURVIVED, UNTESTED):
            print(f"{verdict}: {mutant.key}", file=sys.stderr)
        if done % 50 == 0:
            print(f"{done} of {len(todo)}", file=sys.stderr, flush=True)

    tests = test_files()
    # The first child collects, and becomes the parent of those that run tests; this process must not import longloop.
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _die_with_the_parent()
            session = Session(options, [mutant for mutant in todo if mutant.function], record)
            code = int(pytest.main([*tests, *PYTEST], plugins=[session]))
            found = session.coverage.seconds, session.coverage.lines, session.left
            (scratch / "session.json").write_text(json.dumps(found))
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    os.waitpid(pid, 0)
    *found, left = json.loads((scratch / "session.json").read_text())
    coverage = Coverage(*found)
    tasks: list[Task] = []
    for mutant in (mutant for mutant in todo if not mutant.function or mutant.key in left):
        everything = range(1, len(Path(mutant.file).read_text().splitlines()) + 1)
        statements = [mutant.statement] if mutant.function else users(mutant)
        tests = coverage.tests(mutant.file, statements) or coverage.tests(mutant.file, everything)
        if not mutant.function:  # a default is used where its class is, also by those who execute no line of its file
            by = {module_of(mutant.file), *(["longloop.registry"] if mutant.file.startswith("longloop/algos") else [])}
            named = {
                str(path) for path in Path("tests").rglob("test_*.py") if any(name in path.read_text() for name in by)
            }
            users_elsewhere = (test for test in coverage.seconds if test.partition("::")[0] in named)
            tests = sorted({*tests, *users_elsewhere}, key=lambda test: (coverage.seconds[test], test))
        chosen = coverage.within(tests, options.budget)
        if not chosen:
            record(mutant, UNTESTED)
            continue
        seconds = 120 + 50 * sum(coverage.seconds[test] + 2 for test in chosen)
        work = lambda mutant=mutant, chosen=chosen: imported_anew(mutant, chosen, coverage.seconds)  # noqa: E731
        tasks.append((mutant, work, seconds))
    for mutant, verdict in forked(tasks, options.jobs):
        record(mutant, verdict)


if __name__ == "__main__":
    main()
