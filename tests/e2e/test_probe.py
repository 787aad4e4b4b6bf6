"""`lorafleet probe` against a running fleet: it brings its canaries, asks them, and leaves no key behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.adapters.canary import CanaryBuilder
from infra.local.temporary import TemporaryFleet
from services.console.core.outcome import OK, REFUSED
from services.console.core.probing import TENANT, canary_for
from tests.support.pipeline import Pipeline

MARKERS = ("ZK49", "QW7H", "XMB3")


@pytest.fixture(scope="module")
def canaries_folder(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("probe")
    builder = CanaryBuilder(model_folder, root / "cache")
    for marker in MARKERS:
        builder.build(marker, root / "canaries" / marker, guarded=True)
    return root / "canaries"


def probe(fleet: TemporaryFleet, *words: str) -> tuple[int, dict[str, int], str]:
    done = fleet.console("probe", "--rate", "20", "--for", "2s", "--json", *words)
    return done.returncode, json.loads(done.stdout), done.stderr


def test_a_sound_fleet_passes_and_its_canaries_are_found_again(
    fleet: TemporaryFleet, pipeline: Pipeline, canaries_folder: Path
) -> None:
    for words in (("--canaries", str(canaries_folder)), ("--canaries", str(canaries_folder)), ()):
        code, counts, said = probe(fleet, *words)
        assert (code, said) == (OK, "")
        assert set(counts) == {"own"}
        assert counts["own"] >= 20
    keys = pipeline.admin.get("/internal/keys").raise_for_status().json()["keys"]
    assert not [key for key in keys if key["tenant_id"] == TENANT]


def test_an_alias_that_leads_to_another_canary_is_found(
    fleet: TemporaryFleet, pipeline: Pipeline, canaries_folder: Path
) -> None:
    code, _, _ = probe(fleet, "--canaries", str(canaries_folder))
    assert code == OK
    listed = pipeline.admin.get(f"/internal/adapters?tenant_id={TENANT}").raise_for_status().json()["adapters"]
    first, second = sorted(adapter["adapter_id"] for adapter in listed)[:2]
    alias = canary_for(*first.split("-")[1:]).alias
    pipeline.set_alias(alias, second)
    try:
        done = fleet.console("probe", "--rate", "20", "--for", "2s")
        assert done.returncode == REFUSED
        assert f" wrong_marker {alias}: {second} answered, asked was {first}\n" in done.stderr
    finally:
        pipeline.set_alias(alias, first)
