"""Turns from up to down are few; who gets them."""

from __future__ import annotations

from services.autoscaler.core.policy import PacePolicy, ScalePolicy
from tests.unit.autoscaler.pools import asked, at, pool, replicas, wants


def test_small_turns_leave_the_few_that_there_are_to_bursts() -> None:
    policy = ScalePolicy(pace=PacePolicy(down_hold_s=8.0, down_step_s=1.0, panic_s=1.0))
    names = tuple(f"r{n}" for n in range(30))
    memory, falls = wants(20), []
    needs = [19.8, 18.5, 19.8, 18.5, 19.8, 18.5, 29.8, 18.5]
    for second in range(800):
        load = pool(replicas(*names), existing=None, demand=asked(needs[second // 100]))
        decision = at(float(second), load, memory, policy)
        if (memory.desired or 0) > decision.desired and memory.rising:
            falls.append(second // 100)
        memory = decision.memory
    assert falls == [3, 7]
    assert memory.desired == 19
