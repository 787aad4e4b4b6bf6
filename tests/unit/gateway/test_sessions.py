"""Which of two versions a session means: by chance, but for good."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.core.sessions import draw, is_moved, session_of
from services.gateway.core.wish import Prompt, Wish
from shared.messages.desired import AliasTarget
from shared.messages.generation import ChatMessage
from tests.unit.gateway import samples

SALT = "5a17"
SPLIT = AliasTarget(
    adapter_id="acme-2", digest="d" * 64, pool_id=samples.POOL, base_model_hash=samples.BASE_HASH,
    base_model_name="tiny-base",
)  # fmt: skip
percents = st.floats(min_value=0.0, max_value=100.0)


def moved(session: str, percent: float, salt: str = SALT) -> bool:
    return is_moved(samples.alias(split=SPLIT, split_percent=percent, split_salt=salt), session)


def chat(*contents: str, session: str | None = None, system: str = "Be brief.") -> Wish:
    """User and assistant in turns."""
    said = [ChatMessage(role=("user", "assistant")[at % 2], content=text) for at, text in enumerate(contents)]
    messages = (ChatMessage(role="system", content=system), *said)
    return Wish(model="acme/support", prompts=(Prompt(messages=messages),), session=session)


@given(st.text(), percents, percents)
def test_whoever_is_moved_stays_moved_while_the_percentage_grows(session: str, one: float, other: float) -> None:
    less, more = sorted((one, other))
    assert moved(session, more) or not moved(session, less)


@given(st.text())
def test_nobody_is_moved_at_0_and_everybody_at_100(session: str) -> None:
    assert not moved(session, 0.0)
    assert moved(session, 100.0)
    assert 0.0 <= draw(SALT, session) <= 100.0


@pytest.mark.parametrize("percent", [1.0, 10.0, 50.0, 90.0])
def test_the_share_of_sessions_is_the_percentage(percent: float) -> None:
    """Five standard deviations of 10,000 independent draws."""
    share = sum(moved(f"session-{at}", percent) for at in range(10_000)) / 100
    assert abs(share - percent) <= 5 * (percent * (100 - percent) / 10_000) ** 0.5


def test_another_split_draws_anew() -> None:
    sessions = [f"session-{at}" for at in range(1_000)]
    assert [moved(one, 50.0) for one in sessions] != [moved(one, 50.0, "another") for one in sessions]


def test_the_draw_is_the_one_that_is_written_down() -> None:
    """Gateways of two releases must agree, or a session would swing between versions while they are exchanged."""
    assert draw("5a17", "session-1") == pytest.approx(73.55607026865606)


@given(st.lists(st.text(), min_size=1, max_size=5), st.lists(st.text(), max_size=4))
def test_all_turns_of_a_conversation_are_one_session(first: list[str], later: list[str]) -> None:
    assert session_of("k1", chat(*first)) == session_of("k1", chat(*first, *later))


def test_another_beginning_or_another_key_is_another_session() -> None:
    sessions = {
        session_of("k1", chat("Hi")), session_of("k2", chat("Hi")), session_of("k1", chat("Hello")),
        session_of("k1", chat("Hi", system="Be long.")),
    }  # fmt: skip
    assert len(sessions) == 4


def test_a_session_that_has_a_name_is_known_by_it() -> None:
    assert session_of("k1", chat("Hi", session="bob")) == session_of("k1", chat("Hello", session="bob")) == "bob"


def test_a_text_is_known_by_its_beginning() -> None:
    def going_on(**prompt: Any) -> str:
        return session_of("k1", Wish(model="acme/support", prompts=(Prompt(**prompt),), is_text=True))

    assert going_on(text="Once" + "." * 300) == going_on(text="Once" + "." * 300 + " upon a time")
    others = {going_on(text="Once"), going_on(text="Twice"), going_on(token_ids=(1, 2)), going_on(token_ids=(2,))}
    assert len(others) == 4
