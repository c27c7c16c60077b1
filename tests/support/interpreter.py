"""Triton's interpreter, without most of the time it takes.

It replaces the language by what computes with NumPy, anew at each launch and in each call of a function in a kernel.
That takes longer than the kernels of small models. Once is enough: what is replaced stays replaced.

It also computes all whole numbers a second time in 64 bits, for an assertion that it then leaves out, as a card does:
assertions are for debugging. And it lists the types of NumPy anew to look up one.
"""

from dataclasses import replace
from functools import cache
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

    look_up, builder = interpreter._get_np_dtype, interpreter.interpreter_builder
    known = cache(look_up)

    def dtype_of(type: Any) -> Any:
        """The type in NumPy of a type or of a block's elements; those of pointers cannot be remembered."""
        return look_up(type) if type.scalar.is_ptr() else known(type.scalar)

    interpreter._patch_lang, interpreter._get_np_dtype = once, dtype_of
    builder.options = replace(builder.options, sanitize_overflow=builder.options.debug)
