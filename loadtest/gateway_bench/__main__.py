"""`make bench-gateway`: our front door beside others, before backends of the same timing, into reports/gateway.json."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import subprocess
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from loadtest.gateway_bench import markdown
from loadtest.gateway_bench.figures import OURS, OURS_FOUR, Front, failures, figures
from loadtest.gateway_bench.fleet import REPLICAS, FleetPlan, fleet
from loadtest.gateway_bench.machine import chosen_cores, rss_bytes
from loadtest.gateway_bench.measuring import Client, Door, Sample, measure
from loadtest.gateway_bench.peers import COMMANDS, Behind, peer
from loadtest.gateway_bench.records import Cast
from loadtest.gateway_bench.scenarios import ALL, OPEN, STEP_US, Scenario
from loadtest.report import table, write_report
from shared.base_model import base_model_hash

DOORS = ("direct", *COMMANDS, OURS, OURS_FOUR)
GATEWAYS = {OURS: 1, OURS_FOUR: 4}
_HERE = Path(__file__).parent
_CUSTOMERS, _ADAPTER_BYTES = 32, 1_024
_SETTLE_S = 1.0
_LITELLM_PER_S = 3.0
"""It is full at less than a tenth of what the others are asked for."""


class Bench:
    """`folder` is for everything that processes write."""

    def __init__(self, given: argparse.Namespace, folder: Path) -> None:
        self._quiet_s, self._wanted = given.quiet_s, [each for each in ALL if each.name in given.parts]
        self._folder, self._model, self._cores = folder, given.model, chosen_cores()
        self._cast = Cast(
            base_model_hash=base_model_hash(given.model), key=f"sk-{secrets.token_hex(16)}", customers=_CUSTOMERS,
            adapter_bytes=_ADAPTER_BYTES,
        )  # fmt: skip
        models = folder / "models"
        models.write_text("".join(f"{alias}\n" for alias in self._cast.aliases))
        self._client = Client(
            program=_built("client", folder, "-lm"), models=models, cores=self._cores, realtime=given.realtime
        )
        self._mock = _built("mock", folder)

    async def front(self, name: str) -> Front:
        if name in GATEWAYS:
            return await self._ours(name)
        behind = Behind(
            mock=self._mock, folder=self._folder, names=self._cast.aliases, cores=self._cores, backends=REPLICAS
        )
        async with peer(name, behind) as door:
            wanted = [_slower(each) if name == "litellm" else each for each in self._wanted]
            idle_bytes, samples = await self._measured(name, door, wanted)
            return Front(name=name, idle_bytes=idle_bytes, samples=samples)

    async def _ours(self, name: str) -> Front:
        """Timed replicas for what has a pace; then those that only say what they are asked for."""
        front = Front(name=name)
        if OPEN in self._wanted:
            async with self._fleet(name, STEP_US / 1e6) as door:
                idle_bytes, samples = await self._measured(name, door, [OPEN])
                front = Front(name=name, idle_bytes=idle_bytes, samples=samples)
        async with self._fleet(name, 0.0) as door:
            idle_bytes, samples = await self._measured(f"{name}, saying", door, self._wanted)
            saying = samples.pop(OPEN.name, None)
            return Front(name=name, idle_bytes=idle_bytes, samples={**samples, **front.samples}, saying=saying)

    @asynccontextmanager
    async def _fleet(self, name: str, step_s: float) -> AsyncIterator[Door]:
        plan = FleetPlan(
            folder=self._folder / f"{name}-{step_s:g}", model=self._model, cast=self._cast, cores=self._cores,
            gateways=GATEWAYS[name], step_s=step_s,
        )  # fmt: skip
        async with fleet(plan) as door:
            yield door

    async def _measured(self, name: str, door: Door, wanted: Sequence[Scenario]) -> tuple[int, dict[str, Sample]]:
        await asyncio.sleep(_SETTLE_S)
        idle_bytes = sum(rss_bytes(pids) for group, pids in door.groups.items() if group in ("gateway", "router"))
        samples = {}
        for scenario in wanted:
            samples[scenario.name] = await measure(self._client, door, scenario, self._quiet_s)
            print(_progress(name, samples[scenario.name]), flush=True)
        return idle_bytes, samples


def _slower(scenario: Scenario) -> Scenario:
    return msgspec.structs.replace(scenario, rate_per_s=_LITELLM_PER_S) if scenario == OPEN else scenario


def _built(name: str, folder: Path, *libraries: str) -> Path:
    """Raises CalledProcessError with the compiler's words on stderr."""
    program = folder / name
    argv = [os.environ.get("CC", "cc"), "-O2", "-o", str(program), str(_HERE / f"{name}.c"), *libraries]
    subprocess.run(argv, check=True)
    return program


