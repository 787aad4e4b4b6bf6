"""What the gateway wrote of each request when it ended: who answered, after how many attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from loadtest.calibration.seen import Seen

_ENDED = b"a request ended"


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    request_id: str
    replica_id: str = ""
    tier: str = ""
    attempts: int = 0
    prompt_tokens: int = 0
    tokens: int = 0
    ttft_ms: float | None = None


def read_log(path: Path) -> Mapping[str, Ended]:
    """By request id. Raises OSError; a line that is half written is left out."""
    decoder, found = msgspec.json.Decoder(Ended), {}
    with path.open("rb") as lines:
        for line in lines:
            if _ENDED in line and line.endswith(b"\n"):
                ended = decoder.decode(line)
                found[ended.request_id] = ended
    return found


def with_log(seen: Sequence[Seen], log: Mapping[str, Ended]) -> list[Seen]:
    """Whoever the gateway's log knows, with what it says of them."""
    return [_known(each, log[each.request_id]) if each.request_id in log else each for each in seen]


def _known(seen: Seen, ended: Ended) -> Seen:
    return msgspec.structs.replace(
        seen,
        replica=ended.replica_id,
        tier=ended.tier or seen.tier,
        attempts=ended.attempts,
        prompt_tokens=seen.prompt_tokens or ended.prompt_tokens,
        tokens=seen.tokens or ended.tokens,
        gateway_ttft_s=None if ended.ttft_ms is None else ended.ttft_ms / 1000,
    )
