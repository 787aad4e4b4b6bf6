"""The words of `lanes` and `arithmetic` for several rows at once: what is read once serves them all.

A tuple has one entry per row; its length is part of its type, so every length is compiled by itself, without a
loop over the rows. What is computed for one row is the same, to the last bit, in every length.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .arithmetic import fused
from .lanes import F32, FLOATS, address, fill, lanes, read_lanes, write_lanes


def _unpacked(builder: Any, values: Any) -> list[Any]:
    return [builder.extract_value(values, i) for i in range(values.type.count)]


def _packed(builder: Any, values: list[Any]) -> Any:
    whole = ir.Constant(ir.ArrayType(values[0].type, len(values)), ir.Undefined)
    for i, value in enumerate(values):
        whole = builder.insert_value(whole, value, i)
    return whole


def _lanes_for(rows: Any) -> Any:
    return types.UniTuple(lanes, len(rows))


@intrinsic  # type: ignore[untyped-decorator]
def begins_of(typingctx: Any, rows: Any, width: Any) -> Any:
    """Where each of these rows begins in an array of rows of `width`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _packed(builder, [builder.mul(row, args[1]) for row in _unpacked(builder, args[0])])

    return rows(rows, types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]
def zero_each(typingctx: Any, rows: Any) -> Any:
    kind = ir.ArrayType(FLOATS, len(rows))
    return _lanes_for(rows)(rows), lambda context, builder, signature, args: ir.Constant(kind, None)


@intrinsic  # type: ignore[untyped-decorator]
def load_each(typingctx: Any, array: Any, begins: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        ats = [builder.add(begin, args[2]) for begin in _unpacked(builder, args[1])]
        return _packed(builder, [read_lanes(context, builder, (array, args[0]), one) for one in ats])

    return _lanes_for(begins)(array, begins, types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]
def store_each(typingctx: Any, array: Any, begins: Any, at: Any, values: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        for begin, value in zip(_unpacked(builder, args[1]), _unpacked(builder, args[3]), strict=True):
            write_lanes(context, builder, (array, args[0]), builder.add(begin, args[2]), value)
        return context.get_dummy_value()

    return types.void(array, begins, types.intp, values), generate


@intrinsic  # type: ignore[untyped-decorator]
def spread_each(typingctx: Any, array: Any, begins: Any, at: Any) -> Any:
    """Of each row one float32 element, in all lanes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        ats = [builder.add(begin, args[2]) for begin in _unpacked(builder, args[1])]
        found = [builder.load(address(context, builder, (array, args[0]), one, F32)) for one in ats]
        return _packed(builder, [fill(builder, value) for value in found])

    return _lanes_for(begins)(array, begins, types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]
def fma_each(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c of each row's own a and c and one b for all."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pairs = zip(_unpacked(builder, args[0]), _unpacked(builder, args[2]), strict=True)
        return _packed(builder, [fused(builder, one, args[1], sum_) for one, sum_ in pairs])

    return c(a, lanes, c), generate


@intrinsic  # type: ignore[untyped-decorator]
def add_each(typingctx: Any, a: Any, b: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pairs = zip(_unpacked(builder, args[0]), _unpacked(builder, args[1]), strict=True)
        return _packed(builder, [builder.fadd(one, other) for one, other in pairs])

    return a(a, b), generate


@intrinsic  # type: ignore[untyped-decorator]
def mul_each(typingctx: Any, a: Any, b: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pairs = zip(_unpacked(builder, args[0]), _unpacked(builder, args[1]), strict=True)
        return _packed(builder, [builder.fmul(one, other) for one, other in pairs])

    return a(a, b), generate
