"""A request as bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from loadtest.driver.planned import Planned

_SAID = (
    "the order parcel has not arrived and my customer asks when it will come to them please check what you can find"
    " about this name address date price number letter day week month people work time place water house world life"
)
_STRIDE = 7_919
"""A prime, so that prompts begin at different words."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """`url` is the public address. `keys` [tenant] go before `key`; a tenant is what an alias has before its `/`."""

    url: str
    key: str = ""
    keys: Mapping[str, str] = {}

    def key_of(self, alias: str) -> str:
        return self.keys.get(tenant_of(alias), self.key)


class Wording(msgspec.Struct, frozen=True, kw_only=True):
    """`tokens_per_word`: what the base's tokenizer makes of a short English word. `more`: further fields of the body.
    No two prompts of a run begin alike, and `seed` tells the runs apart: no prefix cache has met them."""

    tokens_per_word: float = 1.0
    more: Mapping[str, Any] = {}
    seed: int = 0


class Address(msgspec.Struct, frozen=True):
    host: str
    port: int
    secure: bool


def address_of(url: str) -> Address:
    """Raises ValueError, in one sentence."""
    where = urlsplit(url)
    try:
        port = where.port
    except ValueError:
        port = -1
    if where.scheme not in ("http", "https") or not where.hostname or port == -1:
        raise ValueError(f"{url!r} is no address such as http://127.0.0.1:8080.")
    secure = where.scheme == "https"
    return Address(where.hostname, port or (443 if secure else 80), secure)


def tenant_of(alias: str) -> str:
    return alias.partition("/")[0]


class Writer:
    def __init__(self, target: Target, wording: Wording) -> None:
        self._target = target
        self._wording = wording
        self._path = urlsplit(target.url).path.rstrip("/").removesuffix("/v1")
        self._host = urlsplit(target.url).netloc
        self._more = b"".join(
            b",%b:%b" % (msgspec.json.encode(name), msgspec.json.encode(value)) for name, value in wording.more.items()
        )
        self._heads: dict[str, bytes] = {}
        self._text, self._ends = b"", [0]

    def written(self, planned: Planned, number: int) -> bytes:
        body = (
            b'{"model":%b,"temperature":0,"max_tokens":%d,"stream":%b%b,"messages":[{"role":"user","content":"%x-%x%b"}]}'
        ) % (
            msgspec.json.encode(planned.alias),
            planned.max_tokens,
            b'true,"stream_options":{"include_usage":true}' if planned.stream else b"false",
            self._more,
            self._wording.seed,
            number,
            self._words(planned.prompt_tokens, number),
        )
        return b"%b%d\r\n\r\n%b" % (self._head(planned.alias), len(body), body)

    def _head(self, alias: str) -> bytes:
        key = self._target.key_of(alias)
        if key not in self._heads:
            lines = (
                f"POST {self._path}/v1/chat/completions HTTP/1.1",
                f"host: {self._host}",
                f"authorization: Bearer {key}",
                "content-type: application/json",
                "content-length: ",
            )
            self._heads[key] = "\r\n".join(lines).encode()
        return self._heads[key]

    def _words(self, tokens: int, number: int) -> bytes:
        """A part of one long text."""
        count = max(1, math.ceil(tokens / self._wording.tokens_per_word) - 2)
        if len(self._ends) <= 2 * count:
            known = _SAID.split()
            words = [known[at * at % len(known)] for at in range(4 * count)]
            self._text = "".join(f" {word}" for word in words).encode()
            self._ends = [0]
            for word in words:
                self._ends.append(self._ends[-1] + len(word) + 1)
        first = number * _STRIDE % (len(self._ends) - count)
        return self._text[self._ends[first] : self._ends[first + count]]
