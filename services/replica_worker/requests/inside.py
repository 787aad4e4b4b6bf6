"""Requests of this process itself: they run like any other, and no gateway hears of them."""

from __future__ import annotations

import asyncio

from services.replica_worker.core.admission import Refusal
from shared.messages.desired import AdapterRecord
from shared.messages.generation import Finish, TokenChunk


class Inside:
    """Whoever asks in here: is told what a gateway would be. `record` is of the adapter to answer with, known to the
    fleet or not; None: the base model. `over` is set at the end, whichever it is."""

    def __init__(self, record: AdapterRecord | None) -> None:
        self.record = record
        self.text = ""
        self.finish: Finish | None = None
        self.refusal: Refusal | None = None
        self.over = asyncio.Event()

    def hear(self, chunk: TokenChunk) -> None:
        self.text += chunk.text
        if chunk.finish is not None:
            self.finish = chunk.finish
            self.over.set()

    def refuse(self, refusal: Refusal) -> None:
        self.refusal = refusal
        self.over.set()
