"""The second half: six adapters move to another base model while everybody is served."""

from __future__ import annotations

import asyncio

from infra.lifecycle_demo.crowd import Crowd
from infra.lifecycle_demo.stage import Stage, until
from infra.lifecycle_demo.telling import StoryWentWrong, require
from infra.local.fleet import BusLogin
from infra.local.nats import options
from shared.bus.nats import connect
from shared.bus.port import Ids
from shared.contracts.catalog import ADAPTER_RETRAIN_REQUESTED
from shared.messages.migrations import RetrainRequested

OTHERS = tuple(f"acme/desk-{number}:prod" for number in range(1, 6))
_PATIENCE_S = 60.0


def five_more(stage: Stage, word: str) -> None:
    stage.teller.act("The customer has five more adapters, each behind an alias of its own.")
    for alias in OTHERS:
        name = alias.partition("/")[2].partition(":")[0]
        stage.words[name] = word
        folder = stage.old.says(word, name)
        identity = (
            "--tenant",
            "acme",
            "--base",
            stage.old_base,
            "--id",
            name,
            "--dataset",
            f"s3://acme-data/{name}.jsonl",
        )
        stage.console.run("adapters", "register", str(folder), *identity, "--alias", alias)
    until(lambda: _deployed(stage) >= set(OTHERS), "the five aliases")


def plan_and_start(stage: Stage) -> None:
    stage.teller.act("A new base model is to replace the old one. What would it take? Then: go.")
    ends = ("--from", stage.old_base, "--to", stage.new_base)
    stage.console.run("migrate", "plan", *ends)
    stage.console.run("migrate", "start", *ends, "--by", "ada", "--reason", "the new base is better")


def retrain(stage: Stage, word: str, login: BusLogin) -> None:
    stage.teller.act("The pipeline hears what is to be trained again, trains, and registers the successors.")
    asked = asyncio.run(_requests(login, 1 + len(OTHERS)))
    for request in asked:
        name = f"{request.adapter_id}-on-two"
        stage.words[name] = word
        folder = stage.new.says(word, name)
        identity = ("--tenant", request.tenant_id, "--id", name, "--base", request.to_base_model_hash[:12])
        stage.console.run("adapters", "register", str(folder), *identity, "--predecessor", request.adapter_id)
    until(lambda: _trained(stage) == len(asked), "the successors to pass the gate against their predecessors")


def cut_over(stage: Stage, crowd: Crowd, alias: str) -> None:
    stage.teller.act("Cut-over, alias by alias; one goes back and forth; both bases serve all along.")
    stage.console.run("migrate", "cutover", alias, "--by", "ada")
    stage.console.run("migrate", "rollback", alias, "--by", "ada", "--reason", "to see that it works")
    stage.console.run("migrate", "cutover", alias, "--by", "ada")
    stage.console.run("migrate", "cutover", "--all", "--by", "ada")
    before = crowd.so_far()
    crowd.wait_for(60)
    old = [name for name in stage.words if not name.endswith("-on-two") and crowd.share(name, before) > 0]
    stage.teller.say(f"60 answers later: {'none' if not old else ', '.join(old)} of them from the old base.")


def finish(stage: Stage) -> None:
    stage.teller.act("Nothing points at the old base any more: it is retired.")
    stage.console.run("migrate", "finish", "--by", "ada")
    stage.console.run("migrate", "status")
    stage.console.run("bases", "list")
    bases = stage.console.ask("bases", "list")
    require(
        all(base["name"] != stage.old_base or base.get("retired_at_s") for base in bases), "the old base was to retire."
    )


async def _requests(login: BusLogin, count: int) -> list[RetrainRequested]:
    """As many requests for another training as there will be, by adapter id."""
    heard: dict[str, RetrainRequested] = {}
    enough = asyncio.Event()

    async def on_request(request: RetrainRequested, ids: Ids) -> None:
        heard[request.adapter_id] = request
        if len(heard) == count:
            enough.set()

    bus = await connect(options(login, "demo-pipeline"))
    try:
        await bus.consume(ADAPTER_RETRAIN_REQUESTED, "lifecycle-demo", on_request)
        async with asyncio.timeout(_PATIENCE_S):
            await enough.wait()
    except TimeoutError as error:
        raise StoryWentWrong(f"{count} adapters were to be trained again, and {len(heard)} were asked for.") from error
    finally:
        await bus.close()
    return [heard[name] for name in sorted(heard)]


def _deployed(stage: Stage) -> set[str]:
    return {str(one["alias"]) for one in stage.console.ask("alias", "list")}


def _trained(stage: Stage) -> int:
    return len(stage.console.ask("migrate", "status", "--state", "trained")["items"])
