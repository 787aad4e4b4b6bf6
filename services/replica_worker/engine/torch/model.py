"""The forward pass: a ragged step of any rows of any sequences through a Llama-family model.

All rows of a step stand in one [n, hidden] matrix for the linear layers; attention runs per sequence, over
that sequence's own cache and in shapes that depend on its own length only. Together with linear layers
whose rows do not influence one another this makes a row's numbers the same in every batch.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import torch
import torch.nn.functional as functional

from services.replica_worker.engine.batch import Piece

from .cache import KvCache
from .config import MODULES, ModelConfig
from .lora import AdaptedRows, LoraStack
from .rope import rope_tables, rotate
from .weights import Weights

ROW_MULTIPLE = {torch.float32: 8, torch.bfloat16: 4}
"""Steps are padded to this many rows. On CPUs products of very few rows (one in bfloat16, up to three in
float32) take another code path, with other last bits; from here on a row is the same at every size."""

Stacks = Mapping[tuple[int, str], LoraStack]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One forward pass: `token_ids`, `positions` are [n], the pieces' tokens one after another; `places` has
    for every piece where in the cache its sequence's first `stop` tokens are; `sampled` [m] are the indices
    into the n tokens whose next-token logits are wanted."""

    pieces: tuple[Piece, ...]
    token_ids: torch.Tensor
    positions: torch.Tensor
    places: tuple[torch.Tensor, ...]
    sampled: torch.Tensor
    adapted: AdaptedRows | None


class AdaptedLinear:
    """x [n, in] -> [n, out]: the base product, once for the whole batch, plus each row's own adapter."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, stack: LoraStack | None) -> None:
        self.weight = weight
        self.bias = bias
        self.stack = stack

    def __call__(self, x: torch.Tensor, adapted: AdaptedRows | None) -> torch.Tensor:
        y = functional.linear(x, self.weight, self.bias)
        if adapted is not None and self.stack is not None:
            self.stack.add_to(y, x, adapted)
        return y


class Layer:
    def __init__(self, weights: Weights, index: int, stacks: Stacks) -> None:
        prefix = f"model.layers.{index}."
        self.attention_norm = weights[f"{prefix}input_layernorm.weight"]
        self.mlp_norm = weights[f"{prefix}post_attention_layernorm.weight"]
        self.q, self.k, self.v, self.o, self.gate, self.up, self.down = (
            AdaptedLinear(
                weights[f"{prefix}{module}.weight"],
                weights.get(f"{prefix}{module}.bias"),
                stacks.get((index, module)),
            )
            for module in MODULES
        )


class LlamaModel:
    def __init__(self, config: ModelConfig, weights: Weights, stacks: Stacks, context_tokens: int) -> None:
        self.config = config
        self._embedding = weights["model.embed_tokens.weight"]
        self._head = weights.get("lm_head.weight", self._embedding)
        self._norm = weights["model.norm.weight"]
        self._layers = [Layer(weights, index, stacks) for index in range(config.layers)]
        tables = rope_tables(config.rope, config.head_dim, context_tokens, self._embedding.dtype)
        self._cos, self._sin = (table.to(self._embedding.device) for table in tables)
        self._row_multiple = ROW_MULTIPLE[self._embedding.dtype]

    def forward(self, step: Step, cache: KvCache) -> torch.Tensor:
        """Next-token logits [m, vocabulary], float32, of the step's sampled rows; fills the cache."""
        x = _pad_rows(functional.embedding(step.token_ids, self._embedding), self._row_multiple)
        angles = self._cos[step.positions], self._sin[step.positions]
        for index, layer in enumerate(self._layers):
            normed = self._rms_norm(x, layer.attention_norm)
            mixed = self._attend(index, normed, angles, step, cache)
            x = x + layer.o(mixed, step.adapted)
            normed = self._rms_norm(x, layer.mlp_norm)
            gated = functional.silu(layer.gate(normed, step.adapted)) * layer.up(normed, step.adapted)
            x = x + layer.down(gated, step.adapted)
        last = _pad_rows(self._rms_norm(x[step.sampled], self._norm), self._row_multiple)
        return functional.linear(last, self._head)[: len(step.sampled)].float()

    def _attend(
        self,
        index: int,
        x: torch.Tensor,
        angles: tuple[torch.Tensor, torch.Tensor],
        step: Step,
        cache: KvCache,
    ) -> torch.Tensor:
        """x [n, hidden] -> [n, heads * head_dim], before the output projection."""
        layer, config, n = self._layers[index], self.config, len(step.token_ids)
        q = layer.q(x, step.adapted)[:n].view(n, config.heads, config.head_dim)
        k = layer.k(x, step.adapted)[:n].view(n, config.kv_heads, config.head_dim)
        v = layer.v(x, step.adapted)[:n].view(n, config.kv_heads, config.head_dim)
        q = rotate(q, *angles)
        written = torch.cat([places[piece.start :] for piece, places in zip(step.pieces, step.places, strict=True)])
        cache.write(index, written, rotate(k, *angles), v)
        mixed = torch.zeros((len(x), config.heads * config.head_dim), dtype=x.dtype, device=x.device)
        offset = 0
        for piece, places in zip(step.pieces, step.places, strict=True):
            end = offset + piece.stop - piece.start
            keys, values = cache.read(index, places)
            mixed[offset:end] = _piece_attention(q[offset:end], keys, values)
            offset = end
        return mixed

    def _rms_norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """In float32, as the family is trained; the weight is applied after rounding to x's dtype."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.config.rms_eps)
        return weight * wide.to(x.dtype)


def _piece_attention(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Attention of c query rows q [c, heads, head_dim], the last c positions of keys and values
    [1, kv_heads, tokens, head_dim], each seeing itself and what is before: -> [c, heads * head_dim].

    The query heads that share a key head become further query rows of it: that is grouped-query
    attention without a copy of keys or values.
    """
    (c, heads, head_dim), kv_heads, tokens = q.shape, keys.shape[1], keys.shape[2]
    group = heads // kv_heads
    grouped = q.view(c, kv_heads, group, head_dim).permute(1, 2, 0, 3).reshape(1, kv_heads, group * c, head_dim)
    mask = None
    if c > 1:
        visible = torch.ones((c, tokens), dtype=torch.bool, device=q.device).tril(tokens - c)
        mask = visible.repeat(group, 1)
    mixed = functional.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask)
    return mixed.view(kv_heads, group, c, head_dim).permute(2, 0, 1, 3).reshape(c, heads * head_dim)


def _pad_rows(x: torch.Tensor, multiple: int) -> torch.Tensor:
    missing = -len(x) % multiple
    return functional.pad(x, (0, 0, 0, missing)) if missing else x
