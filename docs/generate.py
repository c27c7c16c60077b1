"""Writes the parts of the docs that follow from the code: `make docs`, or `.venv/bin/python docs/generate.py`.

Three things are generated, and `tests/cli/test_docs.py` fails when any of them is stale:

- what stands between `<!-- generated: NAME ARGUMENTS -->` and `<!-- end -->`, by the function of that name in BLOCKS;
- line numbers: a link to a source file whose title names a definition, as in `[clip](../x.py#L1 "Loop.clip")`, gets the
  number of the line on which that definition begins;
- pictures: the flow, and the learning curves that docs/curves.py has measured.
"""

import ast
import dataclasses
import importlib
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(DOCS)]

import curves  # noqa: E402
import pictures  # noqa: E402
import typer.main  # noqa: E402

import longloop  # noqa: E402
from longloop import config  # noqa: E402
from longloop.algos.composed import Parts  # noqa: E402
from longloop.algos.parts.critic import Gae, Progress  # noqa: E402
from longloop.cli.main import app  # noqa: E402
from longloop.evaluation import Evaluation  # noqa: E402
from longloop.options import Option, document, environment_options, options_of  # noqa: E402
from longloop.registry import ALGOS, ENVS, FAMILIES  # noqa: E402
from longloop.store.run_reader import RunReader  # noqa: E402
from longloop.training import summarize  # noqa: E402

BLOCK = re.compile(r"(<!-- generated: (.+?) -->\n).*?(<!-- end -->\n)", re.DOTALL)
LINK = re.compile(r'\]\(([^)\s]+\.py)(?:#L\d+)? "([\w.]+)"\)')
DIFFERS = "Differs from the paper: "


def outdated() -> dict[Path, str]:
    """The files that differ from what the code says now, each with what should be in it."""
    wanted = {page: generated(page) for page in DOCS.rglob("*.md")}
    wanted[DOCS / "images" / "flow.svg"] = pictures.flow()
    for name, curve in json.loads(curves.MEASURED.read_text()).items():
        picture = pictures.curve(f"{name} on the guessing game", curve["steps"], curve["success"])
        wanted[DOCS / "algorithms" / "curves" / f"{name}.svg"] = picture
    return {path: text for path, text in wanted.items() if not path.exists() or path.read_text() != text}


def generated(page: Path) -> str:
    """A page with its generated blocks and its line numbers as they should be."""

    def block(found: re.Match[str]) -> str:
        name, *arguments = found[2].split()
        return f"{found[1]}{BLOCKS[name](*arguments).strip()}\n{found[3]}"

    def link(found: re.Match[str]) -> str:
        source = page.parent / found[1]
        try:
            return f']({found[1]}#L{line_of(source, found[2])} "{found[2]}")'
        except KeyError:
            raise SystemExit(
                f"{page.relative_to(ROOT)}: {source.resolve().relative_to(ROOT)} defines no {found[2]}."
            ) from None

    return LINK.sub(link, BLOCK.sub(block, page.read_text()))


def line_of(source: Path, name: str) -> int:
    """The line on which a function, class, method, field or constant of a file begins. KeyError if there is none."""
    body: Sequence[ast.stmt] = ast.parse(source.read_text()).body
    for part in name.split("."):
        node = next((node for node in body if part in _defines(node)), None)
        if node is None:
            raise KeyError(name)
        line, body = node.lineno, getattr(node, "body", [])
    return line


def _defines(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.Assign():
            return [ast.unparse(target) for target in node.targets]
        case ast.AnnAssign():
            return [ast.unparse(node.target)]
    return []


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    )


def code(words: str) -> str:
    return f"`{words}`" if words else ""


def algorithm(name: str) -> str:
    """The head of an algorithm's page: its module's docstring, pseudo-code fenced, without how it differs."""
    paragraphs = document(ALGOS[name]).split("\n\n")
    link = _source(ALGOS[name])
    shown = [_fenced(p) if p.startswith("    ") else p for p in paragraphs if not p.startswith(DIFFERS)]
    return "\n\n".join([*shown, f'`algo.name = "{name}"`; the code is [{link}](../../{link}).'])


