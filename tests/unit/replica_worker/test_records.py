"""The adapters that exist: whose bytes are whose, and what is remembered of those that are gone."""

from __future__ import annotations

import msgspec

from services.replica_worker.control.records import RecordBook
from shared.bus.port import Change
from shared.messages.desired import AdapterRecord
from shared.messages.identity import AdapterKey, key_of


def record_of(adapter_id: str, digest: str = "d" * 64) -> AdapterRecord:
    return AdapterRecord(
        adapter_id=adapter_id, digest=digest, tenant_id="acme", version="1", pool_id="pool", base_model_hash="b" * 64,
        rank=8, alpha=16.0, target_modules=("q_proj",), size_bytes=10, store_key="key", status="active",
    )  # fmt: skip


async def tell(book: RecordBook, adapter_id: str, record: AdapterRecord | None) -> None:
    await book.on_record(Change(ids=(key_of(adapter_id),), value=record, revision=1))


async def test_the_gone_are_remembered_while_something_of_them_is_held_and_no_longer() -> None:
    book, one, two = RecordBook(lambda key: None), record_of("one"), record_of("two")
    for record in (one, two):
        await tell(book, record.adapter_id, record)
    assert book.keys_of(one.digest) == {one.key, two.key}
    await tell(book, "one", None)
    assert (book.keys_of(one.digest), book.leaving(())) == ({two.key}, {one.key})
    assert book.forget_gone(lambda key: True) == frozenset()
    assert book.leaving(()) == {one.key}
    assert book.forget_gone(lambda key: False) == {one.key}
    assert book.leaving(()) == frozenset()


async def test_new_bytes_under_an_id_retire_the_old_ones_and_a_return_brings_them_back() -> None:
    told: list[AdapterKey] = []
    book, old = RecordBook(told.append), record_of("one")
    new = msgspec.structs.replace(old, digest="e" * 64)
    for record in (old, new):
        await tell(book, "one", record)
    assert book.leaving(()) == {old.key}
    assert book.of((old.key, new.key)) == {new.key: new}
    await tell(book, "one", old)
    assert (book.leaving(()), book.get(old.key)) == ({new.key}, old)
    assert told == [old.key, old.key, new.key, new.key, old.key]
