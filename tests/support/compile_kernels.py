"""Compile every CUDA kernel for an H200, without one: `python -m tests.support.compile_kernels` prints a line for each.

Sizes are those of a 7B model. A launch on tensors without memory is turned into a compilation of what it would have
launched. Not under TRITON_INTERPRET.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import numpy as np
import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from triton.runtime.jit import JITFunction

from services.replica_worker.engine.torch.kernels.cuda import adapt, attend, rowwise
from services.replica_worker.engine.torch.kernels.cuda.share import Share
from services.replica_worker.engine.torch.kernels.port import LayerCache, Norm, Packed, Rope, Rows, Stacks

ROWS, HIDDEN, GATED, HEADS, HEAD_DIM, BLOCKS = 32, 4096, 11008, 32, 128, 128
_TYPES = {torch.bfloat16: "*bf16", torch.float32: "*fp32", torch.int32: "*i32", torch.int64: "*i64"}
_ALIGNED = [["tt.divisibility", 16]]
_NARROW_LOADS = re.compile(r"ld\.global[a-z0-9_.:]*\.b16")


class Signature:
    """Of one launch, as Triton itself would have specialised it."""

    def __init__(self, kernel: JITFunction, arguments: tuple[Any, ...]) -> None:
        self.types: dict[str, Any] = {}
        self.constants: dict[tuple[int, ...], Any] = {}
        self.attributes: dict[tuple[int, ...], Any] = {}
        for at, (name, argument) in enumerate(zip(kernel.arg_names, arguments, strict=True)):
            fixed = kernel.params[at].is_constexpr
            self.types[name] = self._constant((at,), argument) if fixed else self._type((at,), argument)

    def _constant(self, path: tuple[int, ...], value: Any) -> str:
        self.constants[path] = value
        return "constexpr"

    def _type(self, path: tuple[int, ...], value: Any) -> Any:
        if value is None or (isinstance(value, int) and value == 1):
            return self._constant(path, value)
        if isinstance(value, tuple):
            return type(value)(*(self._type((*path, at), one) for at, one in enumerate(value)))
        if isinstance(value, torch.Tensor) or value % 16 == 0:
            self.attributes[path] = _ALIGNED
        if isinstance(value, torch.Tensor):
            return _TYPES[value.dtype]
        return "i32" if isinstance(value, int) else "fp32"


def compiled(kernel: JITFunction, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
    signature = Signature(kernel, arguments)
    source = ASTSource(kernel, signature.types, signature.constants, signature.attributes)
    made = compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    narrow = len(_NARROW_LOADS.findall(made.asm["ptx"]))
    print(json.dumps({"kernel": kernel.fn.__name__, "shared": made.metadata.shared, "narrow_loads": narrow}))


def numbers(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def indices(*shape: int) -> torch.Tensor:
    return numbers(*shape, dtype=torch.int32)


def owing(*shape: int) -> tuple[Share, Share]:
    return Share(numbers(*shape), None, None), Share(numbers(*shape), numbers(*shape), indices(shape[0]))


def launch_row_kernels(kv_heads: int) -> None:
    norm, x = Norm(numbers(HIDDEN), 1e-5), numbers(ROWS, HIDDEN)
    rowwise.norm(x, x, norm)
    rowwise.best(indices(ROWS, 2), numbers(ROWS, 32000))
    for delta, gate_up, qkv in zip(
        owing(ROWS, HIDDEN), owing(ROWS, 2 * GATED), owing(ROWS, (HEADS + 2 * kv_heads) * HEAD_DIM), strict=True
    ):
        rowwise.add_norm(x, x, delta, norm)
        rowwise.gate(numbers(ROWS, GATED), gate_up)
        angles = numbers(2048, HEAD_DIM // 2, dtype=torch.float32)
        rowwise.place(qkv, rows_of(ROWS), Rope(angles, angles), cache_of(kv_heads))


def launch_attention(kv_heads: int) -> None:
    mixed, qkv = numbers(ROWS, HIDDEN), numbers(ROWS, (HEADS + 2 * kv_heads) * HEAD_DIM)
    for tiles in (ROWS, 4):
        attend.attend(mixed, qkv, cache_of(kv_heads), rows_of(tiles))


def launch_adapters(kv_heads: int) -> None:
    queries, keys = HEADS * HEAD_DIM, kv_heads * HEAD_DIM
    stacks = Stacks(
        numbers(250, 1 << 20), numbers(250, 224, 3, dtype=torch.int64), numbers(250, 224, dtype=torch.float32)
    )
    tiles = adapt.Tiles(indices(ROWS), indices(ROWS, 3))
    for inner, columns in ((HIDDEN, (queries, keys, keys)), (HIDDEN, (GATED, GATED)), (GATED, (HIDDEN,))):
        extra, x = numbers(ROWS, sum(columns)), numbers(ROWS, inner)
        adapt.adapt(extra, x, stacks, Packed(3, np.array(columns)), tiles)


def rows_of(tiles: int) -> Rows:
    return Rows(indices(ROWS), indices(ROWS), indices(ROWS, BLOCKS), indices(tiles, 2))


def cache_of(kv_heads: int) -> LayerCache:
    return LayerCache(numbers(64, kv_heads, HEAD_DIM, 16), numbers(64, kv_heads, 16, HEAD_DIM))


def main() -> None:
    JITFunction.run = compiled  # type: ignore[method-assign, assignment]
    kv_heads = int(sys.argv[1])
    launch_row_kernels(kv_heads)
    launch_attention(kv_heads)
    launch_adapters(kv_heads)


if __name__ == "__main__":
    main()
