"""The ledger of all gateways' limits, in Redis or Valkey: what was let in, summed by one atomic script."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from services.gateway.core.allowance import Ask, Grant

PREFIX = "lf:limits:"
_SCRIPT = Path(__file__).with_name("limits_redis.lua")
CONNECTIONS = 4
"""Questions that may be under way at once: one more would wait for a connection, as long as for an answer."""


class LedgerAway(Exception):
    """The text says what happened. What was asked may have been done or not."""


class RedisLedger:
    """Keys are `lf:limits:{tenant acme}:requests` and the like, and go by themselves a minute after their last use.
    Nothing is connected before the first question; a connection that broke is made again with the next one."""

    def __init__(self, url: str, timeout_s: float) -> None:
        """Raises ValueError for a URL that names no server."""
        pool = BlockingConnectionPool.from_url(
            url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s, max_connections=CONNECTIONS,
            timeout=timeout_s, retry=Retry(NoBackoff(), 0), protocol=2,
        )  # fmt: skip
        self._redis = Redis(connection_pool=pool)
        self._pool = pool
        self._script = _SCRIPT.read_text()
        self._sha = hashlib.sha1(self._script.encode(), usedforsecurity=False).hexdigest()
        self._known = False

    async def ask(self, asks: Sequence[Ask]) -> list[Grant]:
        """An answer to each. Raises LedgerAway."""
        try:
            return await self._ask(asks)
        except (RedisError, OSError, msgspec.MsgspecError) as error:
            raise LedgerAway(str(error) or type(error).__name__) from error

    async def close(self) -> None:
        await self._redis.aclose()
        await self._pool.aclose()

    async def _ask(self, asks: Sequence[Ask]) -> list[Grant]:
        if self._known:
            try:
                return await self._run(asks, load=False)
            except NoScriptError:
                pass  # a server that started anew: none of the questions was answered
        answers = await self._run(asks, load=True)
        self._known = True
        return answers

    async def _run(self, asks: Sequence[Ask], *, load: bool) -> list[Grant]:
        """In one round trip. With `load` the script comes first."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            if load:
                pipeline.script_load(self._script)
            for ask in asks:
                pipeline.evalsha(self._sha, 4, *keys(ask.subject), msgspec.json.encode(ask))
            answers = await pipeline.execute()
        return [msgspec.json.decode(answer, type=Grant) for answer in answers[load:]]


def keys(subject: str) -> tuple[str, str, str, str]:
    of_subject = f"{PREFIX}{{{subject}}}:"
    return (f"{PREFIX}epoch", f"{of_subject}requests", f"{of_subject}tokens", f"{of_subject}streams")
