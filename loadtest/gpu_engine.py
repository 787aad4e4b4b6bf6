"""Our engine on a GPU with a model of a 7B's shape: `python -m loadtest.gpu_engine` → reports/gpu_engine.json.

Needs nothing but torch, triton, safetensors, numpy and msgspec, and no model: the weights are random, made on the
device, and left in a folder in memory from which the engine starts as it does anywhere. Under 5 minutes on a large GPU.
`--device cpu --shape tiny` is the same program in seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import torch

from infra.adapters.random_adapter import write_random_adapter
from loadtest.engine_cases import Answer, Decode, FirstToken
from loadtest.engine_figures import decoding
from loadtest.engine_meter import Meter, Steps
from loadtest.engine_plan import DISTINCT, cell
from loadtest.engine_torch import WEIGHTS, spec_of
from loadtest.gpu_model import SHAPES, Shape, write_random_model
from loadtest.report import REPORTS, Figure, table, write_report
from services.replica_worker.engine.port import HostAdapter
from services.replica_worker.engine.torch.engine import TorchEngine
from services.replica_worker.engine.torch.policy import TorchPolicy
from shared.base_model import base_model_hash

RANK, ADAPTERS, ROUNDS, LOADS = 16, 8, 3, 16
TARGETS: Mapping[str, str] = {
    "share.b32.d1": ">= 0.97",
    "share.b32.d4": ">= 0.97",
    "share.b32.d8": ">= 0.94",
    "share.b32.d32": ">= 0.85",
    "base_vs_bound.b32": ">= 0.70",
}
_MEMORY = Path("/dev/shm")


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m loadtest.gpu_engine")
    words.add_argument("--device", default="cuda")
    words.add_argument("--shape", choices=sorted(SHAPES), default="7b")
    words.add_argument("--reports", type=Path, default=REPORTS, help="the folder that gets gpu_engine.json")
    given = words.parse_args()
    shape, device = SHAPES[given.shape], torch.device(given.device)
    with tempfile.TemporaryDirectory(prefix="lorafleet-gpu-", dir=_roomy(2 * shape.files_bytes)) as folder:
        figures = asyncio.run(measure(Path(folder), shape, device))
    figures = {name: msgspec.structs.replace(figure, target=TARGETS.get(name)) for name, figure in figures.items()}
    conditions = {
        "chip": torch.cuda.get_device_name(device) if device.type == "cuda" else "none",
        "torch": str(torch.__version__),
        "shape": given.shape,
        "slots": str(shape.slots),
        "rank": str(RANK),
        "context_tokens": str(shape.prompt_tokens),
    }
    print(table(figures))
    print(f"written {write_report('gpu_engine', figures, given.reports, conditions)}")


async def measure(folder: Path, shape: Shape, device: torch.device) -> dict[str, Figure]:
    """Every figure of one engine, started from a model that is made in `folder`. Raises EngineFailed."""
    bytes_per_s = copy_bytes_per_s(shape.copy_bytes, device)
    model = write_random_model(folder / "model", shape, device)
    adapters = [write_random_adapter(model, folder / f"a{at}", RANK, at) for at in range(ADAPTERS)]
    base_hash = base_model_hash(model)
    began_s, steps = time.perf_counter(), Steps()
    engine = TorchEngine(model, _policy(shape, device))
    await engine.start(steps.on_step)
    start_s = time.perf_counter() - began_s
    hosts = [await engine.read(adapter / WEIGHTS, spec_of(adapter, base_hash)) for adapter in adapters]
    for slot in range(shape.slots):
        await engine.load(slot, hosts[slot % len(hosts)])
    visits = await _visits(Meter(engine, steps), shape)
    loads = await _loads(engine, hosts, shape.slots, device)
    await engine.close()
    return {**_decoding(visits, shape, bytes_per_s), **loads, "start_s": _rounded(start_s, "s")}


async def _visits(meter: Meter, shape: Shape) -> dict[str, list[Answer]]:
    """The same table as on a CPU, in rounds, every second one backwards."""
    visits: dict[str, list[Answer]] = defaultdict(list)
    cells = [(rows, distinct) for rows in (1, 8, 32) for distinct in (0, *DISTINCT) if distinct <= rows]
    for number in range(ROUNDS):
        for rows, distinct in cells if number % 2 == 0 else reversed(cells):
            case = Decode(rows=rows, distinct=distinct, prompt_tokens=shape.prompt_tokens, steps=shape.steps)
            visits[cell(rows, distinct)].append(await meter.decode(case))
        visits["prefill"].append(await meter.first_token(FirstToken(prompt_tokens=shape.prompt_tokens)))
    return visits


async def _loads(
    engine: TorchEngine, hosts: Sequence[HostAdapter], slots: int, device: torch.device
) -> dict[str, Figure]:
    """RAM to slot, in turns with one copy of as many bytes out of pinned memory."""
    pinned = device.type == "cuda"
    sources = [torch.zeros(host.size_bytes, dtype=torch.uint8, pin_memory=pinned) for host in hosts]
    place = torch.zeros_like(sources[0], device=device)
    loads_s, copies_s = [], []
    for at in range(LOADS):
        began_s = time.perf_counter()
        await engine.load(at % slots, hosts[at % len(hosts)])
        _settle(device)
        loads_s.append(time.perf_counter() - began_s)
        began_s = time.perf_counter()
        place.copy_(sources[at % len(sources)], non_blocking=True)
        _settle(device)
        copies_s.append(time.perf_counter() - began_s)
    load_s, copy_s = statistics.median(loads_s), statistics.median(copies_s)
    return {
        "load_ms.ram_to_slot": _rounded(load_s * 1000, "ms"),
        "copy_ms.ram_to_slot": _rounded(copy_s * 1000, "ms"),
        "ram_to_slot_vs_copy": _rounded(load_s / copy_s, ""),
        "adapter_mb": _rounded(hosts[0].size_bytes / 1e6, "MB"),
    }


def _decoding(visits: Mapping[str, Sequence[Answer]], shape: Shape, bytes_per_s: float) -> dict[str, Figure]:
    """The table, and the base's step against the time that reading weights, keys and values takes at the speed of a
    plain copy."""
    figures = decoding(visits)
    context_tokens = shape.prompt_tokens + shape.steps // 2
    for rows in (1, 8, 32):
        bound_ms = (shape.step_bytes + rows * context_tokens * shape.kv_bytes_per_token) / bytes_per_s * 1000
        step_ms = figures[f"step_ms.b{rows}.base"].value or float("nan")
        figures[f"bound_ms.b{rows}"] = _rounded(bound_ms, "ms")
        figures[f"base_vs_bound.b{rows}"] = _rounded(bound_ms / step_ms, "")
    prefill_s = statistics.median(answer[0] for answer in visits["prefill"])
    figures["tokens_per_s.prefill.base"] = _rounded(shape.prompt_tokens / prefill_s, "token/s")
    figures["copy_gb_per_s"] = _rounded(bytes_per_s / 1e9, "GB/s")
    return figures


def copy_bytes_per_s(size_bytes: int, device: torch.device) -> float:
    """Bytes read and written in a second by the best of ten copies within the device's memory."""
    source = torch.zeros(size_bytes, dtype=torch.uint8, device=device)
    place = torch.empty_like(source)
    times = []
    for _ in range(10):
        _settle(device)
        began_s = time.perf_counter()
        place.copy_(source)
        _settle(device)
        times.append(time.perf_counter() - began_s)
    return 2 * size_bytes / min(times)


def _policy(shape: Shape, device: torch.device) -> TorchPolicy:
    return TorchPolicy(
        slots=shape.slots,
        rank_limit=RANK,
        max_context_tokens=2 * shape.prompt_tokens,
        device=device.type,
        prefill_chunk_tokens=shape.chunk_tokens,
        kv_bytes=shape.kv_bytes,
    )


def _roomy(needed_bytes: int) -> Path | None:
    """A folder in memory if it has room for a model, else wherever temporary files go."""
    return _MEMORY if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > needed_bytes else None


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _rounded(value: float, unit: str) -> Figure:
    return Figure(value=float(f"{value:.4g}"), unit=unit)


if __name__ == "__main__":
    main()
