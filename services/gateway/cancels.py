"""What replicas were told to leave off, so that each is told once, and again only if it did not hear."""

from __future__ import annotations

from services.gateway.post import Post
from shared.messages.generation import TokenChunk

_AGAIN_S = 2.0
_REMEMBER_S = 60.0


class Cancels:
    def __init__(self, post: Post) -> None:
        self._post = post
        self._told_at_s: dict[str, float] = {}

    def tell(self, replica_id: str, bus_id: str, reason: str, now_s: float) -> None:
        self._told_at_s[bus_id] = now_s
        self._post.cancel(replica_id, bus_id, reason)

    def stray(self, replica_id: str, chunk: TokenChunk, now_s: float) -> None:
        """Somebody still works on what nobody wants: tell it again, if a cancel is not just on its way."""
        told_at_s = self._told_at_s.get(chunk.request_id)
        if chunk.finish is None and (told_at_s is None or now_s - told_at_s > _AGAIN_S):
            self.tell(replica_id, chunk.request_id, "nobody waits for it", now_s)

    def forget_old(self, now_s: float) -> None:
        self._told_at_s = {name: at_s for name, at_s in self._told_at_s.items() if now_s - at_s <= _REMEMBER_S}
