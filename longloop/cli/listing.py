"""What `envs`, `algos` and `models` print. Reads source files instead of importing them, so it answers at once."""

import ast
import importlib.util
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from longloop.algos import ALGOS
from longloop.config import nearest
from longloop.envs import ENVS
from longloop.types import UserError

console = Console(highlight=False)


def envs(name: str | None) -> None:
    if name is None:
        _list(ENVS, "env", "Your own: env.name=my_module:MyEnv, see docs/new-environment.md.")
        return
    where = _where(ENVS, name, "environment")
    console.print(_document(where), markup=False, soft_wrap=True)
    console.print()
    _options(name, "env", _constructor(where))
    from longloop.build import World, named
    from longloop.cli.worlds import floors

    world = World(named({"name": name}, ENVS, "env"), {})
    if hasattr(world.environment, "scenarios"):
        console.print(_scenarios(world.environment.scenarios()))
    console.print()
    isolation = getattr(world.environment, "isolation", "inline")
    if isolation != "inline":
        own = f"a virtualenv of its own (`longloop envs install {name}`)" if isolation == "venv" else "worker processes"
        console.print(f"It runs in {own}. `longloop check {name}` shows what can be scored in it.", soft_wrap=True)
        return
    try:
        console.print(floors(world))
    except UserError as error:
        console.print(str(error), markup=False, soft_wrap=True)  # it needs a setting


def install_env(name: str) -> None:
    from longloop.build import install_env

    folder = install_env(name, lambda text: console.print(text, soft_wrap=True, markup=False))
    console.print(f"The virtualenv of {name} is {folder}.", soft_wrap=True, markup=False)


def algos(name: str | None) -> None:
    if name is None:
        _list(ALGOS, "algo", "Your own: algo.name=my_module:MyAlgorithm, see docs/new-algorithm.md.")
        return
    where = _where(ALGOS, name, "algorithm")
    console.print(_document(where), markup=False, soft_wrap=True)
    console.print()
    _options(name, "algo", _fields(where))


def get_model(name: str) -> None:
    from longloop.build import get_model

    folder = get_model(name, console.print)
    console.print(f"{name} is in {folder}. Use it with model.path={name}.", soft_wrap=True)


def models() -> None:
    from longloop.build import models_to_get

    table = Table(box=None, pad_edge=False)
    table.add_column("model.path", style="bold")
    table.add_column("what it is")
    table.add_row("novice", "1.5 million weights that know the language of Errands but often fail; for the quick start")
    table.add_row("tiny", "eighty thousand random weights that read characters; for tests and first environments")
    for name, (about, here) in models_to_get().items():
        table.add_row(name, about if here else f"{about} (`longloop models get {name}`)")
    table.add_row("FOLDER", "a Hugging Face causal LM: config.json, safetensors, tokenizer with a chat template")
    table.add_row("OWNER/NAME", "the same from the Hugging Face hub, or from its cache when offline")
    console.print(table)
    console.print("\nmodel.lora_rank=16 trains adapters; 0 (the default) trains every weight.")


def model(name: str) -> None:
    path = Path(name) / "config.json"
    try:
        shape = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError):
        raise UserError(f"{name} is not a model's folder: there is no readable {path}.") from None
    table = Table(box=None, show_header=False, pad_edge=False)
    for key in (
        "model_type",
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "max_position_embeddings",
    ):
        table.add_row(key, str(shape.get(key, "-")))
    console.print(table)


def _list(known: Mapping[str, str], kind: str, hint: str) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column(f"{kind}.name", style="bold", no_wrap=True)
    table.add_column("what it is")
    for name, where in known.items():
        table.add_row(name, _document(where).partition("\n")[0])
    console.print(table)
    console.print(f"\n`longloop {kind}s NAME` shows one in full. {hint}", markup=False)


def _scenarios(rows: list[tuple[str, str, int, list[str]]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("scenario", "split", "difficulty", "apps"):
        table.add_column(heading)
    for name, split, difficulty, apps in rows:
        table.add_row(name, split, str(difficulty), ", ".join(apps))
    return table


def _options(name: str, kind: str, options: Mapping[str, tuple[str, str]]) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("setting", style="bold", no_wrap=True)
    table.add_column("default")
    table.add_column("")
    for key, (default, meaning) in options.items():
        table.add_row(f"{kind}.{key}", default, meaning)
    console.print(table if options else f"{name} has no settings.")


def _where(known: Mapping[str, str], name: str, kind: str) -> str:
    if name not in known:
        raise UserError(f"There is no {kind} {name!r}.{nearest(name, known)} Known are {', '.join(known)}.")
    return known[name]


def _source(where: str) -> ast.Module:
    spec = importlib.util.find_spec(where.partition(":")[0])
    assert spec is not None and spec.origin is not None
    return ast.parse(Path(spec.origin).read_text())


def _document(where: str) -> str:
    return ast.get_docstring(_source(where)) or ""


def _class(where: str) -> ast.ClassDef:
    name = where.partition(":")[2]
    return next(node for node in _source(where).body if isinstance(node, ast.ClassDef) and node.name == name)


def _fields(where: str) -> dict[str, tuple[str, str]]:
    """A dataclass's fields, inherited ones first: name -> (default, the line under it)."""
    found: dict[str, tuple[str, str]] = {}
    for base in _bases(where):
        found |= _fields(base)
    body = _class(where).body
    for node, following in zip(body, [*body[1:], None], strict=True):
        if (
            isinstance(node, ast.AnnAssign)
            and node.value is not None
            and "ClassVar" not in ast.unparse(node.annotation)
        ):
            name = ast.unparse(node.target)
            found[name] = (ast.unparse(node.value), _string(following) or found.get(name, ("", ""))[1])
    return found


def _bases(where: str) -> list[str]:
    """The classes of ours that a class builds on, as `module:Class`."""
    source = _source(where).body
    homes = {node.name: where.partition(":")[0] for node in source if isinstance(node, ast.ClassDef)} | {
        alias.name: node.module
        for node in source
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("longloop.")
        for alias in node.names
    }
    names = [ast.unparse(base) for base in _class(where).bases]
    return [f"{homes[name]}:{name}" for name in names if name in homes]


def _constructor(where: str) -> dict[str, tuple[str, str]]:
    """A constructor's parameters: name -> (default, '')."""

    def pairs() -> Iterator[tuple[str, tuple[str, str]]]:
        for node in _class(where).body:
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                names = [argument.arg for argument in node.args.args[1:]]
                defaults = [ast.unparse(default) for default in node.args.defaults]
                required = [""] * (len(names) - len(defaults))
                yield from ((name, (default, "")) for name, default in zip(names, required + defaults, strict=True))

    return dict(pairs())


def _string(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split())
    return ""
