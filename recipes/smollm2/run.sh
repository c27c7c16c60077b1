#!/usr/bin/env bash
# SmolLM2-135M in Errands: as it is, after imitation, after LOOP; one seed, on one GPU. What is done already is not done
# again, so that it can be stopped at any moment and run once more.
#
#   longloop models get smollm2
#   longloop demos recipes/smollm2/sft.toml name=smollm2-demos
#   for seed in 0 1 2; do recipes/smollm2/run.sh $seed; done; python recipes/smollm2/table.py
set -euo pipefail
cd "$(dirname "$0")/../.."
seed=$1
shift # more settings, for both runs
longloop=${LONGLOOP:-longloop}
start=runs/smollm2-start-$seed

train() { # NAME CONFIG SETTINGS...
    if [ -d "runs/$1" ]; then
        $longloop train --resume "runs/$1"
    else
        $longloop train "recipes/smollm2/$2" name="$1" seed="$seed" "${@:3}"
    fi
}
measure() { # NAME TARGET
    local file=runs/smollm2-results/$1-$seed.json attempts=runs/smollm2-attempts/$1-$seed
    [ -e "$file" ] && return
    mkdir -p runs/smollm2-results
    rm -rf "$attempts" # of a measurement that was stopped
    $longloop eval "$2" --json --out "$attempts" --split fresh --split dev --split test_normal --split test_challenge \
        env.per_scenario=12 env.isolation=process env.workers=128 eval.tasks=0 > "$file.part"
    mv "$file.part" "$file"
}

train "smollm2-sft-$seed" sft.toml demos=runs/smollm2-demos "$@"
[ -d "$start" ] || $longloop export "runs/smollm2-sft-$seed" --out "$start"
measure sft "runs/smollm2-sft-$seed"
train "smollm2-loop-$seed" loop.toml model.path="$start" "$@"
measure loop "runs/smollm2-loop-$seed"
[ "$seed" != 0 ] || measure base recipes/smollm2/sft.toml
