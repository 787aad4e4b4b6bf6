"""What the bus keeps, made on a real server: again, over an older one, and on a disk that is small."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from shared.bus import nats_provision
from shared.bus.nats_provision import provision
from shared.bus.port import BusUnavailable
from shared.contracts import catalog
from shared.contracts.channel import PREFIX, Kind
from shared.contracts.permissions import PROVISIONER
from shared.contracts.streams import buckets, event_streams
from shared.messages.desired import TenantRecord
from shared.messages.usage import UsageBatch
from tests.support import nats_server
from tests.support.bus_samples import sample
from tests.support.bus_worlds import Heard, NatsWorld


async def test_provisioning_again_changes_nothing_and_a_changed_limit_is_applied(
    nats_world: NatsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = nats_world.server.options(PROVISIONER)
    events, *others = event_streams()
    names = {spec.name for spec in (events, *others, *buckets())}
    assert await provision(options) == dict.fromkeys(names, "kept")
    monkeypatch.setattr(nats_provision, "event_streams", lambda: (replace(events, max_age_s=3600.0), *others))
    assert await provision(options) == {**dict.fromkeys(names, "kept"), events.name: "updated"}
    assert await provision(options) == dict.fromkeys(names, "kept")


async def test_a_server_that_kept_all_facts_in_one_stream_gets_one_for_usage(
    nats_world: NatsWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, (events, usage) = nats_world.server.options(PROVISIONER), event_streams()
    await nats_world.lose()
    shutil.rmtree(tmp_path / "store")
    await nats_world.find()
    everything = replace(events, subjects=(f"{PREFIX}.{Kind.EVENT.value}.>",))
    monkeypatch.setattr(nats_provision, "event_streams", lambda: (everything,))
    await provision(options)
    monkeypatch.undo()
    became = await provision(options)
    assert (became[events.name], became[usage.name]) == ("updated", "created")
    registry, gateway, heard = await nats_world.connect("registry"), await nats_world.connect("gateway"), Heard()
    await gateway.publish(catalog.USAGE_RECORDED, sample(UsageBatch), message_id="g1-1")
    await registry.consume(catalog.USAGE_RECORDED, "registry", heard)
    await heard.reach(1)


async def test_usage_is_given_the_disk_that_there_is(
    nats_world: NatsWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, usage = nats_world.server.options(PROVISIONER), event_streams()[1].name
    registry, gateway, heard = await nats_world.connect("registry"), await nats_world.connect("gateway"), Heard()

    async def after_a_restart_with(disk: str) -> str:
        limited = nats_server.server_config
        with monkeypatch.context() as patch:
            patch.setattr(nats_server, "server_config", lambda *given: _with_disk(limited(*given), disk))
            await nats_world.lose(kill=False)
            await nats_world.find()
        return (await provision(options))[usage]

    shutil.rmtree(tmp_path / "store")
    assert await after_a_restart_with("1GB") == "created"
    await registry.consume(catalog.USAGE_RECORDED, "registry", heard)
    assert await after_a_restart_with("1GB") == "kept"
    assert await after_a_restart_with("5GB") == "updated", "there is room for all of it now"
    assert await after_a_restart_with("100MB") == "kept", "nothing that is kept goes because a disk became full"
    await gateway.publish(catalog.USAGE_RECORDED, sample(UsageBatch), message_id="g1-1")
    await heard.reach(1)
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(BusUnavailable, match=r"LF_USAGE .* free some of its disk"):
        await after_a_restart_with("50MB")


def _with_disk(config: str, size: str) -> str:
    return config.replace("jetstream {", f"jetstream {{\n  max_file_store: {size}")


async def test_without_provisioning_the_error_says_what_is_missing(nats_world: NatsWorld, tmp_path: Path) -> None:
    registry = await nats_world.connect("registry")
    await nats_world.lose()
    shutil.rmtree(tmp_path / "store")
    await nats_world.find()
    with pytest.raises(BusUnavailable, match="was NATS provisioned"):
        await registry.state(catalog.TENANT).put(TenantRecord(tenant_id="t1"), "t1")
    with pytest.raises(BusUnavailable, match="was NATS provisioned"):
        await registry.state(catalog.TENANT).get("t1")
