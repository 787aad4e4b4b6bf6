"""Evaluation sets are read strictly, and answers are scored within bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.registry.core.gating.evaluation_sets import (
    LARGEST_CASE_BYTES,
    MOST_CASES,
    EvaluationCase,
    EvaluationSet,
    Policy,
    batches,
    parse,
    policy_faults,
    prompts_of,
    set_id_of,
)
from services.registry.core.gating.scoring import score, token_f1
from services.registry.io import case_rules
from shared.messages.adapters import Defect

USER = [{"role": "user", "content": "What is 17 + 25?"}]


def line(**said: Any) -> bytes:
    return json.dumps({"messages": USER, **said}).encode()


def cases(*lines: bytes) -> tuple[EvaluationCase, ...]:
    read = parse(b"\n".join(lines), case_rules.fault_of)
    assert all(isinstance(one, EvaluationCase) for one in read), read
    return read  # type: ignore[return-value]


def faults(*lines: bytes) -> list[str]:
    read = parse(b"\n".join(lines), case_rules.fault_of)
    assert all(isinstance(one, Defect) for one in read), read
    return [one.message for one in read if isinstance(one, Defect)]


def scored(text: str, **expected: Any) -> float:
    return score(cases(line(**expected))[0], text, case_rules.fits)


# -- reading -------------------------------------------------------------------------------------------


def test_every_kind_is_read_with_its_line() -> None:
    read = cases(
        line(exact="42"), b"", line(contains=["4", "2"]), line(regex="^4"), line(json_schema={"type": "integer"}),
        line(max_length=5, max_tokens=9), line(reference="forty two"),
    )  # fmt: skip
    assert [(case.kind, case.line) for case in read] == [
        ("exact", 1), ("contains", 3), ("regex", 4), ("json_schema", 5), ("max_length", 6), ("reference", 7),
    ]  # fmt: skip
    assert [case.max_tokens for case in read] == [128, 128, 128, 128, 9, 128]


def test_every_fault_is_told_at_once_with_its_line() -> None:
    told = faults(
        line(),
        line(exact="a", regex="b"),
        line(exact="a", temperature=1),
        b"{",
        line(exact=5),
        line(exact="a", max_tokens=0),
        line(regex="(a)\\1"),
        line(regex="("),
        line(contains=[]),
        line(max_length=0),
        line(json_schema={"type": "no such type"}),
        line(json_schema={"pattern": "(?=a)"}),
        json.dumps({"messages": [], "exact": "a"}).encode(),
        json.dumps({"messages": [{"role": "robot", "content": " "}], "exact": "a"}).encode(),
    )
    lines = [int(one.removeprefix("Line ").partition(":")[0]) for one in told]
    assert sorted(set(lines)) == list(range(1, 15))
    assert "exactly one of" in told[0]
    assert "exact and regex" in told[1]
    assert "temperature" in told[2]
    assert lines.count(14) == 3


@pytest.mark.parametrize(
    ("schema", "lost"),
    [
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#"}}}, None),
        ({"$ref": "#a", "$defs": {"a": {"$anchor": "a"}}}, None),
        ({"$id": "urn:one", "items": {"$ref": "urn:two"}, "$defs": {"two": {"$id": "urn:two"}}}, None),
        ({"enum": [{"$ref": "#/nowhere"}], "properties": {"$ref": {"const": {"$ref": "#/nowhere"}}}}, None),
        ({"$ref": "#/$defs/b", "$defs": {"a": {}}}, "#/$defs/b"),
        ({"definitions": {"a": {"items": {"$ref": "#b"}}}}, "#b"),
        ({"$id": "urn:one", "items": {"$ref": "#/nowhere"}}, "#/nowhere"),
        ({"$ref": "#/title", "title": "a text"}, "#/title"),
        ({"$ref": "#/title/0/a", "title": "a text"}, "#/title/0/a"),
        ({"$ref": "https://schemas.example/person"}, "https://schemas.example/person"),
    ],
)
def test_a_reference_that_leads_to_no_schema_is_refused(schema: dict[str, Any], lost: str | None) -> None:
    told = "its $ref {!r} leads to no schema in it, and other documents are not read"
    read = parse(line(json_schema=schema), case_rules.fault_of)
    found = [one.message for one in read if isinstance(one, Defect)]
    assert found == ([] if lost is None else [f"Line 1: json_schema: {told.format(lost)}."])


def test_a_set_has_a_size() -> None:
    assert faults(b"\n\n") == ["The evaluation set has no case."]
    assert "1001 cases" in faults(*[line(exact="a")] * (MOST_CASES + 1))[0]
    assert "bytes" in faults(line(exact="a" * LARGEST_CASE_BYTES))[0]


def test_a_set_is_its_content() -> None:
    one, other = cases(line(exact="a")), cases(line(exact="b"))
    assert set_id_of(one, Policy()) == set_id_of(cases(line(exact="a")), Policy())
    assert len({set_id_of(one, Policy()), set_id_of(other, Policy()), set_id_of(one, Policy(epsilon=0.5))}) == 3


@pytest.mark.parametrize("policy", [Policy(minimum_score=1.1), Policy(epsilon=-0.1), Policy(epsilon=float("nan"))])
def test_a_policy_is_from_0_to_1(policy: Policy) -> None:
    assert len(policy_faults(policy)) == 1
    assert policy_faults(Policy()) == ()


def test_questions_are_asked_a_few_at_a_time_and_never_more_than_a_message_holds() -> None:
    few = cases(*[line(exact="a")] * 20)
    made = EvaluationSet(set_id="s", tenant_id="acme", cases=few)
    assert [[prompt.case for prompt in batch] for batch in batches(prompts_of(made))] == [
        list(range(1, 9)), list(range(9, 17)), list(range(17, 21)),
    ]  # fmt: skip
    long = json.dumps({"messages": [{"role": "user", "content": "x" * 100_000}], "exact": "a"}).encode()
    made = EvaluationSet(set_id="s", tenant_id="acme", cases=cases(*[long] * 6))
    assert [len(batch) for batch in batches(prompts_of(made))] == [2, 2, 2]
    wordy = cases(*[line(exact="a", max_tokens=1_000)] * 3)
    made = EvaluationSet(set_id="s", tenant_id="acme", cases=wordy)
    assert [len(batch) for batch in batches(prompts_of(made))] == [2, 1]


# -- scoring -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected", "points"),
    [
        (" 42\n", {"exact": "42"}, 1.0),
        ("It is 42", {"exact": "42"}, 0.0),
        ("one two", {"contains": ["one", "three"]}, 0.5),
        ("one two", {"contains": "two"}, 1.0),
        ("order 17", {"regex": r"\d+$"}, 1.0),
        ("order", {"regex": r"\d+$"}, 0.0),
        ('{"n": 3}', {"json_schema": {"required": ["n"], "properties": {"n": {"minimum": 2}}}}, 1.0),
        ('{"n": 1}', {"json_schema": {"required": ["n"], "properties": {"n": {"minimum": 2}}}}, 0.0),
        ("no json", {"json_schema": {}}, 0.0),
        ('{"b": 1}', {"json_schema": {"additionalProperties": False, "patternProperties": {"^a": {}}}}, 0.0),
        ('{"ab": 1}', {"json_schema": {"additionalProperties": False, "patternProperties": {"^a": {}}}}, 1.0),
        ('[1, "1", true, 0, false, [1], {"a": 1}]', {"json_schema": {"uniqueItems": True}}, 1.0),
        ('[[{"a": 1}], [{"a": 1.0}], "x"]', {"json_schema": {"uniqueItems": True}}, 0.0),
        ("short", {"max_length": 5}, 1.0),
        ("longer", {"max_length": 5}, 0.0),
        ("", {"max_length": 5}, 0.0),
    ],
)
def test_an_answer_is_scored_by_its_kind(text: str, expected: dict[str, Any], points: float) -> None:
    assert scored(text, **expected) == points


def test_a_reference_is_compared_by_words() -> None:
    assert token_f1("The cat sat", "the CAT sat!") == 1.0
    assert token_f1("the cat sat", "the dog") == pytest.approx(2 * 1 / 5)
    assert token_f1("a a b", "a") == pytest.approx(2 * 1 / 4)
    assert token_f1("cat", "") == 0.0
    assert 0.0 < token_f1("注文は届きません", "注文は届きました") < 1.0


def test_expressions_and_schemas_of_customers_end() -> None:
    """Each of these takes an exponential time where matching backtracks or references are followed for ever."""
    doubling: dict[str, Any] = {"$defs": {"0": {"type": "object"}}, "$ref": "#/$defs/40"}
    for level in range(1, 41):
        doubling["$defs"][str(level)] = {"anyOf": [{"$ref": f"#/$defs/{level - 1}"}] * 2}
    assert scored("a" * 5_000 + "!", regex="^(a+)+$") == 0.0
    assert scored(json.dumps("a" * 5_000 + "!"), json_schema={"pattern": "^(a+)+$"}) == 0.0
    assert scored("1", json_schema=doubling) == 0.0
    assert scored("1", json_schema={"$ref": "#"}) == 0.0
    assert scored("[" * 100_000, json_schema={}) == 0.0
    many_patterns = {"patternProperties": {f"(a{{99}}){{9}}{at}": {} for at in range(500)}, "allOf": [{"$ref": "#"}]}
    assert scored(json.dumps({str(at): at for at in range(900)}), json_schema=many_patterns) == 0.0
    many_lists = [[at, str(at)] for at in range(20_000)]
    assert scored(json.dumps(many_lists), json_schema={"allOf": [{"uniqueItems": True}] * 20}) == 1.0
    assert "not served" in faults(line(json_schema={"unevaluatedProperties": False}))[0]


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ("1" * 400, {"multipleOf": 0.5}),
        ("1e999", {"multipleOf": 0.5}),
        ('"x"', {"default": {"pattern": 5}, "$ref": "#/default"}),
        ('"x"', {"default": {"type": "no such type"}, "$ref": "#/default"}),
    ],
)
def test_what_the_library_cannot_decide_does_not_conform(text: str, schema: dict[str, Any]) -> None:
    """Each of these makes it raise something else than what it says of a misfit."""
    assert scored(text, json_schema=schema) == 0.0
