"""What is raised when weights cannot be looked at."""

from __future__ import annotations


class SourceUnavailable(Exception):
    """The folder or bucket that weights come from does not answer; this says nothing about the file in it."""
