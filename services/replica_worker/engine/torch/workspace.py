"""The memory that a step's activations stand in: allocated once, and looked at anew only for a new row count."""

from __future__ import annotations

import bisect
from typing import NamedTuple

import torch

from .config import ModelConfig
from .kernels.port import Kernels
from .linear import Activation, activation, row_classes


class Activations(NamedTuple):
    """Of one step: `x` is the residual stream, `delta` what a block adds to it."""

    x: Activation
    normed: Activation
    qkv: Activation
    mixed: Activation
    delta: Activation
    gate_up: Activation
    gated: Activation


class Head(NamedTuple):
    """The sampled rows of a step and their logits."""

    last: Activation
    logits: Activation


class Workspace:
    """For steps of up to `most_rows` rows, `most_sampled` of them sampled. What a former step left in padding
    rows is harmless: rows of a product do not mix."""

    def __init__(self, config: ModelConfig, most: tuple[int, int], like: torch.Tensor, kernels: Kernels) -> None:
        self.kernels = kernels
        self.row_classes, self.head_classes = (row_classes(rows, like.dtype, like.device) for rows in most)
        queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim

        def memory(rows: int, width: int) -> torch.Tensor:
            return torch.zeros((rows, width), dtype=like.dtype, device=like.device)

        widths = (
            config.hidden,
            config.hidden,
            queries + 2 * keys,
            queries,
            config.hidden,
            2 * config.intermediate,
            config.intermediate,
        )
        self._rows = [memory(self.row_classes[-1], width) for width in widths]
        self._head = [memory(self.head_classes[-1], width) for width in (config.hidden, config.vocabulary_size)]
        self._activations: dict[int, Activations] = {}
        self._heads: dict[int, Head] = {}

    def of(self, rows: int) -> Activations:
        if rows not in self._activations:
            self._activations[rows] = Activations(*self._look(self._rows, rows, self.row_classes))
        return self._activations[rows]

    def head(self, sampled: int) -> Head:
        if sampled not in self._heads:
            self._heads[sampled] = Head(*self._look(self._head, sampled, self.head_classes))
        return self._heads[sampled]

    def _look(self, memories: list[torch.Tensor], rows: int, classes: tuple[int, ...]) -> list[Activation]:
        """Raises ValueError for more rows than there is room for."""
        if rows > classes[-1]:
            raise ValueError(f"a step of {rows} rows is larger than {classes[-1]}")
        padded_rows = classes[bisect.bisect_left(classes, rows)]
        return [activation(self.kernels, memory, rows, padded_rows) for memory in memories]
