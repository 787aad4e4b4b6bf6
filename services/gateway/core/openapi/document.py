"""The OpenAPI document of the public door: what is served, what is refused and how."""

from __future__ import annotations

from typing import Any

import msgspec

from services.gateway.core import deadline
from services.gateway.core.openapi import answers, requests
from services.gateway.core.openapi.schemas import TEXT, Schema, ref

_REFUSALS = {
    "400": "Something in the request is wrong or not supported; `param` names it.",
    "401": "The key is missing or unknown.",
    "404": "The model does not exist, or not for this key.",
    "408": "The body stopped in the middle.",
    "413": "The body is too large.",
    "429": "A limit of the tenant or the key is reached; Retry-After says for how long.",
    "500": "The fleet failed at this request.",
    "503": "Nobody can serve it now; Retry-After says when to come again.",
    "504": "The time that the client gave is over.",
}
_HEADERS = {
    "x-request-id": "The client's own id if it is 1 to 64 of A-Z a-z 0-9 _ -, else a new one.",
    "x-adapter-id": 'The adapter that answers, or "base".',
    "x-adapter-tier": "Where the replica found it: gpu, ram, disk or remote.",
}


def openapi() -> bytes:
    """As JSON."""
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "lorafleet", "version": "1", "description": "OpenAI's API for adapters by alias."},
            "paths": {
                "/v1/chat/completions": {"post": _generation("chat", "ChatRequest", "ChatAnswer")},
                "/v1/completions": {"post": _generation("completion", "CompletionRequest", "CompletionAnswer")},
                "/v1/models": {"get": _models()},
                "/v1/models/{model}": {"get": _model()},
                "/healthz": {"get": _probe("healthz", "The process is alive.")},
                "/readyz": {"get": _probe("readyz", "Requests can be served.", "503")},
            },
            "components": {
                "schemas": {**requests.schemas(), **answers.schemas()},
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


def _generation(name: str, request: str, answer: str) -> dict[str, Any]:
    content = {**_json(ref(answer)), "text/event-stream": {"schema": TEXT}}
    headers = {header: {"description": said, "schema": TEXT} for header, said in _HEADERS.items()}
    return {
        "operationId": name,
        "description": (
            "With `stream` true the answer is server-sent events: chunks of the same shape with `delta` instead of "
            "`message`, then `[DONE]`. A failure in the middle is one event with an error, and no `[DONE]`. "
            f"The request's header {deadline.HEADER} says how long the client waits."
        ),
        "security": [{"key": []}],
        "requestBody": {"required": True, "content": _json(ref(request))},
        "responses": {
            "200": {"description": "The answer.", "headers": headers, "content": content},
            **{status: _refusal(said) for status, said in _REFUSALS.items()},
        },
    }


def _models() -> dict[str, Any]:
    return _guarded("models", "What this key may call.", "ModelList", ("401", "503"))


def _model() -> dict[str, Any]:
    named = {"name": "model", "in": "path", "required": True, "schema": TEXT}
    return {**_guarded("model", "One of them.", "Model", ("401", "404", "503")), "parameters": [named]}


def _guarded(name: str, said: str, answer: str, refusals: tuple[str, ...]) -> dict[str, Any]:
    return {
        "operationId": name,
        "security": [{"key": []}],
        "responses": {
            "200": {"description": said, "content": _json(ref(answer))},
            **{status: _refusal(_REFUSALS[status]) for status in refusals},
        },
    }


def _probe(name: str, said: str, *others: str) -> dict[str, Any]:
    text = {"text/plain": {"schema": TEXT}}
    bad = {status: {"description": "Why not, in a sentence.", "content": text} for status in others}
    return {"operationId": name, "responses": {"200": {"description": said, "content": text}, **bad}}


def _refusal(said: str) -> dict[str, Any]:
    return {"description": said, "content": _json(ref("Error"))}


def _json(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
