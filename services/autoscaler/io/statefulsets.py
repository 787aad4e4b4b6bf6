"""The actuator of a fleet in Kubernetes: one StatefulSet a pool, scaled by its scale subresource.

Replicas are named as their pods: `LORAFLEET_WORKER_REPLICA_ID` comes from `metadata.name`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
from kubernetes import client, config
from kubernetes.config.config_exception import ConfigException

from services.autoscaler.core.orders import PoolSpec, ScaleOrder
from services.autoscaler.core.ordinals import count_after
from services.autoscaler.io.actuator import ActuatorFailed


class ScaleApi(Protocol):
    """What is used of `AppsV1Api`, and so what the Role has to allow: get and patch of `statefulsets/scale`."""

    def read_namespaced_stateful_set_scale(self, name: str, namespace: str, **options: Any) -> Any: ...

    def patch_namespaced_stateful_set_scale(self, name: str, namespace: str, body: Any, **options: Any) -> Any: ...


class StatefulSets:
    """`names` is by pool. Pools without a StatefulSet are left alone.

    An API server that has lost its etcd answers after a minute; nobody waits longer than `deadline_s`.
    """

    starts_merged = False

    def __init__(self, api: ScaleApi, namespace: str, names: Mapping[str, str], deadline_s: float = 5.0) -> None:
        self._api = api
        self._namespace = namespace
        self._names = dict(names)
        # To connect, and to answer. The client takes a pair or an int; a float it takes for no deadline.
        self._deadlines_s = (deadline_s, deadline_s)

    async def existing(self, pool: PoolSpec) -> frozenset[str] | None:
        name = self._names.get(pool.pool_id)
        if name is None:
            return None
        scale = await asyncio.to_thread(self._read, name)
        return frozenset(_pods(name, scale.spec.replicas or 0))

    def removal_order(self, pool: PoolSpec, existing: frozenset[str]) -> tuple[str, ...] | None:
        return tuple(sorted(existing, key=_ordinal, reverse=True))

    async def apply(self, order: ScaleOrder) -> None:
        """Nothing is changed if somebody else has scaled it meanwhile: the next order finds out."""
        name = self._names.get(order.pool.pool_id)
        if name is not None:
            await asyncio.to_thread(self._scale, name, order)

    def _scale(self, name: str, order: ScaleOrder) -> None:
        found = self._read(name)
        now = found.spec.replicas or 0
        count = count_after(_pods(name, now), order.desired, order.remove)
        if count == now:
            return
        body = {"metadata": {"resourceVersion": found.metadata.resource_version}, "spec": {"replicas": count}}
        self._ask(self._api.patch_namespaced_stateful_set_scale, name, body)

    def _read(self, name: str) -> Any:
        return self._ask(self._api.read_namespaced_stateful_set_scale, name)

    def _ask(self, call: Any, name: str, *body: Any) -> Any:
        try:
            return call(name, self._namespace, *body, _request_timeout=self._deadlines_s)
        except Exception as error:  # the client's, and urllib3's, of which there are many
            raise ActuatorFailed(f"StatefulSet {name}: {_why(error)}") from error


class _Status(msgspec.Struct):
    message: str = ""


def _why(error: Exception) -> str:
    """In the API server's own words. One that is overloaded, and what may stand before it, speak no JSON."""
    if not isinstance(error, client.ApiException):
        return f"the API server does not answer: {error}"
    if not error.status:  # TLS
        return f"the API server does not answer: {' '.join(str(error.reason).split())}"
    try:
        said = msgspec.json.decode(error.body or "", type=_Status).message
    except msgspec.DecodeError:
        said = ""
    return f"{error.status} {error.reason}" + (f": {said}" if said else "")


def connected() -> ScaleApi:
    """With the pod's service account, or the kubeconfig of whoever runs it. Raises ActuatorFailed."""
    settings = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=settings)
    except ConfigException:
        try:
            config.load_kube_config(client_configuration=settings)
        except (ConfigException, OSError) as error:
            raise ActuatorFailed(f"there is neither a service account nor a kubeconfig: {error}") from error
    return scale_api(settings)


def scale_api(settings: client.Configuration) -> ScaleApi:
    """Asks once: who carries orders out asks again, later each time. The client would wait within the request."""
    settings.retries = False
    api: ScaleApi = client.AppsV1Api(client.ApiClient(settings))
    return api


def _pods(name: str, count: int) -> list[str]:
    return [f"{name}-{at}" for at in range(count)]


def _ordinal(pod: str) -> int:
    return int(pod.rpartition("-")[2])
