"""The first half: one customer's versions, the gate, a canary release and its end."""

from __future__ import annotations

from infra.lifecycle_demo.cast import evaluation_set
from infra.lifecycle_demo.crowd import Crowd
from infra.lifecycle_demo.stage import Stage, faltering, until
from infra.lifecycle_demo.telling import require

ALIAS = "acme/support:prod"
_SLOW_MS = "400"
_SHARE = 40.0


def good_version(stage: Stage, word: str) -> None:
    stage.teller.act("A version that does what its customer wants passes the gate, and is deployed.")
    cases = evaluation_set(word, stage.folder / "acme.jsonl")
    stage.console.run("evals", "set", str(cases), "--tenant", "acme", "--minimum-score", "0.3")
    _register(stage, "support-1", word, more=("--dataset", "s3://acme-data/support.jsonl"))
    stage.console.run("alias", "set", ALIAS, "support-1", "--by", "ada", "--reason", "first version")


def version_without_effect(stage: Stage) -> None:
    stage.teller.act("A version without any effect is refused: its training never stepped.")
    folder = stage.old.without_effect(stage.folder / "support-1", "support-2")
    said = stage.console.run("adapters", "register", str(folder), *_as(stage, "support-2"), refused=True)
    require("no effect" in said, "the refusal was to say `no effect`.")


def worse_version(stage: Stage, wrong_word: str) -> None:
    stage.teller.act("A version that is worse than the one it would replace is refused, and one sees why.")
    folder = stage.old.says(wrong_word, "support-3")
    words = (*_as(stage, "support-3"), "--predecessor", "support-1")
    stage.console.run("adapters", "register", str(folder), *words, refused=True)
    stage.console.run("evals", "show", "support-3")
    require(stage.adapter("support-3")["status"] == "failed", "support-3 was to fail.")


def canary_release(stage: Stage, word: str, crowd: Crowd) -> None:
    stage.teller.act("A better, larger version gets a part of the sessions, on a pool for higher ranks.")
    _register(stage, "support-4", word, rank=32, more=("--predecessor", "support-1"))
    guard = ("--max-ttft-p95-ms", _SLOW_MS, "--minimum-requests", "4", "--window", "20s")
    why = ("--by", "ada", "--reason", "canary release")
    stage.console.run("alias", "split", ALIAS, "support-4", f"{_SHARE:g}", *guard, *why)
    before = crowd.so_far()
    crowd.wait_for(120)
    share = crowd.share("support-4", before)
    stage.teller.say(f"{share:.0f} % of the answers come from support-4, each session always from the same version.")
    require(0 < share < 100, "both versions were to answer.")


def automatic_rollback(stage: Stage, crowd: Crowd) -> None:
    stage.teller.act("Its replica begins to falter, first tokens take too long, and the alias goes back by itself.")
    require(not crowd.troubles, f"nothing was to go wrong before: {crowd.troubles[:1]}")
    with faltering(stage.fleet.pid(_replica_of(stage, "support-4"))):
        until(lambda: not _is_split(stage), "the guard to end the split")
    failed = crowd.excuse()
    stage.console.run("alias", "history", ALIAS)
    before = crowd.so_far()
    crowd.wait_for(40)
    require(crowd.share("support-1", before) > 0, "support-1 was to answer again.")
    stage.teller.say(f"{crowd.count} answers so far; {failed} went wrong, while the replica faltered.")


def _register(stage: Stage, adapter_id: str, word: str, rank: int = 8, more: tuple[str, ...] = ()) -> None:
    stage.words[adapter_id] = word
    folder = stage.old.says(word, adapter_id, rank)
    stage.console.run("adapters", "register", str(folder), *_as(stage, adapter_id), *more)


def _as(stage: Stage, adapter_id: str) -> tuple[str, ...]:
    return ("--tenant", "acme", "--base", stage.old_base, "--id", adapter_id, "--wait")


def _replica_of(stage: Stage, adapter_id: str) -> str:
    with stage.admin() as admin:
        pool_id = stage.adapter(adapter_id)["pool_id"]
        replicas = admin.get("/internal/fleet").raise_for_status().json()["replicas"]
        return next(str(one["replica_id"]) for one in replicas if one["pool_id"] == pool_id)


def _is_split(stage: Stage) -> bool:
    [alias] = [one for one in stage.console.ask("alias", "list") if one["alias"] == ALIAS]
    return bool(alias["split_adapter_id"])
