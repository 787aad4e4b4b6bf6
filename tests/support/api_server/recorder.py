"""Plays the scenes on a cluster and takes down what the official client and the API server say to each other."""

from __future__ import annotations

from collections.abc import Callable
from email.message import Message
from importlib.metadata import version

from services.autoscaler.io.actuator import ActuatorFailed
from services.autoscaler.io.statefulsets import StatefulSets
from tests.support.api_server.cluster import Cluster
from tests.support.api_server.exchanges import Exchange, Recording, encoded
from tests.support.api_server.scenes import NAMESPACE, STATEFUL_SET, Scene, stateful_at
from tests.support.api_server.wire import listening_in
from tests.support.scripted_http import Answer, Asked

_TRIES = 2000


class NotRecorded(Exception):
    """One sentence that says why there is no recording."""


async def record(cluster: Cluster, scene: Scene, token: str) -> Recording:
    """Raises NotRecorded if the scene ended otherwise than it should."""
    cluster.lay(scene.replicas)
    heard: list[Exchange] = []
    with listening_in(_forwarding(cluster, scene), heard) as url:
        stateful = stateful_at(url, token, scene.namespace)
        if scene.crowded:
            await _until_refused(cluster, scene, stateful, heard, token)
        else:
            await _play(scene, stateful)
    if not heard or heard[-1].reply.status != scene.ends_with:
        raise NotRecorded(f"should end with {scene.ends_with}, not {heard[-1].reply if heard else 'without a word'}")
    return Recording(server=cluster.version(), client=f"kubernetes {version('kubernetes')}", exchanges=tuple(heard))


def publishable(recording: Recording, secrets: tuple[str, ...]) -> bytes:
    """Raises NotRecorded if one of the secrets is in it."""
    text = encoded(recording)
    if any(secret.encode() in text for secret in secrets):
        raise NotRecorded("a token or the server's address is in what was said")
    return text


async def _play(scene: Scene, stateful: StatefulSets) -> None:
    try:
        await scene.told(stateful)
    except ActuatorFailed:
        return


def _forwarding(cluster: Cluster, scene: Scene) -> Callable[[Asked], Answer]:
    def forward(asked: Asked) -> Answer:
        if asked.method == "PATCH" and scene.meanwhile is not None:
            cluster.scale(scene.meanwhile)
        return cluster.forward(asked)

    return forward


async def _until_refused(
    cluster: Cluster, scene: Scene, stateful: StatefulSets, heard: list[Exchange], token: str
) -> None:
    with cluster.crowded(_look(token)):
        for _ in range(_TRIES):
            heard.clear()
            await _play(scene, stateful)
            if heard and heard[-1].reply.status == scene.ends_with:
                return


def _look(token: str) -> Asked:
    headers = Message()
    headers["Authorization"] = f"Bearer {token}"
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/{STATEFUL_SET}/scale"
    return Asked("GET", path, b"", headers)
