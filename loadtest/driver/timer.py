"""An alarm clock that is exact to some microseconds: an event loop's own timers are to a millisecond."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Callable

_MONOTONIC = 1
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_ABSOLUTE = 1


class _Moment(ctypes.Structure):
    _fields_ = (("s", ctypes.c_long), ("ns", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Moment), ("at", _Moment))


class ExactTimer:
    """Linux's own. `ring` is called once for every `set`, unless another `set` comes before. Raises OSError."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._libc.timerfd_create(_MONOTONIC, _FLAGS)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "no timer is to be had")
        self._loop = loop
        self._ring = ring
        loop.add_reader(self._file, self._rung)

    def set(self, at_s: float) -> None:
        """`at_s` by time.monotonic(); a moment that has passed rings at once."""
        whole_s = int(at_s)
        setting = _Setting(at=_Moment(s=whole_s, ns=max(1, int((at_s - whole_s) * 1e9))))
        self._libc.timerfd_settime(self._file, _ABSOLUTE, ctypes.byref(setting), None)

    def close(self) -> None:
        self._loop.remove_reader(self._file)
        os.close(self._file)

    def _rung(self) -> None:
        try:
            os.read(self._file, 8)
        except BlockingIOError:  # it was set anew in the meantime
            return
        self._ring()


class LoopTimer:
    """The same, late by up to a millisecond, wherever there is an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._set: asyncio.TimerHandle | None = None

    def set(self, at_s: float) -> None:
        self.close()
        self._set = self._loop.call_later(max(0.0, at_s - time.monotonic()), self._ring)

    def close(self) -> None:
        if self._set is not None:
            self._set.cancel()


Timer = ExactTimer | LoopTimer


def open_timer(loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> Timer:
    try:
        return ExactTimer(loop, ring)
    except (AttributeError, OSError):
        return LoopTimer(loop, ring)
