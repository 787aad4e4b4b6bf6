"""How long a replica is gone that is killed, until it serves again."""

from __future__ import annotations

import asyncio
import time

from loadtest.calibration.stage import Stage

_POLL_S = 0.05
_DEADLINE_S = 90.0


async def measure_restart(stage: Stage, replica_id: str) -> float:
    """Kills it. Raises TimeoutError if it does not come back."""
    stage.fleet.kill(replica_id)
    began_s, gone = time.monotonic(), False
    async with stage.admin() as http, asyncio.timeout(_DEADLINE_S):
        while True:
            answer = await http.get(f"/internal/replicas/{replica_id}/state")
            ready = answer.status_code == 200 and answer.json()["ready"]
            gone = gone or not ready
            if gone and ready:
                return time.monotonic() - began_s
            await asyncio.sleep(_POLL_S)
