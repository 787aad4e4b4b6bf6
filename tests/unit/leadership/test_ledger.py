"""Compare-and-set with a memory: what is in doubt is looked up, and a foreign hand is noticed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.bus.memory import MemoryBroker
from shared.bus.port import BusUnavailable, Change
from shared.contracts.catalog import MEMBERSHIP
from shared.leadership.ledger import Ledger, NotLeading, Superseded
from shared.messages.desired import Membership


def membership(epoch: int, revision: int = 1) -> Membership:
    return Membership(pool_id="p", epoch=epoch, revision=revision, members=())


class Unconfirmed:
    """A store whose next `put` is not confirmed: stored all the same, or lost."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.fate = ""
        self.puts = 0

    async def put(self, value: Any, *ids: str, expected_revision: int | None = None) -> int:
        self.puts += 1
        fate, self.fate = self.fate, ""
        if fate != "lost":
            revision: int = await self._inner.put(value, *ids, expected_revision=expected_revision)
        if fate:
            raise BusUnavailable("no confirmation came")
        return revision

    async def get(self, *ids: str) -> Change[Any] | None:
        found: Change[Any] | None = await self._inner.get(*ids)
        return found

    async def delete(self, *ids: str, expected_revision: int | None = None) -> None:
        await self._inner.delete(*ids, expected_revision=expected_revision)

    async def entries(self) -> list[Change[Any]]:
        found: list[Change[Any]] = await self._inner.entries()
        return found


class Stage:
    def __init__(self) -> None:
        broker = MemoryBroker()
        self.leads = True
        self.theirs = broker.connect("placement").state(MEMBERSHIP)
        self.store = Unconfirmed(broker.connect("placement").state(MEMBERSHIP))
        self.ledger: Ledger[Membership] = Ledger("membership", self.store, lambda epoch: self.leads)  # type: ignore[arg-type]

    async def stored(self) -> Any:
        found = await self.theirs.get("p")
        return found.value if found else None


async def test_the_same_value_is_written_once() -> None:
    stage = Stage()
    assert await stage.ledger.write(membership(1), "p")
    assert not await stage.ledger.write(membership(1), "p")
    assert stage.store.puts == 1


async def test_what_is_on_the_bus_is_not_written_again() -> None:
    stage = Stage()
    await stage.theirs.put(membership(1), "p")
    await stage.ledger.read()
    assert not await stage.ledger.write(membership(1), "p")
    assert await stage.ledger.write(membership(2), "p")


@pytest.mark.parametrize("fate", ["stored", "lost"])
async def test_a_write_in_doubt_is_looked_up_and_made_good(fate: str) -> None:
    stage = Stage()
    stage.store.fate = fate
    with pytest.raises(BusUnavailable):
        await stage.ledger.write(membership(1), "p")
    assert await stage.ledger.write(membership(1), "p") == (fate == "lost")
    assert await stage.stored() == membership(1)
    assert await stage.ledger.write(membership(1, revision=2), "p")


async def test_a_write_in_doubt_that_arrives_late_is_still_our_own() -> None:
    stage = Stage()
    stage.store.fate = "lost"
    with pytest.raises(BusUnavailable):
        await stage.ledger.write(membership(1), "p")
    late = membership(1)
    get = stage.store.get

    async def get_before_it_arrives(*ids: str) -> Change[Any] | None:
        found = await get(*ids)
        stage.store.get = get  # type: ignore[method-assign]
        await stage.theirs.put(late, "p")
        return found

    stage.store.get = get_before_it_arrives  # type: ignore[method-assign]
    assert await stage.ledger.write(membership(1, revision=2), "p")
    assert await stage.stored() == membership(1, revision=2)


@pytest.mark.parametrize(("theirs", "sentence"), [(2, "epoch 2; this one has 1"), (1, "epoch 1; this one has 1")])
async def test_another_placements_value_stops_us_and_stays(theirs: int, sentence: str) -> None:
    stage = Stage()
    await stage.ledger.write(membership(1), "p")
    other = msgspec.structs.replace(membership(theirs), revision=77)
    await stage.theirs.put(other, "p")
    with pytest.raises(Superseded, match=sentence):
        await stage.ledger.write(membership(1, revision=2), "p")
    assert await stage.stored() == other


async def test_a_straggler_with_an_older_epoch_is_overwritten() -> None:
    stage = Stage()
    await stage.ledger.write(membership(2), "p")
    await stage.theirs.put(membership(1, revision=9), "p")
    assert await stage.ledger.write(membership(2, revision=2), "p")
    assert await stage.stored() == membership(2, revision=2)


async def test_a_key_that_somebody_deleted_is_written_again() -> None:
    stage = Stage()
    await stage.ledger.write(membership(1), "p")
    await stage.theirs.delete("p")
    assert await stage.ledger.write(membership(1, revision=2), "p")


async def test_a_value_of_a_time_before_epochs_is_simply_overwritten() -> None:
    stage = Stage()
    await stage.ledger.write(membership(0), "p")
    await stage.theirs.put(membership(0, revision=9), "p")
    assert await stage.ledger.write(membership(0, revision=2), "p")


async def test_a_removed_key_can_be_written_again() -> None:
    stage = Stage()
    await stage.ledger.write(membership(1), "p")
    await stage.ledger.remove(1, "p")
    await stage.ledger.remove(1, "p")
    assert (await stage.stored(), stage.ledger.values) == (None, {})
    assert await stage.ledger.write(membership(1), "p")


async def test_what_a_successor_wrote_is_neither_removed_nor_overwritten_however_often_it_is_tried() -> None:
    stage = Stage()
    await stage.ledger.write(membership(1), "p")
    await stage.theirs.put(membership(2), "p")
    for _ in range(2):
        with pytest.raises(Superseded, match="epoch 2; this one has 1") as caught:
            await stage.ledger.remove(1, "p")
        assert caught.value.epoch == 2
        with pytest.raises(Superseded):
            await stage.ledger.write(membership(1, revision=2), "p")
    assert await stage.stored() == membership(2)


async def test_what_a_straggler_wrote_meanwhile_is_removed_all_the_same() -> None:
    stage = Stage()
    await stage.ledger.write(membership(2), "p")
    await stage.theirs.put(membership(1), "p")
    await stage.ledger.remove(2, "p")
    assert await stage.stored() is None


async def test_who_does_not_lead_writes_nothing() -> None:
    stage = Stage()
    await stage.ledger.write(membership(1), "p")
    stage.leads = False
    with pytest.raises(NotLeading):
        await stage.ledger.write(membership(1, revision=2), "p")
    with pytest.raises(NotLeading):
        await stage.ledger.remove(1, "p")
    assert (await stage.stored(), stage.store.puts) == (membership(1), 1)
