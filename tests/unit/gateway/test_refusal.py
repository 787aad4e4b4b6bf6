"""How the gateway says no: status, envelope, and whether a client should try again."""

from __future__ import annotations

import json

import pytest

from services.gateway.core import refusal
from services.gateway.core.wish import Tools, Wish
from shared.contracts import catalog
from shared.contracts.codec import decode, encode
from shared.messages.generation import REFUSALS, Refused


def refused(code: str, retry_after_s: float | None = None, about: str = "") -> Refused:
    made = Refused(
        request_id="q", replica_id="r0", code=code, message="No.", elsewhere=False, retry_after_s=retry_after_s,
        about=about,
    )  # fmt: skip
    heard = decode(catalog.ANSWER, encode(catalog.ANSWER, made))
    assert isinstance(heard, Refused)
    return heard


def test_the_envelope_has_openais_four_fields() -> None:
    why = refusal.bad_request("`n` must be 1.", param="n", code="invalid_value")
    assert json.loads(why.envelope) == {
        "error": {"message": "`n` must be 1.", "type": "invalid_request_error", "param": "n", "code": "invalid_value"}
    }


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("not_ready", 503), ("draining", 503), ("overloaded", 503), ("adapter_unavailable", 503),
        ("adapter_failed", 500), ("wrong_pool", 503), ("context_length_exceeded", 400), ("invalid_request", 400),
        ("deadline", 503),
    ],
)  # fmt: skip
def test_what_a_replicas_refusal_becomes(code: str, status: int) -> None:
    assert code in REFUSALS
    why = refusal.of_replica(refused(code))
    assert (why.status, why.code, why.detail or why.message) == (status, code, "No.")
    assert why.heals == (status == 503)


@pytest.mark.parametrize("code", ["adapter_failed", "adapter_unavailable"])
def test_what_a_replica_says_about_its_files_is_for_the_log_alone(code: str) -> None:
    why = refusal.of_replica(refused(code))
    assert why.detail == "No."
    assert b"No." not in why.envelope
    assert why.message.startswith("This model's adapter cannot be ")


@pytest.mark.parametrize(
    ("wish", "about", "param"),
    [
        (Wish(model="m", prompts=()), "prompt", "messages"),
        (Wish(model="m", prompts=(), is_text=True), "prompt", "prompt"),
        (Wish(model="m", prompts=()), "json_schema", "response_format"),
        (Wish(model="m", prompts=(), tools=Tools(offered="[]")), "json_schema", "response_format"),
        (Wish(model="m", prompts=(), tools=Tools(offered="[]", forced="f")), "json_schema", "tools"),
        (Wish(model="m", prompts=()), "logit_bias", "logit_bias"),
        (Wish(model="m", prompts=()), "", None),
    ],
)
def test_a_replica_blames_a_field_that_the_client_has_sent(wish: Wish, about: str, param: str | None) -> None:
    assert refusal.of_replica(refused("invalid_request", about=about), wish.asked_by).param == param


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_an_answer_that_has_no_room_is_told_by_the_clients_own_field(field: str) -> None:
    wish = Wish(model="m", prompts=(), length_field=field)
    why = refusal.of_replica(refused("context_length_exceeded", about="max_tokens"), wish.asked_by)
    assert (why.status, why.param, why.message) == (400, field, f"`{field}` is too large. No.")
    why = refusal.of_replica(refused("context_length_exceeded", about="prompt"), wish.asked_by)
    assert (why.param, why.message) == ("messages", "No.")


def test_every_refusal_of_a_replica_has_a_status() -> None:
    assert all(refusal.of_replica(refused(code)).status in (400, 500, 503) for code in REFUSALS)


@pytest.mark.parametrize(("asked_s", "said"), [(None, "1"), (0.2, "1"), (4.0, "4"), (4.2, "5")])
def test_retry_after_is_whole_seconds_and_never_too_early(asked_s: float | None, said: str) -> None:
    assert refusal.of_replica(refused("overloaded", asked_s)).headers == {"retry-after": said}


def test_what_does_not_heal_is_not_to_be_repeated() -> None:
    for why in (refusal.model_not_found("x"), refusal.failed("No.", code="x"), refusal.unauthorised("No.")):
        assert why.headers == {"x-should-retry": "false"}


def test_a_model_of_any_length_makes_one_short_sentence() -> None:
    assert len(refusal.model_not_found("x" * 1_000_000).message) < 300
