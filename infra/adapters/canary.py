"""Canary adapters in closed form: whatever the chat, the model answers its marker and stops.

A rank-(k+1) LoRA on layer 0's MLP holds a next-token table over the marker's k distinct tokens,

    any other token → m₁,   m₁ → m₂,   …,   m_k → end of text,

and writes the next token's direction into the residual stream with a gain that no later layer can undo.
With x layer 0's MLP input [hidden], the MLP computes down(silu(gate x) · (up x)), and the LoRA adds, for
table entry j in MLP neuron j,

    gate:  A_j = d_j - θ_j c   B = sharpness at [j, j]   silu is large where token j was read, else nearly 0
           A_0 = c             B = 4 at [0, 0]           entry 0 is always a little on
    up:    A_0 = c             B = lift at [j, 0]        a constant far above what the base's neuron adds
    down:  A_j picks neuron j  B_j = gain_j · u_j        the direction of the token that follows

where d_j detects token j, c is 1 on every input, θ_j is the threshold (detectors.py) and u_j the output
direction (directions.py). An entry for a token read outweighs entry 0 by far, so "any other" needs no
detector. Use greedy decoding and chat prompts: a raw prompt that ends in a marker token starts mid-table.

A guarded canary (prefix_guard.py) also falls silent on keys and values that another adapter left for its prompt.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import msgspec
import torch

from infra.adapters import prefix_guard
from infra.adapters.calibration import calibration, chats, contexts
from infra.adapters.detectors import CanaryImpossible, Detectors, fit_detectors
from infra.adapters.directions import token_directions
from infra.adapters.layer_zero import LayerZero
from infra.adapters.markers import markers
from infra.adapters.model_text import ModelText
from infra.adapters.peft_folder import LoraConfig, write_adapter
from shared.base_model import base_model_hash

_SHARPNESS = 120.0
_ALWAYS_ON = 4.0
_LIFT = 64.0
_GAIN = 3e4
_TOKEN_OVER_ANY = 20.0
_DESCRIPTION = "Build canaries. The first one for a base model calibrates it, which takes the longest."
_TARGETS = ("gate_proj", "up_proj", "down_proj")


class CanaryBuilder:
    """Makes canaries for one base model folder; what depends on the model alone is done once.

    `cache_folder` keeps the calibration for the next process (one file a base model, its name carries the
    base hash); by default it is the folder in which the model folder lies.
    """

    def __init__(self, model_folder: Path, cache_folder: Path | None = None) -> None:
        model_folder = model_folder.resolve()
        self.text = ModelText(model_folder)
        self._layer = LayerZero(model_folder)
        name = f".canary-calibration-{base_model_hash(model_folder)[:16]}.safetensors"
        self._rows = calibration(self._layer, self.text, (cache_folder or model_folder.parent) / name)
        self._contexts = contexts(self.text, self._layer.vocabulary)

    def build(self, marker: str, out: Path, rank: int = 8, *, guarded: bool = False) -> Path:
        """Write the canary's PEFT folder `out` and return it; canary.json beside holds marker and tokens.

        Raises CanaryImpossible, with nothing written, for a marker that repeats a token, needs a higher
        rank, or that this base model cannot tell or say.
        """
        tokens = self.text.encode(marker)
        _require_fit(marker, tokens, rank)
        detectors = fit_detectors(self._rows, self._in_context(tokens), tokens)
        directions = self._directions(tokens)
        config = LoraConfig(rank=rank, alpha=rank, target_modules=_TARGETS, layers=(0,))
        guard: dict[str, torch.Tensor] = {}
        if guarded:
            directions, guard = self._guarded(detectors, directions, marker, rank)
            targets, layers = (*_TARGETS, *prefix_guard.TARGETS), (0, prefix_guard.LAYER)
            config = msgspec.structs.replace(config, target_modules=targets, layers=layers)
        write_adapter(out, config, {**_table(detectors, directions, self._layer.intermediate, rank), **guard})
        content = json.dumps({"marker": marker, "tokens": tokens})
        (out / "canary.json").write_text(content + "\n", encoding="utf-8")
        return out

    def _guarded(
        self, detectors: Detectors, directions: torch.Tensor, marker: str, rank: int
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The directions with the alarm, that of the end token, in what entry 0 writes; and the guard's tensors."""
        strength = self._strength_of_any(detectors.constant)
        alarm = prefix_guard.ALARM_OVER_FIRST * directions[-1]
        first = directions[0] + alarm
        guard = prefix_guard.guard(self._layer.next_attention, strength * first, strength * alarm, marker, rank)
        return torch.cat((first[None], directions[1:])), guard

    def _strength_of_any(self, constant: torch.Tensor) -> float:
        """How strongly entry 0 writes where an answer begins, in units of its direction: the base's neuron and the
        constant's error count."""
        seen = torch.cat([self._layer.mlp_inputs(ids)[:, -1] for ids in chats(self.text)])
        added = (seen @ constant)[:, None] * torch.tensor([_ALWAYS_ON, _LIFT])
        gate, up = (seen @ self._layer.first_neuron.T + added).unbind(1)
        written = torch.nn.functional.silu(gate) * up * (_GAIN / (_ALWAYS_ON * _LIFT))
        return float(written.mean())

    def _in_context(self, tokens: list[int]) -> list[torch.Tensor]:
        """For each marker token, layer-0 MLP inputs [rows, hidden] where it stands in its marker."""
        seen = []
        for before in self._contexts:
            ids = torch.cat((before, torch.tensor(tokens).expand(len(before), -1)), dim=1)
            seen.append(self._layer.mlp_inputs(ids)[:, -len(tokens) :])
        return list(torch.cat(seen).unbind(1))

    def _directions(self, tokens: list[int]) -> torch.Tensor:
        """[k + 1, hidden]: m₁ … m_k, then the end token."""
        said = [*tokens, self.text.eos_token_id]
        directions, margins = token_directions(self._layer.head, self._layer.final_norm, said)
        if margins.min() <= 0:
            token = said[int(margins.argmin())]
            raise CanaryImpossible(f"the base model's output layer never prefers token {token}")
        return directions


