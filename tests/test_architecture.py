"""The house keeps its shape: who may import whom, what a core may do, how long things may be.

Every rule is shown a planted violation first, so that a rule which can no longer fail is noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.architecture import honesty, layers, purity, sizes, words
from tests.support.architecture.house import LAYERS, PLAIN, PURE
from tests.support.architecture.source import Module, check, read_modules

ROOT = Path(__file__).parent.parent

NATS_HOMES = (r"shared\.bus\.nats\w*", r"infra\.nats(\.\w+)*", r"tests\.(support|integration)\.\w*nats\w*")

REDIS_HOMES = (r"services\.gateway\.io\.limits_redis", r"tests\.\w+(\.\w+)*\.test_(gateway_limits|limit_ledger|valkey)")

S3_HOMES = (r"shared\.store\.s3\w*", r"tests\.(support|integration)\.\w*s3\w*")

FAMILIES = {
    "fastapi": "http server", "starlette": "http server", "uvicorn": "http server", "referencing": "schema",
    "sqlalchemy": "database", "alembic": "database", "aiosqlite": "database", "jsonschema": "schema",
    "tokenizers": "text", "jinja2": "text", "torch": "tensors", "safetensors": "tensors", "numpy": "tensors",
}  # fmt: skip

WIRED = frozenset({
    "shared.bus.memory.MemoryBroker", "shared.bus.nats.connect", "shared.runtime.clock.SystemClock",
    "shared.runtime.metrics.Metrics", "shared.runtime.probe.ProbeServer", "shared.runtime.settings.read",
})  # fmt: skip
"""What only a `__main__` may call, besides every class of a service that waits for something."""

SLEEPS_ON_PURPOSE: dict[str, str] = {
    "tests/support/waiting.py": "looks again at other processes, which cannot wake a test; ends at a deadline",
    "tests/support/nats_server.py": "knocks until a server listens, which it announces to nobody",
    "tests/support/bus_worlds.py": "looks again at what a bus client changes silently; ends at a deadline",
}
"""Path of a test module and why it must really let time pass."""

SUBJECTS_ON_PURPOSE: dict[str, str] = {
    "tests/test_architecture.py": "plants them",
    "tests/unit/bus/": "says what must be derived from the catalog, so that the catalog is not compared with itself",
    "tests/integration/test_bus_": "speaks to the server as a stranger would, with wildcards that no channel has",
}
"""Beginning of the paths of test modules, and why they must spell out a subject."""


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    return read_modules(ROOT)


def _below(modules: list[Module], *prefixes: str) -> list[Module]:
    return [module for module in modules if module.path.startswith(prefixes)]


def _product(modules: list[Module]) -> list[Module]:
    return _below(modules, "services/", "shared/", "infra/", "loadtest/")


def _cores(modules: list[Module]) -> list[Module]:
    return [module for module in modules if _is_core(module)]


def _is_core(module: Module) -> bool:
    pure = (
        "shared/messages/",
        "shared/contracts/channel.py",
        "shared/contracts/catalog.py",
        "shared/leadership/core.py",
    )
    return "/core/" in module.path or module.path.startswith(pure) or module.name in PURE


# -- the house as it stands ----------------------------------------------------------------------------


def nobody(breaks: list[str]) -> None:
    """Fails with every sentence, one a line."""
    assert not breaks, "\n" + "\n".join(breaks)


def test_every_module_imports_what_its_layer_may(modules: list[Module]) -> None:
    nobody(check(modules, layers.wrong_imports(LAYERS)))


def test_nats_is_imported_in_one_place(modules: list[Module]) -> None:
    nobody(check(modules, layers.imports_only_in("nats", NATS_HOMES)))


def test_redis_is_spoken_in_one_place(modules: list[Module]) -> None:
    nobody(check(modules, layers.imports_only_in("redis", REDIS_HOMES)))


def test_s3_is_spoken_in_one_place(modules: list[Module]) -> None:
    for library in ("boto3", "botocore"):
        nobody(check(modules, layers.imports_only_in(library, S3_HOMES)))


def test_an_io_module_speaks_to_one_client_library(modules: list[Module]) -> None:
    nobody(check(modules, layers.many_clients(FAMILIES, neutral=PLAIN)))


def test_cores_are_pure(modules: list[Module]) -> None:
    assert len(_cores(modules)) > 20
    nobody(check(_cores(modules), purity.impurities))


def test_only_main_constructs(modules: list[Module]) -> None:
    wired = purity.shell_classes(modules) | WIRED
    nobody(check(modules, purity.constructions(wired), purity.environment_reads))


def test_nothing_is_too_long(modules: list[Module]) -> None:
    nobody(check(modules, sizes.long_modules, sizes.long_functions, sizes.many_parameters))


def test_long_modules_and_functions_are_the_exception(modules: list[Module]) -> None:
    product = _product(modules)
    assert sizes.share_of_long_modules(product) <= 0.1
    assert sizes.mean_function_lines(product) <= 12


def test_names_say_something(modules: list[Module]) -> None:
    nobody(check(modules, words.vague_names))


def test_subjects_come_from_the_catalog(modules: list[Module]) -> None:
    others = [module for module in modules if not module.path.startswith(tuple(SUBJECTS_ON_PURPOSE))]
    nobody(check(others, words.subject_literals))


def test_nothing_is_left_to_do_in_a_comment(modules: list[Module]) -> None:
    nobody(check(modules, words.leftover_comments))


def test_no_test_is_skipped(modules: list[Module]) -> None:
    nobody(check(_below(modules, "tests/"), honesty.skips))


def test_no_test_sleeps_to_synchronise(modules: list[Module]) -> None:
    awake = [module for module in _below(modules, "tests/") if module.path not in SLEEPS_ON_PURPOSE]
    nobody(check(awake, honesty.sleeps))


def test_every_exception_is_still_needed(modules: list[Module]) -> None:
    assert set(SLEEPS_ON_PURPOSE) <= {module.path for module in modules if honesty.sleeps(module)}
    for path in SUBJECTS_ON_PURPOSE:
        assert check(_below(modules, path), words.subject_literals) != [], path


# -- planted violations --------------------------------------------------------------------------------

Rule = Callable[[Module], list[str]]

_LAYERED: Rule = layers.wrong_imports(LAYERS)
_NATS: Rule = layers.imports_only_in("nats", NATS_HOMES)
_REDIS: Rule = layers.imports_only_in("redis", REDIS_HOMES)
_CLIENTS: Rule = layers.many_clients(FAMILIES, neutral=PLAIN)
_WIRING: Rule = purity.constructions(WIRED | {"services.gateway.io.door.Door"})

PLANTED: list[tuple[Rule, str, str]] = [
    (_LAYERED, "shared/messages/new.py", "import numpy"),
    (_LAYERED, "shared/messages/new.py", "from shared.contracts import codec"),
    (_LAYERED, "shared/contracts/new.py", "from shared.bus.port import Bus"),
    (_LAYERED, "shared/bus/new.py", "from shared.runtime import clock"),
    (_LAYERED, "shared/bus/new.py", "from services.gateway.core import routing"),
    (_LAYERED, "shared/leadership/new.py", "from shared.runtime import logs"),
    (_LAYERED, "shared/runtime/new.py", "def f():\n    import services.gateway"),
    (_LAYERED, "shared/store/new.py", "from .. import bus"),
    (_LAYERED, "shared/new.py", "import infra.nats"),
    (_LAYERED, "shared/lora_names.py", "import re2"),
    (_LAYERED, "services/replica_worker/engine/new.py", "from shared.lora_terms import Pattern"),
    (_LAYERED, "services/gateway/app.py", "from services.registry.core import states"),
    (_LAYERED, "services/gateway/app.py", "from services import registry"),
    (_LAYERED, "services/gateway/core/new.py", "from shared.bus.port import Bus"),
    (_LAYERED, "services/gateway/core/new.py", "from services.gateway.io import door"),
    (_LAYERED, "services/gateway/core/new.py", "from ..io import door"),
    (_LAYERED, "services/gateway/core/new.py", "import httpx"),
    (_LAYERED, "services/gateway/io/new.py", "from services.gateway.app import App"),
    (_LAYERED, "services/replica_worker/engine/new.py", "from services.replica_worker.core import slots"),
    (_LAYERED, "services/replica_worker/text/new.py", "import torch"),
    (_LAYERED, "services/replica_worker/tiers/new.py", "from services.replica_worker.requests import running"),
    (_LAYERED, "services/replica_worker/tiers/new.py", "from shared.bus.port import Bus"),
    (_LAYERED, "services/placement/app.py", "from tests.support import fleet"),
    (_LAYERED, "infra/local/new.py", "from services.gateway.settings import Settings"),
    (_LAYERED, "loadtest/new.py", "from services.gateway.io import door"),
    (_LAYERED, "loadtest/new.py", "from shared.bus.nats import connect"),
    (_LAYERED, "loadtest/twin/new.py", "from services.replica_worker.tiers.loader import Loader"),
    (_LAYERED, "loadtest/twin/new.py", "from shared.bus.memory import MemoryBroker"),
    (_LAYERED, "elsewhere/new.py", ""),
    (_NATS, "services/gateway/io/new.py", "import nats"),
    (_NATS, "shared/bus/memory.py", "from nats.aio.client import Client"),
    (_NATS, "tests/e2e/test_new.py", "import nats"),
    (_REDIS, "services/gateway/limits.py", "from redis.asyncio import Redis"),
    (_CLIENTS, "services/registry/io/new.py", "import httpx\nimport sqlalchemy"),
    (purity.impurities, "services/gateway/core/new.py", "import time"),
    (purity.impurities, "services/gateway/core/new.py", "from os import path"),
    (purity.impurities, "services/gateway/core/new.py", "async def f() -> None: ..."),
    (purity.impurities, "services/gateway/core/new.py", "def f():\n    return open('x')"),
    (purity.impurities, "services/gateway/core/new.py", "def f(datetime):\n    return datetime.now()"),
    (_WIRING, "services/gateway/app.py", "from shared.bus.nats import connect\nbus = connect(1)"),
    (_WIRING, "services/gateway/app.py", "from services.gateway.io.door import Door\ndoor = Door()"),
    (purity.environment_reads, "services/gateway/app.py", "import os\nport = os.environ['PORT']"),
    (sizes.long_modules, "shared/new.py", "\n" * 351),
    (sizes.long_functions, "shared/new.py", "def f():\n" + "    x = 1\n" * 50),
    (sizes.many_parameters, "shared/new.py", "def f(a, b, /, c, *, d, e, f): ..."),
    (sizes.many_parameters, "shared/new.py", "class A:\n    def f(self, a, b, c, d, e, f): ..."),
    (words.vague_names, "shared/string_utils.py", ""),
    (words.vague_names, "services/gateway/data/rows.py", ""),
    (words.vague_names, "shared/new.py", "class SlotManager: ..."),
    (words.subject_literals, "services/gateway/app.py", "SUBJECT = 'lf.v1.evt.adapter.registered'"),
    (words.subject_literals, "tests/unit/test_new.py", "def f(x): return f'lf.v1.{x}'"),
    (words.subject_literals, "infra/nats/new.py", "BUCKET = 'lf_v1_alias'"),
    (words.leftover_comments, "shared/new.py", "x = 1  # TODO: two"),
    (honesty.sleeps, "tests/test_new.py", "import time\ntime.sleep(0)"),
    (honesty.sleeps, "tests/test_new.py", "import asyncio\nasync def f(): await asyncio.sleep(0.1)"),
    (honesty.sleeps, "tests/test_new.py", "from asyncio import sleep\nasync def f(x): await sleep(x)"),
    (honesty.sleeps, "tests/test_new.py", "from time import sleep as wait\nwait(1)"),
    (honesty.skips, "tests/test_new.py", "import pytest\n@pytest.mark.skipif(True, reason='')\ndef test(): ..."),
    (honesty.skips, "tests/test_new.py", "import pytest\ndef test(): pytest.skip('')"),
    (honesty.skips, "tests/test_new.py", "import pytest\ntorch = pytest.importorskip('torch')"),
    (honesty.skips, "tests/test_new.py", "from pytest import xfail"),
]


@pytest.mark.parametrize(("rule", "path", "source"), PLANTED, ids=[f"{path}: {source}" for _, path, source in PLANTED])
def test_a_planted_violation_is_found(rule: Rule, path: str, source: str, tmp_path: Path) -> None:
    planted = tmp_path / path
    planted.parent.mkdir(parents=True)
    planted.write_text(source)
    [module] = read_modules(tmp_path, [path.split("/")[0]])
    found = rule(module)
    assert len(found) == 1
    assert found[0].startswith(f"{path}:")


INNOCENT: list[tuple[Rule, str, str]] = [
    (_LAYERED, "services/gateway/core/new.py", "import math, msgspec\nfrom shared.messages import desired"),
    (_LAYERED, "services/gateway/core/new.py", "from . import routing\nfrom shared.hashing import rank"),
    (_LAYERED, "services/gateway/io/new.py", "from services.gateway.core import routing\nimport shared.bus.port"),
    (_NATS, "shared/bus/nats_events.py", "import nats"),
    (_CLIENTS, "services/registry/io/new.py", "import sqlalchemy\nimport alembic\nimport msgspec\nimport json"),
    (_WIRING, "services/gateway/__main__.py", "from shared.bus.nats import connect\nbus = connect(1)"),
    (_WIRING, "services/gateway/app.py", "from services.gateway.io.door import Note\nnote = Note()"),
    (_WIRING, "services/gateway/tool.py", "from shared.bus.nats import connect\nif __name__ == '__main__': connect(1)"),
    (sizes.many_parameters, "shared/new.py", "class A:\n    def f(self, a, b, c, d, e): ..."),
    (words.subject_literals, "services/gateway/app.py", "'''Watch lf.v1.tel.fleet.metrics.'''"),
    (honesty.sleeps, "tests/test_new.py", "import asyncio\nasync def f(clock): await asyncio.sleep(0)"),
]


@pytest.mark.parametrize(
    ("rule", "path", "source"), INNOCENT, ids=[f"{path}: {source}" for _, path, source in INNOCENT]
)
def test_what_is_right_is_left_alone(rule: Rule, path: str, source: str) -> None:
    assert rule(Module(path, source)) == []


def test_what_touches_the_world_is_wired() -> None:
    waits = "class Door:\n    async def open(self): ...\nclass Note:\n    def read(self): ..."
    starts = "class Part:\n    async def start(self): ...\nclass Flight:\n    async def join(self): ..."
    protocol = "class Wish(Protocol):\n    async def start(self): ..."
    modules = [
        Module("services/gateway/io/door.py", waits),
        Module("services/gateway/app.py", starts),
        Module("services/gateway/wish.py", protocol),
        Module("shared/bus/port.py", waits),
    ]
    assert purity.shell_classes(modules) == {"services.gateway.io.door.Door", "services.gateway.app.Part"}


def test_mean_lengths_are_measured() -> None:
    long = Module("shared/new.py", "def f():\n    return 1\n" + "\n" * 200)
    short = Module("shared/other.py", "def f():\n    return (\n1\n)\n")
    assert sizes.share_of_long_modules([long, short]) == 0.5
    assert sizes.mean_function_lines([long, short]) == 3.0
