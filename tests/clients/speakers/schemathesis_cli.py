"""schemathesis, which makes requests out of the gateway's own OpenAPI document and judges the answers by it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.clients.speakers.protocol import Asked, Seen, serve

_COMMAND = Path(sys.executable).parent / "schemathesis"


class Failed(Exception):
    """The text is all that schemathesis printed."""


def speak(asked: Asked, seen: Seen) -> None:
    params, url = asked["params"], asked["url"].removesuffix("/v1")
    argv = [
        str(_COMMAND), "run", f"{url}/openapi.json", "--include-path-regex", "^/v1/",
        "--header", f"Authorization: Bearer {asked['key']}",
        "--seed", str(params["seed"]), "--max-examples", str(params["examples"]), "--generation-deterministic",
        "--checks", ",".join(params["checks"]), "--no-color", "--request-timeout", "60",
    ]  # fmt: skip
    run = subprocess.run(argv, check=False, capture_output=True, text=True)
    if run.returncode != 0:
        raise Failed(run.stdout + run.stderr)
    seen.append({"said": run.stdout})


if __name__ == "__main__":
    serve(speak)
