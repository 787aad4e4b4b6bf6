"""The request that is answered on a connection, and those that were sent without waiting for its end."""

from __future__ import annotations

from services.gateway.io.reply import Reply

Begun = tuple[Reply, ...]


def bounded(begun: Begun, most_ahead_bytes: int) -> Begun:
    """All that is sent ahead is read, or nobody would notice that the client has left; and so much of it is kept. The
    last that is whole is the last then."""
    ahead = begun[1:]
    if sum([reply.waiting_bytes for reply in ahead]) <= most_ahead_bytes:
        return begun
    kept = begun[:-1] if begun[-1].more_body else begun
    kept[-1].keeps = False
    return kept


def is_last_here(begun: Begun) -> bool:
    """Nothing that follows belongs to what is to be answered."""
    return not begun[-1].keeps and not begun[-1].more_body


def is_owed_answer(begun: Begun) -> bool:
    """Whoever sent what is no request gets an answer in its place, and not in that of another one."""
    return not begun or (len(begun) == 1 and begun[0].more_body and not begun[0].begun)


def lose(begun: Begun) -> None:
    for reply in begun:
        reply.lose()
