"""Where the fleet is: from LORAFLEET_… variables, else from the nearest `.lorafleet/demo.env`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

import msgspec


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    api_key: str
    admin_url: str
    admin_key: str
    nats_url: str = ""
    aliases: tuple[str, ...] = ()


class NotConfigured(Exception):
    """One sentence: which value is missing and how to give it."""


def find_connection(environ: Mapping[str, str], start: Path) -> Connection:
    """Raises NotConfigured if a value is neither in the environment nor in a demo.env."""
    values = {**_demo_env(environ, start), **{k: v for k, v in environ.items() if k.startswith("LORAFLEET_")}}
    return Connection(
        url=_value(values, "URL").rstrip("/"),
        api_key=_value(values, "API_KEY"),
        admin_url=_value(values, "ADMIN_URL").rstrip("/"),
        admin_key=_value(values, "ADMIN_KEY"),
        nats_url=values.get("LORAFLEET_NATS_URL", ""),
        aliases=tuple(values.get("LORAFLEET_ALIASES", "").split()),
    )


def parse_env(text: str) -> dict[str, str]:
    """Lines of NAME=value as a shell would read them; anything else is ignored."""
    pairs = [line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#")]
    return {name.strip(): " ".join(shlex.split(value)) for name, _, value in pairs}


def _demo_env(environ: Mapping[str, str], start: Path) -> dict[str, str]:
    home = environ.get("LORAFLEET_HOME")
    folders = [Path(home)] if home else [folder / ".lorafleet" for folder in (start, *start.parents)]
    for folder in folders:
        if (file := folder / "demo.env").is_file():
            return parse_env(file.read_text())
    return {}


def _value(values: Mapping[str, str], name: str) -> str:
    if value := values.get(f"LORAFLEET_{name}"):
        return value
    raise NotConfigured(
        f"LORAFLEET_{name} is not set and no .lorafleet/demo.env was found: run `make up` first, "
        "or `set -a; source <folder>/.lorafleet/demo.env; set +a`."
    )
