"""What a started fleet tells: the last lines of `make up`, and the file that scripts read."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from urllib.parse import quote

from infra.local.fleet import BusLogin
from infra.local.secret_file import Secrets
from infra.local.settings import LocalSettings


def banner(settings: LocalSettings, key: str, aliases: Sequence[str], base_name: str) -> str:
    """Address, key, aliases and a curl line that streams an answer when it is pasted."""
    url = f"http://{settings.host}:{settings.port}"
    model = aliases[0] if aliases else base_name
    body = {
        "model": model,
        "stream": True,
        "temperature": 0,
        "messages": [{"role": "user", "content": "My parcel has not arrived. What can I do?"}],
    }
    curl = (
        f"curl -N {url}/v1/chat/completions -H 'Authorization: Bearer {key}' "
        f"-H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body))}"
    )
    lines = [
        "lorafleet serves",
        f"  url      {url}",
        f"  key      {key}",
        f"  aliases  {' '.join([*aliases, base_name])}",
        "",
        f"  {curl}",
        "",
    ]
    return "\n".join(lines)


def demo_env(settings: LocalSettings, pipeline: BusLogin, secrets: Secrets, aliases: Sequence[str]) -> str:
    """`demo.env`: what a client, an operator and a pipeline of this fleet need, as shell assignments."""
    host = pipeline.url.partition("://")[2]
    values = {
        "URL": f"http://{settings.host}:{settings.port}",
        "API_KEY": secrets.demo_key,
        "ADMIN_URL": f"http://{settings.host}:{settings.admin_port}",
        "ADMIN_KEY": secrets.admin_key,
        "NATS_URL": f"nats://{quote(pipeline.user)}:{quote(pipeline.password, safe='')}@{host}",
        "ALIASES": " ".join(aliases),
    }
    return "".join(f"LORAFLEET_{name}={shlex.quote(value)}\n" for name, value in values.items())
