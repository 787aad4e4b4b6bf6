"""From a question to every number of its plan."""

from __future__ import annotations

import msgspec

from loadtest.capacity import rates, sizes
from loadtest.capacity.figures import said
from loadtest.capacity.model import NotPlannable
from loadtest.capacity.question import Question, check


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Each number is the function of the same name in `sizes` or `rates`, or said beside it."""

    question: Question
    adapter_bytes: int
    base_bytes: float
    kv_bytes: int
    room_bytes: float
    fitting: int
    slots: int
    """min(fitting, cap)."""
    replica_tokens_per_s: float
    output_tokens_per_s: float
    """Requests/s × output tokens."""
    prompt_tokens_per_s: float
    decoding: float
    """Replicas that are busy producing tokens."""
    prefilling: float
    """Replicas that are busy reading prompts."""
    replicas: int
    owned: int
    """Adapters that one replica owns."""
    usd_per_hour: float
    """Replicas × price."""

    @property
    def utilisation(self) -> float:
        """(decoding + prefilling) ÷ replicas."""
        return (self.decoding + self.prefilling) / self.replicas


def plan(question: Question) -> Plan:
    """Raises NotPlannable: a number that makes no sense, or a GPU that has no room for one adapter."""
    check(question)
    model = question.model
    adapter_bytes = sizes.adapter_bytes(model, question.rank, question.targets)
    base_bytes = sizes.base_bytes(model)
    kv_bytes = sizes.kv_bytes(model, question.rows, question.context_tokens)
    room_bytes = sizes.room_bytes(question.gpu_bytes, base_bytes, kv_bytes, question.work_bytes)
    fitting = sizes.fitting(room_bytes, adapter_bytes)
    if fitting == 0:
        raise NotPlannable(
            f"{said(question.gpu_bytes, 'bytes')} of GPU memory have no room for an adapter of "
            f"{said(adapter_bytes, 'bytes')} beside base {said(base_bytes, 'bytes')}, KV cache "
            f"{said(kv_bytes, 'bytes')} and work space {said(question.work_bytes, 'bytes')}: "
            "take a larger GPU, a lower rank, fewer rows or less context."
        )
    replica_tokens_per_s, decoding, prefilling = _busy(question)
    replicas = rates.replicas(decoding + prefilling, question.headroom)
    return Plan(
        question=question,
        adapter_bytes=adapter_bytes,
        base_bytes=base_bytes,
        kv_bytes=kv_bytes,
        room_bytes=room_bytes,
        fitting=fitting,
        slots=min(fitting, question.slot_cap),
        replica_tokens_per_s=replica_tokens_per_s,
        output_tokens_per_s=question.rate_per_s * question.output_tokens,
        prompt_tokens_per_s=question.rate_per_s * question.prompt_tokens,
        decoding=decoding,
        prefilling=prefilling,
        replicas=replicas,
        owned=rates.owned(question.adapters, question.owners, replicas),
        usd_per_hour=replicas * question.usd_per_gpu_hour,
    )


def _busy(question: Question) -> tuple[float, float, float]:
    """Tokens/s of a replica, and how many are busy with outputs and with prompts: a measured rate has both in it."""
    output = question.rate_per_s * question.output_tokens
    if question.replica_tokens_per_s is not None:
        measured = question.replica_tokens_per_s
        return measured, rates.busy_replicas(output, measured), 0.0
    worked_out = rates.tokens_per_s(question.rows, question.step_s)
    prompts = rates.busy_replicas(question.rate_per_s * question.prompt_tokens, question.prefill_tokens_per_s)
    return worked_out, rates.busy_replicas(output, worked_out), prompts
