"""Replicas that are started and never get ready."""

from __future__ import annotations

import msgspec
import pytest

from services.autoscaler.core.policy import ScalePolicy, StartPolicy
from services.autoscaler.lookout import AutoscalerPolicy
from tests.simulation.speakers import POOL
from tests.support.paper_actuator import PaperActuator
from tests.unit.autoscaler.test_autoscaler import Stage


async def test_the_log_says_once_a_round_who_did_not_get_ready_and_when_it_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    actuator = PaperActuator()
    actuator.there[POOL] = {"r1", "r2"}
    scale = msgspec.structs.replace(ScalePolicy(), start=StartPolicy(deadline_s=20.0))
    stage = Stage(actuator, AutoscalerPolicy(scale=scale))
    await stage.start()
    for _ in range(60):
        await stage.ask(14)
        await stage.seconds(1, capacity_tokens_per_s=640.0)
    await stage.autoscaler.stop()
    said = [
        record.__dict__["lorafleet_fields"]
        for record in caplog.records
        if record.message == "what was started did not get ready"
    ]
    assert [fields["reason"].partition("; ")[2] for fields in said] == [
        "what was started was not ready within 20 s, 1 times in a row",
        "what was started was not ready within 20 s, 2 times in a row; the next try is in 20 s",
    ]
    assert all(fields["late"] for fields in said)
