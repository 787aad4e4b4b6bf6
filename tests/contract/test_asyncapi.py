"""The AsyncAPI documents are AsyncAPI 3.0, by the official schema, and say what the catalog says."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest

from shared.contracts import document
from shared.contracts.asyncapi import documents
from shared.contracts.catalog import CHANNELS
from shared.contracts.channel import Kind, Service
from shared.contracts.streams import durables

ROOT = Path(__file__).parents[2]
SCHEMA = Path(__file__).with_name("asyncapi-3.0.0.schema.json")
EACH = pytest.mark.parametrize("name", [service.value for service in Service])

Validate = Callable[[Any], Any]


@pytest.fixture(scope="module")
def validate() -> Validate:
    """Raises JsonSchemaException for what is no AsyncAPI 3.0 document."""
    compiled: Validate = fastjsonschema.compile(without_examples(json.loads(SCHEMA.read_text())))
    return compiled


def without_examples(schema: Any) -> Any:
    """They are documents of their own, whose references the compiler would follow."""
    if isinstance(schema, list):
        return [without_examples(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    left_out = ("examples",) if isinstance(schema.get("examples"), list) else ()
    return {name: without_examples(part) for name, part in schema.items() if name not in left_out}


def committed(name: str) -> Any:
    return json.loads((ROOT / document.ASYNCAPI / f"{name}.json").read_text())


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        node = list(node.values())
    if isinstance(node, list):
        for part in node:
            yield from references(part)


def followed(whole: Any, reference: str) -> Any:
    node = whole
    for name in reference.removeprefix("#/").split("/"):
        node = node[name]
    return node


def test_the_committed_files_are_the_catalogs() -> None:
    for path, text in document.files().items():
        assert (ROOT / path).read_text() == text, "run: make contract-docs"
    named = {path.name for path in (ROOT / document.ASYNCAPI).iterdir()}
    assert named == {f"{service.value}.json" for service in Service}


def test_the_official_schema_is_as_it_came() -> None:
    digest = hashlib.sha256(SCHEMA.read_bytes()).hexdigest()
    assert digest in SCHEMA.with_suffix(".md").read_text()


@EACH
def test_a_document_is_what_the_official_schema_wants(name: str, validate: Validate) -> None:
    validate(committed(name))


@EACH
def test_every_reference_leads_somewhere(name: str) -> None:
    whole = committed(name)
    found = set(references(whole))
    assert found
    for reference in found:
        assert followed(whole, reference), reference


@EACH
def test_an_operation_names_messages_of_its_own_channel(name: str) -> None:
    operations = committed(name)["operations"].values()
    for said in [*operations, *(one["reply"] for one in operations if "reply" in one)]:
        assert all(one["$ref"].startswith(said["channel"]["$ref"] + "/messages/") for one in said["messages"])


def test_everything_that_is_said_is_sent_and_received_by_those_who_may() -> None:
    written = {name: set(node["operations"]) for name, node in documents().items()}
    for channel in CHANNELS:
        for service in Service:
            sends = f"send.{channel.name}" in written[service.value]
            receives = f"receive.{channel.name}" in written[service.value]
            assert sends == (service in channel.writers)
            assert receives == any(reader.service is service for reader in channel.readers)


def test_what_a_subscriber_needs_is_there() -> None:
    written = documents()
    registry, gateway = written["registry"], written["gateway"]
    heard = registry["operations"]["receive.adapter.registered"]
    assert heard["x-durable-consumer"] in {durable.name for durable in durables()}
    asked = written["placement"]["operations"]["receive.placement.fleet"]
    assert asked["bindings"]["nats"]["queue"] == "placement"
    assert registry["operations"]["send.replica.load"]["reply"]["messages"] == [
        {"$ref": "#/channels/replica.load.reply/messages/HoldResult"}
    ]
    assert set(gateway["channels"]["answer"]["messages"]) == {"Queued", "Accepted", "Refused"}
    assert followed(gateway, "#/components/messages/Frame.msgpack")["contentType"] == "application/msgpack"
    for channel in CHANNELS:
        if channel.kind is Kind.STATE:
            address = written[channel.writers[0].value]["channels"][channel.name]["address"]
            assert address.startswith(f"$KV.{channel.bucket}.")


PLANTED: dict[str, Callable[[Any], None]] = {
    "an action that is none": lambda node: node["operations"]["receive.adapter"].update(action="shout"),
    "an operation without a channel": lambda node: node["operations"]["receive.adapter"].pop("channel"),
    "an unknown field": lambda node: node["channels"]["adapter"].update(subject="x"),
    "a binding of another shape": lambda node: node["operations"]["receive.placement.fleet"]["bindings"].update(nats=5),
    "another version": lambda node: node.update(asyncapi="2.6.0"),
    "a type that is none": lambda node: node["components"]["schemas"]["Owners"].update(type="struct"),
    "items that are no schema": lambda node: node["components"]["schemas"]["Owners"].update(items="x"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_fault_is_found(planted: str, validate: Validate) -> None:
    broken = copy.deepcopy(committed("placement"))
    PLANTED[planted](broken)
    with pytest.raises(fastjsonschema.JsonSchemaException):
        validate(broken)
