import pytest

from services.console.core.peft_folder import Identity, UnclearConfig, registration

WHO = Identity(tenant_id="acme", adapter_id="a1", version="1", base_model_hash="b" * 64)
CONFIG = {"r": 8, "lora_alpha": 16, "target_modules": ["v_proj", "q_proj"]}


def test_a_config_as_peft_saves_it_becomes_a_registration() -> None:
    made = registration(
        {**CONFIG, "use_rslora": True, "rank_pattern": {"q_proj": 4}, "alpha_pattern": None},
        WHO,
        "upload:x",
        "c" * 64,
        None,
    )
    assert (made.rank, made.alpha, made.target_modules) == (8, 16.0, ("q_proj", "v_proj"))
    assert made.use_rslora
    assert made.rank_pattern == {"q_proj": 4}
    assert made.alpha_pattern == {}


@pytest.mark.parametrize("missing", ["r", "lora_alpha", "target_modules"])
def test_a_config_without_what_a_registration_needs_is_named(missing: str) -> None:
    config = {name: value for name, value in CONFIG.items() if name != missing}
    with pytest.raises(UnclearConfig, match=missing):
        registration(config, WHO, "upload:x", "c" * 64, None)


def test_targets_as_a_regular_expression_are_refused_for_now() -> None:
    with pytest.raises(UnclearConfig, match="list of module names"):
        registration({**CONFIG, "target_modules": ".*_proj"}, WHO, "upload:x", "c" * 64, None)
