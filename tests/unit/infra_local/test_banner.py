import json
import shlex
from urllib.parse import unquote, urlsplit

from infra.local.banner import banner, demo_env
from infra.local.connection import parse_env
from infra.local.fleet import BusLogin
from infra.local.secret_file import Secrets
from infra.local.settings import LocalSettings

SETTINGS = LocalSettings(port=9000, admin_port=9001)


def test_the_curl_line_is_what_a_shell_takes_apart_into_a_streamed_request() -> None:
    shown = banner(SETTINGS, "lf-key", ["acme/it's:prod", "acme/b:prod"], "base")
    [line] = [line for line in shown.splitlines() if line.strip().startswith("curl")]
    words = shlex.split(line)
    assert words[:3] == ["curl", "-N", "http://127.0.0.1:9000/v1/chat/completions"]
    assert "Authorization: Bearer lf-key" in words
    body = json.loads(words[words.index("-d") + 1])
    assert (body["model"], body["stream"]) == ("acme/it's:prod", True)
    assert "  aliases  acme/it's:prod acme/b:prod base" in shown.splitlines()


def test_without_an_alias_the_base_model_is_asked() -> None:
    assert '"model": "my base"' in banner(SETTINGS, "k", [], "my base")


def test_the_env_file_brings_every_value_back() -> None:
    login = BusLogin(url="nats://127.0.0.1:4222", user="pipeline", password="p/w@:' x")
    values = parse_env(
        demo_env(SETTINGS, login, Secrets(admin_key="a'b", demo_key="d"), ["acme/a:prod", "acme/b:prod"])
    )
    url = urlsplit(values.pop("LORAFLEET_NATS_URL"))
    assert (url.username, unquote(url.password or ""), url.port) == ("pipeline", "p/w@:' x", 4222)
    assert values == {
        "LORAFLEET_URL": "http://127.0.0.1:9000",
        "LORAFLEET_API_KEY": "d",
        "LORAFLEET_ADMIN_URL": "http://127.0.0.1:9001",
        "LORAFLEET_ADMIN_KEY": "a'b",
        "LORAFLEET_ALIASES": "acme/a:prod acme/b:prod",
    }
