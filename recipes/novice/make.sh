#!/usr/bin/env bash
# Makes errands/novice, the model of the quick start: some twenty minutes on two cores. docs/environments/novice.md tells why.
set -euo pipefail
cd "$(dirname "$0")/../.."
rm -rf runs/novice runs/novice-{start,echo,copier,language,reader}
export PATH="$PWD/.venv/bin:$PATH"

# A tokenizer from the expert's transcripts, and random weights.
longloop models new runs/novice-start --env errands difficulty=1 per_scenario=60 example=false \
    --vocabulary 1536 --hidden 160 --layers 4 --heads 4 --seed 0

# Learn to copy, then the language, then errands from a careless expert.
longloop train recipes/novice/echo.toml
longloop export runs/novice-echo --out runs/novice-copier --dtype float32
longloop train recipes/novice/language.toml
longloop export runs/novice-language --out runs/novice-reader --dtype float32
longloop train recipes/novice/novice.toml

rm -rf errands/novice
longloop export runs/novice --out errands/novice --dtype bfloat16
rm errands/novice/README.md # what it is stands in docs/environments/novice.md
for part in echo language; do cp "runs/novice-$part/logs/train.log" "recipes/novice/$part.log"; done
cp runs/novice/logs/train.log recipes/novice/novice.log
