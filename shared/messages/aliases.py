"""Facts about aliases: what each came to mean, by whom and why."""

from __future__ import annotations

import msgspec

ALIAS_CHANGES = ("set", "rollback", "auto_rollback", "split", "promote", "unsplit", "unguard", "remove")


class AliasMoved(msgspec.Struct, frozen=True, kw_only=True):
    """One change of an alias. `change` is one of ALIAS_CHANGES; `revision` counts up by one for each.

    `adapter_id` None: the alias is gone. With `split_adapter_id`, `split_percent` of the sessions go there.
    """

    alias: str
    tenant_id: str
    change: str
    revision: int
    adapter_id: str | None
    previous_adapter_id: str | None = None
    split_adapter_id: str | None = None
    split_percent: float = 0.0
    actor: str = ""
    reason: str = ""
    at_s: float = 0.0
