"""`python -m infra.docker.healthy URL`: exit code 0 if it answers 200, or listens (`tcp://host:port`). Images need no
curl for their health checks."""

from __future__ import annotations

import socket
import sys
import urllib.error
import urllib.request
from urllib.parse import urlsplit


def main(url: str) -> int:
    place = urlsplit(url)
    if place.scheme == "tcp":
        return _listens(place.hostname or "", place.port or 0)
    try:
        with urllib.request.urlopen(url, timeout=2.0) as answer:
            return 0 if answer.status == 200 else 1
    except (urllib.error.URLError, OSError):
        return 1


def _listens(host: str, port: int) -> int:
    try:
        with socket.create_connection((host, port), timeout=2.0):
            return 0
    except OSError:
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
