"""A small HTTP server that answers by script, for the clients of a fleet."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Asked(NamedTuple):
    method: str
    path: str
    body: bytes
    headers: Message = Message()  # never changed


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: dict[str, str] = {}  # noqa: RUF012  (never changed)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves early is no error, and its traceback would stand in what the next test prints."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def answering(answer: Callable[[Asked], Answer]) -> Iterator[str]:
    """Yields the server's address; every request is put to `answer`."""

    class Scripted(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def reply(self) -> None:
            status, body, headers = answer(Asked(self.command, self.path, self._body(), self.headers))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_PATCH = do_POST = do_DELETE = reply

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = b""
            while (size := int(self.rfile.readline(), 16)) > 0:
                body += self.rfile.read(size + 2)[:size]
            self.rfile.readline()
            return body

        def log_message(self, format: str, *args: object) -> None:
            """Tests print nothing."""

    server = _Server(("127.0.0.1", 0), Scripted)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
