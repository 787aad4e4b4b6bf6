"""One AsyncAPI 3.0 document per service, from the catalog: what it sends and what it receives, with every schema."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import inspect as types

from shared.contracts.catalog import CHANNELS
from shared.contracts.channel import Channel, Codec, FanOut, Kind, Reader, Service
from shared.contracts.shape import structs
from shared.contracts.streams import consumer_name, key_prefix

Node = dict[str, Any]

CONTENT_TYPES = {Codec.JSON: "application/json", Codec.MSGPACK: "application/msgpack"}
_TITLES = {
    Service.GATEWAY: "takes OpenAI requests and passes them on to replicas",
    Service.REGISTRY: "knows every adapter, alias, tenant and key",
    Service.PLACEMENT: "says which replica holds which adapter",
    Service.AUTOSCALER: "says how many replicas there are",
    Service.WORKER: "runs one engine and the adapters it holds",
    Service.CONSOLE: "shows operators what the fleet does",
    Service.PIPELINE: "a fine-tuning pipeline: trains adapters and announces them",
}
_PROMISES = {
    Kind.EVENT: "At least once, replayable from JetStream; the header Nats-Msg-Id makes a repetition harmless.",
    Kind.STATE: "A key of a NATS key-value bucket: the last value wins, and an empty one with KV-Operation deletes it.",
    Kind.TELEMETRY: "At most once; the next snapshot heals a loss.",
    Kind.RPC: "NATS request and reply; a failure comes as the header lf-error.",
    Kind.REPLY: "At most once, to one gateway; what must not be lost is numbered.",
}
_REPLY_TO = {"location": "$message.header#/reply", "description": "The reply subject of the message that asks."}


def documents(channels: Iterable[Channel[Any, Any]] = CHANNELS) -> dict[str, Node]:
    """The document of every service that says or hears anything, by the service's name."""
    listed = list(channels)
    made = {service.value: _document(service, listed) for service in Service}
    return {name: document for name, document in made.items() if document["operations"]}


