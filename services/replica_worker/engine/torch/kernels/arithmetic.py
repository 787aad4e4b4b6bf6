"""What can be computed with `Lanes`, each in one fixed order of operations."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .lanes import FLOATS, I32, WIDTH, WORDS, constant, fill, lanes

ZERO = np.float32(0.0)


@intrinsic  # type: ignore[untyped-decorator]
def splat(typingctx: Any, value: Any) -> Any:
    """One number in all lanes."""
    return lanes(types.float32), lambda context, builder, signature, args: fill(builder, args[0])


@intrinsic  # type: ignore[untyped-decorator]
def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return fused(builder, *args)

    return lanes(lanes, lanes, lanes), generate


def fused(builder: Any, a: Any, b: Any, c: Any) -> Any:
    operation = ir.FunctionType(FLOATS, [FLOATS] * 3)
    return builder.call(cgutils.get_or_insert_function(builder.module, operation, "llvm.fma.v16f32"), [a, b, c])


@intrinsic  # type: ignore[untyped-decorator]
def add(typingctx: Any, a: Any, b: Any) -> Any:
    return lanes(lanes, lanes), lambda context, builder, signature, args: builder.fadd(*args)


@intrinsic  # type: ignore[untyped-decorator]
def mul(typingctx: Any, a: Any, b: Any) -> Any:
    return lanes(lanes, lanes), lambda context, builder, signature, args: builder.fmul(*args)


@intrinsic  # type: ignore[untyped-decorator]
def total(typingctx: Any, a: Any) -> Any:
    """The sum of all lanes, halves first."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _fold(builder, args[0], builder.fadd)

    return types.float32(lanes), generate


def _fold(builder: Any, value: Any, combine: Any) -> Any:
    """Combine the halves of a vector until one number is left."""
    width = WIDTH
    while width > 1:
        width //= 2
        low, high = (
            builder.shuffle_vector(value, value, ir.Constant(ir.VectorType(I32, width), list(range(at, at + width))))
            for at in (0, width)
        )
        value = combine(low, high)
    return builder.extract_element(value, ir.Constant(I32, 0))


@intrinsic  # type: ignore[untyped-decorator]
def div(typingctx: Any, a: Any, b: Any) -> Any:
    return lanes(lanes, lanes), lambda context, builder, signature, args: builder.fdiv(*args)


@intrinsic  # type: ignore[untyped-decorator]
def largest(typingctx: Any, a: Any) -> Any:
    """The largest lane; with NaN among them any lane."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def larger(low: Any, high: Any) -> Any:
            return builder.select(builder.fcmp_unordered("uge", low, high), low, high)

        return _fold(builder, args[0], larger)

    return types.float32(lanes), generate


@intrinsic  # type: ignore[untyped-decorator]
def larger(typingctx: Any, a: Any, b: Any) -> Any:
    """Lane by lane; `b` where either is NaN."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered("ogt", args[0], args[1]), args[0], args[1])

    return lanes(lanes, lanes), generate


@intrinsic  # type: ignore[untyped-decorator]
def first_lanes(typingctx: Any, count: Any, a: Any, otherwise: Any) -> Any:
    """The first `count` lanes of `a`, and `otherwise` in the rest, whatever stands in `a` there."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        places = ir.Constant(WORDS, list(range(WIDTH)))
        kept = builder.icmp_signed("<", places, fill(builder, builder.trunc(args[0], I32)))
        return builder.select(kept, args[1], fill(builder, args[2]))

    return lanes(types.intp, lanes, types.float32), generate


_EXP2 = (1.5403530e-4, 1.3333558e-3, 9.6181291e-3, 5.5504109e-2, 2.4022651e-1, 6.9314718e-1, 1.0)
"""2^f for f in [-0.5, 0.5], highest power first (Taylor's: its error is below float32's own)."""


@intrinsic  # type: ignore[untyped-decorator]
def exp2(typingctx: Any, a: Any) -> Any:
    """2 to the power of each lane, cut to exponents of -126 to 127; NaN stays NaN."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def clamped(value: Any, limit: float, operator: str) -> Any:
            beyond = builder.fcmp_ordered(operator, value, constant(FLOATS, limit))
            return builder.select(beyond, constant(FLOATS, limit), value)

        power = clamped(clamped(args[0], -126.0, "<"), 127.0, ">")
        # Adding 1.5 · 2^23 leaves the nearest integer in the low bits: no conversion that NaN could upset.
        shifter = constant(FLOATS, 12582912.0)
        shifted = builder.fadd(power, shifter)
        fraction = builder.fsub(power, builder.fsub(shifted, shifter))
        value = constant(FLOATS, _EXP2[0])
        for factor in _EXP2[1:]:
            value = fused(builder, value, fraction, constant(FLOATS, factor))
        exponent = builder.shl(builder.bitcast(shifted, WORDS), constant(WORDS, 23))
        scale = builder.bitcast(builder.add(exponent, constant(WORDS, 0x3F800000)), FLOATS)
        return builder.fmul(value, scale)

    return lanes(lanes), generate
