"""A model card: what an exported model is, what it was trained on and how well it did, from its run folder alone."""

from pathlib import Path
from typing import Any

import yaml

from longloop.config import MEASURED, Config, isolation
from longloop.store.metrics import Evaluation, when
from longloop.store.run_reader import SettingsChange, config_at, in_hubs_cache, load_run


def card(folder: Path, step: int, dtype: str, adapter: bool = False) -> str:
    """The card of the model that a run had after `step`, in Hugging Face's form: facts for machines, then Markdown.

    `adapter`: the card of its adapters alone.
    """
    run = load_run(folder)
    config, facts = config_at(folder, step), run.facts
    changes = [change for change in run.changes if change.step <= step]
    lines = [line for line in run.metrics if line["step"] <= step]
    since = max((change.step for change in changes if MEASURED & change.changed.keys()), default=0)
    evaluations = {at: found for at, found in run.evaluations.items() if since <= at <= step}
    env, algo, path = config.env["name"], config.algo["name"], config.model.path
    kept = "not merged" if adapter else "merged"
    changed = f"LoRA adapters of rank {config.model.lora_rank}, {kept}" if config.model.lora_rank else "all weights"
    about = {
        "environment": _settings(isolation(config.env)[1]),
        "trained on": _trained_on(config, lines),
        "algorithm": _settings(config.algo),
        "started from": f"`{path}`",
        "trained": f"{changed}; {step} of {config.steps} steps, seed {config.seed}",
        "changed on the way": "; ".join(map(_said, changes)),
        "stored in": dtype,
    }
    made = {
        "command": f"`{facts.get('command', '')}`",
        "longloop": f"{facts.get('longloop', '')}, commit {facts.get('commit') or 'unknown'}",
        "packages": ", ".join(f"{name} {version}" for name, version in facts.get("packages", {}).items()),
        "machine": f"{facts.get('machine', '')}, Python {facts.get('python', '')}",
        "started": facts.get("started", ""),
    }
    return f"""---
{_facts(config, evaluations.get(step), adapter)}---

# {config.name}

`{path}`, trained with `{algo}` in the environment `{env}` by longloop, after step {step}.

{_table(about)}
## Results

{_results(config, evaluations, step)}
## Use

{_ADAPTER if adapter else _WHOLE} It expects the conversation that `{env}` holds with an agent: the same opening,
and answers in the same form.

## How it was made

{_table(made)}
The whole config, as it was at step {step}:

```toml
{config.to_toml().strip()}
```
"""


_WHOLE = """\
A plain Hugging Face folder with its chat template: `AutoModelForCausalLM.from_pretrained(FOLDER)`, `vllm serve FOLDER`,
or `model.path = "FOLDER"` in longloop."""
_ADAPTER = """\
Adapters in peft's format, for the model that they were trained on: `PeftModel.from_pretrained(MODEL, FOLDER)`, or
`vllm serve MODEL --enable-lora --lora-modules agent=FOLDER`."""


def _facts(config: Config, evaluation: Evaluation | None, adapter: bool) -> str:
    """What the hub reads, as YAML: the base model, and results of the model itself."""
    path = config.model.path
    facts: dict[str, Any] = {
        "library_name": "peft" if adapter else "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["agent", "reinforcement-learning", "longloop", config.algo["name"]],
    }
    if not Path(path).exists() and in_hubs_cache(Path(path)):  # or it may be a folder that is seen from elsewhere
        facts |= {"base_model": path, "base_model_relation": "adapter" if adapter else "finetune"}
    if evaluation is not None:
        facts["model-index"] = [{"name": config.name, "results": [_result(config, evaluation)]}]
    return yaml.safe_dump(facts, sort_keys=False, allow_unicode=True)


def _result(config: Config, found: Evaluation) -> dict[str, Any]:
    """An evaluation as an entry of a `model-index`."""
    name = str(config.env["name"])
    dataset = {"type": name, "name": name, "split": config.eval.split}
    if found.env_version:
        dataset["revision"] = found.env_version
    numbers = {
        "success": (found.success, found.success_interval, found.floor_success),
        "reward": (found.reward, found.reward_interval, found.floor_reward),
    }
    metrics = [
        {
            "type": kind,
            "value": round(value, 4),
            "name": f"{kind}, 95% [{low:.3f}, {high:.3f}] over {found.tasks} tasks; doing nothing: {floor:.3f}",
        }
        for kind, (value, (low, high), floor) in numbers.items()
    ]
    return {"task": {"type": "reinforcement-learning"}, "dataset": dataset, "metrics": metrics}


def _trained_on(config: Config, lines: list[dict[str, Any]]) -> str:
    attempts, tokens = (sum(line.get(key, 0) for line in lines) for key in ("attempts", "trained_tokens"))
    shown = f" and the attempts in `{config.demos}`" if config.demos else ""
    return f"{attempts:,} attempts at tasks of its split `{config.split}`{shown}; {tokens:,} tokens in updates"


def _results(config: Config, evaluations: dict[int, Evaluation], step: int) -> str:
    if not evaluations:
        return "It was not evaluated in this run.\n"
    ends = sorted({min(evaluations), max(evaluations)})
    columns = [evaluations[at].cells() for at in ends]
    rows = [["", *map(when, ends)], ["---"] * (len(ends) + 1)]
    names = dict.fromkeys(name for cells in columns for name in cells)
    rows += [[name, *(cells.get(name, "") for cells in columns)] for name in names]
    how = config.eval.model_dump(exclude={"every", "split", "tasks", "attempts"}).items()
    sampling = ", ".join(f"{name} {value:g}" for name, value in how)
    late = "" if ends[-1] == step else f"The model itself, after step {step}, was not evaluated. "
    return (
        "\n".join(f"| {' | '.join(row)} |" for row in rows)
        + f"\n\n{late}Tasks of the split `{config.eval.split}`, {sampling}. Brackets are "
        "intervals over tasks (success: Wilson; reward: bootstrap); they say nothing about other seeds.\n"
    )


def _settings(given: dict[str, Any]) -> str:
    rest = ", ".join(f"{key} = {value}" for key, value in given.items() if key != "name")
    return f"`{given['name']}`" + (f" ({rest})" if rest else "")


def _said(change: SettingsChange) -> str:
    settings = ", ".join(f"{key} = {new} (was {old})" for key, (old, new) in change.changed.items())
    return f"from step {change.step}: {settings}"


def _table(rows: dict[str, str]) -> str:
    """The rows that have a value."""
    return "| | |\n|---|---|\n" + "".join(f"| {name} | {value} |\n" for name, value in rows.items() if value)
