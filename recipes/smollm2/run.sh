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
#   python recipes/smollm2/table.py
#
# Seeds may run side by side: learner.micro_tokens=16384 then leaves room for three on 140 GB, and NVIDIA's MPS lets their
# work overlap (nvidia-cuda-mps-control -d).
set -euo pipefail
cd "$(dirname "$0")/../.."
seed=$1 stage=$2
shift 2 # settings of the stage's run
longloop=${LONGLOOP:-longloop}
run=runs/smollm2-$stage-$seed
start=runs/smollm2-start-$seed

train() { # CONFIG SETTINGS...
    if [ -d "$run" ]; then
        $longloop train --resume "$run"
    else
        $longloop train "recipes/smollm2/$1.toml" name="smollm2-$stage-$seed" seed="$seed" "${@:2}"
    fi
}
measure() { # TARGET SETTINGS...
    local file=runs/smollm2-results/$stage-$seed.json attempts=runs/smollm2-attempts/$stage-$seed
    [ -e "$file" ] && return
    mkdir -p runs/smollm2-results
    rm -rf "$attempts" # of a measurement that was stopped
    $longloop eval "$1" --json --out "$attempts" --split unseen_worlds --split dev --split validation --split test_normal --split test_challenge \
        env.per_scenario=12 env.isolation=process env.workers=64 rollout.concurrency=64 eval.tasks=0 "${@:2}" > "$file.part"
    mv "$file.part" "$file"
}

case $stage in
base) measure recipes/smollm2/sft.toml env.per_scenario=3 ;; # it talks until its turns are used up
sft)
    train sft demos=runs/smollm2-demos "$@"
    [ -d "$start" ] || $longloop export "$run" --out "$start"
    measure "$run"
    ;;
loop)
    train loop model.path="$start" "$@"
    measure "$run"
    ;;
careful)
    train sft demos=runs/smollm2-careful env.careless=0 "$@"
    measure "$run"
    ;;
*) echo "$0 SEED base|sft|loop|careful [SETTINGS...]" >&2 && exit 2 ;;
esac
