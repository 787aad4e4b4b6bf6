"""A real S3 server for tests: the one that registrations are measured against."""

from __future__ import annotations

from loadtest.registry_s3_server import BUCKET, S3Server, s3_server

__all__ = ["BUCKET", "S3Server", "s3_server"]
