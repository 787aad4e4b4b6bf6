"""The front doors that ours is compared with: how each is started before the mock backends."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from infra.local.temporary import free_ports, free_run
from loadtest.gateway_bench.machine import Cores, started
from loadtest.gateway_bench.measuring import Door
from loadtest.gateway_bench.warming import until_answered

PEERS_FOLDER = Path(__file__).parents[2] / ".lorafleet" / "peers"
_GRACE_S = 4.0


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """Where a peer is started, and what it stands before: `backends` are ports, `names` what clients ask for."""

    folder: Path
    port: int
    backends: Sequence[int]
    names: Sequence[str]
    key: str

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.backends]


class Command(msgspec.Struct, frozen=True, kw_only=True):
    argv: Sequence[str]
    env: Mapping[str, str] = {}
    alive: str = "/health"
    """What answers 200 once it serves."""


def nginx(at: Setting) -> Command:
    """The floor: one worker that copies bytes."""
    servers = " ".join(f"server 127.0.0.1:{port};" for port in at.backends)
    text = f"""daemon off; worker_processes 1; pid nginx.pid; error_log nginx.err warn;
events {{ worker_connections 8192; }}
http {{
  access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u;
  scgi_temp_path s; keepalive_requests 1000000; client_body_buffer_size 256k;
  upstream backends {{ {servers} keepalive 2048; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{at.port} backlog=4096;
    location / {{
      proxy_pass http://backends; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
      proxy_read_timeout 600s;
    }}
  }}
}}
"""
    (at.folder / "nginx.conf").write_text(text)
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") or "nginx"
    return Command(argv=[program, "-p", str(at.folder), "-c", "nginx.conf"])


def vllm_router(at: Setting) -> Command:
    return Command(
        argv=[_program("vllm-router", "vllm-router"), "--worker-urls", *at.urls, "--policy", "round_robin",
              "--host", "127.0.0.1", "--port", str(at.port), "--prometheus-port", str(free_ports(1)[0]),
              "--log-level", "error"],
    )  # fmt: skip


def sglang_router(at: Setting) -> Command:
    return Command(
        argv=[_program("sglang-router", "python"), "-m", "sglang_router.launch_router", "--worker-urls", *at.urls,
              "--policy", "round_robin", "--host", "127.0.0.1", "--port", str(at.port),
              "--prometheus-port", str(free_ports(1)[0]), "--prometheus-host", "127.0.0.1", "--log-level", "error"],
    )  # fmt: skip


def litellm(at: Setting) -> Command:
    """A model in its list is a name at one address: two addresses for each name are enough to spread them."""
    pairs = [
        (name, at.urls[(index + offset) % len(at.urls)]) for index, name in enumerate(at.names) for offset in (0, 1)
    ]
    told = {
        "model_list": [
            {"model_name": name, "litellm_params": {"model": f"hosted_vllm/{name}", "api_base": f"{url}/v1",
                                                    "api_key": "none"}}
            for name, url in pairs
        ],
        "litellm_settings": {"telemetry": False, "set_verbose": False},
        "router_settings": {"routing_strategy": "simple-shuffle", "num_retries": 0},
        "general_settings": {"disable_spend_logs": True},
    }  # fmt: skip
    config = at.folder / "litellm.yaml"
    config.write_text(json.dumps(told))  # which is YAML, too
    quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION",
             "LITELLM_TELEMETRY": "False", "NO_DOCS": "True"}  # fmt: skip
    return Command(
        argv=[_program("litellm", "litellm"), "--config", str(config), "--host", "127.0.0.1",
              "--port", str(at.port), "--num_workers", "1"],
        env={**quiet, "LITELLM_MASTER_KEY": at.key}, alive="/health/liveliness",
    )  # fmt: skip


COMMANDS: Mapping[str, Callable[[Setting], Command]] = {
    "nginx": nginx, "vllm_router": vllm_router, "sglang_router": sglang_router, "litellm": litellm,
}  # fmt: skip


class Behind(msgspec.Struct, frozen=True, kw_only=True):
    """What all peers have in common."""

    mock: Path
    folder: Path
    names: Sequence[str]
    cores: Cores
    backends: int


@asynccontextmanager
async def peer(name: str, behind: Behind) -> AsyncIterator[Door]:
    """It answers once this is entered; "direct" are the mock backends themselves. Raises RuntimeError, TimeoutError,
    OSError for a program that is not there."""
    first, [port], cores = free_run(behind.backends), free_ports(1), behind.cores
    folder = behind.folder / name
    folder.mkdir(parents=True)
    backends = range(first, first + behind.backends)
    at = Setting(
        folder=folder, port=port, backends=backends, names=behind.names, key=f"sk-{secrets.token_hex(24)}"
    )  # fmt: skip
    header = f"authorization: Bearer {at.key}"
    async with AsyncExitStack() as ends:
        mock = started("mock", [str(behind.mock), str(first), str(behind.backends)], cores.others, folder)
        ends.push_async_callback(mock.stop, _GRACE_S)
        await until_answered(first, mock, "/health")
        if name == "direct":
            yield Door(ports=tuple(backends), header=header, groups={"mock": [mock.pid]})
            return
        command = COMMANDS[name](at)
        router = started(name, command.argv, cores.measured, folder, command.env)
        ends.push_async_callback(router.stop, _GRACE_S)
        await until_answered(port, router, command.alive)
        yield Door(ports=(port,), header=header, groups={"router": [router.pid], "mock": [mock.pid]})


def _program(venv: str, name: str) -> str:
    return str(PEERS_FOLDER / venv / "bin" / name)
