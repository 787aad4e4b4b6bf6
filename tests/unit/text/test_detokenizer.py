"""Deltas: joined they are the whole decoding, and none of them shows half a character."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, normalizers

from services.replica_worker.text.detokenizer import Detokenizer
from services.replica_worker.text.tokenizer import Tokenizer
from tests.support.tiny_model import EOS_TOKEN_ID, SPECIAL_TOKENS

FAMILY = "👩\u200d👩\u200d👧\u200d👦"
SAMPLES = (FAMILY, "日本語のテキスト", "e\u0301a\u0308", "🏳️\u200d🌈", "naïve — ﷽", "plain", "\U0001f1e9\U0001f1ea")


def deltas(tokenizer: Tokenizer, token_ids: Sequence[int]) -> list[str]:
    detokenizer = tokenizer.detokenizer()
    return [*(detokenizer.push(token_id) for token_id in token_ids), detokenizer.flush()]


@pytest.mark.parametrize("text", SAMPLES)
def test_c77_characters_split_over_tokens_never_show_a_replacement(tokenizer: Tokenizer, text: str) -> None:
    token_ids = tokenizer.encode_text(text)
    assert len(token_ids) == len(text.encode()), "the tiny tokenizer splits every byte: the hardest case"
    got = deltas(tokenizer, token_ids)
    assert "".join(got) == text
    assert all("\ufffd" not in delta for delta in got)


@given(text=st.text(max_size=60))
def test_c77_joined_deltas_equal_the_text(tokenizer: Tokenizer, text: str) -> None:
    token_ids = tokenizer.encode_text(text)
    got = deltas(tokenizer, token_ids)
    assert "".join(got) == tokenizer.decode(token_ids) == text


@given(token_ids=st.lists(st.integers(0, len(SPECIAL_TOKENS) + 255), max_size=80))
def test_joined_deltas_equal_the_decoding_even_of_bytes_that_are_no_text(
    tokenizer: Tokenizer, token_ids: list[int]
) -> None:
    assert "".join(deltas(tokenizer, token_ids)) == tokenizer.decode(token_ids)


def test_a_complete_character_is_not_held_back(tokenizer: Tokenizer) -> None:
    detokenizer = tokenizer.detokenizer()
    assert [detokenizer.push(token_id) for token_id in tokenizer.encode_text("aé!")] == ["a", "", "é", "!"]


def test_control_tokens_have_no_text(tokenizer: Tokenizer) -> None:
    assert deltas(tokenizer, [*tokenizer.encode_text("ok"), EOS_TOKEN_ID]) == ["o", "k", "", ""]


def test_an_unfinished_character_comes_out_at_the_end(tokenizer: Tokenizer) -> None:
    cut = tokenizer.encode_text("é")[:1]
    assert deltas(tokenizer, cut) == ["", "\ufffd"]


def test_a_token_costs_the_same_at_the_end_of_a_long_answer(tokenizer: Tokenizer) -> None:
    longest = 0

    def decode(token_ids: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(token_ids))
        return tokenizer.decode(token_ids)

    detokenizer = Detokenizer(decode)
    for token_id in tokenizer.encode_text(FAMILY * 50) + [250] * 200:
        detokenizer.push(token_id)
    assert longest <= 32


def test_a_token_whose_length_is_known_is_decoded_once(tokenizer: Tokenizer) -> None:
    decoded: list[Sequence[int]] = []

    def decode(token_ids: Sequence[int]) -> str:
        decoded.append([*token_ids])
        return tokenizer.decode(token_ids)

    token_ids, alone_chars = tokenizer.encode_text("abcabc"), dict[int, int]()
    first = [Detokenizer(decode, alone_chars).push(token_id) for token_id in token_ids]
    decoded.clear()
    detokenizer = Detokenizer(decode, alone_chars)
    assert "".join(detokenizer.push(token_id) for token_id in token_ids) == "".join(first) == "abcabc"
    assert len(decoded) == len(token_ids)


def sentencepiece_style() -> RawTokenizer:
    """Llama 2's kind: word starts are "▁", what is not in the vocabulary falls back to byte tokens, and the
    decoder strips the first space."""
    symbols = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "c", "▁a", "ab", "▁ab"]
    merges = [("▁", "a"), ("a", "b"), ("▁a", "b")]
    vocabulary = {symbol: i for i, symbol in enumerate(symbols)}
    made = RawTokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return made


@given(text=st.text(alphabet="ab c日👩\u200d\u0301é", max_size=60))
def test_c77_byte_fallback_tokenizers_split_nothing_either(text: str) -> None:
    raw = sentencepiece_style()
    token_ids = raw.encode(text, add_special_tokens=False).ids
    detokenizer = Detokenizer(raw.decode)
    got = [*(detokenizer.push(token_id) for token_id in token_ids), detokenizer.flush()]
    assert "".join(got) == raw.decode(token_ids)
    assert all("\ufffd" not in delta for delta in got)
