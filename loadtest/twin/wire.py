"""The bus: messages reach their readers a little later, whole or not at all."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from loadtest.twin.agenda import Agenda
from shared.contracts.channel import Channel
from shared.contracts.codec import decode, encode

Reader = Callable[[Any], None]


class Wire:
    """`full`: each message passes through its channel's own encoding. `chance` of loss, for each reader, and `late_s`
    are by channel name, and zero to begin with."""

    def __init__(self, agenda: Agenda, bus_s: float, draw: random.Random, *, full: bool) -> None:
        self.chance: dict[str, float] = {}
        self.late_s: dict[str, float] = {}
        self.told = 0
        self.lost = 0
        self._agenda = agenda
        self._bus_s = bus_s
        self._draw = draw
        self._full = full
        self._readers: dict[str, list[Reader]] = {}

    def read(self, channel: Channel[Any, Any], reader: Reader) -> None:
        self._readers.setdefault(channel.name, []).append(reader)

    def tell(self, channel: Channel[Any, Any], message: Any, readers: list[Reader] | None = None) -> None:
        """To everybody who reads the channel, or only to these."""
        self.told += 1
        if self._full:
            message = decode(channel, encode(channel, message))
        to = self._readers.get(channel.name, []) if readers is None else readers
        if chance := self.chance.get(channel.name, 0.0):
            heard = [reader for reader in to if self._draw.random() >= chance]
            self.lost += len(to) - len(heard)
            to = heard
        self._agenda.after(self._bus_s + self.late_s.get(channel.name, 0.0), _pass_on, to, message)


def _pass_on(readers: list[Reader], message: Any) -> None:
    for reader in readers:
        reader(message)
