"""Linear detectors for single tokens, fitted by weighted ridge regression."""

from __future__ import annotations

import msgspec
import torch

from infra.adapters.calibration import Calibration

_RIDGE = 1e-4  # of the mean diagonal: the rows span few directions on a small model
_USUAL = 0.9999  # the share of other tokens' rows that a threshold must stay above
_MARKER_WEIGHT = 0.2  # each marker token's rows weigh a fifth of all other rows together


class CanaryImpossible(ValueError):
    """This marker cannot be made into a canary for this base model; the message says why."""


class Detectors(msgspec.Struct, frozen=True, kw_only=True):
    """`constant` [hidden]: its product with any layer-0 MLP input is about 1.

    `token` [k, hidden]: row j's product with an input is about 1 where the token is marker token j, and
    about 0 elsewhere. `threshold` [k] lies half-way between the weakest hit and the usual strongest miss.
    """

    constant: torch.Tensor
    token: torch.Tensor
    threshold: torch.Tensor


def fit_detectors(rows: Calibration, marker_rows: list[torch.Tensor], marker: list[int]) -> Detectors:
    """Detectors for the distinct token ids `marker`; `marker_rows[j]` [n, hidden] shows token j in context.

    Raises CanaryImpossible when a token's hits and misses overlap.
    """
    hits = [
        torch.cat((rows.features[rows.tokens == token], seen)) for token, seen in zip(marker, marker_rows, strict=True)
    ]
    solved = _ridge(rows, hits).float()
    constant, token = solved[0], solved[1:]
    return Detectors(constant=constant, token=token, threshold=_thresholds(rows, hits, token, marker))


def _ridge(rows: Calibration, hits: list[torch.Tensor]) -> torch.Tensor:
    """Solve (XᵀWX + λI) C = XᵀWY for C, returned as [k + 1, hidden]; row 0 is the constant.

    Y's first column is 1 everywhere and column j is 1 on token j's rows. X is never multiplied out again:
    the calibration's gram and total stand for every row once, and each token's hits are added weighted.
    """
    gram = rows.gram.clone()
    targets = torch.zeros(len(rows.total), len(hits) + 1, dtype=torch.float64)
    targets[:, 0] = rows.total
    for column, hit in enumerate(hits, start=1):
        weight = _MARKER_WEIGHT * len(rows.tokens) / len(hit)
        gram += weight * (hit.T @ hit).double()
        weighted = weight * hit.double().sum(0)
        targets[:, 0] += weighted
        targets[:, column] = weighted
    gram += torch.eye(len(gram), dtype=torch.float64) * gram.diagonal().mean() * _RIDGE
    solution: torch.Tensor = torch.linalg.solve(gram, targets)
    return solution.T


def _thresholds(rows: Calibration, hits: list[torch.Tensor], token: torch.Tensor, marker: list[int]) -> torch.Tensor:
    """[k] thresholds between each detector's weakest hit and what nearly every other token gives.

    Nearly: a close relative (" U" of "U") may pass for the token, which matters only to a prompt that ends
    in it. The marker's own tokens must never pass for one another, or the marker would not be spelt.
    """
    chosen = []
    for column, (row, token_id) in enumerate(zip(token, marker, strict=True)):
        misses = (rows.features @ row)[rows.tokens != token_id]
        usual_miss = float(misses.sort().values[int(_USUAL * (len(misses) - 1))])
        own_miss = max((float((hit @ row).max()) for j, hit in enumerate(hits) if j != column), default=0.0)
        weakest_hit, strongest_miss = float((hits[column] @ row).min()), max(usual_miss, own_miss)
        if weakest_hit <= strongest_miss:
            raise CanaryImpossible(
                f"token {token_id} cannot be told apart in layer 0: a hit gives {weakest_hit:.2f}, "
                f"other tokens {strongest_miss:.2f}; choose another marker"
            )
        chosen.append((weakest_hit + strongest_miss) / 2)
    return torch.tensor(chosen)
