"""The customer's customers: they ask all along, and notice every wrong word."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import httpx

from infra.lifecycle_demo.stage import until
from infra.local.connection import Connection

_ASKERS = 4
_TIMEOUT_S = 60.0


class Crowd:
    """Asks `aliases` in turn from several sessions, streaming, until it is told to stop.

    `words` says what each adapter must answer, by its id; whoever deploys a new one adds it first.
    """

    def __init__(self, connection: Connection, key: str, words: Mapping[str, str]) -> None:
        self._url = f"{connection.url}/v1/chat/completions"
        self._headers = {"Authorization": f"Bearer {key}"}
        self._words = words
        self._aliases: tuple[str, ...] = ()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.answers: Counter[str] = Counter()
        self.troubles: list[str] = []

    @contextmanager
    def asking(self, *aliases: str) -> Iterator[Crowd]:
        self._aliases = aliases
        self._stop.clear()
        askers = [threading.Thread(target=self._ask_on, args=(number,), daemon=True) for number in range(_ASKERS)]
        for asker in askers:
            asker.start()
        try:
            yield self
        finally:
            self._stop.set()
            for asker in askers:
                asker.join(_TIMEOUT_S)

    def wait_for(self, more: int) -> None:
        """Until so many more answers have come. Raises StoryWentWrong."""
        wanted = self.count + more
        until(lambda: self.count >= wanted, f"{more} answers", _TIMEOUT_S)

    @property
    def count(self) -> int:
        with self._lock:
            return self.answers.total()

    def excuse(self) -> int:
        """Forget the troubles so far, which were meant to happen; how many there were."""
        with self._lock:
            count = len(self.troubles)
            self.troubles.clear()
            return count

    def share(self, adapter_id: str, before: Counter[str]) -> float:
        """Of the answers since `before`, those that this adapter gave, in percent."""
        with self._lock:
            since = self.answers - before
        return 100 * since[adapter_id] / max(1, since.total())

    def so_far(self) -> Counter[str]:
        with self._lock:
            return self.answers.copy()

    def _ask_on(self, number: int) -> None:
        turn = 0
        with httpx.Client(headers=self._headers, timeout=_TIMEOUT_S, trust_env=False) as client:
            while not self._stop.is_set():
                session = f"session-{number}-{turn % 25}"
                self._ask(client, self._aliases[(number + turn) % len(self._aliases)], session)
                turn += 1

    def _ask(self, client: httpx.Client, alias: str, session: str) -> None:
        body = {"model": alias, "temperature": 0, "max_tokens": 16, "messages": [{"role": "user", "content": "Hello?"}]}
        try:
            answer = client.post(self._url, json=body, headers={"x-session-id": session})
            adapter_id = answer.headers.get("x-adapter-id", "")
            text = answer.json()["choices"][0]["message"]["content"] if answer.status_code == 200 else answer.text
        except httpx.HTTPError as error:
            self._note("", f"{alias}: {type(error).__name__} {error}")
            return
        if answer.status_code != 200 or self._words.get(adapter_id, "?") not in text:
            self._note(adapter_id, f"{alias}: {answer.status_code} by {adapter_id}: {text[:200]!r}")
        else:
            self._note(adapter_id, None)

    def _note(self, adapter_id: str, trouble: str | None) -> None:
        with self._lock:
            self.answers[adapter_id] += 1
            if trouble is not None:
                self.troubles.append(trouble)
