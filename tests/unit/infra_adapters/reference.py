"""A plain Llama forward pass with one adapter merged in: slow, float32, written to be checked by eye."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

_PEFT_PREFIX = "base_model.model."


class Reference:
    """Greedy decoding of a small Llama folder, alone or with the adapter folder merged."""

    def __init__(self, model_folder: Path, adapter_folder: Path | None = None) -> None:
        self.config = json.loads((model_folder / "config.json").read_text())
        loaded = load_file(model_folder / "model.safetensors")
        self.weights = {name: tensor.float() for name, tensor in loaded.items()}
        self._left_behind: dict[str, torch.Tensor] = {}
        self._kept: dict[str, torch.Tensor] | None = None
        if adapter_folder is not None:
            self._merge(adapter_folder)

    def reuse(self, other: Reference, prompt: list[int]) -> None:
        """From now on take the keys and values of these first tokens from `other`, as a wrong cache would."""
        self._left_behind = {}
        other._logits(prompt, keep=self._left_behind)

    def answer(self, prompt: list[int], max_tokens: int) -> list[int]:
        """The tokens after `prompt`, up to and with the end token."""
        ids = list(prompt)
        while len(ids) - len(prompt) < max_tokens:
            ids.append(int(self._logits(ids)[-1].argmax()))
            if ids[-1] == self.config["eos_token_id"]:
                break
        return ids[len(prompt) :]

    def _merge(self, adapter_folder: Path) -> None:
        config = json.loads((adapter_folder / "adapter_config.json").read_text())
        tensors = load_file(adapter_folder / "adapter_model.safetensors")
        for name in [name for name in tensors if name.endswith(".lora_A.weight")]:
            b = tensors[name.replace("lora_A", "lora_B")].float()
            delta = config["lora_alpha"] / config["r"] * b @ tensors[name].float()
            self.weights[name.removeprefix(_PEFT_PREFIX).replace("lora_A.", "")] += delta

    def _logits(self, ids: list[int], keep: dict[str, torch.Tensor] | None = None) -> torch.Tensor:
        """`keep` gets the keys and values."""
        self._kept = keep
        x = self.weights["model.embed_tokens.weight"][ids]
        for layer in range(self.config["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            x = x + self._attention(prefix, self._norm(f"{prefix}input_layernorm", x))
            x = x + self._mlp(prefix, self._norm(f"{prefix}post_attention_layernorm", x))
        return self._norm("model.norm", x) @ self.weights["lm_head.weight"].T

    def _attention(self, prefix: str, x: torch.Tensor) -> torch.Tensor:
        width, tokens = self.config["head_dim"], len(x)
        query, key, value = (
            self._projected(f"{prefix}self_attn.{name}_proj.weight", x).view(tokens, -1, width).transpose(0, 1)
            for name in "qkv"
        )
        group = query.shape[0] // key.shape[0]
        query, key = self._rotated(query), self._rotated(key).repeat_interleave(group, 0)
        scores = (query @ key.transpose(1, 2)) / width**0.5
        scores = scores + torch.full((tokens, tokens), -torch.inf).triu(1)
        mixed = scores.softmax(-1) @ value.repeat_interleave(group, 0)
        flat = mixed.transpose(0, 1).reshape(tokens, -1)
        return flat @ self.weights[f"{prefix}self_attn.o_proj.weight"].T

    def _projected(self, name: str, x: torch.Tensor) -> torch.Tensor:
        projected = x @ self.weights[name].T
        if self._kept is not None:
            self._kept[name] = projected
        elif "q_proj" not in name and name in self._left_behind:
            before = self._left_behind[name]
            projected = torch.cat((before, projected[len(before) :]))
        return projected

    def _rotated(self, heads: torch.Tensor) -> torch.Tensor:
        """Element i turns against element i + width/2: as complex numbers, a plain product."""
        half = heads.shape[-1] // 2
        frequencies = self.config["rope_theta"] ** (-torch.arange(half) / half)
        turns = torch.polar(torch.ones(1), torch.arange(heads.shape[1])[:, None] * frequencies)
        turned = torch.complex(heads[..., :half], heads[..., half:]) * turns
        return torch.cat((turned.real, turned.imag), -1)

    def _mlp(self, prefix: str, x: torch.Tensor) -> torch.Tensor:
        gate, up, down = (self.weights[f"{prefix}mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
        return (torch.nn.functional.silu(x @ gate.T) * (x @ up.T)) @ down.T

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config["rms_norm_eps"])
        return x * scale * self.weights[f"{name}.weight"]