def settings(name: str) -> str:
    """The end of an algorithm's page: how it differs from its paper, its options, its curve."""
    (differs,) = [p for p in document(ALGOS[name]).split("\n\n") if p.startswith(DIFFERS)]
    differs = differs.removeprefix(DIFFERS)
    head = [
        f"## Differs from the paper\n\n{differs[0].upper()}{differs[1:]}\n",
        f"## Settings\n\n{_options('algo', options_of(ALGOS[name]))}\n",
        "## Learning curve\n",
    ]
    measured = json.loads(curves.MEASURED.read_text()).get(name)
    if measured is None:
        improves = f'"{name}": [' in (ROOT / "tests" / "learning" / "test_pairs.py").read_text()
        return "\n".join([*head, _IMPROVES if improves else _LEARNS])
    first, last = (", ".join(f"{curve[at]:.0%}" for curve in measured["success"]) for at in (0, -1))
    return "\n".join(
        [
            *head,
            f"![success over steps](curves/{name}.svg)\n",
            f"Success at the guessing game with three numbers and two tries, seeds N = 0, 1 and 2: {first} before "
            f"training, {last} after. The line is their mean, the band reaches from the lowest to the highest. Each "
            "point is 120 attempts at temperature 1; an agent that does nothing scores 0%.\n",
            "```console",
            *(f"$ {command}" for command in curves.commands(name)),
            "```",
        ]
    )


_LEARNS = """\
Not drawn yet. [tests/learning/test_composed.py](../../tests/learning/test_composed.py) holds it to learning: from at
most 25% of the guessing game to 60% within 60 steps, on average over five steps in a row."""
_IMPROVES = """\
Not drawn yet. [tests/learning/test_pairs.py](../../tests/learning/test_pairs.py) holds it to learning: it must gain at
least 15 percentage points at the guessing game over a model that imitated the expert for a short while."""


def parts(name: str) -> str:
    """The details of a composed method: its parts that are not LOOP's, and what they do."""
    module, _, kind = ALGOS[name].partition(":")
    made = getattr(importlib.import_module(module), kind)().parts
    lines = []
    for slot in dataclasses.fields(Parts):
        value = getattr(made, slot.name)
        if value == getattr(Parts(), slot.name) and made != Parts():
            continue
        for part in value if isinstance(value, tuple) else (value,):
            source = type(part).__module__.replace(".", "/") + ".py"
            does = " ".join((inspect.getdoc(type(part)) or "").split("\n\n")[0].split())
            lines.append(f'[{type(part).__name__}](../../{source} "{type(part).__name__}") ({slot.name}): {does}')
        if value == () != getattr(Parts(), slot.name):
            lines.append(f"No {slot.name}: LOOP's, which leaves out attempts with |A| < 0.01, is not used.")
    lines.append('What is not named here is [LOOP\'s](../../longloop/algos/composed.py "Parts").')
    numbered = "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))
    return f"## Implementation details\n\n{numbered}\n"


def options(name: str) -> str:
    """The options of an environment."""
    return _options("env", environment_options(ENVS[name]))


def _options(kind: str, found: dict[str, Option]) -> str:
    rows = [(code(f"{kind}.{key}"), code(o.type), code(o.default), o.meaning) for key, o in found.items()]
    return table(["setting", "type", "default", "meaning"], rows) if rows else "It has no settings."


def _fenced(paragraph: str) -> str:
    return f"```text\n{textwrap.dedent(paragraph)}\n```"


def _source(where: str) -> str:
    return where.partition(":")[0].replace(".", "/") + ".py"


def algorithms() -> str:
    tables = []
    for family, members in FAMILIES.items():
        rows = [(f"[{name}]({name}.md)", document(where).partition("\n\n")[0]) for name, where in members.items()]
        tables.append(f"## {family}\n\n" + table(["`algo.name`", "what it is"], rows))
    return "\n\n".join(tables)


