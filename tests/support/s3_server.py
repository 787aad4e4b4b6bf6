"""A real S3 server for tests: rclone over a folder, with credentials that it checks."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra.local.child import die_with_parent
from shared.store.access import S3Access
from tests.support.waiting import eventually

BUCKET = "fleet"
_KEY_ID, _SECRET = "AKIATESTTESTTEST", "not-so-secret/secret+of+tests"
_LISTENS = re.compile(r"Starting s3 server on \[(http://127\.0\.0\.1:\d+)/\]")


@dataclass(frozen=True)
class S3Server:
    folder: Path
    """Its sub-folders are the buckets; `BUCKET` is the only one."""
    access: S3Access

    def objects(self, prefix: str) -> list[str]:
        """Names of all files below a prefix, those among them that no reader of the bucket may see."""
        root = self.folder / BUCKET / prefix
        return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """On a free port; `folder` is its own."""
    buckets, log = folder / "buckets", folder / "rclone.log"
    (buckets / BUCKET).mkdir(parents=True)
    rclone = Path(sys.executable).parent / "rclone"
    options = ["--config", "/dev/null", "--addr", "127.0.0.1:0", "--auth-key", f"{_KEY_ID},{_SECRET}"]
    argv = [rclone, "serve", "s3", *options, buckets]
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=output, preexec_fn=die_with_parent)
    try:
        url = eventually(lambda: _url(process, log), "rclone to listen")
        access = S3Access(s3_endpoint_url=url, s3_access_key_id=_KEY_ID, s3_secret_access_key=_SECRET)
        yield S3Server(folder=buckets, access=access)
    finally:
        process.terminate()
        process.wait()


def _url(process: subprocess.Popen[bytes], log: Path) -> str | None:
    said = log.read_text()
    assert process.poll() is None, f"rclone ended: {said[-2000:]}"
    listens = _LISTENS.search(said)
    return listens[1] if listens else None
