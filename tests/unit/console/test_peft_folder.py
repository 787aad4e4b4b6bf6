import json
from typing import Any

import pytest

from services.console.core.peft_folder import UnclearConfig, peft_config

CONFIG = {"r": 8, "lora_alpha": 16, "target_modules": ["v_proj", "q_proj"]}


def read(**changes: Any) -> bytes:
    return json.dumps({"peft_type": "LORA", **CONFIG, **changes}).encode()


@pytest.mark.parametrize("name", ["r", "lora_alpha", "target_modules"])
@pytest.mark.parametrize("value", [None, True, {}])
def test_a_field_that_is_missing_or_of_another_kind_is_named(name: str, value: object) -> None:
    with pytest.raises(UnclearConfig, match=name):
        peft_config(read(**{name: value}))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b"{}"])
def test_what_is_no_config_is_one_sentence(text: bytes) -> None:
    with pytest.raises(UnclearConfig, match=r"^adapter_config\.json is no LoRA adapter's as PEFT saves it: [^\n]+\.$"):
        peft_config(text)
