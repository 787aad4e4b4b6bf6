"""`make bench`: the whole fleet on this machine, into reports/bench.json.

A fleet of one replica serves full-size adapters, and each request's first token is timed under the tier that its
response header names. What the engine alone takes for such a request is measured first, in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import httpx

from infra.adapters.random_adapter import write_random_adapter
from infra.local.layout import Layout
from infra.local.temporary import TemporaryFleet, temporary_fleet
from infra.models.fetch import ensure_base_model
from loadtest.driver.asking import Target
from loadtest.driver.planned import Planned
from loadtest.driver.running import drive
from loadtest.driver.seen import Seen
from loadtest.engine_cases import FirstToken, Peer
from loadtest.engine_peer import RunningPeer
from loadtest.measures import quantile
from loadtest.report import Figure, table, write_report
from shared.messages.reports import TIERS

FLEET_ADAPTERS = 12
SLOTS, IN_RAM = 4, 6
SAMPLES = 24
ENGINE_SAMPLES, PROMPT_TOKENS = 40, 40
PROMPT_WORDS = 12
TTFT_TARGET_S = 1.0
_TENANT = "bench"


def main() -> None:
    model = ensure_base_model(Layout(Path(".lorafleet").resolve()).models, None, _say)
    with tempfile.TemporaryDirectory(prefix="lorafleet-bench-") as folder:
        adapters = [write_random_adapter(model, Path(folder) / f"a{at:02d}", 16, at) for at in range(FLEET_ADAPTERS)]
        _say("engine: first token")
        engine_ttft_s = measure_engine(model, adapters[0], Path(folder) / "engine.log")
        _say("fleet: first token by tier")
        seen = measure_fleet(model, adapters, Path(folder) / "fleet")
    figures = fleet_figures(seen, engine_ttft_s)
    _say(table(figures))
    _say(f"written {write_report('bench', figures)}")


def measure_engine(model: Path, adapter: Path, log: Path) -> float:
    """The median time (s) to the first token of a request whose adapter is in a slot. Raises PeerFailed."""
    told = Peer(model=str(model), adapters=(str(adapter),), slots=1)
    engine = RunningPeer([sys.executable, "-m", "loadtest.engine_torch"], told, {}, log)
    try:
        engine.ready()
        question = FirstToken(prompt_tokens=PROMPT_TOKENS, adapted=True)
        return statistics.median(engine.ask(question)[0] for _ in range(ENGINE_SAMPLES))
    finally:
        engine.close()


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
    one = Planned(at_s=0.0, alias=alias, prompt_tokens=PROMPT_WORDS, max_tokens=1)
    run = asyncio.run(drive(Target(url=fleet.connection.url, key=key), [one]))
    if run.seen[0].outcome != "ok":
        raise RuntimeError(f"{alias} answered {run.seen[0].outcome}: {run.seen[0].reason}")
    return run.seen[0]


def _register(fleet: TemporaryFleet, folder: Path) -> str:
    alias = f"{_TENANT}/{folder.name}:prod"
    words = ("--tenant", _TENANT, "--id", folder.name, "--alias", alias, "--wait")
    done = fleet.console("adapters", "register", str(folder), *words, timeout_s=120)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return alias


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
