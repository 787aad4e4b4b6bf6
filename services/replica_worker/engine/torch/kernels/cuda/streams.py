"""What happens beside the steps' own stream: the adapters' share of a product, and loads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch


class Streams(Protocol):
    """Owned by one engine."""

    def aside(self, work: Callable[[], None]) -> None:
        """Start `work` once everything that was asked for so far is done, beside all that is asked for from now on."""

    def meet(self) -> None:
        """What is asked for from now on waits for what went aside."""

    def load(self, into: torch.Tensor, source: torch.Tensor) -> None:
        """Copy host memory to the device, beside both of them; blocks until it is there. For any thread."""


class DeviceStreams:
    """Real streams. Within a graph's capture `aside` and `meet` become its fork and its join."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._beside, self._loads = torch.cuda.Stream(device), torch.cuda.Stream(device)

    def aside(self, work: Callable[[], None]) -> None:
        self._beside.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._beside):
            work()

    def meet(self) -> None:
        torch.cuda.current_stream(self._device).wait_stream(self._beside)

    def load(self, into: torch.Tensor, source: torch.Tensor) -> None:
        """From pinned memory the copy engine reads it without the processor; from other memory torch goes by way of
        pinned memory of its own."""
        arrived = torch.cuda.Event()
        with torch.cuda.stream(self._loads):
            into.copy_(source, non_blocking=True)
            arrived.record()
        arrived.synchronize()


class Graphs:
    """Captures launches; all graphs share their memory, since one runs at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._memory = torch.cuda.graph_pool_handle()

    def capture(self, launch: Callable[[], object]) -> Callable[[], object]:
        """`launch` must have run before: what compilers and libraries set up cannot be captured."""
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            launch()
        return graph.replay
