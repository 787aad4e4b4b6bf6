"""A real model answers through the whole fleet."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI

from infra.local.temporary import TemporaryFleet
from tests.support.asking import ask, stream, wait_answers
from tests.support.pipeline import Pipeline
from tests.support.waiting import eventually


def test_an_announced_adapter_answers_with_its_own_marker_streamed_and_whole(
    acme: OpenAI, canaries: dict[str, str]
) -> None:
    alias, marker = next(iter(canaries.items()))
    wait_answers(acme, alias, marker)
    assert "".join(stream(acme, alias)) == marker


def test_c13_the_alias_is_in_every_chunk_and_the_adapter_in_the_header(acme: OpenAI, canaries: dict[str, str]) -> None:
    alias, marker = list(canaries.items())[1]
    wait_answers(acme, alias, marker)
    raw = acme.chat.completions.with_raw_response.create(
        model=alias,
        messages=[{"role": "user", "content": "Hi"}],
        stream=True,
        temperature=0,
        stream_options={"include_usage": True},
    )
    chunks = list(raw.parse())
    assert raw.headers["x-adapter-id"] == "canary-1"
    assert raw.headers["x-adapter-tier"] in ("gpu", "ram", "disk", "remote")
    assert raw.headers["x-request-id"]
    assert {chunk.model for chunk in chunks} == {alias}
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0
    assert [choice.finish_reason for chunk in chunks[-2:-1] for choice in chunk.choices] == ["stop"]
    whole = acme.chat.completions.with_raw_response.create(
        model=alias, messages=[{"role": "user", "content": "Hi"}], temperature=0
    )
    assert (whole.parse().model, whole.headers["x-adapter-id"]) == (alias, "canary-1")


def test_models_lists_own_aliases_with_their_parent_and_the_base_without_one(
    acme: OpenAI, pipeline: Pipeline, canaries: dict[str, str]
) -> None:
    models = {model.id: model.model_dump() for model in acme.models.list().data}
    base_name = pipeline.base["name"]
    assert set(canaries) <= set(models)
    assert models[base_name]["parent"] is None
    assert all(models[alias]["parent"] == base_name for alias in canaries)


def test_c21_twelve_canaries_twice_each_through_four_slots_and_the_base_among_them(
    acme: OpenAI, pipeline: Pipeline, canaries: dict[str, str]
) -> None:
    for alias, marker in canaries.items():
        wait_answers(acme, alias, marker)
    base_name = pipeline.base["name"]
    base_alone = ask(acme, base_name)
    asked = [*canaries, *canaries, base_name, base_name]
    random.Random(7).shuffle(asked)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda model: (model, ask(acme, model)), asked))
    for model, text in answers:
        assert text == canaries.get(model, base_alone)
    assert not any(marker in base_alone for marker in canaries.values())


def test_c04_the_base_answers_the_same_before_and_inside_a_mixed_batch(
    acme: OpenAI, pipeline: Pipeline, canaries: dict[str, str]
) -> None:
    base_name = pipeline.base["name"]
    alone = ask(acme, base_name, max_tokens=64)
    with ThreadPoolExecutor(8) as pool:
        mixed = [pool.submit(ask, acme, alias) for alias in list(canaries) * 2]
        among = [pool.submit(ask, acme, base_name, max_tokens=64) for _ in range(4)]
        assert {future.result() for future in among} == {alone}
        assert [future.result() for future in mixed] == [canaries[alias] for alias in list(canaries) * 2]


def test_status_shows_both_replicas_and_every_adapters_tier(
    fleet: TemporaryFleet, acme: OpenAI, canaries: dict[str, str]
) -> None:
    alias, marker = next(iter(canaries.items()))
    wait_answers(acme, alias, marker)

    def shown() -> bool:
        lines = fleet.console("status").stdout.splitlines()
        replicas = [line for line in lines if line.startswith("replica-")]
        held = [line.split() for line in lines if line.startswith("canary-0 ")]
        return len(replicas) == 2 and "gpu" in held[0] if held else False

    eventually(shown, "status to show canary-0 in a slot")
