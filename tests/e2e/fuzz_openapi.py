"""Whatever the public door's document allows, and what it does not: `make contract-clients` has schemathesis ask it."""

from __future__ import annotations

import pytest

from tests.clients.place import Place
from tests.clients.roster import Client, each_client, hang_up, speaks

pytest_generate_tests = each_client
_hang_up = pytest.fixture(scope="session", autouse=True)(hang_up)


@speaks("fuzz")
@pytest.mark.parametrize(("mode", "stream"), [("positive", False), ("positive", True), ("negative", False)])
def test_what_openapi_says(client: Client, place: Place, mode: str, stream: bool) -> None:
    """Statuses, headers, bodies and events are as documented, never a 5xx; what is not allowed is refused."""
    assert place.ask(client, "fuzz", model=place.base, mode=mode, stream=stream, examples=60, seed=1).answer


@speaks("fuzz")
@pytest.mark.parametrize(("schema", "stream"), [("Error", False), ("Usage", False), ("ChatChunk", True)])
def test_answers_that_are_not_as_documented_are_found(client: Client, place: Place, schema: str, stream: bool) -> None:
    planted = {"demanded": {schema: "no-answer-has-it"}, "mode": "positive", "stream": stream}
    error = place.ask(client, "fuzz", model=place.base, **planted, examples=10, seed=1).error
    assert "no-answer-has-it" in error["message"]
