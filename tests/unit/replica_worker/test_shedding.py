"""More requests than rows: who would wait too long is told at once, and who has waited too long waits no more."""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from services.replica_worker.core.admission import admit, given_up
from services.replica_worker.core.margin import Margin
from services.replica_worker.core.row_ends import Row
from services.replica_worker.core.row_pace import Forecast, RowPace, before
from tests.support.replica import BASE_HASH, Heard, Rig, refused, rig
from tests.support.slow_rows import DOOR
from tests.support.slow_rows import QUESTION as REQUEST
from tests.support.unruly_engine import UnrulyEngine, unruly

STEP_S = 0.05


def forecast(mean_s: float, late_s: float, first_token_s: float = 0.1) -> Forecast:
    return Forecast(mean_s=mean_s, late_s=late_s, first_token_s=first_token_s, row_s=mean_s)


def known(tokens: int = 60, answers: int = 40) -> RowPace:
    pace = RowPace()
    for _ in range(answers):
        pace.began(0.1)
        pace.ended(tokens)
    return pace


@pytest.mark.parametrize(
    ("found", "changes", "code", "retry_s"),
    [
        (None, {}, None, None),
        (forecast(0.4, 0.9), {}, None, None),
        (forecast(0.4, 0.91), {}, "overloaded", 1.0),
        (forecast(4.2, 9.0), {}, "overloaded", 4.2),
        (forecast(4.2, 9.0), {"objective_s": 0.0}, None, None),
        (forecast(99.0, 120.0), {"objective_s": 0.0}, "deadline", 30.0),
        (forecast(0.4, 0.9), {"deadline_s": 0.5}, None, None),
        (forecast(0.4, 0.9), {"deadline_s": 0.49}, "deadline", 1.0),
        (forecast(0.1, 0.25, first_token_s=5.0), {}, None, None),
        (forecast(0.1, 0.26, first_token_s=5.0), {}, "overloaded", 1.0),
    ],
)
def test_who_would_be_too_late_is_refused_at_once_and_told_when_to_come_again(
    found: Forecast | None, changes: dict[str, float], code: str | None, retry_s: float | None
) -> None:
    refusal = admit(
        msgspec.structs.replace(REQUEST, **changes), msgspec.structs.replace(DOOR, forecast=found)
    )  # fmt: skip
    assert (refusal.code, refusal.retry_after_s) == (code, retry_s) if refusal else code is None
    assert refusal is None or refusal.elsewhere, "another replica may be less busy"


def test_those_who_were_sent_away_come_before_who_comes_now() -> None:
    door = msgspec.structs.replace(DOOR, forecast=forecast(2.0, 5.0), comers_wait_s=7.5)
    refusal = admit(REQUEST, door)
    assert refusal is not None
    assert refusal.retry_after_s == 9.5


def test_nothing_is_foreseen_before_anything_was_seen_nor_while_a_row_is_free() -> None:
    assert RowPace().forecast(90, 0, 32, tokens_per_s=640.0) is None
    assert known(answers=4).forecast(90, 0, 32, tokens_per_s=640.0) is None
    assert known().forecast(90, 0, 32, tokens_per_s=0.0) is None
    assert known(tokens=0).forecast(90, 0, 32, tokens_per_s=640.0) is None
    assert known().forecast(1, 2, 32, tokens_per_s=640.0) is None
    assert known().forecast(1, 1, 32, tokens_per_s=640.0) is not None


@pytest.mark.parametrize(("before", "late_s"), [(0, 0.6), (1, 0.6), (2, 1.2), (5, 1.8)])
def test_no_row_is_awaited_for_longer_than_the_longest_answers_take(before: int, late_s: float) -> None:
    """Two rows, and 60 tokens take each 0.6 s: whoever is next has one by then, however unlucky."""
    said = known().forecast(before, free_rows=0, max_rows=2, tokens_per_s=200.0)
    assert said is not None
    assert said.late_s == pytest.approx(late_s)


@pytest.mark.parametrize("waiting", [0, 1, 3, 9])
def test_a_forecast_is_what_rows_then_do(waiting: int) -> None:
    """32 rows taken again as soon as they are free, one token each in 50 ms, answers as uneven as real ones are: the
    row comes no later than is said as often as is said, or more often."""
    draw, found, said = random.Random(waiting), [], known().forecast(waiting, 0, 32, tokens_per_s=640.0)
    for _ in range(300):
        now_s, ends_s = draw.uniform(10.0, 20.0), []
        for _ in range(32):
            at_s = 0.0
            while at_s < now_s + 6.0:
                at_s += STEP_S * draw.lognormvariate(math.log(60.0) - 0.32, 0.8)
                ends_s.append(at_s)
        found.append(sorted(each - now_s for each in ends_s if each > now_s)[waiting])
    assert said is not None
    assert sum(found) / len(found) == pytest.approx(said.mean_s, rel=0.1)
    assert 0.93 < sum(each <= said.late_s for each in found) / len(found) < 0.995


