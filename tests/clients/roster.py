"""The clients, where each lives, and what each can be asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.clients.said import Said

ROOT = Path(__file__).parent.parent.parent
SPEAKERS = Path(__file__).parent / "speakers"
VENV = ROOT / ".venv-clients"
"""Made by `make contract-clients`: Python's clients, and node's in `node`."""

CHATS = frozenset({"chat", "chat_stream"})
COMPLETIONS = frozenset({"completion", "completion_stream"})
SEVERAL = frozenset({"several"})
"""No verb: whether the client hands out all answers where several were asked for."""
PAGE = frozenset({"page"})
"""Nor is this: whether docs/clients.md has a snippet for it."""
ALL_OF_OPENAI = CHATS | COMPLETIONS | SEVERAL | {"chat_helper", "models", "model"}

_ENVIRON = {
    **os.environ,
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LANGSMITH_TRACING": "false",
    "PYTHONWARNINGS": "ignore",
}
"""They call nobody but the gateway."""

T = TypeVar("T", bound=Callable[..., Any])


class Client:
    """One process, started when it is first asked. `verbs`: what its speaker can be asked."""

    def __init__(self, name: str, argv: list[str], verbs: frozenset[str], folder: Path = ROOT) -> None:
        self.name = name
        self.verbs = verbs
        self._argv = argv
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    @property
    def is_openai(self) -> bool:
        """Whether its exceptions are those of OpenAI's own SDKs, with all that these tell."""
        return self.verbs >= ALL_OF_OPENAI

    def ask(self, verb: str, url: str, key: str, *, retries: int = 0, **params: Any) -> Said:
        """`url` is that of the server, without `/v1`. Raises EOFError when the speaker broke."""
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        asked = {"verb": verb, "url": f"{url}/v1", "key": key, "retries": retries, "params": params}
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        if not (line := process.stdout.readline()):
            raise EOFError(f"{self.name} ended with {process.wait()}")
        return Said(**json.loads(line))

    def run(self, program: str, environ: dict[str, str]) -> str:
        """What a program of its language prints. Raises CalledProcessError."""
        interpreter = self._argv[0]
        argv = [interpreter, "--input-type=module", "-e"] if interpreter == "node" else [interpreter, "-c"]
        run = subprocess.run(
            [*argv, program], cwd=self._folder, env={**_ENVIRON, **environ}, check=True, text=True, capture_output=True
        )
        return run.stdout

    def hang_up(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.communicate(timeout=30)

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._argv, cwd=self._folder, env=_ENVIRON, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )


def _python(name: str, module: str, verbs: frozenset[str], python: str = sys.executable) -> Client:
    return Client(name, [python, "-m", f"tests.clients.speakers.{module}"], verbs)


AT_HAND = (_python("openai-python", "openai_python", ALL_OF_OPENAI | PAGE),)
"""What `make test` asks. OpenAI's client for asyncio is there too, and speaks in tests/integration."""

_ELSEWHERE = str(VENV / "bin" / "python")
ALL = (
    *AT_HAND,
    _python("openai-python-async", "openai_python_async", ALL_OF_OPENAI),
    Client("openai-node", ["node", str(SPEAKERS / "openai_node.mjs")], ALL_OF_OPENAI | PAGE, VENV / "node"),
    _python("langchain-openai", "langchain_sdk", CHATS | COMPLETIONS | PAGE, _ELSEWHERE),
    _python("litellm", "litellm_sdk", CHATS | COMPLETIONS | SEVERAL | PAGE, _ELSEWHERE),
    _python("schemathesis", "schemathesis_cli", frozenset({"fuzz"}), _ELSEWHERE),
)


def speaks(*verbs: str) -> Callable[[T], T]:
    """A test whose `client` can be asked all of these."""

    def needing(test: T) -> T:
        test.verbs = frozenset(verbs)  # type: ignore[attr-defined]
        return test

    return needing


def each_client(metafunc: pytest.Metafunc) -> None:
    """`pytest_generate_tests` of a module whose tests speak: with those at hand, or with all for a report."""
    if "client" not in metafunc.fixturenames:
        return
    known = AT_HAND if metafunc.config.getoption("--clients-report", default=None) is None else ALL
    able = [client for client in known if client.verbs >= metafunc.function.verbs]
    metafunc.parametrize("client", able, ids=[client.name for client in able])


def hang_up() -> Iterator[None]:
    """A fixture's body: after the tests all processes end."""
    yield
    for client in ALL:
        client.hang_up()
