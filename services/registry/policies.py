"""What the settings say about the parts that verify, evaluate and deploy."""

from __future__ import annotations

from services.registry.deployment.deployments import DeploymentPolicy
from services.registry.deployment.residency import ResidencyPolicy
from services.registry.registration.attendance import AttendancePolicy
from services.registry.registration.outcomes import RegistrationPolicy
from services.registry.settings import Settings


def registration(settings: Settings) -> RegistrationPolicy:
    return RegistrationPolicy(
        largest_file_bytes=settings.largest_file_bytes,
        verification_deadline_s=settings.verification_deadline_s,
        evaluation_deadline_s=settings.evaluation_deadline_s,
    )


def attendance(settings: Settings) -> AttendancePolicy:
    return AttendancePolicy(
        at_once=settings.evaluations_at_once,
        retry_s=settings.evaluation_retry_s,
        longest_retry_s=settings.evaluation_longest_retry_s,
    )


def residency(settings: Settings) -> ResidencyPolicy:
    return ResidencyPolicy(deadline_s=settings.residency_deadline_s, short_deadline_s=settings.rollback_residency_s)


def deployment(settings: Settings) -> DeploymentPolicy:
    return DeploymentPolicy(
        at_once=settings.evaluations_at_once,
        retry_s=settings.evaluation_retry_s,
        longest_retry_s=settings.evaluation_longest_retry_s,
        deadline_s=settings.deployment_deadline_s,
    )
