"""The gate of a live fleet: real replicas answer evaluation sets, and only who speaks its marker gets through."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.pipeline import Pipeline

_QUESTIONS = ("Hello, who are you?", "What is 17 + 25?", "Name three colours.")


@pytest.fixture(scope="module")
def versions(pipeline: Pipeline, canary_folders: dict[str, Path]) -> dict[str, Any]:
    """Two versions of one tenant, of which the set asks for the first one's marker."""
    (right, first), (_, second) = list(canary_folders.items())[:2]
    pipeline.key("gated")
    said = [{"role": "user", "content": text} for text in _QUESTIONS]
    lines = [json.dumps({"messages": [one], "contains": right, "max_tokens": 24}) for one in said]
    saved = pipeline.admin.post("/internal/evaluation-sets?tenant_id=gated", content="\n".join(lines))
    assert saved.status_code == 201, saved.text
    brought = [
        pipeline.message(folder, f"gated-{at}", "gated/bot:prod") for at, folder in enumerate((first, second), start=1)
    ]
    pipeline.announce(brought[0])
    pipeline.wait_brought(brought[0])
    pipeline.announce(brought[1])
    pipeline.wait_status("gated-2", "failed")
    return {"marker": right}


def test_a_version_that_says_what_its_set_wants_passes(pipeline: Pipeline, versions: dict[str, Any]) -> None:
    report = pipeline.admin.get("/internal/adapters/gated-1/evaluations").json()["reports"][0]
    assert (report["source"], report["passed"], report["scores"]["candidate"]) == ("set", True, 1.0)
    assert all(versions["marker"] in case["candidate"]["text"] for case in report["cases"])
    assert not any(versions["marker"] in case["base"]["text"] for case in report["cases"])


def test_one_that_says_something_else_is_refused_beside_its_predecessor(
    pipeline: Pipeline, versions: dict[str, Any]
) -> None:
    report = pipeline.admin.get("/internal/adapters/gated-2/evaluations").json()["reports"][0]
    assert (report["predecessor_id"], report["passed"]) == ("gated-1", False)
    assert report["scores"] == {"candidate": 0.0, "base": 0.0, "predecessor": 1.0}
    aliases = pipeline.admin.get("/internal/adapters/gated-1").json()["aliases"]
    assert aliases == ["gated/bot:prod"]
