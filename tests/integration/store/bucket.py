"""A part of the server's bucket for every test, and stores that look at it."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from shared.store.patience import Patience
from shared.store.s3 import LinkLimits, S3Store, connect
from tests.support.faulty_link import FaultyLink
from tests.support.s3_server import BUCKET, S3Server


@dataclass
class Waits:
    """Takes the place of sleeping: time passes at once."""

    waits_s: list[float] = field(default_factory=list)

    async def __call__(self, seconds: float) -> None:
        self.waits_s.append(seconds)

    def patience(self, attempts: int = 4) -> Patience:
        return Patience(attempts=attempts, first_s=1.0, longest_s=3.0, sleep_s=self, draw=lambda: 1.0)


@dataclass(frozen=True)
class Bucket:
    server: S3Server
    prefix: str

    def store(
        self, link: FaultyLink | None = None, patience: Patience | None = None, *, silent_s: float = 20.0
    ) -> S3Store:
        """Directly at the server, or over a link. Nothing is tried twice unless `patience` says so."""
        access = self.server.access
        if link is not None:
            access = msgspec.structs.replace(access, s3_endpoint_url=link.url)
        client = connect(access, LinkLimits(silent_s=silent_s))
        return S3Store(client, BUCKET, self.prefix, patience or Waits().patience(attempts=1))

    def files(self) -> list[str]:
        return self.server.objects(self.prefix)
