"""What every error answer of the admin door must look like."""

from __future__ import annotations

from typing import Any

import httpx


def error_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The error of an answer, once its form is right: one sentence, a type, a code."""
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert error["message"].endswith((".", " more)"))
    assert "\n" not in error["message"]
    assert error["type"] == ("invalid_request_error" if status < 500 else "api_error")
    assert error["code"]
    return error
