"""What becomes of an announcement, and what can go wrong on the way to it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from shared.messages.adapters import Defect


class Activated(msgspec.Struct, frozen=True, kw_only=True):
    """It passed: an alias may name it. `digest` is the SHA-256 of its weights."""

    adapter_id: str
    digest: str
    pool_id: str


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """The file or the announcement is wrong, in all these ways. Corrected, it may come again under the same id."""

    adapter_id: str
    defects: tuple[Defect, ...]

    def __str__(self) -> str:
        return " ".join(defect.message for defect in self.defects)


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """It did not pass its evaluation, or is out of service; that is final for this id."""

    adapter_id: str
    reason: str

    def __str__(self) -> str:
        return self.reason


Outcome = Activated | Rejected | Failed


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """`step` is "uploading" (with bytes), "announced", or the state that the adapter has reached."""

    adapter_id: str
    step: str
    sent_bytes: int = 0
    total_bytes: int = 0


OnProgress = Callable[[Progress], None]


def unheard(progress: Progress) -> None:
    """For callers who do not want to know."""


class PipelineError(Exception):
    """One sentence. Announcing the same adapter again is always safe."""


class Unreachable(PipelineError):
    """Nobody answered for as long as the caller was patient."""


class Refused(PipelineError):
    """The fleet understood and said no; asking again will not help. `code` stays the same over time."""

    def __init__(self, message: str, status: int, code: str, defects: tuple[Defect, ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.defects = defects


class OutcomeUnknown(PipelineError):
    """No outcome in the time that was given; the registry goes on with it. `status` is how far it had come, ""
    if nobody could be asked."""

    def __init__(self, message: str, status: str) -> None:
        super().__init__(message)
        self.status = status


class UnclearFolder(PipelineError):
    """The folder is none that PEFT's save_pretrained has left."""
