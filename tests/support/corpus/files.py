"""Wrong by the bytes of the file, or by what adapter_config.json asks for beside them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.adapter_files import Recipe, announcement, crafted, file_of, name_of, tensors_of
from tests.support.corpus.bad import LARGEST_FILE_BYTES, VOCABULARY_SIZE, Bad, each, faults

_GOOD = file_of()
_WHOLE = {"checksum": announcement(_GOOD).checksum}
_NO_FILE = ("not_safetensors", "weights_uri")
_CUT = faults(("checksum_mismatch", "checksum"), _NO_FILE)
_A, _B = name_of(0, "q_proj", "A"), name_of(0, "q_proj", "B")
_TENSORS = tensors_of(Recipe())
_HEAD, _EMBEDDING = "base_model.model.lm_head", "base_model.model.model.embed_tokens"


def _zeros(*shape: int, dtype: Any = np.float16) -> np.ndarray[Any, Any]:
    return np.zeros(shape, dtype)


def _with(value: float, dtype: Any) -> np.ndarray[Any, Any]:
    broken = _zeros(16, 4, dtype=dtype)
    broken[15, 3] = value
    return broken


def _bfloat16_nan() -> bytes:
    """Both halves of one module in one layer, as numpy cannot write them; the last value of the second is a NaN."""
    size = 4 * 16 * 2
    header = {
        name: {"dtype": "BF16", "shape": shape, "data_offsets": [at * size, (at + 1) * size]}
        for at, (name, shape) in enumerate({_A: [4, 16], _B: [16, 4]}.items())
    }
    return crafted(header, bytes(2 * size - 2) + b"\xc0\x7f")


def _entry(begin: int, end: int) -> dict[str, Any]:
    return {"dtype": "F16", "shape": [(end - begin) // 2], "data_offsets": [begin, end]}


FILES: dict[str, Bad] = {
    "c51 cut at 0": Bad(faults=_CUT, file=b"", said=_WHOLE),
    "c51 cut at 8 bytes": Bad(faults=_CUT, file=_GOOD[:8], said=_WHOLE),
    "c51 cut at half": Bad(faults=_CUT, file=_GOOD[: (len(_GOOD) + 1000) // 2], said=_WHOLE),
    "c51 without its last byte": Bad(faults=_CUT, file=_GOOD[:-1], said=_WHOLE),
    "c51 a header that claims too much": Bad(faults=faults(_NO_FILE), file=crafted({}, claimed=1 << 60)),
    "c51 overlapping tensors": Bad(
        faults=faults(_NO_FILE), file=crafted({_A: _entry(0, 8), _B: _entry(4, 12)}, bytes(12))
    ),
    "a file that is no safetensors file": Bad(faults=faults(_NO_FILE), file=b"PK\3\4" + bytes(200)),
    "a file over the limit": Bad(
        faults=faults(("file_too_large", "weights_uri")), file=file_of(big=_zeros(LARGEST_FILE_BYTES))
    ),
    "c63a doubles": Bad(faults=faults(*each("dtype_invalid", _TENSORS)), recipe=Recipe(dtype=np.float64)),
    "c63a one tensor of integers": Bad(
        faults=faults(("dtype_invalid", _A)), tensors={_A: _zeros(4, 16, dtype=np.int8)}
    ),
    "c63a a NaN in float16": Bad(faults=faults(("not_finite", _B)), tensors={_B: _with(np.nan, np.float16)}),
    "c63a an infinity in float32": Bad(faults=faults(("not_finite", _B)), tensors={_B: _with(-np.inf, np.float32)}),
    "c63a a NaN in bfloat16": Bad(
        faults=faults(("not_finite", _B)), file=_bfloat16_nan(), recipe=Recipe(targets=("q_proj",))
    ),
    "a transposed half": Bad(faults=faults(("shape_invalid", _A)), tensors={_A: _zeros(16, 4)}),
    "a flat half": Bad(faults=faults(("shape_invalid", _B)), tensors={_B: _zeros(64)}),
    "a layer that the base lacks": Bad(
        faults=faults(*each("layer_unknown", (name for name in tensors_of(Recipe(layers=(2,)))))),
        recipe=Recipe(layers=(0, 1, 2)),
    ),
    "c06 a prefix that nobody knows, everywhere": Bad(
        faults=faults(
            ("no_tensors", "weights_uri"),
            ("target_without_tensors", "target_modules"),
            ("tensor_unknown", "model.q.lora_A.weight"),
        ),
        recipe=Recipe(layers=()),
        tensors={"model.q.lora_A.weight": _zeros(4, 16)},
        said={"target_modules": ("q_proj",)},
    ),
    "c06 a prefix that nobody knows, once": Bad(
        faults=faults(("tensor_unknown", _A.replace("base_model.model.", "", 1)), ("half_missing", _B)),
        tensors={_A.replace("base_model.model.", "", 1): _zeros(4, 16)},
        without=(_A,),
    ),
    "c42 a whole head": Bad(
        faults=faults(("module_not_adaptable", f"{_HEAD}.weight")),
        tensors={f"{_HEAD}.weight": _zeros(VOCABULARY_SIZE, 16)},
    ),
    "c42 a head for a larger vocabulary": Bad(
        faults=faults(("module_not_adaptable", f"{_HEAD}.weight"), ("vocabulary_differs", f"{_HEAD}.weight")),
        tensors={f"{_HEAD}.weight": _zeros(VOCABULARY_SIZE + 1, 16)},
    ),
    "c42 an adapted head for a smaller vocabulary": Bad(
        faults=faults(
            *each("module_not_adaptable", (f"{_HEAD}.lora_A.weight", f"{_HEAD}.lora_B.weight")),
            ("vocabulary_differs", f"{_HEAD}.lora_B.weight"),
        ),
        tensors={
            f"{_HEAD}.lora_A.weight": _zeros(4, 16),
            f"{_HEAD}.lora_B.weight": _zeros(VOCABULARY_SIZE - 1, 4),
        },
    ),
    "c42 adapted embeddings of another vocabulary": Bad(
        faults=faults(
            ("module_not_adaptable", f"{_EMBEDDING}.lora_embedding_A"),
            ("vocabulary_differs", f"{_EMBEDDING}.lora_embedding_A"),
        ),
        tensors={f"{_EMBEDDING}.lora_embedding_A": _zeros(4, 2 * VOCABULARY_SIZE)},
    ),
    "c42 modules_to_save": Bad(
        faults=faults(("module_not_adaptable", "modules_to_save")), config={"modules_to_save": ["lm_head"]}
    ),
    "c43 use_dora": Bad(faults=faults(("dora", "use_dora")), config={"use_dora": True}),
    "c43 DoRA magnitudes": Bad(
        faults=faults(("dora", _A.replace("lora_A.weight", "lora_magnitude_vector"))),
        tensors={_A.replace("lora_A.weight", "lora_magnitude_vector"): _zeros(16)},
    ),
    "biases asked for": Bad(faults=faults(("bias", "bias")), config={"bias": "lora_only"}),
    "a bias": Bad(
        faults=faults(("bias", _B.replace("weight", "bias"))), tensors={_B.replace("weight", "bias"): _zeros(16)}
    ),
    "an initialisation that changes the base": Bad(
        faults=faults(("feature_not_served", "init_lora_weights")), config={"init_lora_weights": "pissa_niter_16"}
    ),
    "transposed layers": Bad(faults=faults(("feature_not_served", "fan_in_fan_out")), config={"fan_in_fan_out": True}),
    "another method than LoRA": Bad(faults=faults(("not_lora", "peft_type")), config={"peft_type": "IA3"}),
    "c45 a config with another scale": Bad(
        faults=faults(*each("config_disagrees", ("alpha", "use_rslora", "alpha_pattern"))),
        config={"lora_alpha": 99, "use_rslora": True, "alpha_pattern": {"q_proj": 1}},
    ),
    "a config with other targets": Bad(
        faults=faults(("config_disagrees", "target_modules")), config={"target_modules": "all-linear"}
    ),
    "a config that is no JSON": Bad(faults=faults(("config_invalid", "adapter_config.json")), config=b"r: 4"),
    "everything at once": Bad(
        faults=faults(
            ("rank_too_high", "rank"),
            ("alpha_invalid", "alpha"),
            ("checksum_mismatch", "checksum"),
            ("tensor_unknown", "stray"),
            ("not_finite", name_of(1, "q_proj", "B")),
            ("dtype_invalid", name_of(1, "q_proj", "A")),
            ("shape_invalid", _A),
            ("target_without_tensors", "target_modules"),
            ("dora", "use_dora"),
        ),
        recipe=Recipe(rank=20),
        tensors={
            "stray": _zeros(1),
            _A: _zeros(3, 16),
            name_of(1, "q_proj", "A"): _zeros(20, 16, dtype=np.float64),
            name_of(1, "q_proj", "B"): np.full((16, 20), np.inf, np.float16),
        },
        config={"use_dora": True},
        said={"alpha": -1.0, "checksum": "0" * 64, "target_modules": ("q_proj", "down_proj", "up_proj")},
    ),
}
