"""Triton's interpreter, without most of the time it takes.

It replaces the language by what computes with NumPy, anew at each launch and in each call of a function in a kernel.
That takes longer than the kernels of small models. Once is enough: what is replaced stays replaced.
"""

from typing import Any

from triton.runtime import interpreter


def patch_once() -> None:
    plain, patched = interpreter._patch_lang, set[int]()

    def once(function: Any) -> Any:
        """Replace what the function's module sees of the language, unless that was done."""
        if id(function.__globals__) not in patched:
            patched.add(id(function.__globals__))
            plain(function)
        return interpreter._LangPatchScope()  # with nothing to put back

    interpreter._patch_lang = once