def _progress(name: str, seen: Sample) -> str:
    heard = seen.heard
    spent = " ".join(f"{group} {each / heard.took_s:.2f}" for group, each in seen.cpu_s.items())
    return (
        f"{name:22} {seen.scenario:7} {seen.tokens_per_s:9,.0f} tokens/s {seen.requests_per_s:7,.1f} requests/s"
        f"  added p50 {heard.added_ttft_ms.p50 or 0:.2f} p95 {heard.added_ttft_ms.p95 or 0:.2f} ms"
        f"  relay p50 {heard.relay_ms.p50 or 0:.2f} ms  cores: {spent}; others {seen.noise_share:.2f}"
        f"  failed {heard.failed + heard.unconnected}"
    )


async def _run(given: argparse.Namespace) -> dict[str, Front]:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(given, Path(folder))
        return {name: await bench.front(name) for name in given.peers}


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.replace("-", "_") for name in text.split(",") if name)


def _spread(doors: Sequence[str]) -> tuple[str, ...]:
    """ "ours" are two."""
    named = ((OURS, OURS_FOUR) if door == "ours" else (door,) for door in doors)
    return tuple(dict.fromkeys(door for some in named for door in some))


def _words() -> argparse.Namespace:
    words = argparse.ArgumentParser(prog="python -m loadtest.gateway_bench", description=__doc__)
    parts = tuple(each.name for each in ALL)
    words.add_argument("--model", type=Path, required=True, help="a model folder: its tokenizer is all that is used")
    words.add_argument("--peers", type=_names, default=DOORS, help=f"some of {', '.join(DOORS)}; ours: both of ours")
    words.add_argument("--parts", type=_names, default=parts, help=f"some of {', '.join(parts)}")
    words.add_argument("--quiet-s", type=float, default=5.0, help="how long to wait for others to be idle")
    words.add_argument("--realtime", action="store_true", help="before all else on a machine that others use, as root")
    given = words.parse_args()
    given.peers = tuple(
        dict.fromkeys(each for name in given.peers for each in ((OURS, OURS_FOUR) if name == "ours" else (name,)))
    )
    for name, known, chosen in (("peers", DOORS, given.peers), ("parts", parts, given.parts)):
        if unknown := set(chosen) - set(known):
            words.error(f"--{name}: {', '.join(sorted(unknown))} is none of {', '.join(known)}")
    return given


def main() -> None:
    given = _words()
    fronts = asyncio.run(_run(given))
    found = figures(fronts)
    conditions = {
        "cores": "what is measured has one to itself; client, backends, replicas, nats-server, Valkey share the other",
        "scheduling": "real-time" if given.realtime else "as usual",
        "litellm": f"{_LITELLM_PER_S:g} requests/s instead of {OPEN.rate_per_s:g}",
    }
    shown = markdown.table(found, list(fronts))
    print(table(found), shown, sep="\n\n")
    for front in fronts.values():
        if lost := failures(front):
            print(f"failed at {front.name}: {lost}")
    print(f"written {write_report('gateway', found, conditions=conditions)}")
    if set(given.peers) == set(DOORS) and len(given.parts) == len(ALL):
        markdown.main()
        print(f"written {markdown.PAGE}")


if __name__ == "__main__":
    main()
