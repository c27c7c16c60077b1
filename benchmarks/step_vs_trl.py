"""One whole training step, collect and update, against TRL 1.16's GRPOTrainer doing the same work.

    python3 -m venv .bench/trl && .bench/trl/bin/pip install -c constraints.txt -r benchmarks/requirements-trl.txt
    .bench/trl/bin/python benchmarks/step_vs_trl.py [--repeats 3] [--steps 3] [--threads 1] [--split 1]

Both sides: the same random model in float32, 4 tasks x 6 attempts, 4 turns of exactly 32 sampled tokens, 40 observed
tokens before each, one optimiser step on one pass over all trajectories, no KL term. The sides:

    longloop        LOOP with epochs=1, its own rollouts, engine and learner
    longloop-2      LOOP with epochs=2, the paper's setting: the same rollouts, twice the updates
    trl             environment_factory: every turn is read as a call of the environment's one tool
    trl-rollout     rollout_func: a loop over turns that calls generate() on the growing conversations
    trl-cache       the same with the KV cache kept between turns, which TRL leaves to its users to write

TRL gets no handicap: no gradient checkpointing (its default is on), no second scoring pass, fused AdamW (its default),
and trajectories of one length, so that it pays nothing for padding. `--split N` cuts the update into N micro-batches on
both sides, which lowers the memory and hardly changes the time.
"""

import argparse
import asyncio
import json
import logging
import os
import random
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

import common
import torch

TASKS, ATTEMPTS, TURNS, NEW, OBSERVED = 4, 6, 4, 32, 40
TOKENS = TASKS * ATTEMPTS * TURNS * (NEW + OBSERVED)
SIDES = ("longloop", "trl", "trl-rollout", "trl-cache", "longloop-2")


def words(task: int, turn: int, count: int) -> str:
    """What is observed before a turn: so many words, hence so many ids."""
    draw = random.Random(100 * task + turn)
    return " ".join(f"w{draw.randrange(4000)}" for _ in range(count))


def reward_of(actions: str) -> float:
    """Any number that differs from attempt to attempt."""
    return sum(map(ord, actions)) % 11 / 10


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


