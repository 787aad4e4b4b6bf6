"""How much there is to be made of a JSON body, counted before anything is: all requests stand still meanwhile, a second
for 8 MiB of empty lists or of names. Text takes hardly any time, and is no part of it."""

from __future__ import annotations

from services.gateway.core.refusal import Refusal, bad_request

MOST = 1_500_000
"""Numbers: more than 8 MiB hold of token ids as they are."""
MADE = 8
"""A text, a list or an object takes as long as so many numbers, and so does a fraction or a power of ten."""
LITTLE_BYTES = 2 * MOST // MADE
"""A body of so few is never too much: the least of what has to be made has two."""
LONG_DIGITS = 512
"""A number takes time by the square of its digits: of 4,000 six times as long for each as of so many."""
_TOO_MUCH = (
    f"The request body holds too much: {MOST} numbers without a fraction, or an eighth as many others, texts, lists "
    "and objects."
)
_TOO_LONG = "The request body holds a number that is too long."


def excess(body: bytes) -> Refusal | None:
    """What becomes of a body that holds too much."""
    if len(body) <= LITTLE_BYTES:
        return None
    texts, outside = _apart(body)
    if weight_of(texts, outside) > MOST:
        return bad_request(_TOO_MUCH, code="request_too_large", status=413)
    return bad_request(_TOO_LONG, code="request_too_large", status=413) if _has_long_number(outside) else None


def weight(body: bytes) -> int:
    """In numbers, by the commas; at least that, where texts alone are more than MOST. Whatever it is of a body that is
    no JSON, it means nothing."""
    return weight_of(*_apart(body))


def weight_of(texts: int, outside: bytes) -> int:
    """Of so many texts, and of what stands outside of them. A "true" counts as a power of ten."""
    return outside.count(b",") + MADE * (texts + sum([outside.count(mark) for mark in _MARKS]))


_MARKS = (b"[", b"{", b".", b"e", b"E")


def _apart(body: bytes) -> tuple[int, bytes]:
    """How many texts there are, and what stands outside of them; nothing, where texts alone are too much."""
    plain = body if b"\\" not in body else body.replace(b"\\\\", b"").replace(b'\\"', b"")
    texts = plain.count(b'"') // 2
    return texts, b"" if MADE * texts > MOST else b"".join(plain.split(b'"')[::2])


def _has_long_number(outside: bytes) -> bool:
    """All of twice LONG_DIGITS are found, and none of fewer."""
    starts = range(0, len(outside) - LONG_DIGITS + 1, LONG_DIGITS)
    return any(outside[at : at + LONG_DIGITS].isdigit() for at in starts if outside[at : at + 1].isdigit())
