"""The forward pass: a ragged step of any rows of any sequences through a Llama-family model.

All rows of a step stand in one [n, hidden] matrix for the linear layers, one product for all modules that
share their input; everything else is the kernels' work, row by row. Together with products whose rows do
not influence one another this makes a row's numbers the same in every batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import torch

from .cache import KvCache
from .config import MODULES, ModelConfig
from .kernels.port import Adapted, Kernels, Norm, Packed, Rope, Rows, Stacks
from .linear import Activation, Linear
from .weights import Weights
from .workspace import Workspace


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One forward pass: `token_ids` [n], the sequences' tokens one after another; `sampled` [m] are the indices
    into them whose next-token logits are wanted. `row_parts` and `adapted_parts` are what the kernels split
    `rows` and the adapted ones among them into; no adapted parts: every row is on the base model."""

    token_ids: torch.Tensor
    sampled: torch.Tensor
    rows: Rows
    row_parts: Sequence[Rows]
    adapted_parts: Sequence[Adapted]


class Projection:
    """Modules of a layer that share their input: the base product, and where their adapters stand."""

    def __init__(self, weights: Weights, layer: int, modules: tuple[str, ...], kernels: Kernels, pack: bool) -> None:
        names = [f"model.layers.{layer}.{module}" for module in modules]
        found = [weights[f"{name}.weight"] for name in names]
        biases = [weights[f"{name}.bias"] for name in names if f"{name}.bias" in weights]
        self.linear = Linear(found, biases, pack)
        first = layer * len(MODULES) + MODULES.index(modules[0])
        self.packed = Packed(first, kernels.index([len(weight) for weight in found]))


class Layer:
    def __init__(self, weights: Weights, index: int, epsilon: float, kernels: Kernels, pack: bool) -> None:
        def norm(name: str) -> Norm:
            return Norm(kernels.view(weights[name]), epsilon)

        self.attention_norm = norm(f"model.layers.{index}.input_layernorm.weight")
        self.mlp_norm = norm(f"model.layers.{index}.post_attention_layernorm.weight")
        following = f"model.layers.{index + 1}.input_layernorm.weight"
        self.next_norm = norm(following if following in weights else "model.norm.weight")
        self.qkv, self.o, self.gate_up, self.down = (
            Projection(weights, index, modules, kernels, pack)
            for modules in (MODULES[0:3], MODULES[3:4], MODULES[4:6], MODULES[6:7])
        )


class Tables(NamedTuple):
    """What steps read besides weights: the angles, and the slots of all adapters."""

    rope: Rope
    stacks: Stacks


class LlamaModel:
    """`pack`: see `packed.py`."""

    def __init__(
        self, config: ModelConfig, weights: Weights, tables: Tables, workspace: Workspace, pack: bool = False
    ) -> None:
        self.kernels = kernels = workspace.kernels
        self._embedding = weights["model.embed_tokens.weight"]
        self._head = Linear([weights.get("lm_head.weight", self._embedding)], [], pack)
        self._layers = [Layer(weights, index, config.rms_eps, kernels, pack) for index in range(config.layers)]
        self._tables, self._workspace = tables, workspace
        self.device = self._embedding.device

    @property
    def has_slots(self) -> bool:
        return len(self._tables.stacks.places) > 0

    def multiply(self, rows: int) -> None:
        """The products of one layer at this many rows, of whatever stands in memory: all layers have the same."""
        at, layer = self._workspace.of(rows), self._layers[0]
        for projection, out, x in (
            (layer.qkv, at.qkv, at.normed),
            (layer.o, at.delta, at.mixed),
            (layer.gate_up, at.gate_up, at.normed),
            (layer.down, at.delta, at.gated),
        ):
            projection.linear.into(out.tensor, x.tensor)

    def forward(self, step: Step, cache: KvCache) -> Activation:
        """Next-token logits [m, vocabulary] of the step's sampled rows, until the next call; fills the cache."""
        kernels, n = self.kernels, len(step.token_ids)
        at = self._workspace.of(n)
        torch.index_select(self._embedding, 0, step.token_ids, out=at.x.tensor[:n])
        kernels.norm(at.normed.view, at.x.view, self._layers[0].attention_norm)
        for layer, blocks in zip(self._layers, cache.layers, strict=True):
            self._project(layer.qkv, at.qkv, at.normed, step)
            kernels.place(at.qkv.view, step.rows, self._tables.rope, blocks)
            kernels.attend(at.mixed.view, at.qkv.view, blocks, step.row_parts)
            self._project(layer.o, at.delta, at.mixed, step)
            kernels.add_norm(at.normed.view, at.x.view, at.delta.view, layer.mlp_norm)
            self._project(layer.gate_up, at.gate_up, at.normed, step)
            kernels.gate(at.gated.view, at.gate_up.view)
            self._project(layer.down, at.delta, at.gated, step)
            kernels.add_norm(at.normed.view, at.x.view, at.delta.view, layer.next_norm)
        return self._logits(at.normed.tensor, step.sampled)

    def _project(self, projection: Projection, out: Activation, x: Activation, step: Step) -> None:
        if not step.adapted_parts:
            projection.linear.into(out.tensor, x.tensor)
            return
        adaptation = out.view, x.view, self._tables.stacks, projection.packed, step.adapted_parts
        self.kernels.foresee(*adaptation)
        projection.linear.into(out.tensor, x.tensor)
        self.kernels.adapt(*adaptation)

    def _logits(self, normed: torch.Tensor, sampled: torch.Tensor) -> Activation:
        m = len(sampled)
        head = self._workspace.head(m)
        if m:
            torch.index_select(normed, 0, sampled, out=head.last.tensor[:m])
            self._head.into(head.logits.tensor, head.last.tensor)
        return Activation(head.logits.tensor[:m], head.logits.view)
