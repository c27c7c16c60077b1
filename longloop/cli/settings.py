"""`longloop config`: every key of a config with its meaning and its value."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from longloop import config as configs
from longloop.config import Config, ConfigKey, as_toml, settings
from longloop.options import about
from longloop.registry import ENVS
from longloop.store.run_reader import read_changes, read_facts, stored_config
from longloop.types import UserError

console = Console(highlight=False)


def show(target: str | None, overrides: list[str], as_file: bool) -> None:
    words = [target, *overrides] if target is not None and "=" in target else overrides
    folder = Path(target) if target is not None and Path(target).is_dir() else None
    if folder is not None:
        read_facts(folder)
        config = stored_config(folder, overrides)
    elif target is not None and words is overrides:
        config = configs.load(Path(target), overrides)
    else:
        config = configs.resolve({"env": {}}, "the command line", words)
    if config.env:
        from longloop.build import written_out

        config = written_out(config)
    if as_file:
        if not config.env:
            raise UserError("--toml needs an environment: name a config or a run folder, or add env.name=NAME.")
        print(config.to_toml(), end="")
        return
    console.print(_table(config))
    for change in read_changes(folder) if folder is not None else ():
        for key, (before, after) in change.changed.items():
            console.print(f"Changed at step {change.step}: {key} = {after} (was {before}).", markup=False)
    name = str(config.env.get("name", ""))
    if said := about(ENVS.get(name, name)) if name else "":
        console.print(f"\n{name}: {' '.join(said.split())}", markup=False)
    if not name:
        console.print(
            f"\n`longloop config NAME` shows the values of a TOML file, of a run folder, or of {_names()}. Add "
            "env.name=NAME or algo.name=NAME for the options of others.",
            markup=False,
        )


def _table(config: Config) -> Table:
    table, section = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0)), ""
    table.add_column(overflow="fold", max_width=60)
    table.add_column(overflow="fold")
    tree = config.model_dump()
    for setting in settings(tree):
        head, _, key = setting.key.rpartition(".")
        if head != section:
            section = head
            table.add_row()
        table.add_row(*_row(setting, (tree[head] if head else tree).get(key)))
    return table


def _row(setting: ConfigKey, value: Any) -> tuple[Text, Text]:
    written = setting.default if value is None else as_toml(value)
    note = setting.type
    if not setting.default:
        note += ", required"
    elif written != setting.default:
        note += f", default {setting.default}"
    style = "bold green" if setting.default and written != setting.default else "bold"
    return Text(f"{setting.key} = {written or '...'}", style), Text.assemble(
        *([f"{setting.meaning} "] if setting.meaning else []), (f"({note})", "dim")
    )


def _names() -> str:
    *others, last = configs.SHIPPED
    return f"{', '.join(others)} or {last}"
