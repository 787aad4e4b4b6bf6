"""Where an embedded fleet keeps things: one folder, deletable as a whole, `.lorafleet` by default."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Layout:
    home: Path

    @property
    def models(self) -> Path:
        return self.home / "models"

    @property
    def nats(self) -> Path:
        return self.home / "nats"

    @property
    def valkey(self) -> Path:
        return self.home / "valkey"

    @property
    def store(self) -> Path:
        return self.home / "store"

    @property
    def database(self) -> Path:
        return self.home / "registry.sqlite"

    @property
    def inbox(self) -> Path:
        """Where a pipeline on this machine may leave weights for the registry to read."""
        return self.home / "inbox"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def secrets(self) -> Path:
        return self.home / "secrets.json"

    @property
    def demo_env(self) -> Path:
        return self.home / "demo.env"

    @property
    def lock(self) -> Path:
        """Held by the supervisor while the fleet runs; its text is the supervisor's pid."""
        return self.home / "supervisor.lock"

    @property
    def door(self) -> Path:
        """The socket on which the supervisor is asked for replicas; only its owner can use it."""
        return self.home / "supervisor.sock"

    @property
    def pids(self) -> Path:
        """JSON {process name: pid} of the running fleet's children."""
        return self.home / "pids.json"

    def cache(self, replica_id: str) -> Path:
        """The disk tier of one replica."""
        return self.home / "cache" / replica_id

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def create(self) -> None:
        for folder in (self.home, self.models, self.nats, self.store, self.inbox, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
