"""How much there is to be made of a JSON body, counted before anything is: all requests stand still meanwhile, a second
for 8 MiB of empty lists or of names. Text takes hardly any time, and is no part of it."""

from __future__ import annotations

from services.gateway.core.refusal import Refusal, bad_request

MOST = 2_000_000
"""Numbers: more than 8 MiB hold of token ids as they are."""
MADE = 8
"""A text, a list or an object takes as long as so many numbers."""
LITTLE_BYTES = 2 * MOST // MADE
"""A body of so few is never too much: the least of what has to be made has two."""


def excess(body: bytes) -> Refusal | None:
    """What becomes of a body that holds too much."""
    if len(body) <= LITTLE_BYTES or weight(body) <= MOST:
        return None
    message = f"The request body holds too much: {MOST} numbers, or an eighth as many texts, lists and objects."
    return bad_request(message, code="request_too_large", status=413)


def weight(body: bytes) -> int:
    """In numbers, by the commas; at least that, where texts alone are more than MOST. Whatever it is of a body that is
    no JSON, it means nothing."""
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    texts = plain.count(b'"') // 2
    if MADE * texts > MOST:
        return MADE * texts
    outside = b"".join(plain.split(b'"')[::2])
    return outside.count(b",") + MADE * (texts + outside.count(b"[") + outside.count(b"{"))
