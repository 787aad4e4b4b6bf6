"""Drive a fleet with an open-loop load and print what the clients saw, as JSON.

    python -m loadtest.driver --rate 4 --requests 100 --zipf 1.0 [--markers markers.json] [--alias A …]

Open loop: a request is sent when its time has come, however slow the fleet is; what that costs in waiting shows as
`schedule_delay_ms`. With `--markers` ({alias: text}) every answer's content is checked, and a wrong one fails the run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx

from loadtest.measures import Seen, summary
from loadtest.workload import Arrival, Shape, arrivals

N = TypeVar("N", int, float)


class Driver:
    """One client process with connections that stay open."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._began_s = time.monotonic()

    async def run(self, load: Sequence[Arrival]) -> tuple[list[Seen], float]:
        """What every request saw, and how long the run took."""
        self._began_s = time.monotonic()
        seen = await asyncio.gather(*(self._at_its_time(one) for one in load))
        return list(seen), time.monotonic() - self._began_s

    async def _at_its_time(self, one: Arrival) -> Seen:
        await asyncio.sleep(max(0.0, one.at_s - self._now_s()))
        lag_s, began_s = self._now_s() - one.at_s, time.monotonic()
        stream = _Stream()
        try:
            outcome = await self._read(one, stream)
        except (httpx.HTTPError, ValueError, KeyError) as error:
            outcome = type(error).__name__
        return stream.seen(one, outcome, lag_s, began_s)

    async def _read(self, one: Arrival, stream: _Stream) -> str:
        body = {
            "model": one.alias,
            "stream": True,
            "temperature": 0,
            "max_tokens": one.max_tokens,
            "messages": [{"role": "user", "content": one.prompt}],
            "stream_options": {"include_usage": True},
        }
        async with self._http.stream("POST", "/v1/chat/completions", json=body) as answer:
            stream.tier = answer.headers.get("x-adapter-tier", "")
            if answer.status_code != 200:
                return str(answer.status_code)
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    stream.take(line[6:])
        return stream.ending()

    def _now_s(self) -> float:
        return time.monotonic() - self._began_s


class _Stream:
    """What one response has brought so far."""

    def __init__(self) -> None:
        self.tier = ""
        self.text = ""
        self._times_s: list[float] = []
        self._tokens = 0
        self._finished = self._done = False
        self._error = ""

    def take(self, payload: str) -> None:
        if payload == "[DONE]":
            self._done = True
            return
        chunk: dict[str, Any] = json.loads(payload)
        self._error = chunk.get("error", {}).get("message", self._error)
        self._tokens = (chunk.get("usage") or {}).get("completion_tokens", self._tokens)
        for choice in chunk.get("choices", ()):
            self._times_s.append(time.monotonic())
            self.text += choice["delta"].get("content") or ""
            self._finished = self._finished or choice["finish_reason"] is not None

    def ending(self) -> str:
        """A clean end without a finish reason is a lost answer, not a short one."""
        return self._error or ("ok" if self._finished and self._done else "cut off")

    def seen(self, one: Arrival, outcome: str, lag_s: float, began_s: float) -> Seen:
        first, last, now_s = *(self._times_s[at] if self._times_s else None for at in (0, -1)), time.monotonic()
        gaps = max(0, self._tokens - 1)
        return Seen(
            alias=one.alias,
            outcome=outcome,
            tier=self.tier,
            lag_s=lag_s,
            ttft_s=first - began_s if first is not None else None,
            tpot_s=(last - first) / gaps if first is not None and last is not None and gaps else None,
            e2el_s=now_s - began_s,
            tokens=self._tokens,
            text=self.text,
        )


def main() -> int:
    words = _arguments()
    aliases = words.alias or os.environ.get("LORAFLEET_ALIASES", "").split()
    markers: dict[str, str] = json.loads(Path(words.markers).read_text()) if words.markers else {}
    aliases = aliases or list(markers)
    if not aliases:
        return _wrong("no alias to ask: give --alias, --markers or LORAFLEET_ALIASES")
    if not words.key:
        return _wrong("no key to ask with: give --key or LORAFLEET_API_KEY")
    shape = Shape(
        rate_per_s=words.rate, requests=words.requests, zipf=words.zipf, max_tokens=words.max_tokens, seed=words.seed
    )
    seen, wall_s = asyncio.run(drive(words.url, words.key, list(arrivals(shape, aliases))))
    figures = summary(seen, wall_s, markers)
    print(json.dumps(figures, indent=2))
    wrong = figures["contents"]["foreign"] + figures["contents"]["missing"]
    return 1 if wrong or figures["completed"] < figures["requests"] else 0


def _wrong(sentence: str) -> int:
    sys.stderr.write(sentence + "\n")
    return 2


async def drive(url: str, key: str, load: Sequence[Arrival]) -> tuple[list[Seen], float]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=256)
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, limits=limits, timeout=120.0, trust_env=False) as http:
        return await Driver(http).run(load)


def _arguments() -> argparse.Namespace:
    words = argparse.ArgumentParser(prog="python -m loadtest.driver", description="An open-loop load on a fleet.")
    words.add_argument("--url", default=os.environ.get("LORAFLEET_URL", "http://127.0.0.1:8080"))
    words.add_argument("--key", default=os.environ.get("LORAFLEET_API_KEY", ""))
    words.add_argument("--alias", action="append", help="ask this alias (repeat; first is the most popular)")
    words.add_argument("--markers", help="JSON file {alias: text that its answers must contain}")
    words.add_argument("--rate", type=_positive(float), default=2.0, help="requests a second (Poisson)")
    words.add_argument("--requests", type=_positive(int), default=20)
    words.add_argument("--zipf", type=float, default=1.0)
    words.add_argument("--max-tokens", type=int, default=32)
    words.add_argument("--seed", type=int, default=0)
    return words.parse_args()


def _positive(kind: Callable[[str], N]) -> Callable[[str], N]:
    def number(text: str) -> N:
        if (value := kind(text)) > 0:
            return value
        raise argparse.ArgumentTypeError(f"{text} is not above 0")

    return number


if __name__ == "__main__":
    sys.exit(main())
