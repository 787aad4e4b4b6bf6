"""`python -m infra.docker.healthy URL`: exit code 0 if it answers 200. Images need no curl for their health checks."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request


def main(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=2.0) as answer:
            return 0 if answer.status == 200 else 1
    except (urllib.error.URLError, OSError):
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
