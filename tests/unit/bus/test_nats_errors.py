"""What is remembered of the client's errors."""

from __future__ import annotations

from shared.bus.nats_errors import Errors


def test_a_refusal_is_the_reason_whatever_the_next_try_meets() -> None:
    errors = Errors("gateway")
    errors.note(RuntimeError("nats: 'Authorization Violation'"), connected=False)
    errors.note(ConnectionResetError(104, "reset"), connected=False)
    assert "authorization" in errors.why.lower()
    assert errors.last == "Connection reset by peer"


def test_without_a_refusal_the_last_error_is_the_reason() -> None:
    errors = Errors("gateway")
    assert errors.why == "it did not answer"
    errors.note(ConnectionRefusedError(111, "refused"), connected=False)
    assert errors.why == "Connection refused"
