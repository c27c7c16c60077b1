#!/usr/bin/env bash
# Makes of what comes in parts of 48 MB, each in a folder of its own: OUT/0/part, OUT/1/part, ...
#
#   tar -c FOLDER | recipes/offline/parts.sh OUT
set -euo pipefail
out=$1
rm -rf "$out"
mkdir -p "$out"
xz -T0 -6 | split -b 48M -d -a 1 - "$out/"
for part in "$out"/?; do
    mv "$part" "$part.part"
    mkdir "$part"
    mv "$part.part" "$part/part"
done
du -sh "$out"/*