def _document(service: Service, channels: list[Channel[Any, Any]]) -> Node:
    sent = [channel for channel in channels if service in channel.writers]
    heard = [(channel, reader) for channel in channels for reader in channel.readers if reader.service is service]
    concerned = [one for one in channels if one in sent or any(one is channel for channel, _ in heard)]
    operations = {f"send.{channel.name}": _sending(channel) for channel in sent}
    operations |= {f"receive.{channel.name}": _receiving(channel, reader) for channel, reader in heard}
    return {
        "asyncapi": "3.0.0",
        "id": f"urn:lorafleet:{service.value}",
        "info": {
            "title": f"lorafleet {service.value}",
            "version": "1.0.0",
            "description": f"The {service.value} {_TITLES[service]}. Generated from the catalog: `make contract-docs`.",
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "defaultContentType": CONTENT_TYPES[Codec.JSON],
        "servers": {"bus": _server(service)},
        "channels": {name: node for channel in concerned for name, node in _channels(channel)},
        "operations": operations,
        "components": {**_components(concerned), "securitySchemes": {"login": {"type": "userPassword"}}},
    }


def _server(service: Service) -> Node:
    return {
        "host": "{host}:{port}",
        "protocol": "nats",
        "description": f"The fleet's bus; the user is `{service.value}`, and it may say and hear what is listed here.",
        "variables": {"host": {"default": "127.0.0.1"}, "port": {"default": "4222"}},
        "security": [_reference("components", "securitySchemes", "login")],
    }


def _channels(channel: Channel[Any, Any]) -> Iterator[tuple[str, Node]]:
    """The channel itself and, if it has one, that of its replies."""
    yield channel.name, _channel(channel)
    if channel.reply is not None:
        yield (
            f"{channel.name}.reply",
            {
                "address": None,
                "description": "Wherever the asker wants its answer.",
                "messages": _messages_of(channel.reply, channel.codec),
            },
        )


def _channel(channel: Channel[Any, Any]) -> Node:
    node: Node = {
        "address": _address(channel),
        "title": channel.name,
        "summary": channel.summary,
        "description": _PROMISES[channel.kind],
        "messages": _messages_of(channel.message, channel.codec),
    }
    if channel.params:
        node["parameters"] = {param: {"description": "One token of a subject."} for param in channel.params}
    return node


def _address(channel: Channel[Any, Any]) -> str:
    ids = [f"{{{param}}}" for param in channel.params]
    return key_prefix(channel) + ".".join(ids) if channel.kind is Kind.STATE else channel.subject(*ids)


def _sending(channel: Channel[Any, Any]) -> Node:
    node = _operation("send", channel)
    if channel.dedup:
        node["description"] = f"Message id: {channel.dedup}."
    return node


def _receiving(channel: Channel[Any, Any], reader: Reader) -> Node:
    node = _operation("receive", channel)
    if reader.fan_out is FanOut.POOL and channel.kind is Kind.EVENT:
        node["x-durable-consumer"] = consumer_name(channel, reader.service.value)
    elif reader.fan_out is FanOut.POOL:
        node["bindings"] = {"nats": {"queue": reader.service.value, "bindingVersion": "0.1.0"}}
    return node


def _operation(action: str, channel: Channel[Any, Any]) -> Node:
    node: Node = {
        "action": action,
        "channel": _reference("channels", channel.name),
        "summary": channel.summary,
        "messages": _references(channel.name, channel.message),
    }
    if channel.reply is not None:
        answers = f"{channel.name}.reply"
        node["reply"] = {
            "address": _REPLY_TO,
            "channel": _reference("channels", answers),
            "messages": _references(answers, channel.reply),
        }
    return node


def _references(channel_name: str, kind: Any) -> list[Node]:
    return [_reference("channels", channel_name, "messages", struct.__name__) for struct in _members(kind)]


def _messages_of(kind: Any, codec: Codec) -> Node:
    return {
        struct.__name__: _reference("components", "messages", _message_name(struct, codec)) for struct in _members(kind)
    }


def _message_name(struct: type, codec: Codec) -> str:
    return struct.__name__ if codec is Codec.JSON else f"{struct.__name__}.{codec.value}"


def _members(kind: Any) -> list[type]:
    """The structs that a message may be: one, or those of a union."""
    info = types.type_info(kind)
    options = info.types if isinstance(info, types.UnionType) else (info,)
    return [option.cls for option in options if isinstance(option, types.StructType)]


def _components(channels: list[Channel[Any, Any]]) -> Node:
    said = [(kind, one.codec) for one in channels for kind in (one.message, one.reply) if kind is not None]
    structures = [struct.cls for struct in structs(kind for kind, _ in said).values()]
    _, schemas = msgspec.json.schema_components(structures, ref_template="#/components/schemas/{name}")
    messages = {
        _message_name(struct, codec): _message(struct, codec) for kind, codec in said for struct in _members(kind)
    }
    return {"messages": dict(sorted(messages.items())), "schemas": {name: _draft_7(schemas[name]) for name in schemas}}


def _message(struct: type, codec: Codec) -> Node:
    node: Node = {
        "name": struct.__name__,
        "contentType": CONTENT_TYPES[codec],
        "payload": _reference("components", "schemas", struct.__name__),
    }
    if written := struct.__dict__.get("__doc__"):
        node["description"] = inspect.cleandoc(written)
    return node


def _draft_7(schema: Any) -> Any:
    """AsyncAPI's schemas are a superset of draft 7, which calls a tuple's `prefixItems` by another name; and where an
    OpenAPI `discriminator` is an object, the tag in each variant says the same."""
    if isinstance(schema, list):
        return [_draft_7(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    names = ((name, "items" if name == "prefixItems" else name) for name in schema if name != "discriminator")
    return {new: _draft_7(schema[name]) for name, new in names}


def _reference(*path: str) -> Node:
    return {"$ref": "#/" + "/".join(path)}