@pytest.mark.parametrize(
    ("waiting", "tenant", "count"),
    [
        ({}, "light", 0),
        ({"flood": 40}, "flood", 40),
        ({"flood": 40}, "light", 1),
        ({"flood": 40}, "heavy", 0),
        ({"flood": 40, "light": 2}, "light", 5),
        ({f"c{at}": 1 for at in range(30)}, "light", 30),
    ],
)
def test_a_customer_that_asks_little_does_not_wait_behind_one_that_asks_much(
    waiting: dict[str, int], tenant: str, count: int
) -> None:
    assert before(waiting, lambda name: 4.0 if name == "heavy" else 1.0, tenant) == count


@pytest.mark.parametrize(
    ("objective_s", "waited_s", "free_rows", "given"),
    [(1.0, 1.9, 0, False), (1.0, 2.0, 0, True), (1.0, 9.0, 1, False), (0.0, 59.0, 0, False), (0.5, 1.0, -2, True)],
)
def test_patience_ends_for_want_of_a_row_alone(
    objective_s: float, waited_s: float, free_rows: int, given: bool
) -> None:
    refusal = given_up(objective_s, waited_s, free_rows, 3.0)
    assert (refusal is not None) is given
    assert refusal is None or (refusal.code, refusal.elsewhere, refusal.retry_after_s) == ("overloaded", True, 3.0)


@pytest.fixture
def engine() -> UnrulyEngine:
    return unruly(BASE_HASH)


@pytest.fixture
async def two_rows(tmp_path: Path, model_folder: Path, engine: UnrulyEngine) -> AsyncIterator[Rig]:
    """A replica with two rows that has answered requests of ten tokens, one each in 50 ms."""
    async with rig(tmp_path, model_folder, engine=engine, max_rows=2) as built:
        for at in range(6):
            await _answered(built, engine, f"learnt-{at}")
        yield built
        engine.go()
        await built.settled()
        built.assert_sound()


async def _answered(replica: Rig, engine: UnrulyEngine, name: str) -> None:
    engine.hold()
    heard = await replica.caller.send(replica.request(name, max_tokens=10))
    await replica.caller.wait(lambda: heard.accepted is not None)
    for tokens in range(1, 11):
        await replica.clock.advance(STEP_S)
        engine.allow(1)
        await replica.caller.wait(lambda tokens=tokens: len(heard.token_ids) == tokens)  # type: ignore[misc]


async def _full(replica: Rig, engine: UnrulyEngine) -> list[Heard]:
    engine.hold()
    running = [await replica.caller.send(replica.request(name, objective_s=1.0)) for name in ("a", "b")]
    await replica.caller.wait(lambda: all(each.accepted for each in running))
    return running


async def test_a_full_replica_lets_in_who_will_be_in_time_and_no_more(two_rows: Rig, engine: UnrulyEngine) -> None:
    await _full(two_rows, engine)
    in_time = [await two_rows.caller.send(two_rows.request(name, objective_s=1.0)) for name in ("third", "fourth")]
    await two_rows.until(lambda: two_rows.replica.generation.waiting == 2)
    fifth = await two_rows.caller.run(two_rows.request("too-late", objective_s=1.0))
    assert refused(fifth).code == "overloaded"
    assert refused(fifth).message.startswith("All rows are taken: the turn of this request would come in about 0.7 s")
    assert refused(fifth).retry_after_s == 1.0
    unhurried = await two_rows.caller.send(two_rows.request("unhurried"))
    hopeless = await two_rows.caller.run(two_rows.request("hopeless", deadline_s=0.4))
    assert refused(hopeless).code == "deadline"
    engine.go()
    await two_rows.caller.wait(lambda: all(each.over for each in (*in_time, unhurried)))
    assert not any(each.refused for each in (*in_time, unhurried))


async def test_who_waits_for_an_adapter_is_in_nobodys_way_to_a_row(two_rows: Rig, engine: UnrulyEngine) -> None:
    """Both rows are free, whoever else is here."""
    engine.go()
    unknown = await two_rows.keep("unknown")
    for at in range(6):
        await two_rows.caller.send(two_rows.request(f"cold-{at}", unknown))
    await two_rows.until(lambda: two_rows.replica.generation.waiting == 6)
    assert not (await two_rows.caller.run(two_rows.request("warm", objective_s=1.0))).refused
    for at in range(6):
        assert (await two_rows.caller.cancel(f"cold-{at}")).found


