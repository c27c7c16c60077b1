"""One whole training step, collect and update, against TRL 1.16's GRPOTrainer doing the same work.

    python3 -m venv .bench/trl && .bench/trl/bin/pip install -c constraints.txt -r benchmarks/requirements-trl.txt
    .bench/trl/bin/python benchmarks/step_vs_trl.py [--repeats 3] [--steps 3] [--threads 1] [--split 1]
    python benchmarks/step_vs_trl.py --errands --tasks 16 --attempts 8 --new 60 --workers 128 --sides longloop trl-cache

Both sides: the same model, so many tasks x attempts, turns of exactly so many sampled tokens, one optimizer step on one
pass over all trajectories, no KL term. Without `--errands` the model is random and what is observed are random words.
With it the model is SmolLM2 (`longloop models get smollm2`) and the environment is Errands: before each turn the
expert's own action is done, and what comes back is observed, whatever the model said. float32 on a CPU, bfloat16 on a
GPU. The sides:

    longloop        LOOP with epochs=1, its own rollouts, engine and learner, on a GPU both with compile=true
    longloop-2      LOOP with epochs=2, the paper's setting: the same rollouts, twice the updates
    trl             environment_factory: every turn is read as a call of the environment's one tool
    trl-rollout     rollout_func: a loop over turns that calls generate() on the growing conversations
    trl-cache       the same with the KV cache kept between turns, which TRL leaves to its users to write
    trl-vllm        rollout_func that samples from vLLM in the same process (colocated, in sleep mode while it trains),
                    with prefix caching, turn by turn; with `--errands`, on a GPU, where vLLM is installed

TRL gets no handicap: no gradient checkpointing (its default is on), no second scoring pass, fused AdamW (its default),
and trajectories of one length, so that it pays nothing for padding. `--split N` cuts the update into N micro-batches on
both sides, which lowers the memory and hardly changes the time. The environments are not TRL's: the
rollout_func here steps them one after the other, where longloop has threads or, with `--workers N`, processes. TRL's
model is not compiled.
"""

import argparse
import asyncio
import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import common
import torch
from fixed import reward_of, words

SIDES = ("longloop", "trl", "trl-rollout", "trl-cache", "longloop-2", "trl-vllm")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True)
class Load:
    """What every side does in a step."""

    tasks: int
    attempts: int
    turns: int
    new: int
    observed: int
    """Tokens before each turn, where the environment is not Errands."""
    errands: bool
    split: int
    """Micro-batches of an update."""
    workers: int
    """Processes in which longloop's environments live; none: threads of its own."""

    @property
    def trajectories(self) -> int:
        return self.tasks * self.attempts

    def module(self) -> Any:
        if not self.errands:
            return common.random_model("small" if DEVICE == "cpu" else "135m", device=DEVICE)
        from transformers import AutoModelForCausalLM

        from longloop.model.download import found

        dtype = torch.float32 if DEVICE == "cpu" else torch.bfloat16
        return AutoModelForCausalLM.from_pretrained(found("smollm2"), dtype=dtype).to(DEVICE)

    def tokenizer(self) -> Any:
        if not self.errands:
            return common.word_tokenizer(self.module().config.vocab_size)
        from transformers import AutoTokenizer

        from longloop.model.download import found

        return AutoTokenizer.from_pretrained(found("smollm2"))

    def world(self, workers: int = 0) -> Any:
        """The environment (benchmarks/fixed.py) and its tasks; in worker processes, if any."""
        from longloop import build
        from longloop.config import Config

        env: dict[str, Any] = {"name": "fixed:Along" if self.errands else "fixed:Words", "turns": self.turns}
        if not self.errands:
            env |= {"observed": self.observed, "framing": common.FRAMING}
        if workers:
            env |= {"isolation": "process", "workers": workers}
        return build.world(Config(env=env))


