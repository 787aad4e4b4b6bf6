"""How a speaker is asked and answers: one line of JSON each, for as long as somebody asks.

    {"verb": "chat", "url": "http://…/v1", "key": "…", "retries": 0, "params": {…}}
    {"seen": […], "raised": null, "took_s": 0.1}

`params` are OpenAI's of that call. `seen` holds what the client handed out, as OpenAI's objects: the one answer,
or every chunk of a stream up to the end or the exception, which is then in `raised`.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

Asked = dict[str, Any]
Seen = list[Any]
Speak = Callable[[Asked, Seen], None]


def serve(speak: Speak) -> None:
    """Until standard input ends. What libraries print goes to standard error."""
    out, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        seen: Seen = []
        raised = None
        started_s = time.monotonic()
        try:
            speak(json.loads(line), seen)
        except Exception as error:
            raised = described(error)
        answer = {"seen": seen, "raised": raised, "took_s": time.monotonic() - started_s}
        print(json.dumps(answer, default=str), file=out, flush=True)


def described(error: Exception) -> dict[str, Any]:
    """What a program that uses the client can read of its exception."""
    names = ("status_code", "code", "param", "type", "request_id")
    read = {name: value for name in names if isinstance(value := getattr(error, name, None), str | int | None)}
    classes = [each.__name__ for each in type(error).__mro__]
    return {**read, "classes": classes, "message": str(error), "trace": traceback.format_exc()}
