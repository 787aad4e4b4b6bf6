"""What of a machine shows in the numbers that are computed on it."""

from __future__ import annotations

import torch

_TELLING = ("avx512_bf16", "amx_bf16")
"""Instructions for products of bfloat16: with and without them the last digits are others."""


def device_name(device: torch.device) -> str:
    """As its maker calls it; "cpu" for any of those."""
    return "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device)


def number_class(device: torch.device) -> str:
    """Two devices of one class give the same numbers, up to what the proof of effect allows for."""
    if device.type != "cpu":
        return "sm{}{}".format(*torch.cuda.get_device_capability(device))
    has = torch.cpu.get_capabilities()
    words = [torch.backends.cpu.get_cpu_capability().lower(), *(name for name in _TELLING if has.get(name))]
    return "+".join(word.replace(" ", "-") for word in words)