class Report:
    """Per step: seconds by the clock and of CPU, the share of it that was collecting, and what was trained on."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self._start()

    def _start(self) -> None:
        self._wall, self._cpu, self._collected = time.perf_counter(), time.process_time(), 0.0

    def collected(self) -> None:
        self._collected = time.perf_counter() - self._wall

    def step(self, trajectories: int, tokens: int, action_tokens: int) -> None:
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        done = {"wall": wall, "cpu": cpu, "collect": self._collected}
        self.steps.append(done | {"trajectories": trajectories, "tokens": tokens, "action_tokens": action_tokens})
        self._start()


def run_longloop(steps: int, epochs: int, load: Load) -> Report:
    from longloop.algos.loop import Loop
    from longloop.config import Config, LearnerConfig, RolloutConfig
    from longloop.engines.engine import NativeEngine
    from longloop.learners.local import LocalLearner
    from longloop.rollout.episode import RolloutContext
    from longloop.rollout.groups import GroupRollouts
    from longloop.tokens.chat import Chat
    from longloop.training import TaskStream, schedule
    from longloop.types import Now, Sampled, SamplingParams

    class Exactly(NativeEngine):
        """Never stops before its limit, so that every turn has as many tokens."""

        async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
            return await super().sample(ids, replace(params, stop_ids=frozenset()), session=session)

    policy = common.policy(load.module(), load.tokenizer())
    algo = Loop(k=load.attempts, epochs=epochs, minibatch=load.trajectories, drop_below=0.0)
    micro = load.trajectories * load.turns * (load.new + load.observed) // load.split
    gpu = DEVICE != "cpu"
    settings = LearnerConfig(micro_tokens=micro, compile=gpu)
    learner = LocalLearner(policy, algo.needs, settings, temperature=1.0, seed=0)
    chat = Chat(policy.tokenizer)
    limits = RolloutConfig(
        max_turns=load.turns, turn_tokens=load.new, concurrency=load.trajectories, straggler_cutoff=1.0
    )
    engine = Exactly(policy, chat, slots=load.trajectories, graphs=gpu, compile=gpu)
    config, world = Config(env={"name": "fixed"}), load.world(load.workers)
    rollouts = GroupRollouts(RolloutContext(world.make, chat, engine, limits, SamplingParams()), "benchmark")
    tasks = TaskStream(world.tasks("train")[: load.tasks], seed=0)

    async def train(report: Report) -> None:
        for step in range(1, steps + 1):  # as in longloop/training.py, less the store
            now = Now(step, steps)
            groups = await algo.collect(rollouts, tasks, load.tasks, now)
            report.collected()
            samples = algo.credit(groups, learner, now)
            updates = [learner.update(part, algo.loss) for part in schedule(config, algo, groups, samples, now)]
            assert len(updates) == epochs and not any(update.stop for update in updates)
            ids, chosen = sum(len(s.ids) for s in samples), sum(s.action_tokens for s in samples)
            report.step(len(samples), ids, chosen)

    report = Report()
    asyncio.run(train(report))
    return report


def run_trl(steps: int, how: str, load: Load) -> Report:
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    import pyarrow
    from datasets import Dataset
    from datasets.table import InMemoryTable
    from engine_vs_generate import run_generate
    from transformers import PreTrainedTokenizerFast, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from longloop.tokens.chat import Chat
    from longloop.tokens.transcript import Transcript
    from longloop.types import Message, Sampled

    class EveryTurnIsACall(PreTrainedTokenizerFast):
        """A random model calls no tool; so whatever it says is read as a call of the one there is."""

        def parse_response(self, response: list[int], **_: Any) -> dict[str, Any]:
            text = self.decode(response, skip_special_tokens=True)
            call = {"type": "function", "function": {"name": "act", "arguments": {"text": text}}}
            return {"role": "assistant", "content": "", "tool_calls": [call]}

    class Fixed:
        """Says what was fixed beforehand, whatever the agent does."""

        def reset(self, task: int, **_: Any) -> None:
            self._task, self._turn, self._said = task, 0, ""

        def act(self, text: str) -> str:
            """Act.

            Args:
                text: What to do.
            """
            self._turn += 1
            self._said += text
            return words(self._task, self._turn, load.observed - common.FRAMING)

        def get_reward(self) -> float:
            return reward_of(self._said)

    tokenizer = load.tokenizer()
    if how == "trl":
        template, backend = tokenizer.chat_template, tokenizer.backend_tokenizer
        tokenizer = EveryTurnIsACall(tokenizer_object=backend, eos_token="<|end|>", pad_token="<|end|>")
        tokenizer.chat_template = template
        tokenizer.response_template = {}  # there is one, TRL wants to see; `parse_response` above is what reads
    chat = Chat(tokenizer)
    numbers = [f"{task}" for task in range(load.tasks)]
    opening = [words(task, 0, load.observed - common.FRAMING) for task in range(load.tasks)]
    asked = opening if how == "trl" else numbers  # a rollout_func makes its own prompts
    data = {"prompt": [[{"role": "user", "content": text}] for text in asked], "task": list(range(load.tasks))}

    world = load.world()
    tasks = world.tasks("train")

    def observations(number: int) -> list[list[int]]:
        """The ids before each turn, as a rollout that keeps to the sampled tokens must make them."""
        transcript, seen = Transcript(chat), []
        env: Any = world.make()
        messages = env.start(tasks[number])
        for _ in range(load.turns):
            seen.append(transcript.receive(messages)[0].tolist())
            transcript.act(Sampled((chat.encode("w1")[0],) * load.new, (0.0,) * load.new, "length"))
            messages = env.step(Message("assistant", "")).messages
        env.finish()
        return seen

    def rollout(prompts: list[list[dict[str, str]]], trainer: Any) -> dict[str, Any]:
        seen = [observations(numbers.index(prompt[0]["content"])) for prompt in prompts]
        if how == "trl-vllm":
            episodes = run_vllm(trainer.vllm_generation.llm, load.new, seen)
        else:
            model = trainer.accelerator.unwrap_model(trainer.model)
            episodes = run_generate(model, load.new, seen, keep_cache=how == "trl-cache")
        made: dict[str, Any] = {"prompt_ids": [], "completion_ids": [], "logprobs": [], "env_mask": []}
        for (ids, logprobs), turns in zip(episodes, seen, strict=True):
            mask = [m for more in turns for m in [0] * len(more) + [1] * load.new][len(turns[0]) :]
            values = iter(logprobs)
            made["prompt_ids"].append(ids[: len(turns[0])])
            made["completion_ids"].append(ids[len(turns[0]) :])
            made["logprobs"].append([next(values) if m else 0.0 for m in mask])
            made["env_mask"].append(mask)
        return made

    def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
        return [reward_of(str(ids)) for ids in completion_ids]

    class Timed(GRPOTrainer):
        def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
            self.batch = super()._generate_and_score_completions(inputs)
            report.collected()
            return self.batch

    class OnStep(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            batch = trainer.batch
            ids = int(batch["prompt_mask"].sum() + batch["completion_mask"].sum())
            assert batch["advantages"].abs().max() > 0
            report.step(len(batch["advantages"]), ids, int((batch["completion_mask"] * batch["tool_mask"]).sum()))

    options = GRPOConfig(
        output_dir=".bench/trl-out",
        max_steps=steps,
        per_device_train_batch_size=load.trajectories // load.split,
        gradient_accumulation_steps=load.split,
        num_generations=load.attempts,
        max_completion_length=4096 if load.errands else load.turns * load.new + (load.turns - 1) * load.observed,
        max_tool_calling_iterations=load.turns - 1,
        generation_kwargs={} if how == "trl-vllm" else {"min_new_tokens": load.new, "max_new_tokens": load.new},
        use_vllm=how == "trl-vllm",
        vllm_mode="colocate",
        vllm_enable_sleep_mode=True,
        vllm_max_model_length=4096 + 1024,
        loss_type="grpo",
        scale_rewards="none",
        beta=0.0,
        learning_rate=5e-5,
        weight_decay=0.01,
        gradient_checkpointing=False,
        bf16=DEVICE != "cpu",
        use_cpu=DEVICE == "cpu",
        report_to="none",
        logging_strategy="no",
        save_strategy="no",
        disable_tqdm=True,
    )
    way = {"environment_factory": Fixed} if how == "trl" else {"rollout_func": rollout, "reward_funcs": reward}
    dataset = Dataset(InMemoryTable(pyarrow.table(data)), fingerprint="fixed")  # a hash of it can fail
    trainer = Timed(load.module(), args=options, train_dataset=dataset, processing_class=tokenizer, **way)
    trainer.add_callback(OnStep())
    report = Report()
    trainer.train()
    return report


def run_vllm(model: Any, new: int, seen: list[list[list[int]]]) -> list[tuple[list[int], list[float]]]:
    """Turn by turn, all conversations at once. TRL has just woken the weights; it puts them to sleep again only where
    it samples itself."""
    from vllm import SamplingParams

    how = SamplingParams(temperature=1.0, max_tokens=new, min_tokens=new, ignore_eos=True, logprobs=0, detokenize=False)
    episodes: list[tuple[list[int], list[float]]] = [([], []) for _ in seen]
    model.wake_up(tags=["kv_cache"])
    for turn in range(len(seen[0])):
        for (ids, _), more in zip(episodes, seen, strict=True):
            ids += more[turn]
        prompts = [{"prompt_token_ids": list(ids)} for ids, _ in episodes]
        answers = model.generate(prompts, sampling_params=how, use_tqdm=False)
        for (ids, logprobs), answer in zip(episodes, answers, strict=True):
            said = answer.outputs[0]
            ids += said.token_ids
            logprobs += [each[token].logprob for token, each in zip(said.token_ids, said.logprobs or (), strict=True)]
    model.sleep(level=2)
    return episodes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="processes of each side, A B A B")
    parser.add_argument("--steps", type=int, default=3, help="measured steps in each process, after one to warm up")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--split", type=int, default=1, help="micro-batches of an update; divides the trajectories")
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--attempts", type=int, default=6)
    parser.add_argument("--turns", type=int, default=4, help="with --errands at most 4")
    parser.add_argument("--new", type=int, default=32, help="tokens sampled a turn")
    parser.add_argument("--observed", type=int, default=40, help="tokens observed before a turn")
    parser.add_argument("--workers", type=int, default=0, help="processes that longloop's environments live in")
    parser.add_argument("--errands", action="store_true", help="SmolLM2 in Errands; not for the side `trl`")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES[:5])
    parser.add_argument("--only", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    numbers = (options.tasks, options.attempts, options.turns, options.new, options.observed)
    load = Load(*numbers, errands=options.errands, split=options.split, workers=options.workers)
    if options.only:
        steps = options.steps + 1
        held = common.held_on_the_card()
        if options.only.startswith("longloop"):
            report = run_longloop(steps, 2 if options.only == "longloop-2" else 1, load)
        else:
            report = run_trl(steps, options.only, load)
        print(json.dumps({"steps": report.steps[1:], "peak": max(common.peak_bytes(), held())}))
        return
    print(common.machine())
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in options.sides}
    for _ in range(options.repeats):
        for side in options.sides:
            printed = common.run_alone(__file__, "--only", side, *sys.argv[1:])
            runs[side].append(json.loads(printed.splitlines()[-1]))
    print_table(runs)


def print_table(runs: dict[str, list[dict[str, Any]]]) -> None:
    steps = {side: [step for run in these for step in run["steps"]] for side, these in runs.items()}
    took = {side: [common.Took(step["wall"], step["cpu"]) for step in these] for side, these in steps.items()}
    columns = f"{'trajectories':>14}{'tokens':>8}{'sampled':>9}{'seconds a step':>24}{'of it collecting':>24}"
    print(f"{'':14}{columns}{'longloop faster by':>24}{'by CPU time':>24}{'peak MB':>9}")
    for side, these in steps.items():
        counts = [sorted({int(step[key]) for step in these}) for key in ("trajectories", "tokens", "action_tokens")]
        shown = ["/".join(map(str, count)) for count in counts]
        seconds, collecting = ([step[key] for step in these] for key in ("wall", "collect"))
        ranges = map(common.median_range, (seconds, collecting, *common.ratios(took[side], took["longloop"])))
        print(
            f"{side:14}{shown[0]:>14}{shown[1]:>8}{shown[2]:>9}{''.join(f'{each:>24}' for each in ranges)}"
            f"{max(run['peak'] for run in runs[side]) / 1e6:>9.0f}"
        )
    print("(target against trl: 1.5x on a CPU, 5x on a GPU)")


if __name__ == "__main__":
    main()
