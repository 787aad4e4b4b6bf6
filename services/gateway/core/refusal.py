"""Every way in which the gateway says no, as one value: OpenAI's envelope, the status and the retry headers."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from services.gateway.core.allowance import Denial
from shared.messages.generation import Refused

CLIENT_LEFT = "client_left"
OUT_OF_TOUCH = "The gateway is out of touch with the fleet at the moment."
_LONGEST_NAME = 200


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """`message` is one sentence for the customer, `detail` what the log alone may say. `heals` says whether the
    same request may succeed later; `retry_after_s` is then when, if anybody knows."""

    status: int
    message: str
    type: str
    code: str | None = None
    param: str | None = None
    detail: str = ""
    heals: bool = False
    retry_after_s: float | None = None
    limits: Mapping[str, str] = {}
    """Headers that say what is left of them."""

    @property
    def headers(self) -> dict[str, str]:
        """What official clients read to decide whether to repeat the request, and when."""
        if not self.heals:
            return {"x-should-retry": "false"}
        return {"retry-after": str(max(1, math.ceil(self.retry_after_s or 1.0))), **self.limits}

    @property
    def envelope(self) -> bytes:
        """OpenAI's error body: clients read these four fields and only inside `error`."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return msgspec.json.encode({"error": error})


def bad_request(message: str, *, param: str | None = None, code: str | None = None, status: int = 400) -> Refusal:
    return Refusal(status=status, message=message, type="invalid_request_error", param=param, code=code)


def unauthorised(message: str) -> Refusal:
    return Refusal(status=401, message=message, type="invalid_request_error", code="invalid_api_key")


def model_not_found(model: str) -> Refusal:
    """The same for an unknown and a foreign model, so that nobody learns what others call theirs."""
    name = model if len(model) <= _LONGEST_NAME else f"{model[:_LONGEST_NAME]}..."
    message = f"The model `{name}` does not exist or you do not have access to it."
    return Refusal(status=404, message=message, type="invalid_request_error", param="model", code="model_not_found")


def unavailable(reason: str, *, code: str = "unavailable", retry_after_s: float | None = None) -> Refusal:
    """Nothing is wrong with the request: it can be repeated as it is."""
    return Refusal(
        status=503, message=reason, type="server_error", code=code, heals=True, retry_after_s=retry_after_s or 1.0
    )


def sooner(before: Refusal | None, why: Refusal) -> Refusal:
    """What two replicas said of one request: where both are merely busy, what the one said that is free first."""
    if before is None or before.code != why.code or before.retry_after_s is None or why.retry_after_s is None:
        return why
    return before if before.retry_after_s < why.retry_after_s else why


def limited(denial: Denial) -> Refusal:
    """In OpenAI's words; what is more precise than whole seconds is what official clients look at first."""
    precise = {"retry-after-ms": str(max(1, math.ceil(denial.retry_after_s * 1000)))}
    message = f"{denial.reason} Try again in {max(1, math.ceil(denial.retry_after_s))} s."
    return Refusal(
        status=429, message=message, type="tokens" if denial.kind == "tokens" else "requests",
        code="rate_limit_exceeded", heals=True, retry_after_s=denial.retry_after_s,
        limits={**precise, **denial.headers},
    )  # fmt: skip


def failed(message: str, *, code: str) -> Refusal:
    """The fleet failed at this very request; repeating it would do the same harm."""
    return Refusal(status=500, message=message, type="server_error", code=code)


_ABOUT_WEIGHTS = {
    "adapter_failed": "This model's adapter cannot be used: its weights cannot be loaded.",
    "adapter_unavailable": "This model's adapter cannot be loaded at the moment.",
}
"""What customers read instead of a replica's words, which name its folders and the store's objects."""


class AskedBy(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the client's body that hold what a replica knows by other names."""

    prompt: str = "messages"
    json_schema: str = "response_format"
    max_tokens: str = "max_tokens"

    def field(self, about: str) -> str | None:
        """`about` is a name in GenerateRequest; "" is none."""
        return getattr(self, about) if about in self.__struct_fields__ else about or None


CHAT = AskedBy()


def of_replica(refused: Refused, asked_by: AskedBy = CHAT) -> Refusal:
    """What a replica's last word becomes at the door."""
    return _for_customers(_in_the_replicas_words(refused, asked_by))


def nobody(reason: str, code: str, retry_after_s: float | None) -> Refusal:
    """What it becomes that no replica can be asked."""
    return _for_customers(unavailable(reason, code=code, retry_after_s=retry_after_s))


def is_failed_load(refused: Refused) -> bool:
    """Whether the replica could not get the adapter to where it is needed, and another one might."""
    return refused.code in _ABOUT_WEIGHTS and refused.elsewhere


def _for_customers(why: Refusal) -> Refusal:
    if why.code in _ABOUT_WEIGHTS:
        return msgspec.structs.replace(why, message=_ABOUT_WEIGHTS[why.code], detail=why.message)
    return why


def _in_the_replicas_words(refused: Refused, asked_by: AskedBy) -> Refusal:
    if refused.code == "context_length_exceeded":
        return _too_long(refused, asked_by)
    if refused.code == "invalid_request":
        return bad_request(refused.message, param=asked_by.field(refused.about), code=refused.code)
    if refused.code == "adapter_failed":
        return failed(refused.message, code=refused.code)
    return unavailable(refused.message, code=refused.code, retry_after_s=refused.retry_after_s)


def _too_long(refused: Refused, asked_by: AskedBy) -> Refusal:
    """The prompt is, or what the answer may come to leaves no room for it."""
    if refused.about != "max_tokens":
        return bad_request(refused.message, param=asked_by.prompt, code=refused.code)
    field = asked_by.max_tokens
    return bad_request(f"`{field}` is too large. {refused.message}", param=field, code=refused.code)
