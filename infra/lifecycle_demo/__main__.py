"""`python -m infra.lifecycle_demo OLD_BASE NEW_BASE`: two model folders, one fleet, the whole story."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from infra.lifecycle_demo import moving, versions
from infra.lifecycle_demo.cast import Troupe
from infra.lifecycle_demo.crowd import Crowd
from infra.lifecycle_demo.stage import Stage
from infra.lifecycle_demo.telling import Console, StoryWentWrong, Teller, fail, require
from infra.local.fleet import BusLogin
from infra.local.temporary import TemporaryFleet, temporary_fleet

_CUSTOMERS_KEY = {"tenant_id": "acme", "may_call_base": False}


def main(words: list[str]) -> int:
    if len(words) != 2:
        sys.stderr.write("usage: python -m infra.lifecycle_demo OLD_BASE_FOLDER NEW_BASE_FOLDER\n")
        return 2
    old, new = (Path(word).resolve() for word in words)
    teller = Teller()
    with tempfile.TemporaryDirectory(prefix="lorafleet-lifecycle-") as name:
        folder = Path(name)
        teller.say("starting a fleet: two replicas and one for rank 64 on the old base, one on the new base")
        pools = f"r64,{new}:r16"
        with temporary_fleet(folder / "fleet", model=str(old), demo="false", more_pools=pools) as fleet:
            return _told(_stage(fleet, teller, folder, (old, new)))


def _stage(fleet: TemporaryFleet, teller: Teller, folder: Path, bases: tuple[Path, Path]) -> Stage:
    old, new = bases
    return Stage(
        fleet=fleet, teller=teller, console=Console(fleet, teller), folder=folder,
        old=Troupe(old, folder), new=Troupe(new, folder), old_base=old.name, new_base=new.name,
    )  # fmt: skip


def _told(stage: Stage) -> int:
    try:
        crowd = _tell(stage)
    except StoryWentWrong as error:
        return fail(error)
    elapsed_s = stage.teller.elapsed_s
    stage.teller.say(f"The end, after {elapsed_s:.0f} s: {crowd.count} answers, and no other went wrong.")
    return 0


def _tell(stage: Stage) -> Crowd:
    word, wrong_word = _words_that_both_can_say(stage)
    versions.good_version(stage, word)
    versions.version_without_effect(stage)
    versions.worse_version(stage, wrong_word)
    crowd = Crowd(stage.fleet.connection, _key(stage), stage.words)
    with crowd.asking(versions.ALIAS):
        versions.canary_release(stage, word, crowd)
        versions.automatic_rollback(stage, crowd)
        moving.five_more(stage, word)
        moving.plan_and_start(stage)
        moving.retrain(stage, word, _login(stage.fleet))
    with crowd.asking(versions.ALIAS, *moving.OTHERS):
        moving.cut_over(stage, crowd, versions.ALIAS)
    moving.finish(stage)
    require(not crowd.troubles, f"{len(crowd.troubles)} requests went wrong, the first: {crowd.troubles[:1]}")
    return crowd


def _words_that_both_can_say(stage: Stage) -> tuple[str, str]:
    """The bases have one tokenizer; a marker that one can spell the other can, too."""
    first, second = stage.old.words(2)
    return first, second


def _key(stage: Stage) -> str:
    with stage.admin() as admin:
        return str(admin.post("/internal/keys", json=_CUSTOMERS_KEY).raise_for_status().json()["api_key"])


def _login(fleet: TemporaryFleet) -> BusLogin:
    parts = urlsplit(fleet.connection.nats_url)
    url = f"nats://{parts.hostname}:{parts.port}"
    return BusLogin(url=url, user=parts.username or "", password=parts.password or "")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except httpx.HTTPError as error:
        sys.exit(fail(StoryWentWrong(f"{type(error).__name__} {error}")))
