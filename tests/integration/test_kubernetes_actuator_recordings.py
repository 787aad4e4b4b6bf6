"""The recordings of an API server: what is in them, that a replay holds to them, and how they are taken down."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import urllib3
import yaml

from services.autoscaler.io.actuator import ActuatorFailed
from tests.support.api_server.__main__ import main
from tests.support.api_server.cluster import Cluster
from tests.support.api_server.exchanges import RECORDINGS, Exchange, Recording, recorded
from tests.support.api_server.recorder import NotRecorded, publishable, record
from tests.support.api_server.scenes import SCENES, STATEFUL_SET, kubeconfig_at, stateful_at
from tests.support.api_server.wire import replaying
from tests.support.scripted_http import Answer, Asked, answering


class StandIn:
    """A cluster that answers from a recording."""

    def __init__(self, recording: Recording, url: str) -> None:
        self._recording, self._url = recording, url
        self.laid: list[int | None] = []
        self.scaled: list[int] = []

    def version(self) -> str:
        return self._recording.server

    def lay(self, replicas: int | None) -> None:
        self.laid.append(replicas)

    def scale(self, replicas: int) -> None:
        self.scaled.append(replicas)

    def forward(self, asked: Asked) -> Answer:
        headers, body = dict(asked.headers.items()), asked.body or None
        with urllib3.PoolManager(retries=False) as pool:
            response = pool.request(asked.method, self._url + asked.path, body=body, headers=headers)
        return Answer(response.status, response.data, dict(response.headers))


PLAYED = [name for name, scene in SCENES.items() if not scene.crowded]


@pytest.mark.parametrize("name", SCENES)
def test_a_recording_is_of_its_scene_and_holds_no_secret(name: str) -> None:
    recording = recorded(name)
    assert re.fullmatch(r"Kubernetes v\d+\.\d+\.\d+\S*", recording.server)
    path = f"/apis/apps/v1/namespaces/{SCENES[name].namespace}/statefulsets/{STATEFUL_SET}/scale"
    assert {exchange.question.path for exchange in recording.exchanges} == {path}
    assert {exchange.question.authorization for exchange in recording.exchanges} == {"bearer"}
    assert recording.exchanges[-1].reply.status == SCENES[name].ends_with
    text = (RECORDINGS / f"{name}.json").read_text()
    assert not re.search(r"eyJ|bearer [^\"]|://|\d+\.\d+\.\d+\.\d+|localhost", text, re.IGNORECASE)


def test_every_recording_has_its_scene() -> None:
    assert {path.stem for path in RECORDINGS.iterdir()} == set(SCENES)


@pytest.mark.parametrize("name", PLAYED)
async def test_the_recorder_takes_down_what_was_said(name: str) -> None:
    recording, scene = recorded(name), SCENES[name]
    with replaying(recording) as url:
        cluster = StandIn(recording, url)
        taken = await record(cast(Cluster, cluster), scene, "secret")
    assert taken == msgspec.structs.replace(recording, client=taken.client)
    assert cluster.laid == [scene.replicas]
    assert cluster.scaled == ([] if scene.meanwhile is None else [scene.meanwhile])
    assert publishable(taken, ("secret",)).endswith(b"\n")


async def test_a_scene_that_ended_otherwise_is_not_recorded() -> None:
    recording = recorded("no_right_to")
    with replaying(recording) as url, pytest.raises(NotRecorded, match=r"should end with 404, not .*Forbidden"):
        await record(cast(Cluster, StandIn(recording, url)), SCENES["no_such_stateful_set"], "secret")


def test_what_would_give_a_secret_away_is_not_written() -> None:
    with pytest.raises(NotRecorded, match="a token"):
        publishable(recorded("no_right_to"), ("nobody's", ":stranger"))


def test_a_cluster_that_cannot_be_prepared_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(lambda asked: Answer(409, b"the namespace exists")) as url:
        (tmp_path / "config").write_text(yaml.safe_dump(kubeconfig_at(url)))
        monkeypatch.setattr(sys, "argv", ["record", "--kubeconfig", str(tmp_path / "config")])
        assert main() == 1
    assert capsys.readouterr().err == "the cluster refused to be prepared: 409 Conflict: the namespace exists\n"


def deviating(**change: Any) -> Recording:
    """As if something else had been recorded first."""
    recording = recorded("scaled_meanwhile")
    first, *others = recording.exchanges
    question = msgspec.structs.replace(first.question, **change)
    return told_by(recording, [Exchange(question=question, reply=first.reply), *others])


def told_by(recording: Recording, exchanges: list[Exchange]) -> Recording:
    return msgspec.structs.replace(recording, exchanges=tuple(exchanges))


WHOLE = recorded("scaled_meanwhile")
FALSE = {
    "method": deviating(method="POST"),
    "path": deviating(path="/apis/apps/v1/namespaces/default/statefulsets/replica/scale"),
    "accept": deviating(accept="application/yaml"),
    "content type": deviating(content_type="application/merge-patch+json"),
    "authorization": deviating(authorization=""),
    "body": deviating(body="{}"),
    "more": told_by(WHOLE, [*WHOLE.exchanges, WHOLE.exchanges[0]]),
    "less": told_by(WHOLE, list(WHOLE.exchanges[:1])),
    "order": told_by(WHOLE, list(reversed(WHOLE.exchanges))),
}


@pytest.mark.parametrize("what", FALSE)
async def test_a_replay_fails_if_anything_but_what_was_recorded_is_asked(what: str) -> None:
    with (
        pytest.raises(AssertionError, match="asked"),
        replaying(FALSE[what]) as url,
        contextlib.suppress(ActuatorFailed),
    ):
        await SCENES["scaled_meanwhile"].told(stateful_at(url))
