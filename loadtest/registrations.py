"""`make bench-registrations`: how fast a batch comes in, with the real processes, SQLite and a folder as the store,
into reports/registrations.json.

Tiny adapters, so that files weigh nothing and what is around them is measured. They are sent as uploads and again
named by their addresses; the second run over each shows how fast what is known is passed over. Beside it stands what
the store alone takes of the same files on the same disk, and the registry's own seconds of a processor, since replicas
evaluate on the same machine meanwhile.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import tempfile
import time
from pathlib import Path

import msgspec

from infra.adapters.random_adapter import write_random_adapter
from infra.local.temporary import TemporaryFleet, temporary_fleet
from loadtest.registry_store import store_alone
from loadtest.report import Figure, write_report

_TENANT = "bench"
_RANK = 1
_PATIENCE_S = 1800.0
_SHARE = ">= 0.5"
"""Of what the store alone takes: what a batch is to come in with."""
_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    words = argparse.ArgumentParser(description="Registrations a second of an embedded fleet.")
    words.add_argument("--model", type=Path, required=True, help="a base model's folder; the smaller, the better")
    words.add_argument("--count", type=int, default=5000)
    words.add_argument("--at-once", type=int, default=16)
    wish = words.parse_args()
    figures: dict[str, Figure] = {}
    with tempfile.TemporaryDirectory(prefix="lorafleet-registrations-") as folder:
        home, sent, named = (Path(folder) / name for name in ("fleet", "sent", "named"))
        first = write_random_adapter(wish.model, Path(folder) / "first", _RANK, 0)
        with temporary_fleet(home, model=str(wish.model), demo="false", replicas="1", slots="2") as fleet:
            fleet.console("tenants", "create", _TENANT)
            folders = _multiply(first, sent, wish.count, 0)
            files = [(one / "adapter_model.safetensors").read_bytes() for one in folders]
            alone = store_alone(files, Path(folder) / "store", (1, wish.at_once))
            figures |= {f"store.{at_once}_at_once_per_s": _rate(rate) for at_once, rate in alone.items()}
            base = msgspec.json.decode(fleet.console("bases", "list", "--json").stdout)[0]["base_model_hash"]
            listed = _list(_multiply(first, fleet.layout.inbox / named.name, wish.count, wish.count), base, named)
            for what, source in (("uploads", (str(sent),)), ("addresses", ("--from", str(listed)))):
                for again in ("new", "known"):
                    rate, each_ms = _run(fleet, source, wish.at_once, wish.count)
                    figures[f"{what}.{again}_per_s"] = _rate(rate)
                    figures[f"{what}.{again}_registry_ms"] = Figure(value=round(each_ms, 2), unit="ms of a processor")
                    if again == "new":
                        share = round(rate / alone[wish.at_once], 3)
                        figures[f"{what}.share_of_store"] = Figure(value=share, unit="", target=_SHARE)
    for name, figure in figures.items():
        print(f"{name}: {figure}")
    conditions = {"adapters": str(wish.count), "at once": str(wish.at_once), "replicas": "1"}
    print(f"written: {write_report('registrations', figures, conditions=conditions)}")


def _multiply(first: Path, folder: Path, count: int, seed: int) -> list[Path]:
    """As many adapters as asked for, each with other bytes at the end of its weights."""
    weights, made = (first / "adapter_model.safetensors").read_bytes(), list[Path]()
    for at in range(count):
        made.append(folder / f"a{at:05d}")
        made[-1].mkdir(parents=True)
        shutil.copy(first / "adapter_config.json", made[-1])
        (made[-1] / "adapter_model.safetensors").write_bytes(weights[:-2] + _small(seed + at))
    return made


def _small(number: int) -> bytes:
    """The last value of a file in bfloat16: never infinite, and another one for another number up to 2**14."""
    return (number % (1 << 14)).to_bytes(2, "little")


def _list(folders: list[Path], base_model_hash: str, place: Path) -> Path:
    """A line for each: an announcement of weights where the registry can read them."""
    config = msgspec.json.decode((folders[0] / "adapter_config.json").read_bytes())
    same = {"tenant_id": _TENANT, "version": "1", "base_model_hash": base_model_hash, "rank": config["r"]}
    same |= {"alpha": config["lora_alpha"], "target_modules": config["target_modules"]}
    lines = []
    for folder in folders:
        digest = hashlib.sha256((folder / "adapter_model.safetensors").read_bytes()).hexdigest()
        one = {"adapter_id": f"named-{folder.name}", "weights_uri": folder.as_uri(), "checksum": digest}
        lines.append({**same, **one})
    place.write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
    return place


def _rate(per_s: float) -> Figure:
    return Figure(value=round(per_s, 1), unit="a second")


def _run(fleet: TemporaryFleet, source: tuple[str, ...], at_once: int, count: int) -> tuple[float, float]:
    """Registrations a second, and the milliseconds of a processor that the registry used for each."""
    outcomes = fleet.layout.home / "outcomes.jsonl"
    words = ("--tenant", _TENANT, "--at-once", str(at_once), "--outcomes", str(outcomes))
    began_s, used_s = time.monotonic(), _processor_s(fleet.pid("registry"))
    done = fleet.console("adapters", "register-all", *source, *words, timeout_s=_PATIENCE_S)
    took_s, used_s = time.monotonic() - began_s, _processor_s(fleet.pid("registry")) - used_s
    if done.returncode:
        raise SystemExit(done.stderr)
    return count / took_s, used_s / count * 1000


def _processor_s(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


if __name__ == "__main__":
    main()