async def test_patience_begins_when_nothing_is_missing_but_a_row(two_rows: Rig, engine: UnrulyEngine) -> None:
    await _full(two_rows, engine)
    late = await two_rows.keep("late")
    waits = await two_rows.caller.send(two_rows.request("waits", late, objective_s=1.0))
    await two_rows.until(lambda: two_rows.replica.generation.waiting == 1)
    await two_rows.clock.advance(2.1)
    await two_rows.replica.tick()
    await two_rows.caller.cancel("nobody")  # so that its gateway is heard of
    await two_rows.tell(late)
    await two_rows.until(lambda: two_rows.replica.generation.dispatcher.waiting == 1)
    await two_rows.clock.advance(1.9)
    await two_rows.replica.tick()
    assert two_rows.replica.generation.waiting == 1
    await two_rows.clock.advance(0.2)
    await two_rows.replica.tick()
    await two_rows.caller.wait(lambda: waits.over)
    assert refused(waits).code == "overloaded"


async def test_who_was_let_in_and_waits_in_vain_is_sent_away(two_rows: Rig, engine: UnrulyEngine) -> None:
    running = await _full(two_rows, engine)
    waits = await two_rows.caller.send(two_rows.request("waits", objective_s=1.0))
    await two_rows.until(lambda: two_rows.replica.generation.waiting == 1)
    await two_rows.clock.advance(1.9)
    await two_rows.replica.tick()
    assert not waits.over
    await two_rows.clock.advance(0.2)
    await two_rows.replica.tick()
    await two_rows.caller.wait(lambda: waits.over)
    assert (refused(waits).code, refused(waits).elsewhere) == ("overloaded", True)
    engine.go()
    await two_rows.caller.wait(lambda: all(each.over for each in running))
    assert not any(each.refused for each in running), "who has a row keeps it"


async def test_prompts_in_the_engine_are_counted_for_who_comes_behind_them(
    tmp_path: Path, model_folder: Path, engine: UnrulyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four rows: whoever had none at first is no measure of prompts."""
    before: list[int] = []
    ahead: list[int | None] = []
    monkeypatch.setattr(RowPace, "foresee", lambda pace, row, prompts: before.append(prompts))
    monkeypatch.setattr(RowPace, "began", lambda pace, first_token_s, behind: ahead.append(behind))
    async with rig(tmp_path, model_folder, engine=engine, max_rows=4) as built:
        engine.hold()
        running = [await built.caller.send(built.request(f"r{at}")) for at in range(4)]
        await built.caller.wait(lambda: all(each.accepted for each in running))
        running.append(await built.caller.send(built.request("waits")))
        await built.until(lambda: built.replica.generation.waiting == 1)
        engine.go()
        await built.caller.wait(lambda: all(each.over for each in running))
        await built.caller.run(built.request("later"))
        await built.settled()
        built.assert_sound()
    assert before[-1] == 4
    assert sorted(each for each in ahead if each is not None)[-1] == 3


async def test_how_far_answers_are_and_how_late_first_tokens_came_reaches_the_decision(
    two_rows: Rig, engine: UnrulyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[tuple[float, float]] = []
    monkeypatch.setattr(Margin, "began", lambda margin, took_s, objective_s, now_s: began.append((took_s, objective_s)))
    engine.hold()
    heard = [await two_rows.caller.send(two_rows.request(name, max_tokens=9, objective_s=1.0)) for name in ("a", "b")]
    await two_rows.caller.wait(lambda: all(each.accepted for each in heard))
    await two_rows.clock.advance(1.5)
    engine.allow(3)
    await two_rows.caller.wait(lambda: all(len(each.token_ids) == 3 for each in heard))
    assert two_rows.replica.generation.dispatcher.rows == [Row(3, 6), Row(3, 6)]
    assert began == [(pytest.approx(1.5), 1.0)] * 2


async def test_who_waited_for_a_slot_says_nothing_of_rows_and_prompts(
    two_rows: Rig, engine: UnrulyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No forecast at the door is about slots, so a late load narrows it for nobody."""
    began: list[float] = []
    monkeypatch.setattr(Margin, "began", lambda margin, took_s, objective_s, now_s: began.append(took_s))
    engine.go()
    late = await two_rows.register("late")
    engine.copying.clear()
    waits = await two_rows.caller.send(two_rows.request("waits", late, objective_s=1.0))
    await two_rows.until(lambda: engine.calls["load"] == 1)
    await two_rows.clock.advance(3.0)
    engine.copying.set()
    await two_rows.caller.wait(lambda: waits.over)
    assert not waits.refused
    assert began == []
    await two_rows.caller.run(two_rows.request("warm", late, objective_s=1.0))
    assert len(began) == 1
