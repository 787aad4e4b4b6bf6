"""The bytes of single tokens: joined they are the text, wherever a character is cut."""

from __future__ import annotations

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers

from services.replica_worker.text.token_bytes import TokenBytes
from services.replica_worker.text.tokenizer import Tokenizer
from tests.support.tiny_model import EOS_TOKEN_ID, SPECIAL_TOKENS, VOCABULARY_SIZE

SPACE, WORD_START = b" ", "\u2581"


@given(text=st.text(max_size=60))
def test_c77_the_bytes_of_an_answer_are_those_of_its_text(tokenizer: Tokenizer, text: str) -> None:
    assert b"".join(map(tokenizer.token_bytes, tokenizer.encode_text(text))) == text.encode()


def test_c77_every_byte_has_its_own_token_also_the_parts_of_a_character(tokenizer: Tokenizer) -> None:
    ordinary = range(len(SPECIAL_TOKENS), len(SPECIAL_TOKENS) + 256)
    assert sorted(map(tokenizer.token_bytes, ordinary)) == [bytes([byte]) for byte in range(256)]
    assert [*map(tokenizer.token_bytes, tokenizer.encode_text("é"))] == [b"\xc3", b"\xa9"]


def test_a_control_token_is_its_spelling_and_an_unknown_one_is_nothing(tokenizer: Tokenizer) -> None:
    assert tokenizer.token_bytes(EOS_TOKEN_ID) == b"<|im_end|>"
    assert tokenizer.token_bytes(VOCABULARY_SIZE - 1) == b""


def falling_back() -> tokenizers.Tokenizer:
    """Llama 2's kind."""
    symbols = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), WORD_START, "a", "b", f"{WORD_START}a"]
    merges = [(WORD_START, "a")]
    vocabulary = {symbol: at for at, symbol in enumerate(symbols)}
    built = tokenizers.Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True))
    built.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    built.decoder = decoders.Sequence([decoders.Replace(WORD_START, " "), decoders.ByteFallback(), decoders.Fuse()])
    return built


@pytest.mark.parametrize(("text", "parts"), [("ab a", [b"a", b"b", b" a"]), ("é", [b"\xc3", b"\xa9"])])
def test_byte_tokens_are_bytes_and_word_starts_are_spaces(text: str, parts: list[bytes]) -> None:
    tokenizer = falling_back()
    assert [*map(TokenBytes(tokenizer).of, tokenizer.encode(text).ids)] == parts


def test_without_a_decoder_a_token_is_what_it_spells() -> None:
    words = tokenizers.Tokenizer(models.WordLevel({"é": 0, "<0x41>": 1}, unk_token="é"))
    assert [TokenBytes(words).of(id_) for id_ in (0, 1)] == ["é".encode(), b"<0x41>"]
