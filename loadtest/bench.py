"""`make bench`: one run on this machine, from the engine alone to the whole fleet, into reports/bench.json.

The engine is measured in a process of its own with nothing else running; then a fleet of one replica serves the same
model and full-size adapters, and each request's first token is timed under the tier that its response header names.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import httpx

from infra.adapters.random_adapter import write_random_adapter
from infra.local.layout import Layout
from infra.local.temporary import TemporaryFleet, temporary_fleet
from infra.models.fetch import ensure_base_model
from loadtest.driver import drive
from loadtest.measures import Seen, quantile
from loadtest.report import Figure, table, write_report
from loadtest.workload import Arrival
from shared.messages.reports import TIERS

ENGINE_ADAPTERS = 32
FLEET_ADAPTERS = 12
SLOTS, IN_RAM = 4, 6
SAMPLES = 24
PROMPT = "My parcel has not arrived. What can I do?"
TTFT_TARGET_S = 1.0
_TENANT = "bench"


def main() -> None:
    model = ensure_base_model(Layout(Path(".lorafleet").resolve()).models, None, _say)
    with tempfile.TemporaryDirectory(prefix="lorafleet-bench-") as folder:
        adapters = [write_random_adapter(model, Path(folder) / f"a{at:02d}", 16, at) for at in range(ENGINE_ADAPTERS)]
        _say("engine: decode speed by rows and distinct adapters")
        engine = measure_engine(model, adapters)
        _say("fleet: first token by tier")
        seen = measure_fleet(model, adapters[:FLEET_ADAPTERS], Path(folder) / "fleet")
    figures = {**engine_figures(engine), **fleet_figures(seen, engine["engine_ttft_s.p50"])}
    _say(table(figures))
    _say(f"written {write_report('bench', figures)}")


def measure_engine(model: Path, adapters: Sequence[Path]) -> dict[str, float]:
    argv = [sys.executable, "-m", "services.replica_worker.engine.measure", str(model), *map(str, adapters)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def measure_fleet(model: Path, adapters: Sequence[Path], home: Path) -> list[Seen]:
    """What the clients of a fleet of one replica saw: every tier, at least SAMPLES times each."""
    ram = (adapters[0] / "adapter_model.safetensors").stat().st_size * IN_RAM * 21 // 20
    settings = {"model": str(model), "demo": "false", "replicas": "1", "slots": str(SLOTS)}
    with temporary_fleet(home, **settings, ram_budget_bytes=str(ram)) as fleet:
        fleet.console("tenants", "create", _TENANT)
        key = json.loads(fleet.console("keys", "create", "--tenant", _TENANT, "--json").stdout)["api_key"]
        aliases = [_register(fleet, folder) for folder in adapters]
        return [*_by_going_round(fleet, key, aliases), *_after_unloading(fleet, key, aliases)]


def _by_going_round(fleet: TemporaryFleet, key: str, aliases: Sequence[str]) -> list[Seen]:
    """Going round more adapters than fit finds each in the next lower tier; asking one again finds it in its slot."""
    seen: list[Seen] = []
    for circle in (aliases, aliases[: SLOTS + 1], aliases[:1]):
        asked = [circle[at % len(circle)] for at in range(SAMPLES + len(circle))]
        seen += [_ask(fleet, key, alias) for alias in asked][len(circle) :]
    return seen


def _after_unloading(fleet: TemporaryFleet, key: str, aliases: Sequence[str]) -> list[Seen]:
    """An adapter that an operator has just unloaded is in the object store only."""
    seen = []
    with httpx.Client(base_url=fleet.connection.admin_url, timeout=60.0, trust_env=False) as admin:
        admin.headers["Authorization"] = f"Bearer {fleet.connection.admin_key}"
        for at in range(SAMPLES):
            alias = aliases[at % len(aliases)]
            adapter_id = alias.partition("/")[2].partition(":")[0]
            admin.post(f"/internal/replicas/replica-0/adapters/{adapter_id}/unload").raise_for_status()
            seen.append(_ask(fleet, key, alias))
    return seen


def _ask(fleet: TemporaryFleet, key: str, alias: str) -> Seen:
    one = Arrival(at_s=0.0, alias=alias, prompt=PROMPT, max_tokens=1)
    seen, _ = asyncio.run(drive(fleet.connection.url, key, [one]))
    if seen[0].outcome != "ok":
        raise RuntimeError(f"{alias} answered {seen[0].outcome}")
    return seen[0]


def _register(fleet: TemporaryFleet, folder: Path) -> str:
    alias = f"{_TENANT}/{folder.name}:prod"
    words = ("--tenant", _TENANT, "--id", folder.name, "--alias", alias, "--wait")
    done = fleet.console("adapters", "register", str(folder), *words, timeout_s=120)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return alias


def engine_figures(engine: dict[str, float]) -> dict[str, Figure]:
    named = {name: value for name, value in engine.items() if name.startswith("tokens_per_s")}
    return {name: Figure(value=round(value, 1), unit="token/s") for name, value in named.items()}


def fleet_figures(seen: Sequence[Seen], engine_ttft_s: float) -> dict[str, Figure]:
    """p95 of every tier, and what gateway and bus add to the engine's own median where nothing is loaded. What no
    request met is not measured."""
    tiers = {tier: [one.ttft_s for one in seen if one.tier == tier and one.ttft_s is not None] for tier in TIERS}
    figures = {
        f"ttft_s.{tier}": Figure(value=_at(values, 0.95, 4), unit="s", target=f"<= {TTFT_TARGET_S}")
        for tier, values in tiers.items()
    }
    added_ms = [(value - engine_ttft_s) * 1000 for value in tiers["gpu"]]
    figures["added_ttft_ms.p50"] = Figure(value=_at(added_ms, 0.5, 2), unit="ms")
    figures["added_ttft_ms.p95"] = Figure(value=_at(added_ms, 0.95, 2), unit="ms")
    return figures


def _at(values: Sequence[float], share: float, digits: int) -> float | None:
    return round(quantile(values, share), digits) if values else None


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
