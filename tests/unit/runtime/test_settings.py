from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest

from shared.runtime.settings import SettingsError, read

PREFIX = "LORAFLEET_GATEWAY_"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    nats_url: str
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8000
    margin: float = 0.25
    verbose: bool = False
    folder: Path = Path("models")
    cache_folder: Path | None = None
    rank_limit: int | None = 16
    prefixes: tuple[str, ...] = ("file:///models",)
    rank_classes: tuple[int, ...] = (8, 16)
    engine: Literal["torch", "timed"] = "torch"

    def __post_init__(self) -> None:
        if self.engine == "timed" and self.verbose:
            raise ValueError("a timed engine has nothing to tell")


def read_with(**variables: str) -> Settings:
    return read(Settings, PREFIX, {PREFIX + "NATS_URL": "nats://bus", **{PREFIX + k: v for k, v in variables.items()}})


def refusal_of(**variables: str) -> str:
    with pytest.raises(SettingsError) as refused:
        read_with(**variables)
    return str(refused.value)


def test_defaults_stand_for_what_is_not_set() -> None:
    assert read_with() == Settings(nats_url="nats://bus")


def test_every_kind_of_field_is_read() -> None:
    settings = read_with(
        PORT="1", MARGIN="0.5", VERBOSE="True", FOLDER="/models", CACHE_FOLDER="/cache", RANK_LIMIT="64",
        PREFIXES="file:///a, file:///b,", RANK_CLASSES="16,64", ENGINE="torch",
    )  # fmt: skip
    assert settings == Settings(
        nats_url="nats://bus", port=1, margin=0.5, verbose=True, folder=Path("/models"), cache_folder=Path("/cache"),
        rank_limit=64, prefixes=("file:///a", "file:///b"), rank_classes=(16, 64), engine="torch",
    )  # fmt: skip


def test_an_empty_value_is_nothing() -> None:
    settings = read_with(CACHE_FOLDER="", RANK_LIMIT="", PREFIXES="", RANK_CLASSES="")
    assert (settings.cache_folder, settings.rank_limit) == (None, None)
    assert (settings.prefixes, settings.rank_classes) == ((), ())


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("FALSE", False), ("0", False)])
def test_a_boolean_is_written_in_either_case(text: str, value: bool) -> None:
    assert read_with(VERBOSE=text).verbose is value


def test_variables_of_others_are_none_of_its_business() -> None:
    others = {"LORAFLEET_REGISTRY_PORT": "x", "PATH": "/bin", "LORAFLEET_MODEL": "tiny", PREFIX + "NATS_URL": "n"}
    assert read(Settings, PREFIX, others) == Settings(nats_url="n")


def test_a_misspelt_name_is_refused_with_the_name_that_was_meant() -> None:
    assert refusal_of(PROT="80") == (
        "LORAFLEET_GATEWAY_PROT is no setting of gateway; did you mean LORAFLEET_GATEWAY_PORT?"
    )


def test_a_name_like_no_other_is_refused_with_all_there_are() -> None:
    refusal = refusal_of(XYLOPHONE="1")
    assert refusal.startswith("LORAFLEET_GATEWAY_XYLOPHONE is no setting of gateway; after LORAFLEET_GATEWAY_ it has ")
    assert "RANK_CLASSES" in refusal


def test_a_missing_value_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="LORAFLEET_GATEWAY_NATS_URL is not set, and gateway has no default"):
        read(Settings, PREFIX, {})


@pytest.mark.parametrize(
    ("variable", "text", "reason"),
    [
        ("PORT", "eighty", "Expected int"),
        ("PORT", "", "Expected int"),
        ("PORT", "65536", "<= 65535"),
        ("PORT", "1.5", "Expected int"),
        ("MARGIN", "a lot", "Expected float"),
        ("MARGIN", "nan", "finite"),
        ("MARGIN", "inf", "finite"),
        ("VERBOSE", "maybe", "Expected bool"),
        ("FOLDER", "", "expected a path"),
        ("RANK_LIMIT", "many", "Expected int"),
        ("RANK_CLASSES", "8,x", "Expected int"),
        ("ENGINE", "vllm", "it is one of torch, timed"),
    ],
)
def test_a_bad_value_is_refused_with_variable_value_and_reason(variable: str, text: str, reason: str) -> None:
    refusal = refusal_of(**{variable: text})
    assert refusal.startswith(f"LORAFLEET_GATEWAY_{variable} is {text!r}, which does not fit: ")
    assert re.search(re.escape(reason), refusal)


def test_values_that_do_not_fit_together_are_refused() -> None:
    refusal = refusal_of(ENGINE="timed", VERBOSE="true")
    assert refusal == "the settings of gateway do not fit together: a timed engine has nothing to tell"
