"""Plain tokens take a short cut past the core: what it leaves is what the core would have said."""

from __future__ import annotations

import msgspec
import pytest

from services.gateway.conversation import Conversation
from services.gateway.core import streams
from services.gateway.core.directory import Target
from services.gateway.core.stream import Phase
from services.gateway.core.wish import Part, Prompt, Wish
from services.gateway.io.outlet import Outlet
from services.gateway.records import RequestRecord
from shared.messages.generation import Finish, TokenChunk
from tests.unit.gateway.life import POLICY, USAGE
from tests.unit.gateway.samples import ADAPTER

PROMPT = Prompt(text="hello")
END = Finish(reason="stop", usage=USAGE)


def conversation(phase: Phase) -> Conversation:
    target = Target(
        tenant_id="acme", adapter=ADAPTER, pool_ids=("p",), base_model_hash="b" * 64, max_context_tokens=100
    )  # fmt: skip
    record = RequestRecord(
        request_id="x", call_id="q", tenant_id="acme", key_id="k", model="m", adapter_id="a", stream=True, began_s=0.0
    )
    made = Conversation(
        Wish(model="m", prompts=(PROMPT,)), Part(prompt=PROMPT, seed=1, repeats=False), target, record,
        Outlet(streaming=True),
    )  # fmt: skip
    made.stream = msgspec.structs.replace(
        made.stream, phase=phase, attempt=1, replica_id="r", incarnation="i", next_position=3, shown=True
    )
    return made


def piece(position: int, *token_ids: int, finish: Finish | None = None) -> TokenChunk:
    return TokenChunk(request_id="q-1", position=position, token_ids=token_ids, text="x", finish=finish)


def test_plain_tokens_leave_what_the_core_leaves() -> None:
    short, core = conversation(Phase.STREAMING), conversation(Phase.STREAMING).stream
    for now_s, chunk in ((1.0, piece(3, 7)), (2.0, piece(4, 8, 9)), (4.0, piece(6, 5))):
        assert short.goes_on(chunk, now_s)
        core, [_] = streams.chunk(core, chunk, POLICY, now_s)
    assert short.stream == core
    assert short.flows(4.0 + POLICY.stall_s, POLICY.stall_s)
    assert not short.flows(4.1 + POLICY.stall_s, POLICY.stall_s)


@pytest.mark.parametrize("chunk", [piece(2, 7), piece(4, 7), piece(3), piece(3, 7, finish=END)])
def test_everything_else_is_left_to_the_core(chunk: TokenChunk) -> None:
    short = conversation(Phase.STREAMING)
    before = short.stream
    assert not short.goes_on(chunk, 1.0)
    assert short.stream == before


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.STREAMING])
def test_only_a_stream_goes_on(phase: Phase) -> None:
    assert not conversation(phase).goes_on(piece(3, 7), 1.0)
    assert not conversation(phase).flows(0.0, 60.0)
