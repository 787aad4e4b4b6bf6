import json
from typing import Any

import pytest

from services.console.core.peft_folder import Identity, UnclearConfig, peft_config, registration

WHO = Identity(tenant_id="acme", adapter_id="a1", version="1", base_model_hash="b" * 64)
CONFIG = {"r": 8, "lora_alpha": 16, "target_modules": ["v_proj", "q_proj"]}


def read(**changes: Any) -> bytes:
    return json.dumps({"peft_type": "LORA", **CONFIG, **changes}).encode()


def test_a_config_as_peft_saves_it_becomes_a_registration() -> None:
    config = peft_config(read(use_rslora=True, rank_pattern={"q_proj": 4}, alpha_pattern=None))
    made = registration(config, WHO, "upload:x", "c" * 64, None)
    assert (made.adapter_id, made.rank, made.alpha, made.target_modules) == ("a1", 8, 16.0, ("q_proj", "v_proj"))
    assert made.use_rslora
    assert made.rank_pattern == {"q_proj": 4}
    assert made.alpha_pattern == {}


@pytest.mark.parametrize("said", ["all-linear", r".*\.(q|v)_proj"])
def test_an_expression_is_passed_on_as_it_stands(said: str) -> None:
    made = registration(peft_config(read(target_modules=said)), WHO, "upload:x", "c" * 64, None)
    assert made.target_modules == said


@pytest.mark.parametrize("name", ["r", "lora_alpha", "target_modules"])
@pytest.mark.parametrize("value", [None, True, {}])
def test_a_field_that_is_missing_or_of_another_kind_is_named(name: str, value: object) -> None:
    with pytest.raises(UnclearConfig, match=name):
        peft_config(read(**{name: value}))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b"{}"])
def test_what_is_no_config_is_one_sentence(text: bytes) -> None:
    with pytest.raises(UnclearConfig, match=r"^adapter_config\.json is no LoRA adapter's as PEFT saves it: [^\n]+\.$"):
        peft_config(text)
