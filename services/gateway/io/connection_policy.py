"""How many connections there may be, and for how long and how much each may keep the gateway waiting."""

from __future__ import annotations

import msgspec


class ConnectionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`most` connections at once; `most_told` beyond them are let in to hear of it, and more are just closed. Each has
    `head_s` from the first byte of a request until its head is whole, of `largest_head_bytes` at most, and is closed
    once it is idle for `keep_alive_s`, before its first request as well, or has had something to send for
    `slow_write_s` and could not. `most_ahead` requests, and `most_ahead_bytes` of them, may come while another is
    answered: the connection ends after the last that is whole. Of what is of no use (the rest of a request that was
    answered before it was whole, what comes behind the last one) `most_dropped_bytes` are read, and for `dropping_s`
    once nothing is to be answered: a client that sends all before it reads finds its answer then."""

    most: int = 16_000
    most_told: int = 512
    largest_head_bytes: int = 64 << 10
    head_s: float = 10.0
    keep_alive_s: float = 75.0
    slow_write_s: float = 30.0
    most_ahead: int = 64
    most_ahead_bytes: int = 256 << 10
    most_dropped_bytes: int = 64 << 20
    dropping_s: float = 30.0
