"""Where clients are sent, and what they shall hear there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from tests.clients.roster import Client
from tests.clients.said import Said


@dataclass(frozen=True, kw_only=True)
class Place:
    """A fleet, and of the tenant acme a key, an alias and what it answers, whatever it is asked."""

    url: str
    key: str
    alias: str
    marker: str
    base: str
    tokenizer: Tokenizer

    def ask(self, client: Client, verb: str, **params: Any) -> Said:
        """Greedily, unless the parameters say otherwise."""
        return client.ask(verb, self.url, self.key, **{"model": self.alias, "temperature": 0, **params})

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def no_space(self) -> dict[str, float]:
        """A bias against what JSON allows anywhere, and a model that knows nothing likes."""
        return {str(token_id): -100 for token_id in self.ids(" \n\r\t")}
