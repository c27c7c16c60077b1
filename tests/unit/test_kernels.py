"""The Triton kernels compile for real cards, without one: types, and memory that every card has."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="needs Triton, which pip install triton brings")

SHARED = {80: 99 * 1024, 90: 99 * 1024}
"""Compute capability -> bytes of shared memory: a data-centre card has more, the smallest of the family has this."""

_COMPILE = """
import json, sys
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from longloop.engines import triton_kernels

def compiled(kernel, pointers, numbers, constants, card):
    names = kernel.arg_names
    types = pointers | {name: "fp32" if name == "scale" else "i32" for name in numbers}
    hint = [["tt.divisibility", 16]]
    aligned = {*pointers, *numbers} - {"scale", "window", "layer"}
    attributes = {(names.index(name),): hint for name in aligned}
    options = {name: constants.pop(name) for name in ("num_warps", "num_stages") if name in constants}
    source = ASTSource(
        fn=kernel,
        signature={name: types.get(name, "constexpr") for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs=attributes,
    )
    return triton.compile(source, target=GPUTarget("cuda", card, 32), options=options).metadata.shared

found = []
for card, kind, size, which in (
    (90, "bf16", 64, ("single", "many")),
    (90, "bf16", 128, ("single", "many", "block", "merge", "write")),
    (90, "fp32", 80, ("single", "block")),
    (80, "fp32", 256, ("single", "block", "merge", "write")),
):
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[kind]
    q = torch.empty(1, size, dtype=dtype)
    data, queries = "*" + kind, {"K": 2, "G": 3, "D": size, "PAGE": triton_kernels.PAGE}
    strides = ("q_t", "q_h", "kn_t", "kn_k", "vn_t", "vn_k", "o_t", "o_h", "layer", "scale", "window")
    places = {"Q": data, "K_NEW": data, "V_NEW": data, "TABLE": "*i64", "OUT": data, "PART": "*fp32", "WEIGHT": "*fp32"}
    width = triton.next_power_of_2(size)
    for name in which:
        if name == "merge":
            bytes = compiled(
                triton_kernels._merge,
                {"PART": "*fp32", "WEIGHT": "*fp32", "OUT": data, "MERGE": "*i32"},
                ("o_t", "o_h"),
                {"D": size, "MANY": triton_kernels.MOST_PARTS, "WIDTH": width, "MERGED": triton_kernels.MERGED},
                card,
            )
        elif name == "write":
            bytes = compiled(
                triton_kernels._write,
                {"K_NEW": data, "V_NEW": data, "TABLE": "*i64", "SPAN": "*i32", "POSITION": "*i32"},
                ("kn_t", "kn_k", "vn_t", "vn_k", "layer"),
                {"K": 2, "D": size, "WIDTH": width, "PAGE": triton_kernels.PAGE},
                card,
            )
        else:
            rows, tile = {
                "single": (16, triton_kernels._single_tile(q, 1)),
                "many": (16, triton_kernels._single_tile(q, 10**4)),
                "block": (64, triton_kernels._tile(q, most=64)),
            }[name]
            own = {"SINGLE": name != "block", "ROWS": rows, "FIELDS": triton_kernels.FIELDS}
            bytes = compiled(triton_kernels._work, places | {"ITEMS": "*i32"}, strides, queries | own | tile, card)
        found.append((card, kind, size, name, bytes))
print(json.dumps(found))
"""


def test_kernels_compile_and_fit() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", _COMPILE], capture_output=True, text=True, env=environment, timeout=840
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 2 + 5 + 2 + 4
    for card, kind, size, name, bytes in found:
        assert bytes <= SHARED[card], f"{name} of {kind} with head size {size} takes {bytes} bytes on sm_{card}"
