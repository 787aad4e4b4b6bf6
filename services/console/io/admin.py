"""The fleet's admin address, by httpx."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import msgspec

from services.console.core.outcome import UNREACHABLE, exit_code
from services.console.core.refusals import Refusal, told
from shared.pipeline.connect import Where, connect
from shared.pipeline.outcome import Refused, Unreachable
from shared.pipeline.uploading import OnSent


class CommandFailed(Exception):
    """One sentence for stderr and the exit code that goes with it; `answer` is the fleet's own JSON, if it gave any."""

    def __init__(self, message: str, code: int, answer: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.answer = answer


class _Envelope(msgspec.Struct, frozen=True):
    error: Refusal


class Admin:
    """Calls to `/internal`. Every method raises CommandFailed; nothing was changed by a refused call."""

    def __init__(self, url: str, key: str) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        self._url = url
        self.where = Where(admin_url=url, admin_key=key)
        self._http = httpx.Client(base_url=url, headers=headers, timeout=60.0, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._http.close()

    def get(self, path: str, **params: str) -> Any:
        return self._call("GET", path, params=params)

    def every(self, path: str, name: str, **params: str) -> list[dict[str, Any]]:
        """All rows of a list, page by page."""
        rows: list[dict[str, Any]] = []
        after: str | None = ""
        while after is not None:
            page = self.get(path, **params, **({"after": after} if after else {}))
            rows.extend(page[name])
            after = page.get("next")
        return rows

    def post(self, path: str, body: object = None) -> Any:
        return self._call("POST", path, content=msgspec.json.encode({} if body is None else body))

    def post_file(self, path: str, raw: bytes, **params: str) -> Any:
        """POST bytes as they are."""
        return self._call("POST", path, content=raw, params=params)

    def create(self, path: str, body: object) -> tuple[Any, bool]:
        """POST what may be there already; the answer, and whether it is new."""
        answer = self._send("POST", path, content=msgspec.json.encode(body))
        return answer.json(), answer.status_code == httpx.codes.CREATED

    def put(self, path: str, body: object) -> Any:
        return self._call("PUT", path, content=msgspec.json.encode(body))

    def patch(self, path: str, body: object) -> Any:
        return self._call("PATCH", path, content=msgspec.json.encode(body))

    def delete(self, path: str) -> Any:
        return self._call("DELETE", path)

    def upload(self, file: Path, checksum: str, on_sent: OnSent) -> str:
        """Send a weights file, over as many connections as it takes; returns the `weights_uri` to register it with."""
        self.get(f"/internal/uploads/{checksum}")  # that nobody is there is said at once, and not after some patience
        try:
            return asyncio.run(_upload(self.where, file, checksum, on_sent))
        except Unreachable as error:
            raise CommandFailed(str(error), UNREACHABLE) from error
        except Refused as error:
            answer = {"error": {"message": str(error), "code": error.code}}
            raise CommandFailed(str(error), exit_code(error.status), answer) from error

    def _call(self, method: str, path: str, **arguments: Any) -> Any:
        answer = self._send(method, path, **arguments)
        return answer.json() if answer.content else None

    def _send(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **arguments)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CommandFailed(f"No answer from {self._url}: is the fleet up? ({error})", UNREACHABLE) from error
        if answer.status_code >= 400:
            raise _failed(answer)
        return answer


def _failed(answer: httpx.Response) -> CommandFailed:
    code = exit_code(answer.status_code)
    try:
        refusal = msgspec.json.decode(answer.content, type=_Envelope).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return CommandFailed(f"{answer.request.url.path} answered {answer.status_code}: {answer.text[:200]}", code)
    return CommandFailed(told(refusal), code, answer.json())


async def _upload(where: Where, file: Path, checksum: str, on_sent: OnSent) -> str:
    async with connect(where) as pipeline:
        return await pipeline.upload(file, checksum, on_sent)
