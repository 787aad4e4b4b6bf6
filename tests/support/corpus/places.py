"""Wrong by where the weights are said to be, and refused before anything is read."""

from __future__ import annotations

from pathlib import Path

from tests.support.corpus.bad import Bad, faults

_REFUSED = faults(("weights_uri_refused", "weights_uri"))
_MISSING = faults(("weights_missing", "weights_uri"))
_WEIGHTS = "adapter_model.safetensors"


def _pickled(folder: Path) -> None:
    (folder / _WEIGHTS).unlink()
    (folder / "adapter_model.bin").write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")


def _linked(folder: Path) -> None:
    """To a file beside it, which would be right."""
    (folder / _WEIGHTS).rename(folder / "real.safetensors")
    (folder / _WEIGHTS).symlink_to(folder / "real.safetensors")


PLACES: dict[str, Bad] = {
    "c56 a pickle": Bad(faults=faults(("pickle_refused", "weights_uri")), spoil=_pickled),
    "c54 a symbolic link": Bad(faults=faults(("symlink_refused", "weights_uri")), spoil=_linked),
    "an empty folder": Bad(faults=_MISSING, spoil=lambda folder: (folder / _WEIGHTS).unlink()),
    "an upload that never came": Bad(faults=_MISSING, said={"weights_uri": f"upload:{'0' * 64}"}),
    "c54 a path outside": Bad(faults=_REFUSED, said={"weights_uri": "file:///etc/x"}),
    "c54 a relative step": Bad(faults=_REFUSED, said={"weights_uri": "file:///inbox/../../etc/x.safetensors"}),
    "c54 a NUL in the path": Bad(faults=_REFUSED, said={"weights_uri": "file:///inbox/a%00.safetensors"}),
    "c54 a path of 4 kB": Bad(faults=_REFUSED, said={"weights_uri": f"file:///inbox/{'x' * 4096}"}),
    "a bucket that is not allowed": Bad(faults=_REFUSED, said={"weights_uri": "s3://models/acme/v1"}),
    "an address on the web": Bad(faults=_REFUSED, said={"weights_uri": "https://example.com/x.safetensors"}),
}
