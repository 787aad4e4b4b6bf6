"""Targets and patterns mean to us what they mean to PEFT, whose own functions are asked; and nobody waits for them."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from peft.tuners.tuners_utils import check_target_module_exists
from peft.utils.other import get_pattern_key

from shared.expressions import LARGEST_PROGRAM, LONGEST_EXPRESSION, Expression, ExpressionNotServed, NoExpression
from shared.lora_names import by_pattern, is_plain_name
from shared.lora_terms import Pattern, PeftTerms, Targets, key_faults, resolved

PATHS = [
    f"model.layers.{layer}.{module}"
    for layer in (0, 1, 10)
    for module in ("self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj", "mlp.down_proj")
]
OTHERS = ["lm_head", "model.embed_tokens", "model.norm"]

PIECES = st.sampled_from(
    [".*", r"\.", "model", "layers", "self_attn", "mlp", "q_proj", "[qv]_proj", "(up|down)_proj", r"\d+", "1", "0",
     ".", "_", "proj", "(", ")", "|", "?", "+", "{1,2}", "[^.]*", "(?:q|v)", "^", "$", r"\w+", "(?i)Q"]
)  # fmt: skip
TEXTS = st.lists(PIECES, min_size=1, max_size=6).map("".join)


def python_takes(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return True


@given(TEXTS)
@example(r".*\.layers\.(0|1)\..*_proj")
@example(r"model\.layers\.\d+\.(self_attn\.[qv]|mlp\.up)_proj")
@example("q_proj")
@example("ALL-linear")
def test_a_text_means_the_modules_that_peft_finds(text: str) -> None:
    if not python_takes(text):
        with pytest.raises(NoExpression):
            Targets(text)
        return
    try:
        targets = Targets(text)
    except ExpressionNotServed:
        return
    for path in PATHS if targets.every else PATHS + OTHERS:
        found = targets.every or check_target_module_exists(SimpleNamespace(target_modules=text), path)
        assert targets.mean(path) == bool(found), path


@given(st.lists(st.sampled_from(["q_proj", "self_attn.v_proj", "1.mlp.up_proj", "proj", PATHS[0]]), max_size=4))
def test_a_list_means_the_modules_that_peft_finds(names: list[str]) -> None:
    targets = Targets(tuple(names))
    for path in PATHS + OTHERS:
        assert targets.mean(path) == bool(check_target_module_exists(SimpleNamespace(target_modules=names), path))


@given(st.dictionaries(TEXTS | st.sampled_from(["q_proj", "mlp.up_proj", "layers.1.mlp.up_proj"]), st.integers(1, 9)))
def test_a_pattern_gives_the_value_that_peft_picks(said: dict[str, int]) -> None:
    taken = {key: value for key, value in said.items() if key not in key_faults(said)}
    pattern = Pattern(taken)
    applied = resolved(PeftTerms(rank=3, alpha=5.0, rank_pattern=taken, alpha_pattern=taken), PATHS)
    for path in PATHS:
        picked = taken.get(get_pattern_key(list(taken), path))
        assert pattern.value(path, 3) == (3 if picked is None else picked), path
        assert by_pattern(applied.rank_pattern, path, 3) == (3 if picked is None else picked), path
        assert by_pattern(applied.alpha_pattern, path, 5.0) == (5.0 if picked is None else picked), path


def test_resolved_names_are_plain_and_as_few_as_can_be() -> None:
    ranks = {r"layers\.0\..*": 4, r"(up|down)_proj": 2}
    applied = resolved(PeftTerms(rank=8, alpha=16.0, rank_pattern=ranks, alpha_pattern={".*_proj": 16}), PATHS)
    assert applied.target_modules == ("down_proj", "q_proj", "up_proj", "v_proj")
    assert applied.alpha_pattern == {}
    assert applied.rank_pattern == {
        **{path: 4 for path in PATHS if ".0." in path},
        **{path: 2 for path in PATHS if ".0." not in path and "mlp" in path},
    }
    uniform = resolved(PeftTerms(rank=8, alpha=16.0, rank_pattern={"[qv]_proj": 4}, alpha_pattern={}), PATHS)
    assert uniform.rank_pattern == {"q_proj": 4, "v_proj": 4}
    assert all(map(is_plain_name, (*applied.rank_pattern, *uniform.rank_pattern)))


@pytest.mark.parametrize(
    "text",
    ["(?=q)q_proj", "(?!k).*", "(?<=.)q_proj", "(?<!k)q_proj", r"(q)\1", r"(?P<m>q)(?P=m)", "(q)?(?(1)a|b)",
     r"q_proj\Z", "(?>q)_proj", "q++", "a{,3}", "[[:alpha:]]q", "[[a]", "[a--b]", "q\u00e9", "q_proj\n",
     "q" * (LONGEST_EXPRESSION + 1), "(.{1,40}){40}", "q{1001}"],
)  # fmt: skip
def test_what_a_linear_matcher_cannot_take_or_reads_otherwise_is_refused(text: str) -> None:
    with pytest.raises(ExpressionNotServed) as refused:
        Expression(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["(", ")", "[", "*q", "q**", "(?P<1>q)", "a{2,1}", "(" * 1500])
def test_what_is_no_expression_for_python_is_refused(text: str) -> None:
    with pytest.raises(NoExpression):
        Expression(text)


def test_expressions_that_are_together_too_much_are_refused_once() -> None:
    keys = [f"x{at}.{{1,40}}" for at in range(60)]
    faults = key_faults(keys)
    assert len(faults) == 1
    assert all(isinstance(fault, ExpressionNotServed) for fault in faults.values())
    size = sum(Expression(rf"(.*\.)?({key})").program_size for key in keys[: keys.index(next(iter(faults)))])
    assert size <= LARGEST_PROGRAM
    with pytest.raises(ExpressionNotServed):
        Pattern(dict.fromkeys(keys, 1))


def test_an_expression_that_would_not_end_ends() -> None:
    """In Python's `re` each of these takes longer than the universe has been there."""
    for text in (r"((\w|\.)*)*!", r"(a|a|\w|.)*(.*)*(.*)*x!", r"([a-z_.\d]+)+$!"):
        assert not Expression(text).matches("model.layers.0.self_attn.q_proj." * 50)
