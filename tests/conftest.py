"""What every test may rely on: one thread for tensors, no proxy, and deadlines instead of sleeps."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import hypothesis
import pytest

from tests.support.memory_folder import memory_folder

Within = Callable[[float], AbstractAsyncContextManager[None]]

# Before torch or httpx is imported by any test: both read the environment once.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Likewise Triton: there is no CUDA device here, and its kernels are interpreted.
os.environ["TRITON_INTERPRET"] = "1"
for _name in ("http_proxy", "https_proxy", "all_proxy"):
    os.environ.pop(_name, None)
    os.environ.pop(_name.upper(), None)
# Settings of a fleet that runs in this shell are none of a test's business.
for _name in [name for name in os.environ if name.startswith("LORAFLEET_")]:
    os.environ.pop(_name)
# Before pytest makes its folder there, and for all that tests start; whoever has chosen a place keeps it.
if "TMPDIR" not in os.environ and (_memory := memory_folder()) is not None:
    os.environ["TMPDIR"] = str(_memory)
    tempfile.tempdir = None

# What a shell starts in the background ignores Ctrl-C, and so does all that is started from there.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Machines differ in speed, and a test may not: examples are the same every time and have no deadline.
hypothesis.settings.register_profile(
    "lorafleet", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("lorafleet")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "deadline(seconds): an asynchronous test fails if it is not over by then")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """No fixture can see to that: it is set up by a task of its own, and a timeout ends nothing but its task."""
    mark = item.get_closest_marker("deadline")
    if mark is not None and isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
        item.obj = _bounded(item.obj, *mark.args)


def _bounded(test: Callable[..., Awaitable[None]], seconds: float) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def bounded(*args: object, **named: object) -> None:
        async with _within(seconds):
            await test(*args, **named)

    return bounded


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is imported by now stays to the end: without this the collector walks through all of it again and again."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """What is frozen would not be let go at the exit, and some libraries speak of that as a leak."""
    gc.unfreeze()


@asynccontextmanager
async def _within(seconds: float) -> AsyncIterator[None]:
    deadline = asyncio.timeout(seconds)
    try:
        async with deadline:
            yield
    except TimeoutError:
        if not deadline.expired():
            raise
        pytest.fail(f"still waiting after {seconds:g} s")


@pytest.fixture
def within() -> Within:
    """`async with within(5): await event.wait()` fails the test if the event does not come."""
    return _within
