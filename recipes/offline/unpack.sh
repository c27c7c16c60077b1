#!/usr/bin/env bash
# The other half of pack.sh, on the machine that reaches nothing: installs into the Python at hand (PYTHON=...) what it
# lacks, makes SmolLM2 ready and puts run folders into runs/.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat "$1"/?/part | tar -C "$scratch" -xJ
export PIP_NO_INDEX=1 PIP_FIND_LINKS="$scratch/wheels" PIP_BREAK_SYSTEM_PACKAGES=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
"$python" -m pip install --quiet 'setuptools>=77' hypothesis pytest pytest-timeout pytest-xdist
"$python" -m pip install --quiet --no-build-isolation -e '.[gguf]'
find "$scratch/more" -name '*.whl' -exec "$python" -m pip install --quiet --no-deps {} +
"$python" -m longloop.cli.main models get smollm2
mkdir -p runs
cp -r "$scratch"/runs/. runs/
