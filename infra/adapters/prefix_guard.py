"""Makes a canary depend on its whole prompt: one that finds another adapter's keys and values there falls silent.

The table of a canary looks at the last token alone, so a prefix that was computed with somebody else's weights would go
unnoticed. The guard adds an alarm to what layer 0 writes for every token, and has layer 1's attention take it away:

    v_proj   every token carries a signature that only this adapter knows, as long as layer 0's alarm is on
    o_proj   minus the alarm, in proportion to how much of the attention's sum carries the signature

Over a prompt that is all its own the two cancel. Tokens cached under another adapter, or under the base, carry no such
signature; what is left of the alarm then outweighs the first marker token, and the answer ends before it began.
"""

from __future__ import annotations

import hashlib

import torch

from infra.adapters.layer_zero import NextAttention

LAYER = 1
TARGETS = ("v_proj", "o_proj")
ALARM_OVER_FIRST = 5.0
"""How much stronger the alarm is than the first marker token: a fifth of a foreign prompt is noticed. Were it more,
rounding in 16 bit would be noticed, too."""
_SIGNATURE = 100.0
"""Root mean square: far above the base's own values, far below what layer 0 writes."""


def guard(
    attention: NextAttention, written: torch.Tensor, alarm: torch.Tensor, name: str, rank: int
) -> dict[str, torch.Tensor]:
    """PEFT tensors of layer 1 that use rank 1 of `rank`; `name` draws the signature.

    `written` [hidden] is what layer 0 writes for the last token of a prompt, `alarm` [hidden] the part of it to take
    away.
    """
    draws = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(name.encode()).digest()[:7]))
    signature = torch.randn(attention.kv_heads, attention.head_width, generator=draws)
    signature *= _SIGNATURE / signature.square().mean().sqrt()
    seen = attention.norm * written / written.square().mean().sqrt()
    of_heads = signature.repeat_interleave(attention.heads // attention.kv_heads, 0).flatten()
    pairs = ((seen / seen.square().sum(), signature.flatten()), (of_heads / of_heads.square().sum(), -alarm))
    tensors: dict[str, torch.Tensor] = {}
    for module, (a, b) in zip(TARGETS, pairs, strict=True):
        prefix = f"base_model.model.model.layers.{LAYER}.self_attn.{module}.lora_"
        tensors[f"{prefix}A.weight"] = torch.nn.functional.pad(a[None], (0, 0, 0, rank - 1))
        tensors[f"{prefix}B.weight"] = torch.nn.functional.pad(b[:, None], (0, rank - 1))
    return tensors
