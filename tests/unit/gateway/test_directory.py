"""Who may call what: the key decides, and nothing that is foreign can be told from what does not exist."""

from __future__ import annotations

from typing import Any

import pytest

from services.gateway.core.directory import Caller, Directory, Target
from services.gateway.core.refusal import Refusal
from services.gateway.core.wish import Prompt, Wish
from shared.messages.desired import AliasTarget
from shared.messages.generation import ChatMessage
from shared.messages.identity import AdapterKey, key_of
from shared.messages.pools import pool_id
from tests.unit.gateway import samples


@pytest.fixture
def directory() -> Directory:
    directory = Directory()
    directory.put_base(samples.BASE_HASH, samples.base())
    for name, tenant in (("acme/support", "acme"), ("acme/billing:prod", "acme"), ("globex/sales", "globex")):
        directory.put_alias(key_of(name), samples.alias(alias=name, tenant_id=tenant))
    directory.put_key(key_of("sk-acme"), samples.api_key())
    directory.put_key(key_of("sk-base"), samples.api_key(key_id="k2", may_call_base=True))
    return directory


def caller(directory: Directory, key: str) -> Caller:
    found = directory.authenticate(f"Bearer {key}", current=True)
    assert isinstance(found, Caller)
    return found


def asking(model: str, **changes: Any) -> Wish:
    return Wish(model=model, prompts=(Prompt(messages=(ChatMessage(role="user", content="Hi"),)),), **changes)


def refused(outcome: object) -> Refusal:
    assert isinstance(outcome, Refusal)
    return outcome


def test_an_alias_is_resolved_to_one_immutable_adapter(directory: Directory) -> None:
    target = directory.resolve(caller(directory, "sk-acme"), asking("acme/support"), current=True)
    assert target == Target(
        tenant_id="acme", adapter=samples.ADAPTER, pool_ids=(samples.POOL,),
        base_model_hash=samples.BASE_HASH, max_context_tokens=2_048,
        merged_pool_ids=(pool_id(samples.BASE_HASH, 16, samples.ADAPTER.digest),),
    )  # fmt: skip


def test_moving_an_alias_is_seen_at_once(directory: Directory) -> None:
    moved = samples.alias(adapter_id="acme-2", digest="d" * 64)
    directory.put_alias(key_of("acme/support"), moved)
    target = directory.resolve(caller(directory, "sk-acme"), asking("acme/support"), current=True)
    assert isinstance(target, Target)
    assert target.adapter == AdapterKey(adapter_id="acme-2", digest="d" * 64)


def test_a_split_sends_a_session_to_another_pool_of_another_base_with_all_that_routing_needs(
    directory: Directory,
) -> None:
    other_base, pool = "c" * 64, pool_id("c" * 64, 64)
    directory.put_base(other_base, samples.base(base_model_hash=other_base, name="next-base", max_context_tokens=4_096))
    split = AliasTarget(
        adapter_id="acme-2", digest="d" * 64, pool_id=pool, base_model_hash=other_base, base_model_name="next-base"
    )
    directory.put_alias(key_of("acme/support"), samples.alias(split=split, split_percent=50.0, split_salt="s"))
    who = caller(directory, "sk-acme")
    found = {name: directory.resolve(who, asking("acme/support", session=name), current=True) for name in "abcdefgh"}
    assert {target.adapter for target in found.values() if isinstance(target, Target)} == {
        samples.ADAPTER, AdapterKey(adapter_id="acme-2", digest="d" * 64),
    }  # fmt: skip
    moved = [target for target in found.values() if isinstance(target, Target) and target.adapter != samples.ADAPTER]
    assert moved[0] == Target(
        tenant_id="acme", adapter=AdapterKey(adapter_id="acme-2", digest="d" * 64), pool_ids=(pool,),
        base_model_hash=other_base, max_context_tokens=4_096, merged_pool_ids=(pool_id(other_base, 64, "d" * 64),),
    )  # fmt: skip


