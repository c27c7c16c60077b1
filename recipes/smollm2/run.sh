#!/usr/bin/env bash
# SmolLM2-135M in Errands: as it is, after imitation, after LOOP; a stage of one seed, on one GPU. What is done already is
# not done again, so that it can be stopped at any moment and run once more.
#
#   longloop models get smollm2
#   longloop demos recipes/smollm2/sft.toml name=smollm2-demos
#   longloop demos recipes/smollm2/sft.toml name=smollm2-careful env.careless=0
#   for seed in 0 1 2; do recipes/smollm2/run.sh $seed sft; recipes/smollm2/run.sh $seed loop; done
#   recipes/smollm2/run.sh 0 base
#   recipes/smollm2/run.sh 0 careful              to compare with: imitation of the same expert, but not careless
#   python recipes/table.py smollm2
#
# Seeds may run side by side: learner.micro_tokens=16384 then leaves room for three on 140 GB, and NVIDIA's MPS lets their
# work overlap (nvidia-cuda-mps-control -d).
set -euo pipefail
cd "$(dirname "$0")/../.."
. recipes/stages.sh
seed=$1 stage=$2 name=smollm2
shift 2 # settings of the stage's run
run=smollm2-$stage-$seed
start=runs/smollm2-start-$seed
many="env.per_scenario=12 env.workers=64 rollout.concurrency=64"

case $stage in
base) measure base-$seed recipes/smollm2/sft.toml $many env.per_scenario=3 ;; # it talks until its turns are used up
sft)
    train $run recipes/smollm2/sft.toml seed="$seed" demos=runs/smollm2-demos "$@"
    [ -d "$start" ] || $longloop export "runs/$run" --out "$start"
    measure sft-$seed "runs/$run" $many
    ;;
loop)
    train $run recipes/smollm2/loop.toml seed="$seed" model.path="$start" "$@"
    measure loop-$seed "runs/$run" $many
    ;;
careful)
    train $run recipes/smollm2/sft.toml seed="$seed" demos=runs/smollm2-careful env.careless=0 "$@"
    measure careful-$seed "runs/$run" $many
    ;;
*) echo "$0 SEED base|sft|loop|careful [SETTINGS...]" >&2 && exit 2 ;;
esac
