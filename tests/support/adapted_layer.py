"""What tests of the adapted layer alone need of a model, on any device."""

from __future__ import annotations

from services.replica_worker.engine.port import AdapterSpec
from services.replica_worker.engine.torch.config import ModelConfig, RopeConfig

ANY_SPEC = AdapterSpec(adapter_id="a", digest="", base_model_hash="", rank=1, alpha=1.0, target_modules=())
"""Of adapters whose tensors and scales are given, so that nothing is read from it."""


def narrow_model(hidden: int, heads: int) -> ModelConfig:
    """Two layers with one key head for all query heads."""
    return ModelConfig(
        layers=2,
        hidden=hidden,
        intermediate=64,
        heads=heads,
        kv_heads=1,
        head_dim=32,
        vocabulary_size=64,
        max_context_tokens=64,
        rms_eps=1e-6,
        tied_embeddings=True,
        attention_bias=False,
        mlp_bias=False,
        rope=RopeConfig(),
    )
