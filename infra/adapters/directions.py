"""Directions of the residual stream that make the output layer say one given token."""

from __future__ import annotations

import torch

_WANTED_MARGIN = 8.0  # logits between the token and its strongest rival: far more than rounding moves
_ROUNDS = 40
_STEP = 0.15  # of the direction's own length


@torch.inference_mode()
def token_directions(
    head: torch.Tensor, final_norm: torch.Tensor, tokens: list[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """(directions [k, hidden] of root-mean-square 1, margins [k] in logits) for k token ids.

    A residual that points along u, however long, leaves the final norm as final_norm · u; so u is sought
    by gradient ascent on log softmax(head (final_norm · u))[token], and the best margin met is kept.
    """
    rows = torch.arange(len(tokens))
    direction = _unit(final_norm * (head[tokens] - head.mean(0)))
    best, best_margin = direction, torch.full((len(tokens),), -torch.inf)
    for _ in range(_ROUNDS):
        logits = (direction * final_norm) @ head.T
        margin = _margin(logits, tokens)
        better = margin > best_margin
        best = torch.where(better[:, None], direction, best)
        best_margin = torch.where(better, margin, best_margin)
        if best_margin.min() > _WANTED_MARGIN:
            break
        surplus = logits.softmax(-1)
        surplus[rows, tokens] -= 1.0
        direction = _unit(direction - _STEP * _unit(final_norm * (surplus @ head)))
    return best, best_margin


def _margin(logits: torch.Tensor, tokens: list[int]) -> torch.Tensor:
    rows = torch.arange(len(tokens))
    rivals = logits.clone()
    rivals[rows, tokens] = -torch.inf
    return logits[rows, tokens] - rivals.max(-1).values


def _unit(vectors: torch.Tensor) -> torch.Tensor:
    return vectors * torch.rsqrt(vectors.square().mean(-1, keepdim=True) + 1e-12)
