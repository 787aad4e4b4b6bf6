"""Where containers find what they share."""

from __future__ import annotations

from pathlib import Path

FLEET = Path("/var/lib/lorafleet/fleet")
"""A volume that every container mounts: credentials, the inbox, the registry's database, demo.env."""
CREDENTIALS = FLEET / "credentials.json"
SECRETS = FLEET / "secrets.json"
INBOX = FLEET / "inbox"
NATS_STORE = Path("/var/lib/lorafleet/nats")
MODEL = Path("/models/SmolLM2-135M-Instruct")
VALKEY_PASSWORD = FLEET / "valkey.password"
VALKEY = ("valkey", 6379)
NATS_URL = "nats://nats:4222"
