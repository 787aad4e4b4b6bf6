"""HTTP/1.1 answers by hand: a head, and what of the bytes behind it is the body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

_HEAD_BYTES = 65_536


class NotHttp(ValueError):
    """What came is no HTTP/1.1 answer; says what is wrong with it."""


class Head(NamedTuple):
    """Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]

    @property
    def keeps(self) -> bool:
        """Whether the connection may be used again."""
        return self.headers.get("connection", "").lower() != "close"


class Body(Protocol):
    """`over` once all of it has come. One that is not `bounded` has come once the connection is closed."""

    over: bool
    bounded: bool

    def take(self, piece: bytes) -> bytes:
        """The part of the body in the next piece from the wire. Raises NotHttp."""


def split_head(received: bytes) -> tuple[Head, bytes] | None:
    """The head and what follows it, or None while it is not there in full. Raises NotHttp."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        if len(received) > _HEAD_BYTES:
            raise NotHttp(f"the head of the answer has no end within {_HEAD_BYTES} bytes")
        return None
    first, *lines = received[:end].decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
        raise NotHttp(f"the answer begins with {first[:40]!r}")
    pairs = (line.partition(":") for line in lines)
    return Head(int(rest[:3]), {name.lower(): value.strip() for name, _, value in pairs}), received[end + 4 :]


def body_of(head: Head) -> Body:
    """Raises NotHttp."""
    if head.headers.get("transfer-encoding", "").lower() == "chunked":
        return Chunked()
    if (length := head.headers.get("content-length")) is not None:
        if not length.isdigit():
            raise NotHttp(f"the length of the answer is {length[:40]!r}")
        return Sized(int(length))
    return UntilClosed()


class Sized:
    bounded = True

    def __init__(self, length: int) -> None:
        self._left = length
        self.over = not length

    def take(self, piece: bytes) -> bytes:
        if len(piece) > self._left:
            raise NotHttp("the answer is longer than its length")
        self._left -= len(piece)
        self.over = not self._left
        return piece


class UntilClosed:
    """Only the end of the connection tells."""

    over = False
    bounded = False

    def take(self, piece: bytes) -> bytes:
        return piece


class Chunked:
    bounded = True

    def __init__(self) -> None:
        self.over = False
        self._held = b""
        """The beginning of a line."""
        self._left = 0
        """Of the chunk that has begun, with the line break behind it."""
        self._trailing = False

    def take(self, piece: bytes) -> bytes:
        """Servers of streams write a chunk at a time, so most pieces are one: only that has to be quick."""
        if not self._left and not self._held:
            end = piece.find(b"\r\n")
            if 0 < end < 9 and 0 < _size(piece[:end]) == len(piece) - end - 4:
                return piece[end + 2 : -2]
        return self._pieced(self._held + piece)

    def _pieced(self, received: bytes) -> bytes:
        at, parts = 0, []
        while not self.over:
            if self._left:
                parts.append(received[at : at + max(0, self._left - 2)])
                moved = min(self._left, len(received) - at)
                self._left -= moved
                at += moved
                if self._left:
                    break
            end = received.find(b"\r\n", at)
            if end < 0:
                break
            self._line(received[at:end])
            at = end + 2
        self._held = received[at:]
        if self.over and self._held:
            raise NotHttp("something follows the end of the answer")
        return b"".join(parts)

    def _line(self, line: bytes) -> None:
        if self._trailing:
            self.over = not line
        elif size := _size(line):
            self._left = size + 2
        else:
            self._trailing = True


def _size(line: bytes) -> int:
    try:
        size = int(line.partition(b";")[0], 16)
    except ValueError:
        raise NotHttp(f"a chunk's size is {line[:40]!r}") from None
    if size < 0:
        raise NotHttp(f"a chunk's size is {line[:40]!r}")
    return size
