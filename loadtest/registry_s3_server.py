"""A real S3 server: rclone over a folder, with credentials that it checks."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra.local.child import die_with_parent
from shared.store.access import S3Access

BUCKET = "fleet"
_KEY_ID, _SECRET = "AKIATESTTESTTEST", "not-so-secret/secret+of+tests"
_LISTENS = re.compile(r"Starting s3 server on \[(http://127\.0\.0\.1:\d+)/\]")
_START_S, _LOOK_S = 30.0, 0.02


@dataclass(frozen=True)
class S3Server:
    folder: Path
    """Its sub-folders are the buckets; `BUCKET` is the only one."""
    access: S3Access
    pid: int

    def objects(self, prefix: str) -> list[str]:
        """Names of all files below a prefix, those among them that no reader of the bucket may see."""
        root = self.folder / BUCKET / prefix
        return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


@contextmanager
def s3_server(folder: Path, *options: str) -> Iterator[S3Server]:
    """On a free port; `folder` is its own. Raises RuntimeError if it does not listen."""
    buckets, log = folder / "buckets", folder / "rclone.log"
    (buckets / BUCKET).mkdir(parents=True)
    rclone = Path(sys.executable).parent / "rclone"
    given = ["--config", "/dev/null", "--addr", "127.0.0.1:0", "--auth-key", f"{_KEY_ID},{_SECRET}", *options]
    argv = [rclone, "serve", "s3", *given, buckets]
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=output, preexec_fn=die_with_parent)
    try:
        url = _url(process, log)
        access = S3Access(s3_endpoint_url=url, s3_access_key_id=_KEY_ID, s3_secret_access_key=_SECRET)
        yield S3Server(folder=buckets, access=access, pid=process.pid)
    finally:
        process.terminate()
        process.wait()


def _url(process: subprocess.Popen[bytes], log: Path) -> str:
    until_s = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < until_s:
        if (listens := _LISTENS.search(log.read_text())) is not None:
            return listens[1]
        time.sleep(_LOOK_S)
    raise RuntimeError(f"rclone does not listen: {log.read_text()[-2000:]}")