def environments() -> str:
    rows = [(f"[{name}]({name}.md)", document(where).partition("\n\n")[0]) for name, where in ENVS.items()]
    return table(["`env.name`", "what it is"], rows)


def decisions() -> str:
    pages = sorted((DOCS / "decisions").glob("0*.md"))
    titles = {page: page.read_text().partition("\n")[0].removeprefix("# ").lstrip("0123456789. ") for page in pages}
    return table(["", "decision"], [(page.name[:4], f"[{title}]({page.name})") for page, title in titles.items()])


def config_keys() -> str:
    """Every key of a config, a table for each of its tables."""
    keys: dict[str, list[config.ConfigKey]] = {}
    for key in config.settings({}):
        keys.setdefault(key.key.rpartition(".")[0], []).append(key)
    shared = options_of("longloop.algos.base:Algorithm")
    keys["algo"] = [key for key in keys["algo"] if key.key.removeprefix("algo.") in {"name", *shared}]
    parts = []
    for name, rows in keys.items():
        parts.append(f"## {f'[{name}]' if name else 'Top level'}\n")
        parts += [f"{NOTES[name]}\n"] if name in NOTES else []
        cells = [(code(row.key), code(row.type), code(row.default) or "required", row.meaning) for row in rows]
        parts.append(table(["key", "type", "default", "meaning"], cells) + "\n")
    return "\n".join(parts)


NOTES = {
    "env": "The environment's own options stand in the same table; [its page](../environments/index.md) lists them.",
    "algo": "Shared by all algorithms, here with the defaults of `loop`. [An algorithm's page](../algorithms/index.md) "
    "has the rest, and its own defaults.",
    "engine": "The options of `native`. `vllm` and `openai` have others: [sample with vLLM](../guides/vllm.md), "
    "[measure an endpoint](../guides/serve.md#measure-any-endpoint).",
}


