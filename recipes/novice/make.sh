#!/usr/bin/env bash
# Makes longloop/novice, the model of the quick start. About ten minutes with a GPU, some hours without.
set -euo pipefail
cd "$(dirname "$0")/../.."
LONGLOOP=${LONGLOOP:-.venv/bin/longloop}
$LONGLOOP models new runs/novice-start --env errands per_scenario=60 --vocabulary 2048 --hidden 192 --layers 4 --heads 6 --seed 0
$LONGLOOP train recipes/novice/novice.toml
$LONGLOOP export runs/novice longloop/novice --dtype bfloat16
