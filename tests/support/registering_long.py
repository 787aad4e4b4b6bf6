"""A registry that takes in a long file from a folder.

Run as `python -m tests.support.registering_long <folder> <layers>`; it prints one line of JSON: how many bytes the
file has, and by how many the process has grown meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path

import msgspec

from tests.support.long_file import wide_base, write_long_file
from tests.support.registry_place import Place
from tests.support.registry_world import World


async def main(folder: Path, layers: int) -> None:
    place = Place(folder, f"sqlite+aiosqlite:///{folder}/registry.db")
    async with place.registry() as here:
        await here.prepare()
        await register(here, "short", 1)  # what is made once is made by now
        before_bytes = _memory_bytes("VmRSS")
        size_bytes = await register(here, "long", layers)
        grown_bytes = _memory_bytes("VmHWM") - before_bytes
    print(json.dumps({"size_bytes": size_bytes, "grown_bytes": grown_bytes}))


async def register(here: World, adapter_id: str, layers: int) -> int:
    """A file in the inbox; the count of its bytes."""
    base, path = wide_base(layers), here.folder / "inbox" / f"{adapter_id}.safetensors"
    known = await here.admin.put(f"/internal/base-models/{base.base_model_hash}", json=msgspec.to_builtins(base))
    known.raise_for_status()
    announced = write_long_file(path, layers)
    said = msgspec.structs.replace(announced, adapter_id=adapter_id, weights_uri=path.as_uri())
    answer = await here.post(said)
    assert answer.status_code == 201, answer.text
    size_bytes: int = answer.json()["size_bytes"]
    return size_bytes


def _memory_bytes(name: str) -> int:
    """`VmRSS` is what the process holds now, `VmHWM` the most that it ever held."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
