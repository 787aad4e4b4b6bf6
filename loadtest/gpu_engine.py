"""Our engine on a GPU with a model of a 7B's shape: `python -m loadtest.gpu_engine` → reports/gpu_engine.json.

Needs nothing but torch, triton, safetensors, numpy and msgspec, and no model: the weights are random, made on the
device, and left in a folder in memory from which the engine starts as it does anywhere. Under 5 minutes on a large GPU.
`--device cpu --shape tiny` is the same program in seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
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
RANKS_OF: Mapping[int, tuple[int, ...]] = {16: (RANK, 8), 64: (64,)}
"""What is measured in the slots of each rank limit. At 7B, 250 slots take 20 GB for rank 16 and 80 GB for rank 64."""
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
        "rank": f"{RANK} where a figure names no other",
        "context_tokens": str(shape.prompt_tokens),
    }
    print(table(figures))
    print(f"written {write_report('gpu_engine', figures, given.reports, conditions)}")


async def measure(folder: Path, shape: Shape, device: torch.device) -> dict[str, Figure]:
    """Every figure, of one engine for each rank limit, on a model that is made in `folder`. Raises EngineFailed."""
    bytes_per_s = copy_bytes_per_s(shape.copy_bytes, device)
    model = write_random_model(folder / "model", shape, device)
    figures: dict[str, Figure] = {}
    visits: dict[str, list[Answer]] = defaultdict(list)
    for rank_limit, ranks in RANKS_OF.items():
        began_s, steps = time.perf_counter(), Steps()
        engine = TorchEngine(model, _policy(shape, device, rank_limit))
        await engine.start(steps.on_step)
        if rank_limit == RANK:
            figures["start_s"] = _rounded(time.perf_counter() - began_s, "s")
        for rank in ranks:
            hosts = await _fill(engine, folder, model, shape.slots, rank)
            await _visit(visits, Meter(engine, steps), shape, rank)
            if rank == RANK:
                figures |= await _loads(engine, hosts, shape.slots, device)
        await engine.close()
        _give_back(device)
    return {**_decoding(visits, shape, bytes_per_s), **figures}


async def _fill(engine: TorchEngine, folder: Path, model: Path, slots: int, rank: int) -> list[HostAdapter]:
    """Adapters of this rank in every slot, a few in turn; returns those few."""
    base_hash = base_model_hash(model)
    adapters = [write_random_adapter(model, folder / f"r{rank}-{at}", rank, at) for at in range(ADAPTERS)]
    hosts = [await engine.read(adapter / WEIGHTS, spec_of(adapter, base_hash)) for adapter in adapters]
    for slot in range(slots):
        await engine.load(slot, hosts[slot % len(hosts)])
    return list(hosts)


async def _visit(visits: dict[str, list[Answer]], meter: Meter, shape: Shape, rank: int) -> None:
    """The same table as on a CPU, in rounds, every second one backwards."""
    condition = "" if rank == RANK else f"rank{rank}"
    cells = [(rows, distinct) for rows in (1, 8, 32) for distinct in (0, *DISTINCT) if distinct <= rows]
    for number in range(ROUNDS):
        for rows, distinct in cells if number % 2 == 0 else reversed(cells):
            case = Decode(rows=rows, distinct=distinct, prompt_tokens=shape.prompt_tokens, steps=shape.steps)
            visits[cell(rows, distinct, condition)].append(await meter.decode(case))
        if not condition:
            visits["prefill"].append(await meter.first_token(FirstToken(prompt_tokens=shape.prompt_tokens)))


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


def _policy(shape: Shape, device: torch.device, rank_limit: int) -> TorchPolicy:
    return TorchPolicy(
        slots=shape.slots,
        rank_limit=rank_limit,
        max_context_tokens=2 * shape.prompt_tokens,
        device=device.type,
        prefill_chunk_tokens=shape.chunk_tokens,
        kv_bytes=shape.kv_bytes,
    )


def _roomy(needed_bytes: int) -> Path | None:
    """A folder in memory if it has room for a model, else wherever temporary files go."""
    return _MEMORY if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > needed_bytes else None


def _give_back(device: torch.device) -> None:
    """The next engine needs the memory that the last one had."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _rounded(value: float, unit: str) -> Figure:
    return Figure(value=float(f"{value:.4g}"), unit=unit)


if __name__ == "__main__":
    main()
