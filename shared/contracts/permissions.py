"""Who may say and hear what: derived from the catalog, enforced by the bus and again by the NATS server."""

from __future__ import annotations

from typing import Any

from shared.contracts.channel import Channel, FanOut, Kind, Service


def may_write(service: Service, channel: Channel[Any, Any]) -> bool:
    return service in channel.writers


def may_read(service: Service, channel: Channel[Any, Any]) -> bool:
    """A writer of desired state may read it back: compare-and-set needs the revision."""
    reads = any(reader.service is service for reader in channel.readers)
    return reads or (channel.kind is Kind.STATE and service in channel.writers)


def is_pooled(service: Service, channel: Channel[Any, Any]) -> bool:
    """Whether the processes of this service share the channel's messages."""
    return any(reader.service is service and reader.fan_out is FanOut.POOL for reader in channel.readers)


def require_writer(service: Service, channel: Channel[Any, Any]) -> None:
    """Raises PermissionError."""
    if not may_write(service, channel):
        raise PermissionError(f"{service.value} may not write on channel {channel.name}")


def require_reader(service: Service, channel: Channel[Any, Any]) -> None:
    """Raises PermissionError."""
    if not may_read(service, channel):
        raise PermissionError(f"{service.value} may not read channel {channel.name}")
