"""An announcement that is not of the right shape: what is wrong with it, and whom to tell."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from services.registry.core.defects import LONGEST_FIELD, defect
from shared.messages.adapters import AdapterRejected
from shared.messages.identity import is_adapter_id, is_tenant_id

_EXPECTED = re.compile(r"Expected `(?P<allowed>[^`]*)`, got `(?P<found>[^`]*)`")
_AS_ANNOUNCED = "the fields of an announcement"
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Misfit(msgspec.Struct, frozen=True, kw_only=True):
    """One sentence, and the field in it if it names one."""

    message: str
    field: str | None


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """Whose an event says it is. Empty: it says nothing that can be read."""

    adapter_id: str = ""
    tenant_id: str = ""


def misfit(reason: str) -> Misfit:
    """msgspec's "Expected `int`, got `str` - at `$.rank`" as a sentence and the field in it."""
    what, _, place = reason.partition(" - at ")
    field = place.strip("`").removeprefix("$.") or None
    if "unknown field" in what or "required field" in what:
        named = what.rpartition(" ")[2].strip("`")
        field = f"{field}.{named}" if field else named
    text = what.replace("`", "'")
    return Misfit(message=f"{text}, at {field}." if place else f"{text}.", field=field)


def sender_of(payload: bytes) -> Sender:
    """Read from bytes that are no announcement as far as they can be read."""
    try:
        said = msgspec.json.decode(payload)
    except _NO_JSON:
        return Sender()
    fields = said if isinstance(said, dict) else {}
    return Sender(adapter_id=_text(fields.get("adapter_id")), tenant_id=_text(fields.get("tenant_id")))


def refusal(sender: Sender, reason: str) -> AdapterRejected | None:
    """What to tell the sender, or None if it does not say who it is."""
    if not (is_adapter_id(sender.adapter_id) and is_tenant_id(sender.tenant_id)):
        return None
    wrong, kinds = misfit(reason), _EXPECTED.match(reason)
    found, allowed = (kinds["found"], kinds["allowed"]) if kinds else ("", "")
    return AdapterRejected(
        adapter_id=sender.adapter_id,
        tenant_id=sender.tenant_id,
        defects=(
            defect("invalid_announcement", wrong.message, wrong.field, found=found, allowed=allowed or _AS_ANNOUNCED),
        ),
    )


def _text(value: Any) -> str:
    """One character more than any name has is enough to see that it is none."""
    return value[: LONGEST_FIELD + 1] if isinstance(value, str) else ""