def test_c68_stream_and_non_stream_of_one_session_mean_the_same_version(directory: Directory) -> None:
    split = AliasTarget(
        adapter_id="acme-2", digest="d" * 64, pool_id=samples.POOL, base_model_hash=samples.BASE_HASH,
        base_model_name="tiny-base",
    )  # fmt: skip
    directory.put_alias(key_of("acme/support"), samples.alias(split=split, split_percent=50.0, split_salt="s"))
    who = caller(directory, "sk-acme")
    for session in (*"abcdefgh", None):
        streamed, whole = (
            directory.resolve(who, asking("acme/support", session=session, stream=stream), current=True)
            for stream in (True, False)
        )
        assert streamed == whole


def test_c59_own_aliases_only(directory: Directory) -> None:
    assert [listed.name for listed in directory.models(caller(directory, "sk-acme"))] == [
        "acme/billing:prod",
        "acme/support",
    ]


def test_c59_foreign_and_unknown_are_refused_alike(directory: Directory) -> None:
    who = caller(directory, "sk-acme")
    foreign = refused(directory.resolve(who, asking("globex/sales"), current=True))
    unknown = refused(directory.resolve(who, asking("globex/nobody"), current=True))
    assert (foreign.status, foreign.code, foreign.heals) == (404, "model_not_found", False)
    assert foreign.envelope.replace(b"globex/sales", b"globex/nobody") == unknown.envelope


def test_the_base_answers_to_its_name_for_keys_that_may_call_it(directory: Directory) -> None:
    target = directory.resolve(caller(directory, "sk-base"), asking("tiny-base"), current=True)
    assert isinstance(target, Target)
    assert target.adapter is None
    assert target.pool_ids == (samples.POOL, samples.POOL.replace("r16", "r64"))
    assert refused(directory.resolve(caller(directory, "sk-acme"), asking("tiny-base"), current=True)).status == 404


def test_models_name_their_parent(directory: Directory) -> None:
    listed = {model.name: model.parent for model in directory.models(caller(directory, "sk-base"))}
    assert listed == {"acme/billing:prod": "tiny-base", "acme/support": "tiny-base", "tiny-base": None}


def test_a_deleted_alias_is_gone_from_everywhere(directory: Directory) -> None:
    directory.put_alias(key_of("acme/support"), None)
    who = caller(directory, "sk-acme")
    assert refused(directory.resolve(who, asking("acme/support"), current=True)).status == 404
    assert [listed.name for listed in directory.models(who)] == ["acme/billing:prod"]


def test_an_alias_that_changes_hands_is_listed_once(directory: Directory) -> None:
    directory.put_alias(key_of("acme/support"), samples.alias(tenant_id="globex"))
    assert "acme/support" not in [listed.name for listed in directory.models(caller(directory, "sk-acme"))]


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer  ", "Basic sk-acme", "sk-acme"])
def test_no_key_is_said_so(directory: Directory, header: str | None) -> None:
    refusal = refused(directory.authenticate(header, current=True))
    assert (refusal.status, refusal.code) == (401, "invalid_api_key")
    assert "required" in refusal.message


def test_a_wrong_or_revoked_key(directory: Directory) -> None:
    assert refused(directory.authenticate("Bearer sk-nobody", current=True)).status == 401
    directory.put_key(key_of("sk-acme"), None)
    assert refused(directory.authenticate("bearer sk-acme", current=True)).status == 401


def test_c35_while_out_of_touch_nothing_is_said_not_to_exist(directory: Directory) -> None:
    known = directory.authenticate("Bearer sk-acme", current=False)
    assert isinstance(known, Caller)
    assert isinstance(directory.resolve(known, asking("acme/support"), current=False), Target)
    for refusal in (
        refused(directory.resolve(known, asking("acme/just-made"), current=False)),
        refused(directory.authenticate("Bearer sk-just-made", current=False)),
    ):
        assert (refusal.status, refusal.heals) == (503, True)
        assert refusal.headers == {"retry-after": "1"}
