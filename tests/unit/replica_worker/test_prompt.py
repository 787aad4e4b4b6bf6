"""Messages with calls of tools, from the bus to the chat template."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from services.replica_worker.requests.prompt import encode
from services.replica_worker.text.chat import ChatTemplate
from services.replica_worker.text.tokenizer import Tokenizer
from shared.messages.generation import ChatMessage, GenerateRequest, Sampling
from tests.support.tool_templates import HERMES


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (r'"{\"town\": \"Bonn\"}"', '{"town": "Bonn"}'),
        ('{"town": "Bonn"}', '{"town": "Bonn"}'),
        (r'"no {json"', '"no {json"'),
    ],
    ids=["as clients send them", "as an object", "as a model wrote them"],
)
async def test_arguments_reach_the_template_as_an_object(model_folder: Path, arguments: str, shown: str) -> None:
    template = ChatTemplate(HERMES, {}, ())
    tokenizer = Tokenizer((model_folder / "tokenizer.json").read_text(), template)
    calls = f'[{{"id": "call-1", "type": "function", "function": {{"name": "weather", "arguments": {arguments}}}}}]'
    request = GenerateRequest(
        request_id="r",
        gateway_id="g",
        tenant_id="acme",
        pool_id="p",
        base_model_hash="b",
        messages=(
            ChatMessage(role="user", content="Warm?"),
            ChatMessage(role="assistant", content="", tool_calls=calls),
            ChatMessage(role="tool", content="21 degrees", tool_call_id="call-1"),
        ),
        sampling=Sampling(seed=0),
        tools='[{"type": "function", "function": {"name": "weather"}}]',
    )
    text = tokenizer.decode(await encode(tokenizer, request))
    assert f'<tool_call>\n{{"name": "weather", "arguments": {shown}}}\n</tool_call>' in text
    assert '\n{"type": "function", "function": {"name": "weather"}}\n</tools>' in text
    assert "<tool_response>\n21 degrees" in text


async def test_thousands_of_empty_messages_do_not_hold_up_the_event_loop(model_folder: Path) -> None:
    """Others have their turns while the template is rendered."""
    tokenizer = Tokenizer.from_folder(model_folder)
    messages = tuple(ChatMessage(role="user", content="") for _ in range(3_000))
    request = GenerateRequest(
        request_id="r", gateway_id="g", tenant_id="acme", pool_id="p", base_model_hash="b", messages=messages,
        sampling=Sampling(seed=0),
    )  # fmt: skip
    encoding = asyncio.create_task(encode(tokenizer, request))
    await asyncio.sleep(0)
    assert not encoding.done()
    assert len(await encoding) > 3_000
