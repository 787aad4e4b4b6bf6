"""What a client handed out, read as a user of it would: whole answers and streams alike."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Said:
    """`seen`: OpenAI's objects, one for a whole answer, one for each chunk of a stream. `raised`: the exception."""

    seen: list[dict[str, Any]]
    raised: dict[str, Any] | None
    took_s: float

    @property
    def error(self) -> dict[str, Any]:
        assert self.raised is not None, f"no exception, but {self.seen}"
        return self.raised

    @property
    def answer(self) -> list[dict[str, Any]]:
        assert self.raised is None, self.raised["trace"]
        return self.seen

    @property
    def texts(self) -> list[str]:
        """Of every choice, its pieces joined; also of a stream that broke."""
        texts: dict[int, str] = defaultdict(str)
        for choice in self._choices():
            texts[choice.get("index", 0)] += _text(choice)
        return [text for _, text in sorted(texts.items())]

    @property
    def text(self) -> str:
        [text] = self.texts
        return text

    @property
    def pieces(self) -> list[str]:
        """The texts of a stream that are not empty, as they came."""
        return [text for choice in self._choices() if (text := _text(choice))]

    @property
    def finishes(self) -> list[str]:
        return [choice["finish_reason"] for choice in self._choices() if choice.get("finish_reason")]

    @property
    def models(self) -> set[str]:
        """Every name that the answer gives to its model."""
        return {item["model"] for item in self.answer if item.get("model")}

    @property
    def usage(self) -> dict[str, Any]:
        [usage] = [usage for item in self.answer if (usage := item.get("usage"))]
        return dict(usage)

    @property
    def logprobs(self) -> list[dict[str, Any]]:
        """One for each token of the first choice."""
        return [
            token
            for choice in self._choices()
            if choice.get("index", 0) == 0 and choice.get("logprobs")
            for token in choice["logprobs"]["content"] or []
        ]

    @property
    def calls(self) -> list[tuple[str, Any]]:
        """Name and arguments of every tool call, put together from its pieces."""
        names: dict[int, str] = defaultdict(str)
        arguments: dict[int, Any] = {}
        for choice in self._choices():
            for at, call in enumerate(_spoken(choice).get("tool_calls") or []):
                place, function = call.get("index", at), call["function"]
                names[place] += function.get("name") or ""
                piece = function.get("arguments")
                arguments[place] = arguments.get(place, "") + (piece or "") if isinstance(piece, str | None) else piece
        return [(name, arguments[place]) for place, name in sorted(names.items())]

    def _choices(self) -> list[dict[str, Any]]:
        return [choice for item in self.seen for choice in item.get("choices", ())]


def _spoken(choice: dict[str, Any]) -> dict[str, Any]:
    return choice.get("message") or choice.get("delta") or {}


def _text(choice: dict[str, Any]) -> str:
    """Of chats and of completions."""
    return choice.get("text") or _spoken(choice).get("content") or ""
