"""A model folder's tokenizer and chat template, without transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer


class ModelText:
    """Text ↔ token ids as a base model folder defines them."""

    def __init__(self, model_folder: Path) -> None:
        self.tokenizer: Tokenizer = Tokenizer.from_file(str(model_folder / "tokenizer.json"))
        self._config = _json(model_folder / "tokenizer_config.json")
        self._template = _chat_template(model_folder, self._config)
        self.eos_token_id = self._eos_token_id(_json(model_folder / "config.json"))

    def encode(self, text: str) -> list[int]:
        """The token ids of `text` alone: no beginning-of-text token is added."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def chat(self, prompt: str) -> list[int]:
        """One user message as the chat template writes it, up to where the assistant begins; a base
        model without a template gets the bare prompt."""
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        names = {name: _content(self._config.get(name)) for name in ("bos_token", "eos_token")}
        messages = [{"role": "user", "content": prompt}]
        template = environment.from_string(self._template or "{{ messages[0]['content'] }}")
        return self.encode(template.render(messages=messages, add_generation_prompt=True, **names))

    def _eos_token_id(self, config: dict[str, Any]) -> int:
        """The tokenizer's end token, since an instruction model's chat ends with that one."""
        token = _content(self._config.get("eos_token"))
        if (known := self.tokenizer.token_to_id(token)) is not None:
            return known
        declared = config["eos_token_id"]
        return int(declared[0] if isinstance(declared, list) else declared)


def _chat_template(model_folder: Path, config: dict[str, Any]) -> str | None:
    file = model_folder / "chat_template.jinja"
    return file.read_text(encoding="utf-8") if file.is_file() else config.get("chat_template")


def _content(token: Any) -> str:
    """A special token is written as text, or as an object around it."""
    return token["content"] if isinstance(token, dict) else (token or "")


def _json(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content
