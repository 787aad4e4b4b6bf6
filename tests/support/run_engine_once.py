"""Imported by the process that replicas are forked from, and by nobody else: importing it runs the engine once, so
that all of its code is there, and no replica has to wait for it again."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.tiny_model import build_tiny_model

with TemporaryDirectory() as folder:
    build_tiny_model(Path(folder) / "tiny")
