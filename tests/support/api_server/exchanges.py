"""What an API server was asked and what it answered, as files: written by the recorder, replayed by tests.

Of headers only those are kept that decide anything, and of `Authorization` only the scheme: no file holds a secret.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.support.scripted_http import Answer, Asked

RECORDINGS = Path(__file__).parent / "recordings"

_ANSWERED = ("Content-Type", "Retry-After")


class Question(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str
    """With its query."""
    accept: str
    content_type: str
    authorization: str
    """`bearer`, or nothing."""
    body: str


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    headers: dict[str, str]
    body: str


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    question: Question
    reply: Reply


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """`server` and `client` name the versions that spoke to each other."""

    server: str
    client: str
    exchanges: tuple[Exchange, ...]


def question_of(asked: Asked) -> Question:
    return Question(
        method=asked.method,
        path=asked.path,
        accept=asked.headers.get("Accept", ""),
        content_type=asked.headers.get("Content-Type", ""),
        authorization=asked.headers.get("Authorization", "").partition(" ")[0].lower(),
        body=asked.body.decode(),
    )


def reply_of(answer: Answer) -> Reply:
    headers = {name: answer.headers[name] for name in _ANSWERED if name in answer.headers}
    return Reply(status=answer.status, headers=headers, body=answer.body.decode())


def answer_of(reply: Reply) -> Answer:
    return Answer(reply.status, reply.body.encode(), reply.headers)


def encoded(recording: Recording) -> bytes:
    return msgspec.json.format(msgspec.json.encode(recording), indent=2) + b"\n"


def recorded(scene: str) -> Recording:
    return msgspec.json.decode((RECORDINGS / f"{scene}.json").read_bytes(), type=Recording)
