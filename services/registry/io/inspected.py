"""What was learnt of uploads as they came: whoever verifies one need not read it again."""

from __future__ import annotations

import msgspec

from services.registry.core.files.verify import FileFacts

_MOST = 64
_LONGEST_HEADER_BYTES = 1 << 18
"""What is kept of all of them stays within some 10 MB; an adapter of a 7B model has a header of 60 kB."""


class _Seen(msgspec.Struct, frozen=True, kw_only=True):
    facts: FileFacts
    version: str


class Inspected:
    """Of the last few and for this process only: of all others the bytes are read, as after a restart.

    That they are still the same is known by three things: nobody else wrote to the file of the draft until the store
    had it, the store refuses bytes with another SHA-256 if it copies them, and the object has changed no more since.
    """

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def note(self, facts: FileFacts, version: str | None) -> None:
        """Of a file that was in the store in this version while nobody had written to its draft."""
        if not version or not _is_short(facts):
            return  # a store that names no versions could not tell
        self._seen.pop(facts.digest, None)
        self._seen[facts.digest] = _Seen(facts=facts, version=version)
        if len(self._seen) > _MOST:
            self._seen.pop(next(iter(self._seen)))

    def facts(self, digest: str, version: str) -> FileFacts | None:
        """None if the bytes of this version have to be read."""
        seen = self._seen.get(digest)
        if seen is None or seen.version != version:
            self._seen.pop(digest, None)
            return None
        return seen.facts


def _is_short(facts: FileFacts) -> bool:
    tensors = facts.header.tensors if facts.header is not None else ()
    return bool(tensors) and tensors[0].begin <= _LONGEST_HEADER_BYTES
