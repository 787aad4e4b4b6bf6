"""Names from customers are opaque: a stated grammar, and nothing that a path, a subject or a log could trip over."""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.messages.identity import is_adapter_id, is_alias, is_digest, is_subject_token, is_tenant_id, key_of
from shared.messages.pools import is_merged, merged_pool_id, pool_id, smallest_rank_class

HOSTILE = [
    "", " ", "../../etc", "/etc/x", "a/../b", "a/..", "..", ".", "a\0b", "a\n", "\nacme", "a" * 4096, "~root", "a\\b",
    "$(id)", "a;b", "%2e%2e", "file:///etc", "-rf", ".hidden",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_c54_a_hostile_name_is_no_id_of_anything(name: str) -> None:
    assert not is_adapter_id(name)
    assert not is_tenant_id(name)
    assert not is_alias(name)
    assert not is_alias(f"acme/{name}")
    assert not is_digest(name)


@pytest.mark.parametrize("name", ["a..b", "a..", "acme-v1..2"])
def test_c54_two_dots_are_refused_even_where_dots_are_allowed(name: str) -> None:
    assert not is_adapter_id(name)
    assert not is_alias(f"acme/{name}")
    assert not is_alias(f"acme/support:{name}")


@pytest.mark.parametrize(
    "alias",
    [
        "acme/support,prod", "acme/sup port", "acme/support|prod", "Acme/support", "acme/Support", "acme/support:Prod",
        "acme/support:", "acme/:prod", "/support", "acme/", "acme", "acme/a/b", "acme/support:prod:1", "acme/süpport",
        "acme/\u0455upport", "acme/support\uff1aprod", "acme/support\u200b", "acme/support:prod\n",
        "acme/-x", "acme/.x", "-acme/x",
        "a" * 64 + "/x", "acme/" + "x" * 64, "acme/x:" + "y" * 33,
    ],
)  # fmt: skip
def test_c62_an_alias_outside_the_grammar_is_refused(alias: str) -> None:
    assert not is_alias(alias)


@pytest.mark.parametrize(
    "alias", ["acme/support:prod", "acme/support", "a/b", "acme-2/support_v1.5:2026-01", "0/0:0", "a" * 63 + "/x"]
)
def test_c62_an_alias_within_the_grammar_is_accepted(alias: str) -> None:
    assert is_alias(alias)


@pytest.mark.parametrize("base", ["SmolLM2-135M-Instruct", "meta-llama/Llama-3.1-8B", "tiny"])
def test_c62_a_base_model_in_the_usual_spelling_is_no_alias(base: str) -> None:
    assert not is_alias(base)


@pytest.mark.parametrize("name", ["a", "acme-support-v1", "Acme_Support.v1", "9lives", "a" * 128])
def test_adapter_ids_within_the_grammar_are_accepted(name: str) -> None:
    assert is_adapter_id(name)


@pytest.mark.parametrize("name", ["_a", ".a", "-a", "a" * 129, "a:b", "a/b", "é"])
def test_adapter_ids_outside_the_grammar_are_refused(name: str) -> None:
    assert not is_adapter_id(name)


@given(st.text(max_size=140))
def test_what_is_accepted_is_harmless_as_a_file_name_and_in_a_log(name: str) -> None:
    if is_adapter_id(name) or is_tenant_id(name) or is_alias(name) or is_subject_token(name):
        assert name.isascii()
        assert name.isprintable()
        assert " " not in name
        assert not name.startswith((".", "/"))
        assert ".." not in name


@given(st.from_regex(r"[a-z0-9][a-z0-9-]{0,62}", fullmatch=True))
def test_every_tenant_may_have_aliases(tenant: str) -> None:
    assert is_tenant_id(tenant)
    assert is_alias(f"{tenant}/support:prod")


@pytest.mark.parametrize("token", ["a.b", "a*", ">", "a b", "", "a" * 65, "é", "a\n"])
def test_what_is_no_subject_token_is_refused(token: str) -> None:
    assert not is_subject_token(token)


def test_digests_are_lower_case_hex_of_full_length() -> None:
    digest = hashlib.sha256(b"weights").hexdigest()
    assert is_digest(digest)
    assert not is_digest(digest.upper())
    assert not is_digest(digest[:-1])
    assert not is_digest(digest + "\n")


def test_a_key_is_the_hash_of_the_name() -> None:
    assert key_of("acme/support:prod") == hashlib.sha256(b"acme/support:prod").hexdigest()
    assert re.fullmatch("[0-9a-f]{64}", key_of("Ω:*>. "))


def test_a_pool_is_one_subject_token_and_tells_its_members_apart() -> None:
    base, other = "a" * 64, "b" * 64
    pools = {pool_id(base, 16), pool_id(base, 64), pool_id(other, 16), pool_id(base, 16, merged_digest="c" * 64)}
    assert len(pools) == 4
    assert all(is_subject_token(pool) for pool in pools)


@pytest.mark.parametrize(("rank", "chosen"), [(1, 16), (16, 16), (17, 64), (64, 64), (65, None)])
def test_an_adapter_goes_to_the_smallest_class_that_holds_it(rank: int, chosen: int | None) -> None:
    assert smallest_rank_class(rank, (64, 16)) == chosen


def test_a_merged_pool_is_named_by_the_adapters_own() -> None:
    own = pool_id("b" * 64, 16)
    assert merged_pool_id(own, "c" * 64) == pool_id("b" * 64, 16, merged_digest="c" * 64)
    assert not is_merged(own)
    assert is_merged(merged_pool_id(own, "c" * 64))
