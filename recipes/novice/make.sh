#!/usr/bin/env bash
# Makes longloop/novice, the model of the quick start: some ten minutes on two cores. docs/novice.md tells why.
set -euo pipefail
cd "$(dirname "$0")/../.."
rm -rf runs/novice runs/novice-start runs/novice-echo runs/novice-copier longloop/novice
export PATH="$PWD/.venv/bin:$PATH"

# A tokenizer from the expert's transcripts, and random weights.
longloop models new runs/novice-start --env errands difficulty=1 per_scenario=60 \
    --vocabulary 1536 --hidden 160 --layers 4 --heads 4 --seed 0

# Learn to copy, then learn errands from a careless expert.
longloop train recipes/novice/echo.toml
longloop export runs/novice-echo runs/novice-copier --dtype float32
longloop train recipes/novice/novice.toml
longloop train --resume runs/novice steps=260

longloop export runs/novice longloop/novice --dtype bfloat16
cp runs/novice-echo/logs/train.log recipes/novice/echo.log
cp runs/novice/logs/train.log recipes/novice/novice.log
