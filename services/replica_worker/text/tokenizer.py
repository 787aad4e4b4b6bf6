"""Everything textual about a model folder: messages to token ids, token ids to text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from .chat import ChatTemplate, read_template
from .detokenizer import Detokenizer
from .token_bytes import TokenBytes


class Tokenizer:
    """Immutable; safe to share between requests. Blocking, but microseconds to milliseconds a call."""

    def __init__(self, serialized: str, template: ChatTemplate) -> None:
        self._tokenizer = tokenizers.Tokenizer.from_str(serialized)
        self._plain = tokenizers.Tokenizer.from_str(serialized)
        self._plain.encode_special_tokens = True
        self._template = template
        self._bytes = TokenBytes(self._tokenizer)
        self.vocabulary_size: int = self._tokenizer.get_vocab_size(with_added_tokens=True)

    @classmethod
    def from_folder(cls, folder: Path) -> Tokenizer:
        """Read tokenizer.json, tokenizer_config.json and the chat template.

        Raises ValueError or OSError naming what is missing or malformed.
        """
        path = folder / "tokenizer.json"
        serialized = path.read_text()
        try:
            tokenizer = tokenizers.Tokenizer.from_str(serialized)
        except Exception as error:  # the library raises nothing narrower
            raise ValueError(f"{path} is not a tokenizer: {error}") from error
        config = _read_json(folder / "tokenizer_config.json")
        added = tokenizer.get_added_tokens_decoder().values()
        control = [token.content for token in added if token.special]
        template = ChatTemplate(read_template(folder, config), _named_tokens(config), control)
        return cls(serialized, template)

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The prompt's token ids, ending where the assistant's answer begins.

        `messages` are {"role", "content"}. Control tokens come from the template alone; text that spells
        one is encoded as the characters it is. Raises ChatUnusable if the template refuses the messages.
        """
        token_ids: list[int] = []
        for piece in self._template.render(messages):
            tokenizer = self._tokenizer if piece.control else self._plain
            token_ids += tokenizer.encode(piece.text, add_special_tokens=False).ids
        return token_ids

    def encode_text(self, text: str) -> list[int]:
        """Token ids of plain text: no template, nothing added, no control tokens."""
        return list(self._plain.encode(text, add_special_tokens=False).ids)

    def encode_prompt(self, text: str) -> list[int]:
        """Token ids of a whole prompt that the caller wrote: no template, what the tokenizer adds to plain text is
        added, and control tokens that are spelled are control tokens."""
        return list(self._tokenizer.encode(text).ids)

    def token_bytes(self, token_id: int) -> bytes:
        """What the token stands for, perhaps a part of a character; b"" for an id that it does not know."""
        return self._bytes.of(token_id)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text without control tokens."""
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=True)

    def detokenizer(self) -> Detokenizer:
        """A fresh one for one request's answer."""
        return Detokenizer(self.decode)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a JSON object")
    return content


def _named_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """What templates call bos_token, eos_token and so on; each is a string or an object with `content`."""
    named = {}
    for key in ("bos_token", "eos_token", "unk_token", "pad_token"):
        declared = config.get(key)
        text = declared.get("content") if isinstance(declared, dict) else declared
        if isinstance(text, str):
            named[key] = text
    return named
