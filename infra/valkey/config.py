"""How Valkey is to run: behind a password, on no disk, in as much memory as limits need."""

from __future__ import annotations

MEMORY_MB = 64
"""About 2 kB for each tenant and key that has limits and asked for something within the minute."""


def server_config(host: str, port: int, password: str) -> str:
    """What is idle longest goes first if the memory is ever full; limits are at worst a minute too generous then."""
    lines = (
        f"bind {host}",
        f"port {port}",
        f"requirepass {password}",
        f"maxmemory {MEMORY_MB}mb",
        "maxmemory-policy volatile-ttl",
        'save ""',
        "appendonly no",
        "daemonize no",
    )
    return "\n".join(lines) + "\n"


def url(host: str, port: int, password: str) -> str:
    return f"redis://:{password}@{host}:{port}/0"
