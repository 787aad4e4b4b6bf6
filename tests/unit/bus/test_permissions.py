"""Least privilege, from the catalog."""

from __future__ import annotations

import pytest

from shared.contracts import catalog
from shared.contracts.channel import PREFIX, Kind, Service
from shared.contracts.permissions import (
    grants,
    is_pooled,
    may_read,
    may_write,
    provisioner_grants,
    require_reader,
    require_writer,
)
from shared.contracts.streams import bucket_stream, durables, key_prefix


def test_the_catalog_decides_who_writes_and_reads() -> None:
    assert may_write(Service.REGISTRY, catalog.ALIAS)
    assert not may_write(Service.GATEWAY, catalog.ALIAS)
    assert may_read(Service.GATEWAY, catalog.ALIAS)
    assert not may_read(Service.WORKER, catalog.ALIAS)
    assert not may_write(Service.CONSOLE, catalog.GENERATE)


def test_a_writer_reads_its_own_state_but_not_its_own_facts() -> None:
    assert may_read(Service.REGISTRY, catalog.ALIAS)
    assert not may_read(Service.REGISTRY, catalog.ADAPTER_VERIFIED)


def test_only_pool_readers_share() -> None:
    assert is_pooled(Service.PLACEMENT, catalog.FLEET)
    assert not is_pooled(Service.GATEWAY, catalog.REPLICA_REPORT)
    assert not is_pooled(Service.CONSOLE, catalog.FLEET)


def test_a_violation_names_the_service_and_the_channel() -> None:
    with pytest.raises(PermissionError, match=r"^gateway may not write on channel alias$"):
        require_writer(Service.GATEWAY, catalog.ALIAS)
    with pytest.raises(PermissionError, match=r"^replica_worker may not read channel api_key$"):
        require_reader(Service.WORKER, catalog.API_KEY)
    require_writer(Service.REGISTRY, catalog.ALIAS)
    require_reader(Service.GATEWAY, catalog.ALIAS)


def test_a_gateway_is_granted_this_and_no_more() -> None:
    """Spelled out, not derived: somebody should look when this changes."""
    granted = grants(Service.GATEWAY)
    assert set(granted.subscribe) == {
        "_INBOX_gateway.>",
        "lf.v1.tel.gateway.report.*",
        "lf.v1.tel.replica.report.*",
        "lf.v1.tel.replica.residency.*",
        "lf.v1.reply.*.r.*",
        "lf.v1.reply.*.f.*",
    }
    assert {subject for subject in granted.publish if subject.startswith("lf.")} == {
        "lf.v1.tel.gateway.activity.*",
        "lf.v1.tel.gateway.report.*",
        "lf.v1.evt.usage.recorded",
        "lf.v1.rpc.replica.generate.*",
        "lf.v1.rpc.replica.cancel.*",
        "lf.v1.rpc.replica.replay.*",
    }
    assert f"$JS.API.DIRECT.GET.{bucket_stream(catalog.ALIAS)}.{key_prefix(catalog.ALIAS)}>" in granted.publish
    assert not any(subject.startswith("$KV.") for subject in granted.publish)
    assert not granted.answers


def test_only_those_who_are_asked_may_answer() -> None:
    assert {service for service in Service if grants(service).answers} == {Service.WORKER, Service.PLACEMENT}


def test_who_shares_a_durable_may_use_that_one_only() -> None:
    used = {subject for subject in grants(Service.REGISTRY).publish if ".CONSUMER.MSG.NEXT." in subject}
    assert {subject.rpartition(".")[2] for subject in used} == {durable.name for durable in durables()}


def test_who_names_its_own_durables_is_kept_from_those_of_others() -> None:
    assert "$JS.API.CONSUMER.MSG.NEXT.LF_EVENTS.registry-adapter_registered" in grants(Service.CONSOLE).deny
    assert "$JS.API.CONSUMER.INFO.LF_EVENTS.registry-adapter_registered" in grants(Service.CONSOLE).deny
    assert grants(Service.REGISTRY).deny == ()
    assert grants(Service.GATEWAY).deny == ()


@pytest.mark.parametrize("service", list(Service))
def test_nobody_is_granted_a_whole_kind_or_a_whole_api(service: Service) -> None:
    granted = grants(service)
    prefixes = {f"{PREFIX}.{kind.value}" for kind in Kind} | {"lf", PREFIX, "$JS", "$JS.API", "$JS.ACK", "$KV"}
    for subject in (*granted.publish, *granted.subscribe):
        assert subject.split(".>")[0].removesuffix(".*") not in prefixes
        assert not subject.startswith((">", "*"))


def test_the_provisioner_makes_streams_and_sees_no_message() -> None:
    granted = provisioner_grants()
    assert granted.subscribe == ("_INBOX_provision.>",)
    assert {subject.split(".")[3] for subject in granted.publish} == {"INFO", "CREATE", "UPDATE"}
