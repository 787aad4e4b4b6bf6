"""The body of `/v1/completions`, and what of it a base can have."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from services.gateway.core.allowance import Subject
from services.gateway.core.directory import Target
from services.gateway.core.openai.fitting import misfit, outsized
from services.gateway.core.openai.texts import parse
from services.gateway.core.refusal import Refusal
from services.gateway.core.wish import Prompt, Tools, Wish
from shared.messages.desired import Limits
from shared.messages.generation import Sampling


def read(**fields: Any) -> Wish | Refusal:
    return parse(msgspec.json.encode({"model": "m", "prompt": "Once", **fields}))


def accepted(**fields: Any) -> Wish:
    wish = read(**fields)
    assert isinstance(wish, Wish), wish
    return wish


def refused(**fields: Any) -> Refusal:
    refusal = read(**fields)
    assert isinstance(refusal, Refusal), refusal
    assert refusal.status == 400
    return refusal


def target(**changes: Any) -> Target:
    least = {"tenant_id": "acme", "adapter": None, "pool_ids": ("p",), "base_model_hash": "b", "max_context_tokens": 0}
    return Target(**{**least, **changes})


def test_the_least_body_has_openais_defaults() -> None:
    assert accepted() == Wish(
        model="m", prompts=(Prompt(text="Once"),), sampling=Sampling(seed=0, max_tokens=16), is_text=True
    )


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", [Prompt(text="a")]),
        (["a", "b"], [Prompt(text="a"), Prompt(text="b")]),
        ([1, 2], [Prompt(token_ids=(1, 2))]),
        ([[1, 2], [3]], [Prompt(token_ids=(1, 2)), Prompt(token_ids=(3,))]),
    ],
)
def test_a_prompt_has_four_forms(prompt: object, prompts: list[Prompt]) -> None:
    assert list(accepted(prompt=prompt).prompts) == prompts


def test_prompts_are_counted_before_any_is_looked_at() -> None:
    """Two millions of them fit into a body, and the gateway does nothing else while it looks at them."""
    assert "At most 64 answers" in refused(prompt=["a"] * 64 + [None]).message
    assert "At most 64 answers" in refused(prompt=[[1]] * 64 + [["x"]]).message


@pytest.mark.parametrize("prompt", ["", [], [""], [[]], 5, {}, [1, "a"], [True], [-1], [2**31], [[1.5]], ["a"] * 65])
def test_any_other_prompt_is_refused(prompt: object) -> None:
    assert str(refused(prompt=prompt).param).startswith("prompt")


def test_token_ids_with_something_else_among_them_are_no_list_of_prompts() -> None:
    assert refused(prompt=[*range(100), None]).message == "`prompt` must hold token ids, not null."


def test_each_prompt_has_n_answers_with_the_same_seeds() -> None:
    wish = accepted(prompt=["a", "b"], n=2, seed=5)
    assert [(part.prompt.text, part.seed, part.repeats) for part in wish.parts(0)] == [
        ("a", 5, False), ("a", 6, True), ("b", 5, False), ("b", 6, True),
    ]  # fmt: skip
    assert refused(prompt=["a"] * 33, n=2).param == "prompt"


def test_everything_that_is_served() -> None:
    wish = accepted(
        max_tokens=3, logprobs=5, best_of=2, n=2, suffix="", stop="x", presence_penalty=1, logit_bias={"3": -1},
        stream=True, stream_options={"include_usage": True}, user="bob", unknown=1,
    )  # fmt: skip
    assert wish.sampling == Sampling(
        seed=0, max_tokens=3, top_logprobs=5, stop=("x",), presence_penalty=1.0, logit_bias={3: -1.0}
    )
    assert (wish.n, wish.stream, wish.include_usage, wish.session) == (2, True, True, "bob")
    assert accepted(echo=True).echo


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"suffix": "x"}, "suffix"), ({"best_of": 3}, "best_of"), ({"best_of": 1, "n": 2}, "best_of"),
        ({"best_of": 0}, "best_of"), ({"logprobs": 6}, "logprobs"), ({"logprobs": True}, "logprobs"),
        ({"echo": True, "logprobs": 0}, "echo"), ({"echo": True, "prompt": [1]}, "echo"), ({"echo": 1}, "echo"),
        ({"max_tokens": 0}, "max_tokens"), ({"model": 5}, "model"), ({"prompt": None}, "prompt"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_named(fields: dict[str, Any], param: str) -> None:
    assert refused(**fields).param == param


@pytest.mark.parametrize("body", [b"{", b"[]", b"5"])
def test_c81_not_a_json_object(body: bytes) -> None:
    refusal = parse(body)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "invalid_json"


def test_token_ids_are_those_of_the_base() -> None:
    last, foreign = accepted(prompt=[1, 99], logit_bias={"99": 1}), accepted(prompt=[[1], [100]])
    assert misfit(last, target(vocabulary_size=100)) is None
    refusal = misfit(foreign, target(vocabulary_size=100))
    assert refusal is not None
    assert refusal.message == "`prompt` names token 100, and this model has tokens 0 to 99."
    biased = misfit(accepted(logit_bias={"100": 1}), target(vocabulary_size=100))
    assert biased is not None
    assert biased.param == "logit_bias"
    assert misfit(foreign, target()) is None, "nobody has counted them"


def test_tools_need_a_base_whose_calls_can_be_read() -> None:
    wish = Wish(model="m", prompts=(), tools=Tools(offered="[]"))
    for parser in ("", "unknown"):
        refusal = misfit(wish, target(tool_parser=parser))
        assert refusal is not None
        assert (refusal.status, refusal.param, refusal.code) == (400, "tools", "unsupported_parameter")
        assert "its base model has no tool-call parser" in refusal.message
    assert misfit(wish, target(tool_parser="hermes")) is None


def test_more_answers_than_streams_are_refused_by_the_field_that_asks_for_them() -> None:
    limited = (
        Subject(name="tenant acme", limits=Limits(requests_per_min=1)), Subject(name="key k1", limits=Limits(streams=3))
    )  # fmt: skip
    assert outsized(accepted(prompt=["a", "b", "c"]), limited) is None
    refusal = outsized(accepted(n=4), limited)
    assert refusal is not None
    assert (refusal.status, refusal.param, refusal.heals) == (400, "n", False)
    assert refusal.message == "`n` asks for 4 answers, and key k1 may have 3 streams at once."
    refusal = outsized(accepted(prompt=["a"] * 4), limited)
    assert refusal is not None
    assert refusal.param == "prompt"
