"""A valid message of any type that the catalog names."""

from __future__ import annotations

from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from shared.messages.adapters import AdapterRegistered
from shared.messages.generation import Frame, GenerateRequest, Sampling
from shared.messages.reports import GatewayReport

_PLAIN: dict[Any, Any] = {str: "x", int: 1, float: 1.0, bool: True}


def sample(kind: Any) -> Any:
    """Every required field set, the others left alone."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        types = get_type_hints(kind)
        return kind(
            **{field.name: sample(types[field.name]) for field in msgspec.structs.fields(kind) if field.required}
        )
    if kind in _PLAIN:
        return _PLAIN[kind]
    return () if get_origin(kind) is tuple else {} if get_origin(kind) not in _UNIONS else sample(get_args(kind)[0])


_UNIONS = (Union, type(int | str))


def registered(adapter_id: str = "a1") -> AdapterRegistered:
    return msgspec.structs.replace(sample(AdapterRegistered), adapter_id=adapter_id)


def gateway_report(sequence: int = 1, gateway_id: str = "g1") -> GatewayReport:
    return msgspec.structs.replace(sample(GatewayReport), gateway_id=gateway_id, sequence=sequence)


def generate(request_id: str = "q1", gateway_id: str = "g1") -> GenerateRequest:
    request: GenerateRequest = sample(GenerateRequest)
    return msgspec.structs.replace(request, request_id=request_id, gateway_id=gateway_id, sampling=Sampling(seed=1))


def frame(number: int = 1) -> Frame:
    return Frame(replica_id="r1", incarnation="i1", number=number)
