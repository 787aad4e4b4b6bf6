"""Everything textual about a model folder: messages to token ids, token ids to text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from shared.chat_templates import read_templates, read_tokenizer_config

from .chat import ChatTemplate
from .detokenizer import Detokenizer
from .token_bytes import TokenBytes

_LONG_CHARACTERS = 10_000


class Tokenizer:
    """Immutable; safe to share between requests. Blocking, but microseconds to milliseconds a call."""

    def __init__(self, serialized: str, template: ChatTemplate, with_tools: ChatTemplate | None = None) -> None:
        """`with_tools` is the template for messages that have to do with tools, if it is another one."""
        self._tokenizer = tokenizers.Tokenizer.from_str(serialized)
        self._plain = tokenizers.Tokenizer.from_str(serialized)
        self._plain.encode_special_tokens = True
        self._template = template
        self._with_tools = with_tools or template
        self._bytes = TokenBytes(self._tokenizer)
        self._alone_chars: dict[int, int] = {}
        self.vocabulary_size: int = self._tokenizer.get_vocab_size(with_added_tokens=True)

    @classmethod
    def from_folder(cls, folder: Path) -> Tokenizer:
        """Read tokenizer.json, tokenizer_config.json and the chat template.

        Raises ValueError or OSError naming what is missing or malformed: without a template there is no telling how
        to ask this model.
        """
        path = folder / "tokenizer.json"
        serialized = path.read_text()
        try:
            tokenizer = tokenizers.Tokenizer.from_str(serialized)
        except Exception as error:  # the library raises nothing narrower
            raise ValueError(f"{path} is not a tokenizer: {error}") from error
        if (sources := read_templates(folder)) is None:
            raise ValueError(f"{folder} has no chat template")
        added = tokenizer.get_added_tokens_decoder().values()
        control = [token.content for token in added if token.special]
        named = _named_tokens(read_tokenizer_config(folder))
        with_tools = None if sources.tool_use is None else ChatTemplate(sources.tool_use, named, control)
        return cls(serialized, ChatTemplate(sources.default, named, control), with_tools)

    def encode_chat(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None) -> list[int]:
        """The prompt's token ids, ending where the assistant's answer begins.

        `messages` are {"role", "content"} and what calls of tools need besides, `tools` are OpenAI's. Control tokens
        come from the template alone; text that spells one is encoded as the characters it is. Raises ChatUnusable if
        the template refuses them.
        """
        token_ids: list[int] = []
        template = self._with_tools if tools or any(map(_of_tools, messages)) else self._template
        for piece in template.render(messages, tools):
            tokenizer = self._tokenizer if piece.control else self._plain
            token_ids += _ids(tokenizer, piece.text, adds=False)
        return token_ids

    def encode_text(self, text: str) -> list[int]:
        """Token ids of plain text: no template, nothing added, no control tokens."""
        return _ids(self._plain, text, adds=False)

    def encode_prompt(self, text: str) -> list[int]:
        """Token ids of a whole prompt that the caller wrote: no template, what the tokenizer adds to plain text is
        added, and control tokens that are spelled are control tokens."""
        return _ids(self._tokenizer, text, adds=True)

    def token_bytes(self, token_id: int) -> bytes:
        """What the token stands for, perhaps a part of a character; b"" for an id that it does not know."""
        return self._bytes.of(token_id)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text without control tokens."""
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=True)

    def detokenizer(self) -> Detokenizer:
        """A fresh one for one request's answer."""
        return Detokenizer(self.decode, self._alone_chars)


def _ids(tokenizer: tokenizers.Tokenizer, text: str, *, adds: bool) -> list[int]:
    """`adds` what the tokenizer adds. The library keeps Python's lock for as long as it encodes one text, a second for
    a megabyte, in which no thread goes on and no stream gets a token; for a batch it lets the lock go."""
    if len(text) <= _LONG_CHARACTERS:
        return list(tokenizer.encode(text, add_special_tokens=adds).ids)
    [encoded] = tokenizer.encode_batch([text], add_special_tokens=adds)
    return list(encoded.ids)


def _of_tools(message: Mapping[str, Any]) -> bool:
    return message["role"] == "tool" or "tool_calls" in message


def _named_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """What templates call bos_token, eos_token and so on; each is a string or an object with `content`."""
    named = {}
    for key in ("bos_token", "eos_token", "unk_token", "pad_token"):
        declared = config.get(key)
        text = declared.get("content") if isinstance(declared, dict) else declared
        if isinstance(text, str):
            named[key] = text
    return named
