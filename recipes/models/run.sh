#!/usr/bin/env bash
# Qwen2.5-Coder-1.5B-Instruct in Errands: as it comes, after 64 demonstrations, and after LOOP from there; a stage on one
# GPU. What is done already is not done again, so that it can be stopped at any moment and run once more.
#
#   python recipes/models/make.py qwen-1.5b models/qwen-1.5b     where there is no hub; else MODEL=Qwen/Qwen2.5-Coder-1.5B-Instruct
#   recipes/models/run.sh base 0
#   recipes/models/run.sh sft 0                                  one start for all
#   for seed in 0 1 2; do recipes/models/run.sh loop $seed; done
#   python recipes/table.py qwen
#   longloop analyze runs/qwen-attempts/{base,sft,loop}-0/dev    how it behaves
#
# Two seeds may run side by side: NVIDIA's MPS lets their work overlap (nvidia-cuda-mps-control -d), and
# learner.micro_tokens=6144 leaves room for both and a measurement.
set -euo pipefail
cd "$(dirname "$0")/../.."
. recipes/stages.sh
stage=$1 seed=$2 name=qwen
shift 2 # settings of the stage's run
many="env.per_scenario=4 eval.attempts=2 eval.temperature=1 env.workers=96 rollout.concurrency=96 rollout.max_turns=16"

case $stage in
base) measure base-$seed recipes/models/zero_shot.toml $many eval.top_p=1 model.path="${MODEL:-models/qwen-1.5b}" "$@" ;;
sft)
    train qwen-sft-$seed recipes/models/sft.toml seed=$seed model.path="${MODEL:-models/qwen-1.5b}" "$@"
    measure sft-$seed runs/qwen-sft-$seed $many rollout.turn_tokens=256 rollout.context=6144 # as after LOOP
    ;;
loop)
    train qwen-loop-$seed recipes/models/loop.toml seed=$seed model.path="${START:-runs/qwen-sft-0}" "$@"
    measure loop-$seed runs/qwen-loop-$seed $many
    ;;
*) echo "$0 base|sft|loop SEED [SETTINGS...]" >&2 && exit 2 ;;
esac
