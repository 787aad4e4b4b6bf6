"""Who may call what, and what it means: keys, aliases and base models as the registry last wrote them."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from services.gateway.core import refusal
from services.gateway.core.allowance import Subject
from services.gateway.core.refusal import Refusal
from services.gateway.core.sessions import is_moved, session_of
from services.gateway.core.wish import Wish
from shared.messages.desired import AliasRecord, AliasTarget, ApiKeyRecord, BaseModelRecord, Limits, TenantRecord
from shared.messages.identity import AdapterKey, key_of
from shared.messages.pools import merged_pool_id, pool_id

R = TypeVar("R")


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Whose key it is: the only source of a tenant."""

    key_id: str
    tenant_id: str
    may_call_base: bool
    limited: tuple[Subject, ...] = ()
    """The tenant and the key, as far as they have limits."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What a model name means for one caller. `adapter` None is the base model itself, which every pool
    of that base can answer; an adapter has one pool, and perhaps replicas with nothing but it merged in, whose pool
    is that of `merged_pool_ids`."""

    tenant_id: str
    adapter: AdapterKey | None
    pool_ids: tuple[str, ...]
    base_model_hash: str
    max_context_tokens: int
    merged_pool_ids: tuple[str, ...] = ()
    tool_parser: str = ""
    """How the base writes calls; "": nobody knows."""
    vocabulary_size: int = 0


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `/v1/models`."""

    name: str
    parent: str | None
    created_at_s: float
    owner: str


class Directory:
    """Folded from watches: each `put_*` takes the key as it is in the bucket, and None for a deleted one.

    `current` says whether it can be believed about what is *not* in it: not before every watch has told
    its first values, and not while the bus is away. What is known stays known meanwhile.
    """

    def __init__(self) -> None:
        self._keys: dict[str, ApiKeyRecord] = {}
        self._aliases: dict[str, AliasRecord] = {}
        self._names_of: dict[str, set[str]] = {}
        self._bases: dict[str, BaseModelRecord] = {}
        self._limited_tenants: dict[str, Subject] = {}
        self._limited_keys: dict[str, Subject] = {}

    def put_key(self, key_hash: str, record: ApiKeyRecord | None) -> None:
        _put(self._keys, key_hash, record)
        limited = None if record is None else _limited(f"key {record.key_id}", record.limits)
        _put(self._limited_keys, key_hash, limited)

    def put_tenant(self, tenant_id: str, record: TenantRecord | None) -> None:
        limited = None if record is None else _limited(f"tenant {tenant_id}", record.limits)
        _put(self._limited_tenants, tenant_id, limited)

    def put_base(self, base_model_hash: str, record: BaseModelRecord | None) -> None:
        _put(self._bases, base_model_hash, record)

    def put_alias(self, alias_hash: str, record: AliasRecord | None) -> None:
        if (before := self._aliases.get(alias_hash)) is not None:
            self._names_of[before.tenant_id].discard(alias_hash)
        _put(self._aliases, alias_hash, record)
        if record is not None:
            self._names_of.setdefault(record.tenant_id, set()).add(alias_hash)

    def authenticate(self, authorization: str | None, current: bool) -> Caller | Refusal:
        """The caller behind an `Authorization` header."""
        scheme, _, key = (authorization or "").strip().partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            return refusal.unauthorised("An API key is required: send it as `Authorization: Bearer <key>`.")
        record = self._keys.get(key_hash := key_of(key.strip()))
        if record is not None:
            both = (self._limited_tenants.get(record.tenant_id), self._limited_keys.get(key_hash))
            return Caller(
                key_id=record.key_id, tenant_id=record.tenant_id, may_call_base=record.may_call_base,
                limited=tuple(each for each in both if each is not None) if any(both) else (),
            )  # fmt: skip
        if not current:
            return refusal.unavailable(refusal.OUT_OF_TOUCH)
        return refusal.unauthorised("The API key is not known.")

    def resolve(self, caller: Caller, wish: Wish, current: bool) -> Target | Refusal:
        """What the request's model means for the caller. A foreign name and an unknown one are refused alike."""
        model = wish.model
        alias = self._aliases.get(key_of(model))
        if alias is not None and alias.tenant_id == caller.tenant_id:
            return self._of_alias(alias.tenant_id, _version(alias, caller, wish))
        for base in self._bases.values():
            if base.name == model and caller.may_call_base:
                return _of_base(caller.tenant_id, base)
        return refusal.model_not_found(model) if current else refusal.unavailable(refusal.OUT_OF_TOUCH)

    def models(self, caller: Caller) -> tuple[Listed, ...]:
        """What the caller may call, aliases first, each group by name."""
        aliases = (self._aliases[name] for name in self._names_of.get(caller.tenant_id, ()))
        own = [
            Listed(name=a.alias, parent=a.base_model_name, created_at_s=a.updated_at_s, owner=a.tenant_id)
            for a in sorted(aliases, key=lambda alias: alias.alias)
        ]
        bases = sorted(self._bases.values(), key=lambda base: base.name) if caller.may_call_base else ()
        shared = [Listed(name=b.name, parent=None, created_at_s=b.created_at_s, owner="lorafleet") for b in bases]
        return (*own, *shared)

    def _of_alias(self, tenant_id: str, version: AliasRecord | AliasTarget) -> Target:
        base = self._bases.get(version.base_model_hash)
        return Target(
            tenant_id=tenant_id,
            adapter=AdapterKey(adapter_id=version.adapter_id, digest=version.digest),
            pool_ids=(version.pool_id,),
            base_model_hash=version.base_model_hash,
            max_context_tokens=base.max_context_tokens if base is not None else 0,
            merged_pool_ids=(merged_pool_id(version.pool_id, version.digest),),
            tool_parser=base.tool_parser if base is not None else "",
            vocabulary_size=base.vocabulary_size if base is not None else 0,
        )


def _version(alias: AliasRecord, caller: Caller, wish: Wish) -> AliasRecord | AliasTarget:
    """Of an alias that is split, each session means one of the two."""
    if alias.split is not None and is_moved(alias, session_of(caller.key_id, wish)):
        return alias.split
    return alias


def _of_base(tenant_id: str, base: BaseModelRecord) -> Target:
    return Target(
        tenant_id=tenant_id,
        adapter=None,
        pool_ids=tuple(pool_id(base.base_model_hash, rank_class) for rank_class in base.rank_classes),
        base_model_hash=base.base_model_hash,
        max_context_tokens=base.max_context_tokens,
        tool_parser=base.tool_parser,
        vocabulary_size=base.vocabulary_size,
    )


def _limited(name: str, limits: Limits) -> Subject | None:
    return None if limits == Limits() else Subject(name=name, limits=limits)


def _put(records: dict[str, R], key: str, record: R | None) -> None:
    if record is None:
        records.pop(key, None)
    else:
        records[key] = record
