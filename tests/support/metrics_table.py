"""Every metric that the services expose, as they expose it; `python -m tests.support.metrics_table` writes the table of
docs/metrics.md anew."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import services.autoscaler.io.meters
import services.console.io.meters
import services.placement.io.meters
import services.registry.io.meters
import services.replica_worker.reporting.metering
from shared.runtime.metrics import Metrics
from tests.support.gateway_world import gateway_world

PAGE = Path(__file__).parent.parent.parent / "docs/metrics.md"
BEGIN, END = "<!-- the table begins: written by tests.support.metrics_table -->\n", "<!-- the table ends -->\n"
_METERS = {
    "placement": services.placement.io.meters.Meters,
    "autoscaler": services.autoscaler.io.meters.Meters,
    "replica_worker": services.replica_worker.reporting.metering.Meters,
    "registry": services.registry.io.meters.Meters,
    "probe": services.console.io.meters.Meters,
}
_TITLES = {
    "gateway": "Gateway", "replica_worker": "Replica", "placement": "Placement", "autoscaler": "Autoscaler",
    "registry": "Registry", "probe": "Probe (`lorafleet probe`)",
}  # fmt: skip

Families = dict[str, tuple[str, str]]
"""Kind and help by name."""


async def exposed() -> dict[str, Families]:
    """By service."""
    async with gateway_world() as world, world.client() as client:
        found = {"gateway": families((await client.get("/metrics")).text)}
    for service, meters in _METERS.items():
        metrics = Metrics(service)
        meters(metrics)
        found[service] = families(metrics.exposition().decode())
    return found


def families(text: str) -> Families:
    """Without those of the process itself, and without when each series began."""
    comments = [line.split(" ", 3) for line in text.splitlines() if line.startswith("# ")]
    helps = {name: said[0] if said else "" for _, what, name, *said in comments if what == "HELP"}
    kinds = {name: said[0] for _, what, name, *said in comments if what == "TYPE"}
    return {
        name: (kinds[name], said)
        for name, said in helps.items()
        if not name.startswith("process_") and not name.endswith("_created")
    }


def series(found: Mapping[str, Families]) -> set[str]:
    """The names that a query may use."""
    names = {name: kind for service in found.values() for name, (kind, _) in service.items()}
    parts = ("_bucket", "_count", "_sum")
    return set(names) | {name + part for name, kind in names.items() if kind == "histogram" for part in parts}


def table(found: Mapping[str, Families]) -> str:
    lines = []
    for service, title in _TITLES.items():
        lines += [f"### {title}", "", "| metric | kind | |", "|---|---|---|"]
        lines += [
            f"| `{name}` | {kind} | {said.rstrip('.')} |" for name, (kind, said) in sorted(found[service].items())
        ]
        lines.append("")
    return "\n".join(lines)


def with_table(page: str, found: Mapping[str, Families]) -> str:
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n{table(found)}\n{END}{rest.split(END)[1]}"


def main() -> None:
    PAGE.write_text(with_table(PAGE.read_text(), asyncio.run(exposed())))


if __name__ == "__main__":
    main()
