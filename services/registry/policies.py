"""What the settings say about each part."""

from __future__ import annotations

import tempfile
from pathlib import Path

from services.registry.attendance import AttendancePolicy
from services.registry.core.turns import TurnPolicy
from services.registry.deployment.residency import ResidencyPolicy
from services.registry.fleet import FleetPolicy
from services.registry.gating.verdicts import VerdictPolicy
from services.registry.registration.outcomes import RegistrationPolicy
from services.registry.registration.uploads import UploadPolicy
from services.registry.relay import RelayPolicy
from services.registry.settings import Settings
from shared.store.open import folder_of

_LONGEST_REST_S = 10.0
_PATIENCE = 0.8
"""So much of a deadline at most anybody gives way."""


def registration(settings: Settings) -> RegistrationPolicy:
    return RegistrationPolicy(
        largest_file_bytes=settings.largest_file_bytes,
        verification_deadline_s=settings.verification_deadline_s,
        evaluation_deadline_s=settings.evaluation_deadline_s,
    )


def verdicts(settings: Settings) -> VerdictPolicy:
    return VerdictPolicy(
        evaluation_deadline_s=settings.evaluation_deadline_s,
        results_deadline_s=settings.results_deadline_s,
    )


def attendance(settings: Settings) -> AttendancePolicy:
    return AttendancePolicy(
        retry_s=settings.evaluation_retry_s,
        longest_retry_s=settings.evaluation_longest_retry_s,
    )


def turns(settings: Settings, *, gives_way: bool) -> TurnPolicy:
    """Rests leave room for many turns before a deadline, and nobody gives way until then: a line that moves so seldom
    would count as standing still."""
    deadline_s = settings.evaluation_deadline_s
    return TurnPolicy(
        at_once=settings.evaluations_at_once,
        give_way_s=min(settings.evaluation_gives_way_s, _PATIENCE * deadline_s) if gives_way else 0.0,
        longest_rest_s=min(_LONGEST_REST_S, deadline_s / 10),
    )


def residency(settings: Settings) -> ResidencyPolicy:
    return ResidencyPolicy(deadline_s=settings.residency_deadline_s, short_deadline_s=settings.rollback_residency_s)


def fleet(settings: Settings) -> FleetPolicy:
    return FleetPolicy(
        ask_timeout_s=settings.ask_timeout_s,
        load_timeout_s=settings.load_timeout_s,
        evaluate_timeout_s=settings.evaluate_timeout_s,
    )


def uploads(settings: Settings) -> UploadPolicy:
    return UploadPolicy(
        largest_file_bytes=settings.largest_file_bytes,
        keep_parts_s=settings.keep_parts_s,
        keep_uploads_s=settings.keep_uploads_s,
    )


def drafts_folder(settings: Settings) -> Path:
    """On the store's own file system, if it has one."""
    store = folder_of(settings.store_url)
    beside = Path(tempfile.gettempdir(), "lorafleet-uploads") if store is None else store / ".drafts"
    return settings.drafts_folder or beside


def relay(settings: Settings) -> RelayPolicy:
    return RelayPolicy(
        retry_s=settings.outbox_retry_s,
        batch_rows=settings.outbox_batch_rows,
        keep_published_s=settings.keep_published_s,
    )
