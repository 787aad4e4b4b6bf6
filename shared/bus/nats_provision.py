"""Making a server's streams what the contracts say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from shared.bus.nats_jetstream import ApiError
from shared.bus.nats_link import CONFIRM_S, BusOptions, Link
from shared.bus.port import BusUnavailable, DeadlineExceeded, NoResponders
from shared.contracts.streams import StreamSpec, buckets, event_streams

_NS = 1_000_000_000
_NOT_FOUND = 10059
_NO_DISK = 10047
"""More is set apart than three quarters of what was free when the server started."""


class _Info(msgspec.Struct, frozen=True):
    error: ApiError | None = None
    config: dict[str, Any] = {}


async def provision(options: BusOptions, replicas: int = 1) -> dict[str, str]:
    """Create what is missing and update what differs; what became of each stream: "created", "updated" or "kept".

    Raises BusUnavailable; safe to repeat. Stored messages are never deleted.
    """
    link = Link(options)
    await link.open()
    try:
        # What has disk set apart for it comes last: it takes of what is there, and then nobody may ask for more.
        specs = sorted((*event_streams(), *buckets()), key=lambda spec: spec.max_bytes)
        return {spec.name: await _settle(link, spec, replicas) for spec in specs}
    finally:
        await link.close()


def stream_config(spec: StreamSpec, replicas: int) -> dict[str, Any]:
    """A bucket is what NATS' own key-value clients expect one to be."""
    bucket = {"allow_direct": True, "allow_rollup_hdrs": True, "deny_delete": True, "discard": "new"}
    return {
        "name": spec.name, "subjects": list(spec.subjects), "retention": "limits", "storage": "file",
        "num_replicas": replicas, "max_age": int(spec.max_age_s * _NS), "max_bytes": spec.max_bytes or -1,
        "max_msgs_per_subject": spec.history or -1, "duplicate_window": int(spec.duplicate_window_s * _NS),
        **(bucket if spec.is_bucket else {"discard": "old"}),
    }  # fmt: skip


async def _settle(link: Link, spec: StreamSpec, replicas: int) -> str:
    """The largest of `sizes` for which the server has the disk; a stream that has one of them already never shrinks."""
    found = await _call(link, "INFO", spec.name, b"")
    verb = "CREATE" if found.error is not None and found.error.err_code == _NOT_FOUND else "UPDATE"
    error: ApiError | None = None
    for smaller in sizes(spec):
        wanted = stream_config(smaller, replicas)
        if found.error is None and all(found.config.get(name) == value for name, value in wanted.items()):
            return "kept"
        error = (await _call(link, verb, spec.name, msgspec.json.encode(wanted))).error
        if error is None:
            return "created" if verb == "CREATE" else "updated"
        if error.err_code != _NO_DISK:
            break
    assert error is not None, "there is always one size to try"
    hint = ": free some of its disk" if error.err_code == _NO_DISK else ""
    raise BusUnavailable(f"NATS does not make {spec.name} what it should be: {error.description}{hint}")


def sizes(spec: StreamSpec) -> Iterator[StreamSpec]:
    """The same stream, at its full size and by halves down to the least that will do."""
    yield spec
    max_bytes = spec.max_bytes // 2
    while spec.least_bytes and max_bytes >= spec.least_bytes:
        yield replace(spec, max_bytes=max_bytes)
        max_bytes //= 2


async def _call(link: Link, verb: str, name: str, body: bytes) -> _Info:
    try:
        answer = await link.request(f"$JS.API.STREAM.{verb}.{name}", body, CONFIRM_S)
    except (NoResponders, DeadlineExceeded) as error:
        raise BusUnavailable(f"JetStream does not answer: {error}") from None
    return msgspec.json.decode(answer.data, type=_Info)