def run_longloop(steps: int, epochs: int, split: int) -> Report:
    from longloop.algos.loop import Loop
    from longloop.config import Config, LearnerConfig, RolloutConfig
    from longloop.engines.native import NativeEngine
    from longloop.learners.local import LocalLearner
    from longloop.rollout.episode import Setting
    from longloop.rollout.groups import GroupRollouts
    from longloop.tokens.chat import Chat
    from longloop.train import TaskStream, schedule
    from longloop.types import Message, Outcome, Sampled, Step, Task

    class Fixed:
        """Says what was fixed beforehand, whatever the agent does."""

        async def start(self, task: Task) -> Sequence[Message]:
            self._task, self._turn, self._said = task.data["number"], 0, ""
            return [Message("user", words(self._task, 0, OBSERVED - common.FRAMING))]

        async def step(self, action: Message) -> Step:
            self._turn += 1
            self._said += action.content
            if self._turn == TURNS:
                return Step(done=True)
            # One less: an action that was cut is closed by an end token, which is observed, too.
            return Step([Message("user", words(self._task, self._turn, OBSERVED - common.FRAMING - 1))])

        async def finish(self) -> Outcome:
            return Outcome(reward_of(self._said), success=False)

    class Exactly(NativeEngine):
        """Never stops before its limit, so that every turn has NEW tokens."""

        async def sample(self, ids: Sequence[int], **options: Any) -> Sampled:
            return await super().sample(ids, **options | {"stop_ids": frozenset()})

    policy = common.policy(common.random_model("small"))
    algo = Loop(k=ATTEMPTS, epochs=epochs, drop_below=0.0)
    learner = LocalLearner(policy, algo, LearnerConfig(micro_tokens=TOKENS // split), temperature=1.0, seed=0)
    chat = Chat(policy.tokenizer)
    limits = RolloutConfig(max_turns=TURNS, turn_tokens=NEW, concurrency=TASKS * ATTEMPTS, enough=1.0)
    engine = Exactly(policy, chat, slots=TASKS * ATTEMPTS)
    rollouts = GroupRollouts(Setting(Fixed, chat, engine, limits, 1.0), "benchmark")
    config = Config(env={"name": "fixed"})
    tasks = TaskStream([Task(str(n), "train", {"number": n}) for n in range(TASKS)], seed=0)

    async def train(report: Report) -> None:
        for step in range(1, steps + 1):  # as in longloop/train.py, less the store
            groups = await algo.collect(rollouts, tasks, TASKS)
            report.collected()
            samples = algo.credit(groups, learner)
            updates = [learner.update(part, algo.loss) for part in schedule(config, algo, groups, samples, step)]
            assert len(updates) == epochs and not any(update.stop for update in updates)
            ids, chosen = sum(len(s.ids) for s in samples), sum(s.action_tokens for s in samples)
            report.step(len(samples), ids, chosen)

    report = Report()
    asyncio.run(train(report))
    return report


def run_trl(steps: int, how: str, split: int) -> Report:
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    from datasets import Dataset
    from engine_vs_generate import run_generate
    from transformers import PreTrainedTokenizerFast, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

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
            return words(self._task, self._turn, OBSERVED - common.FRAMING)

        def get_reward(self) -> float:
            return reward_of(self._said)

    plain = common.word_tokenizer(common.SHAPES["small"]["vocab_size"])
    tokenizer = EveryTurnIsACall(tokenizer_object=plain.backend_tokenizer, eos_token="<|end|>", pad_token="<|end|>")
    tokenizer.chat_template = plain.chat_template
    tokenizer.response_template = {}  # there is one, TRL wants to see; `parse_response` above is what reads
    opening = [words(task, 0, OBSERVED - common.FRAMING) for task in range(TASKS)]
    data = {"prompt": [[{"role": "user", "content": text}] for text in opening], "task": list(range(TASKS))}

    def rollout(prompts: list[list[dict[str, str]]], trainer: Any) -> dict[str, Any]:
        seen = []
        for prompt in prompts:
            task = opening.index(prompt[0]["content"])
            later = [tokenizer(words(task, turn, OBSERVED))["input_ids"] for turn in range(1, TURNS)]
            seen.append([tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False), *later])
        episodes = run_generate(
            trainer.accelerator.unwrap_model(trainer.model), NEW, seen, keep_cache=how == "trl-cache"
        )
        mask = ([1] * NEW + [0] * OBSERVED) * (TURNS - 1) + [1] * NEW
        return {
            "prompt_ids": [ids[:OBSERVED] for ids, _ in episodes],
            "completion_ids": [ids[OBSERVED:] for ids, _ in episodes],
            "logprobs": [[next(logp) if m else 0.0 for m in mask] for logp in (iter(lp) for _, lp in episodes)],
            "env_mask": [mask for _ in episodes],
        }

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
        per_device_train_batch_size=TASKS * ATTEMPTS // split,
        gradient_accumulation_steps=split,
        num_generations=ATTEMPTS,
        max_completion_length=TURNS * NEW + (TURNS - 1) * OBSERVED,
        max_tool_calling_iterations=TURNS - 1,
        generation_kwargs={"min_new_tokens": NEW, "max_new_tokens": NEW},
        loss_type="grpo",
        scale_rewards="none",
        beta=0.0,
        learning_rate=5e-5,
        weight_decay=0.01,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        report_to="none",
        logging_strategy="no",
        save_strategy="no",
        disable_tqdm=True,
    )
    way = {"environment_factory": Fixed} if how == "trl" else {"rollout_func": rollout, "reward_funcs": reward}
    dataset = Dataset.from_dict(data)
    trainer = Timed(
        common.random_model("small"), args=options, train_dataset=dataset, processing_class=tokenizer, **way
    )
    trainer.add_callback(OnStep())
    report = Report()
    trainer.train()
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="processes of each side, A B A B")
    parser.add_argument("--steps", type=int, default=3, help="measured steps in each process, after one to warm up")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--split", type=int, default=1, help="micro-batches of an update; divides 24")
    parser.add_argument("--only", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.only:
        steps = options.steps + 1
        if options.only.startswith("longloop"):
            report = run_longloop(steps, 2 if options.only == "longloop-2" else 1, options.split)
        else:
            report = run_trl(steps, options.only, options.split)
        print(json.dumps({"steps": report.steps[1:], "peak": common.peak_bytes()}))
        return
    print(common.machine())
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    for _ in range(options.repeats):
        for side in SIDES:
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
        wall, cpu = common.ratios(took[side], took["longloop"])
        print(
            f"{side:14}{shown[0]:>14}{shown[1]:>8}{shown[2]:>9}{common.spread([s['wall'] for s in these]):>24}"
            f"{common.spread([s['collect'] for s in these]):>24}{common.spread(wall):>24}{common.spread(cpu):>24}"
            f"{max(run['peak'] for run in runs[side]) / 1e6:>9.0f}"
        )
    print("(target against trl: 1.5x)")


if __name__ == "__main__":
    main()
