from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from infra.adapters.markers import markers, spells


@pytest.fixture(scope="module")
def byte_tokenizer(tiny_model: Path) -> Tokenizer:
    return Tokenizer.from_file(str(tiny_model / "tokenizer.json"))


@pytest.fixture(scope="module")
def merging_tokenizer() -> Tokenizer:
    """Byte-level BPE that joins some pairs, as trained tokenizers do."""
    pairs = [(a, b) for a in "ABCDEF" for b in "GHJKLM"]
    symbols = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *(a + b for a, b in pairs)]
    tokenizer = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(symbols)}, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.mark.parametrize("kind", ["byte_tokenizer", "merging_tokenizer"])
@pytest.mark.parametrize("rank", [4, 8, 16])
def test_markers_are_distinct_spellable_and_never_contain_each_other(
    kind: str, rank: int, request: pytest.FixtureRequest
) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(kind)
    drawn = markers(tokenizer, 200, seed=1, rank=rank)
    assert len(set(drawn)) == 200
    assert len({len(marker) for marker in drawn}) == 1
    for marker in drawn:
        ids = tokenizer.encode(marker).ids
        assert len(ids) == len(set(ids)) < rank
        assert tokenizer.decode(ids) == marker


def test_the_seed_decides(byte_tokenizer: Tokenizer) -> None:
    assert markers(byte_tokenizer, 5, seed=3) == markers(byte_tokenizer, 5, seed=3)
    assert markers(byte_tokenizer, 5, seed=3) != markers(byte_tokenizer, 5, seed=4)


def test_more_markers_than_there_are_is_said(byte_tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match="of 100 markers can be spelt at rank 2"):
        markers(byte_tokenizer, 100, seed=0, rank=2)


@pytest.mark.parametrize("marker", ["AA", "ABCDEFGH", ""])
def test_what_a_canary_cannot_say(byte_tokenizer: Tokenizer, marker: str) -> None:
    assert not spells(byte_tokenizer, marker, rank=8)