MEANINGS = """
step: The step, from 1; 0 is the evaluation before training.
success: Share of the step's scored trajectories that succeeded. Where the policy sampled none of its own (SFT), the
    expert's.
reward: Mean reward of the same trajectories.
groups: Groups collected: tasks tried.
equal_groups: Groups whose scored trajectories all have the same reward: nothing to learn from by comparison.
attempts: Trajectories of the step, scored or not; those of an expert, of side rollouts and practised actions included.
demonstrations: Those that an expert or a stored run gave.
actions: Turns that were played in them. What was taken over from a recorded attempt does not count.
stops: How many trajectories ended for which reason.
turns: Mean number of turns of a scored trajectory.
action_tokens: Tokens of those turns.
cut_turns: Turns cut at `rollout.turn_tokens`.
trained_tokens: Action tokens in the samples that the algorithm kept.
trained_trajectories: Trajectories that those samples come from.
updates: Optimizer steps taken.
guard: Why the remaining updates of the step were skipped; empty if none were.
update: Means over the step's updates, by name: the rows `update.*`. What else an algorithm's `loss` reports appears
    here under its own name, and the viewer draws it.
update.loss: The loss that was minimized.
update.grad_norm: Norm of the gradient before clipping.
update.kl: Mean over trajectories of the summed behavior minus new log-prob. Absent where the policy did not sample
    the actions.
update.entropy: Mean entropy per action token, in nats.
update.ratio_gap: Largest abs(ratio - 1) at the first update of the step: how well engine and learner agree, or the
    learner with itself where its own log-probs are the behavior log-probs (bfloat16; the log says which).
update.clipped: Share of ratios outside the clip range whose gradient is therefore zero.
update.bounded: CISPO: share of ratios that are replaced by a bound.
update.clip_low: BAPO: the lower bound of the mini-batch.
update.clip_high: BAPO: the upper bound of the mini-batch.
update.masked: TRM: share of tokens that are dropped because the policy moved too far on their unit.
update.held: KL-Cov: mean over tokens of abs(log ratio) at those that are held, 0 at the others.
update.rare: Lp-Reg: share of tokens that are kept from being punished.
update.peak_entropy: SIREN: mean nucleus entropy at the peaks of a trajectory.
update.reference_kl: Methods with a penalty for leaving a reference policy: the estimated KL to it, per token.
update.value_error: PPO and its relatives: squared error of the value head.
update.success_1_error: DigiRL: cross-entropy of the first head.
update.success_2_error: DigiRL: that of the second.
update.margin: Preference methods: mean margin by which the better trajectory gained on the worse one.
update.settled: Preference methods: share of pairs whose margin is above 0.
update.paid: StepAgent-Inverse: mean reward of a token; below 0 as long as the policy's actions can be told from the
    expert's.
eval: An evaluation, at the steps that have one: the rows `eval.*`. Intervals are 95%.
eval.tasks: Tasks that had an attempt with a score (before 0.2.0 also those whose every attempt was spoiled).
eval.attempts: Attempts at each task.
eval.unscored: Attempts that the environment spoiled; they count for nothing.
eval.success: Mean over tasks of the share of attempts that succeeded (task goal completion with one attempt).
eval.success_interval: Wilson's interval with the number of tasks as trials, since attempts at one task are not
    independent.
eval.reward: Mean over tasks of the mean reward.
eval.reward_interval: Percentile bootstrap over tasks.
eval.pass_at: For k = 1, 2, 4, ...: the chance that at least one of k attempts succeeds (unbiased estimate), over
    the tasks of which no attempt was spoiled; empty where there is none.
eval.scenarios: Share of scenarios whose every task succeeded in every attempt with a score; null when tasks have no
    scenarios.
eval.floor_reward: Mean reward of an agent that does nothing.
eval.floor_success: Success of an agent that does nothing.
eval.env_version: The version of the environment that was measured in; empty if it has none.
eval.usage: Of an endpoint: `calls`, `prompt_tokens`, `completion_tokens`, `repeated` calls; empty for a policy.
time: Seconds per phase: collect, credit, update, evaluate. Differs between equal runs.
memory: Bytes in use at most: `process`, resident memory since the process began, and on a GPU `card`, what PyTorch
    allocated in this step. Differs between equal runs.
ranks: With several ranks, the seconds of each one: `collect`, attempts; `update`, passes of the learner; `wait`, for
    other ranks at either. Differs between equal runs.
"""
METRICS = {
    key: " ".join(words.split()) for key, words in re.findall(r"^([\w.]+): (.*?)(?=^\S|\Z)", MEANINGS, re.M | re.S)
}
"""What each key of a line in metrics.jsonl means. `metric_names` says which there are."""


def metrics() -> str:
    named = set(metric_names())
    if named != set(METRICS):
        raise SystemExit(
            f"docs/generate.py explains other metrics than the code writes: {sorted(named ^ set(METRICS))}"
        )
    return table(["key", "meaning"], [(code(key), meaning) for key, meaning in METRICS.items()])


def metric_names() -> Iterator[str]:
    """The keys that training writes: of a step, of an evaluation, and those that learner and losses name."""
    yield from ("step", "eval", "time", "memory", "ranks", *summarize([], [], []))
    yield from (f"eval.{field.name}" for field in dataclasses.fields(Evaluation))
    yield from (f"update.{head}_error" for head in (*Gae.heads, *Progress.heads))
    for source in (*(ROOT / "longloop" / "algos").rglob("*.py"), *(ROOT / "longloop" / "learners").glob("*.py")):
        for node in ast.walk(ast.parse(source.read_text())):
            match node:  # {"clipped": (sum, count)}, and metrics["clipped"] = ...
                case ast.Dict(keys=[ast.Constant(value=str()), *_] as keys, values=values) if all(
                    isinstance(value, ast.Tuple) and len(value.elts) == 2 for value in values
                ):
                    yield from (f"update.{ast.literal_eval(key)}" for key in keys if key is not None)
                case ast.Assign(
                    targets=[ast.Subscript(value=ast.Name("metrics" | "values"), slice=ast.Constant(value=key))]
                ):
                    yield f"update.{key}"