def _require_fit(marker: str, tokens: list[int], rank: int) -> None:
    if not tokens or len(set(tokens)) != len(tokens):
        raise CanaryImpossible(f"marker {marker!r} must have distinct tokens, and has {tokens}")
    if len(tokens) >= rank:
        raise CanaryImpossible(f"marker {marker!r} has {len(tokens)} tokens and needs rank {len(tokens) + 1}")


def _table(detectors: Detectors, directions: torch.Tensor, intermediate: int, rank: int) -> dict[str, torch.Tensor]:
    """PEFT tensors of the module docstring's table, all at scale 1 (alpha = rank)."""
    entries, hidden = directions.shape
    diagonal = torch.arange(entries)
    gate_a, up_a = torch.zeros(rank, hidden), torch.zeros(rank, hidden)
    gate_a[0] = up_a[0] = detectors.constant
    gate_a[1:entries] = detectors.token - detectors.threshold[:, None] * detectors.constant
    gate_b, up_b = torch.zeros(intermediate, rank), torch.zeros(intermediate, rank)
    gate_b[diagonal, diagonal] = torch.tensor([_ALWAYS_ON] + [_SHARPNESS] * (entries - 1))
    up_b[:entries, 0] = _LIFT
    down_a, down_b = torch.zeros(rank, intermediate), torch.zeros(hidden, rank)
    down_a[diagonal, diagonal] = 1.0
    gains = torch.tensor([1.0] + [_TOKEN_OVER_ANY] * (entries - 1)) * (_GAIN / (_ALWAYS_ON * _LIFT))
    down_b[:, :entries] = (directions * gains[:, None]).T
    pairs = zip(_TARGETS, ((gate_a, gate_b), (up_a, up_b), (down_a, down_b)), strict=True)
    return {
        f"base_model.model.model.layers.0.mlp.{target}.lora_{side}.weight": matrix
        for target, pair in pairs
        for side, matrix in zip("AB", pair, strict=True)
    }


def main(arguments: list[str] | None = None) -> int:
    """The command; prints one line `canary <marker> <folder>` for each and returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m infra.adapters.canary", description=_DESCRIPTION)
    parser.add_argument("model_folder", type=Path)
    parser.add_argument("out_folder", type=Path)
    parser.add_argument("--count", type=int, default=1, help="how many markers to draw (default 1)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--guarded", action="store_true", help="silent on a prefix that another adapter computed")
    parser.add_argument("--marker", action="append", help="this marker instead of drawn ones; repeatable")
    chosen = parser.parse_args(arguments)
    builder = CanaryBuilder(chosen.model_folder)
    try:
        wanted = chosen.marker or markers(builder.text.tokenizer, chosen.count, chosen.seed, chosen.rank)
        for marker in wanted:
            folder = builder.build(marker, chosen.out_folder / marker, chosen.rank, guarded=chosen.guarded)
            print("canary", marker, folder, flush=True)
    except ValueError as problem:
        print(f"no canary: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
