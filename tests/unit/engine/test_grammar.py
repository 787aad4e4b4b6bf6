"""JSON schemas: what they allow, what they may cost, and which are refused in which words."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from services.replica_worker.engine import grammars as compiling
from services.replica_worker.engine.grammar import Compiled, GrammarLost
from services.replica_worker.engine.grammars import Grammars
from services.replica_worker.engine.shaping import GrammarUnusable
from services.replica_worker.text.tokenizer import Tokenizer
from tests.support.tiny_model import EOS_TOKEN_ID, SPECIAL_TOKENS, VOCABULARY_SIZE

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


@pytest.fixture(scope="module")
def grammars(tiny_folder: Path) -> Grammars:
    return Grammars(tiny_folder, VOCABULARY_SIZE, (EOS_TOKEN_ID, 0))


@pytest.fixture(scope="module")
def tokenizer(tiny_folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(tiny_folder)


def after(grammars: Grammars, tokenizer: Tokenizer, schema: dict[str, Any], text: str) -> set[str]:
    """What may follow the text, by its spelling."""
    matcher = grammars.compile(json.dumps(schema)).begin(tokenizer.encode_text(text))
    return {tokenizer.token_bytes(token_id).decode(errors="replace") for token_id in token_ids(matcher.allowed())}


def token_ids(mask: bytes) -> Iterator[int]:
    return (token_id for token_id in range(8 * len(mask)) if mask[token_id // 8] >> token_id % 8 & 1)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [("", set("{")), ('{"n":', set("\n -0123456789")), ('{"n":12', set("}0123456789"))],
)
def test_only_what_the_schema_allows_comes_next(
    grammars: Grammars, tokenizer: Tokenizer, text: str, allowed: set[str]
) -> None:
    assert after(grammars, tokenizer, NUMBER, text) == allowed


def test_an_answer_may_end_where_the_json_does_and_nowhere_else(grammars: Grammars, tokenizer: Tokenizer) -> None:
    assert after(grammars, tokenizer, NUMBER, '{"n":12}') == {SPECIAL_TOKENS[EOS_TOKEN_ID], SPECIAL_TOKENS[0]}
    assert after(grammars, tokenizer, {"type": "integer"}, "12") == {
        *"0123456789", SPECIAL_TOKENS[EOS_TOKEN_ID], SPECIAL_TOKENS[0],
    }  # fmt: skip


def test_white_space_comes_to_an_end(grammars: Grammars, tokenizer: Tokenizer) -> None:
    assert " " in after(grammars, tokenizer, NUMBER, '{"n":' + " " * 15)
    assert " " not in after(grammars, tokenizer, NUMBER, '{"n":' + " " * 16)
    for text in ("{", '{"n" ', '{"n": 1'):
        allowed = after(grammars, tokenizer, NUMBER, text + " " * 15 if text.endswith(" ") else text)
        assert " " not in allowed


def test_a_schema_cannot_loosen_the_rules(grammars: Grammars, tokenizer: Tokenizer) -> None:
    loose = {**NUMBER, "x-guidance": {"whitespace_pattern": "[ ]+", "lenient": True}}
    assert " " not in after(grammars, tokenizer, loose, '{"n":' + " " * 16)
    with pytest.raises(GrammarUnusable, match="Unimplemented keys"):
        grammars.compile(json.dumps({**loose, "not": {}}))


def test_answers_of_one_schema_do_not_disturb_one_another(grammars: Grammars, tokenizer: Tokenizer) -> None:
    compiled = grammars.compile(json.dumps(NUMBER))
    one, other = compiled.begin(()), compiled.begin(())
    untouched = other.allowed()
    one.take(tokenizer.encode_text("{")[0])
    assert other.allowed() == untouched != one.allowed()


def test_what_was_produced_elsewhere_must_follow_the_schema(grammars: Grammars, tokenizer: Tokenizer) -> None:
    with pytest.raises(GrammarLost, match="does not follow the JSON schema"):
        grammars.compile(json.dumps(NUMBER)).begin(tokenizer.encode_text('{"m"'))


@pytest.mark.parametrize(
    ("answer", "whole"), [('{"n":1}', True), ('{"n" : 1}', True), ('{"n":1', False), ("", False), ('{"m":1}', False)]
)
def test_whether_an_answer_is_whole_can_be_asked(
    grammars: Grammars, tokenizer: Tokenizer, answer: str, whole: bool
) -> None:
    assert grammars.compile(json.dumps(NUMBER)).completed_by(tokenizer.encode_text(answer)) is whole


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("{", "the JSON schema is no JSON: "),
        ("[" * 50_000, "the JSON schema is no JSON: "),
        ("true", "the JSON schema is not an object"),
        ('{"type":"foo"}', "the JSON schema cannot be followed: Invalid type: foo"),
        ('{"not":{"type":"string"}}', 'the JSON schema cannot be followed: Unimplemented keys: ["not"]'),
        ('{"type":"integer","minimum":5,"maximum":3}', "Unsatisfiable schema"),
        ('{"type":"string","pattern":"a(?=b)"}', "look-ahead"),
        ('{"$ref":"http://example.com/x"}', "is not present"),
        ('{"$ref":"#/$defs/a","$defs":{"a":{"allOf":[{"$ref":"#/$defs/a"}]}}}', "the JSON schema cannot be followed"),
    ],
)
def test_a_schema_that_cannot_be_followed_is_refused_in_one_sentence(
    grammars: Grammars, schema: str, sentence: str
) -> None:
    with pytest.raises(GrammarUnusable) as refusal:
        grammars.compile(schema)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 400
    assert not str(refusal.value).endswith(".")


LINKS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "lists": lambda link: {"items": link},
    "other names": lambda link: link,
    "all of": lambda link: {"allOf": [link, {"minItems": 1}]},
}


def chain(link: Callable[[dict[str, Any]], dict[str, Any]]) -> str:
    """As long as a schema may be. The library follows references recursively: on an ordinary stack this ends the
    process."""
    length = (compiling._MOST_BYTES - 100) // len(json.dumps({"1000": link({"$ref": "#/$defs/1000"})}))
    links = {f"{at}": link({"$ref": f"#/$defs/{at + 1}"}) for at in range(length)}
    return json.dumps({"$ref": "#/$defs/0", "$defs": {**links, f"{length}": {"type": "integer"}}})


def nested(depth: int) -> dict[str, Any]:
    return {"type": "integer"} if not depth else {"type": "object", "properties": {"a": nested(depth - 1)}}


HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "deep": (nested(100), "recursion limit"),
    "large": ({"enum": ["x" * 70_000]}, "at most 65536 bytes"),
    "a long constant": ({"enum": ["ab", {"a": ["x" * 2_049]}]}, "no text in a JSON schema may have more than 2048 "),
    "a long name": ({"properties": {"x" * 2_049: {}}}, "no text in a JSON schema may have more than 2048 bytes"),
    "a constant by reference": ({"$ref": "#/$defs", "$defs": {"const": "x" * 2_049}}, "no text in a JSON schema"),
    "remainders": ({"items": {"type": "integer", "multipleOf": 99_991}}, "a multipleOf in a JSON schema"),
    "fractions": ({"type": "number", "multipleOf": 99.991}, "multipleOf in a JSON schema"),
    "remainders at once": (
        {"allOf": [{"type": "integer", "multipleOf": each} for each in (7, 11, 13, 17, 19, 23, 29)]},
        "all multipleOf in a JSON schema",
    ),
    "patterns": ({"patternProperties": {f"^[a-z]*{at}$": {} for at in range(65)}}, "at most 64 patternProperties"),
    "products": (
        {"allOf": [{"anyOf": [{"properties": {f"{i}{j}": {"type": "null"}}} for j in range(6)]} for i in range(9)]},
        "the JSON schema cannot be followed",
    ),
}


@pytest.mark.parametrize(("schema", "sentence"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_schema_that_would_cost_too_much_is_refused(
    grammars: Grammars, schema: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(GrammarUnusable, match=sentence):
        grammars.compile(json.dumps(schema))


def test_what_is_usual_is_not_refused(grammars: Grammars) -> None:
    properties = {
        "multipleOf": {"type": "number", "multipleOf": 0.01},
        "price": {"type": "integer", "multipleOf": 100_000, "description": "x" * 2_000},
        "kind": {"enum": [f"kind {at}" for at in range(500)]},
    }
    grammars.compile(json.dumps({"type": "object", "properties": properties}))


def test_an_object_may_have_many_properties(grammars: Grammars, tokenizer: Tokenizer) -> None:
    properties = {f"{at}": {"type": "null"} for at in range(600)}
    assert after(grammars, tokenizer, {"type": "object", "properties": properties}, '{"599') >= {'"'}


@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS.keys())
def test_a_long_chain_of_references_does_not_end_the_process(
    grammars: Grammars, link: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    with suppress(GrammarUnusable):
        grammars.compile(chain(link))


class Panic(BaseException):
    """As a library in Rust raises it."""


class Panicking:
    """From the step on that is called `at`."""

    def __init__(self, at: str) -> None:
        self._at = at

    def __getattr__(self, name: str) -> Any:
        def ask(*_: Any, **__: Any) -> Panicking:
            if name == self._at:
                raise Panic(f"planted in {name}")
            return self

        return ask


@pytest.mark.parametrize("at", ["deep_copy", "consume_tokens", "compute_bitmask", "consume_token"])
def test_a_panic_of_the_library_ends_one_answer(at: str) -> None:
    def answer() -> None:
        matcher = Compiled("{}", Panicking(at)).begin((1,))
        matcher.take(2)
        matcher.allowed()

    with pytest.raises(GrammarLost, match=f"followed any further: planted in {at}"):
        answer()


def test_a_panic_of_the_library_refuses_the_schema(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import llguidance

    monkeypatch.setattr(llguidance, "LLMatcher", Panicking("grammar_from_json_schema"))
    with pytest.raises(GrammarUnusable, match="cannot be followed: planted in grammar_from_json_schema"):
        Grammars(tiny_folder, VOCABULARY_SIZE, (EOS_TOKEN_ID,)).compile('{"const":0}')


def test_a_token_that_is_not_allowed_is_not_taken(grammars: Grammars, tokenizer: Tokenizer) -> None:
    matcher = grammars.compile(json.dumps(NUMBER)).begin(())
    with pytest.raises(GrammarLost, match="cannot be followed any further"):
        matcher.take(tokenizer.encode_text("x")[0])


def test_the_latest_are_kept(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_KEPT", 3)
    grammars = Grammars(tiny_folder, VOCABULARY_SIZE, (EOS_TOKEN_ID,))
    first = grammars.compile('{"const":0}')
    assert grammars.compile('{"const":0}') is first
    for at in range(1, 4):
        grammars.compile(json.dumps({"const": at}))
    assert grammars.compile('{"const":0}') is not first
    assert len(grammars._kept) == 3


def test_a_tokenizer_that_the_library_does_not_know_is_named_whenever_a_schema_comes(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text('{"version":"1.0"}')
    grammars = Grammars(tmp_path, VOCABULARY_SIZE, (EOS_TOKEN_ID,))
    grammars.prepare()
    path.unlink()  # to read it again would hold up everybody each time
    for number in range(2):
        with pytest.raises(GrammarUnusable, match="this model's tokenizer does not go with JSON schemas"):
            grammars.compile(json.dumps({"const": number}))
