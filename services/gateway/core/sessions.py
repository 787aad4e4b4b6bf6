"""Which of two versions a conversation means: the same one in every turn, whatever gateway it comes to."""

from __future__ import annotations

import hashlib

from services.gateway.core.wish import Wish, opening
from shared.messages.desired import AliasRecord

_DRAW_BYTES = 8
_ALL = 100.0


def session_of(key_id: str, wish: Wish) -> str:
    """What stays the same over all turns of a conversation: the name that the client gives it, else how it begins."""
    if wish.session is not None:
        return wish.session
    begins = hashlib.sha256(key_id.encode())
    for message in wish.prompts[0].messages:
        begins.update(f"\0{message.role}\0{len(message.content)}\0".encode())
        begins.update(message.content.encode())
        if message.role == "user":
            break
    if wish.is_text:
        begins.update(opening(wish.prompts).encode())
    return begins.hexdigest()


def draw(salt: str, session: str) -> float:
    """From 0 to 100, as if drawn by chance, and always the same."""
    digest = hashlib.sha256(salt.encode() + session.encode()).digest()
    return int.from_bytes(digest[:_DRAW_BYTES], "big") / (1 << 8 * _DRAW_BYTES) * _ALL


def is_moved(alias: AliasRecord, session: str) -> bool:
    """Whether the session means the split's version. Who is moved at some percentage is at every higher one."""
    return alias.split_percent >= _ALL or draw(alias.split_salt, session) < alias.split_percent
