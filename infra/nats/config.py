"""The text of nats.conf: JetStream on disk, and one user per service with the rights the catalog derives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shared.contracts.channel import Service
from shared.contracts.permissions import PROVISIONER, Grants, grants, provisioner_grants
from shared.contracts.streams import SERVER_PAYLOAD_BYTES

LONGEST_ANSWER = "15m"
"""How long after a question its answer may come; an evaluation takes minutes."""


@dataclass(frozen=True, kw_only=True)
class Ports:
    """-1 lets the server choose a free one (it tells with --ports_file_dir)."""

    client: int
    monitoring: int
    host: str = "127.0.0.1"


def server_config(ports: Ports, store_folder: Path, passwords: Mapping[str, str]) -> str:
    """`passwords` by user, as infra.nats.credentials keeps them; KeyError if one is missing.

    They stand in the text: keep it where only its owner reads (infra.nats.credentials.write_private).
    """
    users = [_user(PROVISIONER, passwords[PROVISIONER], provisioner_grants())]
    users += [_user(service.value, passwords[service.value], grants(service)) for service in Service]
    listed = ",\n    ".join(users)
    return f"""\
# Written at every start; edit shared/contracts/catalog.py instead.
server_name: lorafleet
listen: "{ports.host}:{ports.client}"
http: "{ports.host}:{ports.monitoring}"
max_payload: {SERVER_PAYLOAD_BYTES}
jetstream {{
  store_dir: {json.dumps(str(store_folder), ensure_ascii=False)}
}}
authorization {{
  users: [
    {listed}
  ]
}}
"""


def _user(name: str, password: str, granted: Grants) -> str:
    """One user in nats.conf's own superset of JSON."""
    permissions: dict[str, object] = {
        "publish": {"allow": granted.publish, "deny": granted.deny},
        "subscribe": {"allow": granted.subscribe},
    }
    if granted.answers:
        permissions["allow_responses"] = {"max": 1, "expires": LONGEST_ANSWER}
    return json.dumps({"user": name, "password": password, "permissions": permissions})
