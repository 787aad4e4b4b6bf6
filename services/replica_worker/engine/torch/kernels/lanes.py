"""Sixteen float32 at a time: the words that the CPU kernels are written in.

`Lanes` is one LLVM vector of sixteen floats; the compiler cuts it to whatever the processor has. Every
operation below has one fixed order of arithmetic, no fast-math flag is set anywhere, and products are fused
explicitly: so the source alone decides every last bit, whatever is computed beside it, by however many
threads, and NaN and Inf behave as IEEE 754 says.

Arrays are C-contiguous; an index counts elements from the array's beginning, whatever its shape. Arrays of
uint16 hold bfloat16: widened by a shift on loading, rounded to nearest even on storing.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

WIDTH = 16

F32, _I16, I32 = ir.FloatType(), ir.IntType(16), ir.IntType(32)
FLOATS, _SHORTS, WORDS = (ir.VectorType(kind, WIDTH) for kind in (F32, _I16, I32))


class Lanes(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Lanes")


lanes = Lanes()


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, FLOATS)


def constant(kind: ir.VectorType, value: float) -> ir.Constant:
    return ir.Constant(kind, [value] * WIDTH)


def address(context: Any, builder: Any, array: tuple[Any, Any], at: Any, kind: Any) -> Any:
    """A pointer to `kind` at element `at` of an array, given as its type and its value."""
    data = context.make_array(array[0])(context, builder, array[1]).data
    return builder.bitcast(builder.gep(data, [at]), kind.as_pointer())


def _is_bfloat16(array_type: Any) -> bool:
    if not isinstance(array_type, types.Array) or array_type.layout != "C":
        raise TypeError(f"{array_type} is not a C-contiguous array")
    return bool(array_type.dtype == types.uint16)


def _round(builder: Any, wide: Any, words: Any, shorts: Any) -> Any:
    """float32 bits (as integers `words`) -> bfloat16 bits, to nearest even; NaN stays NaN."""
    bits = builder.bitcast(wide, words)

    def number(value: int) -> Any:
        return constant(words, value) if isinstance(words, ir.VectorType) else ir.Constant(words, value)

    odd = builder.and_(builder.lshr(bits, number(16)), number(1))
    rounded = builder.lshr(builder.add(bits, builder.add(odd, number(0x7FFF))), number(16))
    is_nan = builder.fcmp_unordered("uno", wide, wide)
    return builder.trunc(builder.select(is_nan, number(0x7FC0), rounded), shorts)


def read_lanes(context: Any, builder: Any, array: tuple[Any, Any], at: Any) -> Any:
    narrow = _is_bfloat16(array[0])
    read = builder.load(address(context, builder, array, at, _SHORTS if narrow else FLOATS))
    read.align = 2 if narrow else 4
    if not narrow:
        return read
    return builder.bitcast(builder.shl(builder.zext(read, WORDS), constant(WORDS, 16)), FLOATS)


def write_lanes(context: Any, builder: Any, array: tuple[Any, Any], at: Any, value: Any) -> None:
    narrow = _is_bfloat16(array[0])
    written = _round(builder, value, WORDS, _SHORTS) if narrow else value
    place = address(context, builder, array, at, _SHORTS if narrow else FLOATS)
    builder.store(written, place, align=2 if narrow else 4)


@intrinsic  # type: ignore[untyped-decorator]
def load(typingctx: Any, array: Any, at: Any) -> Any:
    """Sixteen neighbours from `array[at]` on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return read_lanes(context, builder, (array, args[0]), args[1])

    return lanes(array, types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]
def store(typingctx: Any, array: Any, at: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        write_lanes(context, builder, (array, args[0]), args[1], args[2])
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), generate


@intrinsic  # type: ignore[untyped-decorator]
def read(typingctx: Any, array: Any, at: Any) -> Any:
    """One element, as float32."""
    narrow = _is_bfloat16(array)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        one = builder.load(address(context, builder, (array, args[0]), args[1], _I16 if narrow else F32))
        if not narrow:
            return one
        return builder.bitcast(builder.shl(builder.zext(one, I32), ir.Constant(I32, 16)), F32)

    return types.float32(array, types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]
def spread(typingctx: Any, array: Any, at: Any) -> Any:
    """One float32 element in all lanes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return fill(builder, builder.load(address(context, builder, (array, args[0]), args[1], F32)))

    return lanes(array, types.intp), generate


def fill(builder: Any, value: Any) -> Any:
    """A vector with one number in all lanes."""
    kind = ir.VectorType(value.type, WIDTH)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), ir.Constant(WORDS, [0] * WIDTH))