def cli() -> str:
    """Every command with its arguments and options, as `--help` has them."""
    return "\n\n".join(_commands(typer.main.get_command(app), "longloop"))


def _commands(command: Any, path: str) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    named = [p for p in command.params if p.param_type_name == "option"]
    usage = " ".join([path, *(_metavar(p) for p in arguments), *(["[OPTIONS]"] if named else [])])
    parts = [f"## {path}", inspect.cleandoc(command.help or ""), f"```text\n{usage}\n```"]
    rows = [(code(_metavar(p)), "", p.help or "") for p in arguments]
    rows += [(", ".join(map(code, p.opts)), _default(p), p.help or "") for p in named]
    yield "\n\n".join([part for part in parts if part] + ([table(["", "default", "meaning"], rows)] if rows else []))
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, f"{path} {name}")


def _metavar(argument: Any) -> str:
    word = (argument.metavar or argument.name.upper()).strip("[]") + ("..." if argument.nargs == -1 else "")
    return word if argument.required else f"[{word}]"


def _default(parameter: Any) -> str:
    if parameter.default in (None, "", False, ()) or callable(parameter.default):
        return "required" if parameter.required else ""
    return code(str(parameter.default))


def api() -> str:
    """The public names with their signatures, fields, members and docstrings, as the source has them."""
    return "\n\n".join(map(_described, (*(getattr(longloop, name) for name in longloop.__all__), RunReader)))


def _described(thing: Any) -> str:
    module = ast.parse(Path(inspect.getfile(thing)).read_text())
    (node,) = [node for node in module.body if thing.__name__ in _defines(node)]
    about = ast.get_docstring(node) or ""
    if isinstance(node, ast.FunctionDef):
        return f"## {node.name}\n\n```text\n{_signature(node)}\n```\n\n{about}"
    parts = [f"## {node.name}", about]
    fields = [(code(name), code(kind), code(default), meaning) for name, kind, default, meaning in _fields(node)]
    parts += [table(["field", "type", "default", "meaning"], fields)] if fields else []
    methods = [m for m in node.body if isinstance(m, ast.FunctionDef | ast.AsyncFunctionDef) and m.name[0] != "_"]
    rows = [(code(_call(method)), _first(ast.get_docstring(method))) for method in methods]
    parts += [table(["member", "what it is"], rows)] if rows else []
    return "\n\n".join(part for part in parts if part)


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str, str, str]]:
    """The fields of a class: name, type, default, and the string below it."""
    for field, below in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign):
            match below:
                case ast.Expr(value=ast.Constant(value=str(words))):
                    meaning = " ".join(words.split())
                case _:
                    meaning = ""
            default = ast.unparse(field.value) if field.value is not None else ""
            yield ast.unparse(field.target), ast.unparse(field.annotation), default, meaning


def _signature(node: ast.FunctionDef) -> str:
    """A function's head, an argument a line."""
    marked = ast.unparse(node.args).replace(", ", ",\n    ")
    return f"{node.name}(\n    {marked},\n) -> {ast.unparse(node.returns) if node.returns else 'None'}"


def _call(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """How a member is written: without its types and its self; a property has no brackets."""
    if any(ast.unparse(decorator) == "property" for decorator in node.decorator_list):
        return node.name
    named = [a.arg for a in (*node.args.args, *node.args.kwonlyargs) if a.arg not in ("self", "cls")]
    return f"{node.name}({', '.join(named)})"


def _first(text: str | None) -> str:
    return " ".join((text or "").partition("\n\n")[0].split())


BLOCKS: dict[str, Callable[..., str]] = {
    "algorithm": algorithm,
    "settings": settings,
    "options": options,
    "algorithms": algorithms,
    "parts": parts,
    "environments": environments,
    "decisions": decisions,
    "config": config_keys,
    "metrics": metrics,
    "cli": cli,
    "api": api,
}

if __name__ == "__main__":
    for path, text in outdated().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        print(f"wrote {path.relative_to(ROOT)}")
