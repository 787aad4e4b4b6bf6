"""What can be said about an event that is no announcement, and to whom."""

from __future__ import annotations

import msgspec
import pytest

from services.registry.core.files.unreadable import Sender, refusal, sender_of
from shared.contracts import catalog
from shared.contracts.codec import BadMessage, decode
from tests.support.adapter_files import announcement, file_of

GOOD = msgspec.to_builtins(announcement(file_of()))


def reason_for(payload: bytes) -> str:
    with pytest.raises(BadMessage) as caught:
        decode(catalog.ADAPTER_REGISTERED, payload)
    return caught.value.reason


@pytest.mark.parametrize(
    ("said", "message", "field"),
    [
        ({name: GOOD[name] for name in GOOD if name != "rank"}, "Object missing required field 'rank'.", "rank"),
        ({**GOOD, "alfa": 1}, "Object contains unknown field 'alfa'.", "alfa"),
        ({**GOOD, "rank": "4"}, "Expected 'int', got 'str', at rank.", "rank"),
        ({**GOOD, "target_modules": [1]}, "Expected 'str', got 'int', at target_modules[0].", "target_modules[0]"),
    ],
)  # fmt: skip
def test_the_sender_is_told_which_field_is_wrong(said: object, message: str, field: str) -> None:
    payload = msgspec.json.encode(said)
    told = refusal(sender_of(payload), reason_for(payload))
    assert told is not None
    assert (told.adapter_id, told.tenant_id) == (GOOD["adapter_id"], GOOD["tenant_id"])
    [defect] = told.defects
    assert (defect.code, defect.message, defect.field) == ("invalid_announcement", message, field)


@pytest.mark.parametrize(
    ("payload", "sender"),
    [
        (b"", Sender()),
        (b"[]", Sender()),
        (b"\xff\xfe", Sender()),
        (b'{"adapter_id": "v1", "tenant_id": "acme", "rank": "4"', Sender()),
        (b'{"adapter_id": "v1", "tenant_id": "acme", "x": ' + b"[" * 100_000, Sender()),
        (b'{"adapter_id": "v1"}', Sender(adapter_id="v1")),
        (b'{"adapter_id": 1, "tenant_id": "acme"}', Sender(tenant_id="acme")),
        (b'{"adapter_id": "../v1", "tenant_id": "acme"}', Sender(adapter_id="../v1", tenant_id="acme")),
        (b'{"adapter_id": "v1", "tenant_id": "Acme!"}', Sender(adapter_id="v1", tenant_id="Acme!")),
        (b'{"adapter_id": "%s", "tenant_id": "acme"}' % (b"a" * 9000), Sender(adapter_id="a" * 129, tenant_id="acme")),
    ],
)  # fmt: skip
def test_nobody_is_told_if_it_cannot_be_made_out_who_sent_it(payload: bytes, sender: Sender) -> None:
    assert sender_of(payload) == sender
    assert refusal(sender, reason_for(payload)) is None
