#!/usr/bin/env bash
# vLLM and TRL, for benchmarks on a GPU machine that reaches no package index and has torch and transformers: in parts
# of 48 MB, each in a folder of its own.
#
#   recipes/offline/pack_vllm.sh OUT                       here
#   cat OUT/?/part | tar -xJ -C /tmp/others                there
#   export PYTHONPATH=/tmp/others:$PYTHONPATH              what is installed there comes first: nothing of it is replaced
#
# Of vLLM's own files those are left out that an H200 does not load: FlashAttention 2, headers, the server in Rust. Of
# what it asks for, only what `vllm.LLM` imports is there. PYTHON_THERE=3.12 says which Python is there.
set -euo pipefail
out=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
platforms=(--platform manylinux1_x86_64 --platform manylinux2014_x86_64)
for minor in 5 12 17 24 26 27 28 31 34 35; do
    platforms+=(--platform "manylinux_2_${minor}_x86_64")
done
small=(aiohappyeyeballs aiohttp aiosignal apache-tvm-ffi astor attrs blake3 cachetools cbor2 cloudpickle
    compressed-tensors==0.17.0 depyf==0.20.0 dill diskcache==5.6.3 distro einops 'fastapi<0.137' frozenlist ijson
    interegular jiter jsonschema jsonschema-specifications lark==1.2.2 'llguidance<1.8' loguru msgspec multidict openai
    openai-harmony outlines_core==0.2.14 partial-json-parser prometheus_client propcache protobuf py-cpuinfo pybase64
    python-json-logger pyzmq referencing rpds-py setproctitle six sniffio uvloop watchfiles 'xgrammar<1' yarl)
for_trl=(trl==1.16.0 datasets==5.2.0 multiprocess pandas pyarrow xxhash)
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$scratch/wheels" \
    --python-version "${PYTHON_THERE:-3.12}" "${platforms[@]}" vllm==0.24.0 "${small[@]}" "${for_trl[@]}"
mkdir "$scratch/site"
for wheel in "$scratch"/wheels/*.whl; do
    unzip -qo "$wheel" -d "$scratch/site" -x '*/_vllm_fa2_C*' 'vllm/vllm-rs' 'vllm/third_party/*/include/*' \
        'vllm/third_party/deep_gemm/_C.*' 'pyarrow/include/*' 'pyarrow/tests/*' 'pandas/tests/*' 2> /dev/null || [ $? = 11 ]
done
tar -C "$scratch/site" -c . | "$(dirname "$0")/parts.sh" "$out"
