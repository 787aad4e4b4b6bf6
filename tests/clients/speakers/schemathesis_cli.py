"""schemathesis, which makes requests out of the gateway's own OpenAPI document and judges the answers by it.

`params`: `mode` "positive" (what the document allows) or "negative" (what it does not), `seed`, `examples` for each
operation, `model`, `stream`, and in `demanded` a field for some of the document's schemas that they shall require.
Seen is what it printed; a failure is raised as all that it printed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from tests.clients.speakers.protocol import Asked, Seen, serve

_COMMAND = Path(sys.executable).parent / "schemathesis"
_BODIES = ("ChatRequest", "CompletionRequest")
_EVENTS = {"/v1/chat/completions": "ChatChunk", "/v1/completions": "CompletionAnswer"}
"""What the events of a stream hold."""
_LONGEST_ANSWER, _MOST_ANSWERS = 4, 3


class Failed(Exception):
    """The text is all that schemathesis printed."""


def speak(asked: Asked, seen: Seen) -> None:
    params, url = asked["params"], asked["url"].removesuffix("/v1")
    with urllib.request.urlopen(f"{url}/openapi.json") as answer:
        document = json.load(answer)
    for name, field in params.get("demanded", {}).items():
        document["components"]["schemas"][name]["required"].append(field)
    _describe_events(document)
    if params["mode"] == "positive":
        _narrow(document, params["model"], stream=params["stream"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "openapi.json"
        path.write_text(json.dumps(document))
        argv = [
            str(_COMMAND), "run", str(path), "--url", url, "--include-path-regex", "^/v1/", "--no-color",
            "--header", f"Authorization: Bearer {asked['key']}", "--request-timeout", "60",
            "--mode", params["mode"], "--seed", str(params["seed"]), "--max-examples", str(params["examples"]),
            "--phases", "coverage,fuzzing", "--checks", "all", "--exclude-checks", "positive_data_acceptance",
            "--generation-database", "none", "--output-truncate", "false",
        ]  # fmt: skip
        run = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=folder)
    if run.returncode != 0:
        raise Failed(run.stdout + run.stderr)
    seen.append({"printed": run.stdout})


def _describe_events(document: Any) -> None:
    """OpenAPI 3.1 has no word for what an event of a stream holds."""
    for path, name in _EVENTS.items():
        chunk = {"anyOf": [_resolved(document, name), _resolved(document, "Error")]}
        piece = {"type": "string", "contentMediaType": "application/json", "contentSchema": chunk}
        event = {"type": "object", "properties": {"data": {"anyOf": [{"const": "[DONE]"}, piece]}}}
        content = document["paths"][path]["post"]["responses"]["200"]["content"]
        content["text/event-stream"] = {"itemSchema": event}


def _narrow(document: Any, model: str, *, stream: bool) -> None:
    """To a model that there is, and to answers that are soon over."""
    for name in _BODIES:
        body = document["components"]["schemas"][name]
        known = body["properties"]
        known["model"] = {"enum": [model]}
        known["max_tokens"] = {"type": "integer", "minimum": 1, "maximum": _LONGEST_ANSWER}
        known["n"] = {"type": "integer", "minimum": 1, "maximum": _MOST_ANSWERS}
        known["stream"] = {"enum": [stream]}
        known.pop("max_completion_tokens", None)
        body["required"] = [*body["required"], "max_tokens", "stream"]
    [parameter] = document["paths"]["/v1/models/{model}"]["get"]["parameters"]
    parameter["schema"] = {"enum": [model, "unknown"]}


def _resolved(document: Any, name: str) -> Any:
    """The schema with all that it refers to in its place: what a string holds is judged alone."""

    def within(value: Any) -> Any:
        if isinstance(value, list):
            return [within(each) for each in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            return _resolved(document, value["$ref"].rpartition("/")[2])
        return {key: within(each) for key, each in value.items()}

    return within(document["components"]["schemas"][name])


if __name__ == "__main__":
    serve(speak)
