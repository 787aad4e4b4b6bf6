"""What the actuator is told in each recording, and how the cluster has to stand for that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from kubernetes import client

from services.autoscaler.core.orders import PoolSpec, ScaleOrder
from services.autoscaler.io.statefulsets import StatefulSets, scale_api

POOL = PoolSpec(pool_id="base-r16")
NAMESPACE, STATEFUL_SET, STRANGER = "lorafleet-recording", "replica", "stranger"

Seen = list[frozenset[str] | None]


class Scene(NamedTuple):
    told: Callable[[StatefulSets], Awaitable[Seen]]
    ends_with: int
    """The status of the last answer."""
    replicas: int | None = 3
    """Before it. None: there is no StatefulSet."""
    meanwhile: int | None = None
    """To what somebody else scales it between the look and the change."""
    account: str = "lorafleet-autoscaler"
    """The one of infra/kubernetes/autoscaler-role.yaml; the stranger has no rights."""
    namespace: str = NAMESPACE
    expired: bool = False
    crowded: bool = False
    """The server has more to do than it takes on."""


async def _look(stateful: StatefulSets) -> Seen:
    return [await stateful.existing(POOL)]


async def _grow(stateful: StatefulSets) -> Seen:
    await stateful.apply(ScaleOrder(pool=POOL, desired=5))
    return []


async def _grow_and_shrink(stateful: StatefulSets) -> Seen:
    before = await stateful.existing(POOL)
    for _ in range(2):
        await stateful.apply(ScaleOrder(pool=POOL, desired=5))
    await stateful.apply(ScaleOrder(pool=POOL, desired=3, remove=("replica-4", "replica-2")))
    return [before, await stateful.existing(POOL)]


async def _to_none_and_back(stateful: StatefulSets) -> Seen:
    await stateful.apply(ScaleOrder(pool=POOL, desired=0, remove=("replica-0", "replica-1")))
    none = await stateful.existing(POOL)
    await stateful.apply(ScaleOrder(pool=POOL, desired=1))
    return [none, await stateful.existing(POOL)]


async def _grow_too_far(stateful: StatefulSets) -> Seen:
    await stateful.apply(ScaleOrder(pool=POOL, desired=2**31))
    return []


SCENES = {
    "grow_and_shrink": Scene(_grow_and_shrink, ends_with=200),
    "to_none_and_back": Scene(_to_none_and_back, ends_with=200, replicas=2),
    "scaled_meanwhile": Scene(_grow, ends_with=409, meanwhile=7),
    "no_such_stateful_set": Scene(_look, ends_with=404, replicas=None),
    "no_right_to": Scene(_look, ends_with=403, account=STRANGER),
    "no_right_elsewhere": Scene(_look, ends_with=403, namespace="default"),
    "expired_token": Scene(_look, ends_with=401, expired=True),
    "more_than_there_can_be": Scene(_grow_too_far, ends_with=422),
    "overloaded": Scene(_look, ends_with=429, crowded=True),
}


def stateful_at(url: str, token: str = "of-nobody", namespace: str = NAMESPACE) -> StatefulSets:
    settings = client.Configuration(host=url, api_key={"authorization": f"Bearer {token}"})
    return StatefulSets(scale_api(settings), namespace, {POOL.pool_id: STATEFUL_SET})


def kubeconfig_at(url: str, token: str = "of-nobody") -> dict[str, Any]:
    return {
        "clusters": [{"name": "here", "cluster": {"server": url}}],
        "users": [{"name": "scaler", "user": {"token": token}}],
        "contexts": [{"name": "now", "context": {"cluster": "here", "user": "scaler"}}],
        "current-context": "now",
    }
