"""The actuator of a fleet in Kubernetes: one StatefulSet a pool, scaled by its scale subresource.

Replicas are named as their pods: `LORAFLEET_WORKER_REPLICA_ID` comes from `metadata.name`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from kubernetes import client, config
from kubernetes.config.config_exception import ConfigException

from services.autoscaler.core.orders import PoolSpec, ScaleOrder
from services.autoscaler.core.ordinals import count_after
from services.autoscaler.io.actuator import ActuatorFailed

_DEADLINE_S = 5.0


class ScaleApi(Protocol):
    """What is used of `AppsV1Api`, and so what the Role has to allow: get and patch of `statefulsets/scale`."""

    def read_namespaced_stateful_set_scale(self, name: str, namespace: str, **options: Any) -> Any: ...

    def patch_namespaced_stateful_set_scale(self, name: str, namespace: str, body: Any, **options: Any) -> Any: ...


class StatefulSets:
    """`names` is by pool. Pools without a StatefulSet are left alone."""

    starts_merged = False

    def __init__(self, api: ScaleApi, namespace: str, names: Mapping[str, str]) -> None:
        self._api = api
        self._namespace = namespace
        self._names = dict(names)

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
            return call(name, self._namespace, *body, _request_timeout=_DEADLINE_S)
        except client.ApiException as error:
            raise ActuatorFailed(f"StatefulSet {name}: {error.status} {error.reason}") from error
        except Exception as error:  # urllib3's, of which there are many
            raise ActuatorFailed(f"StatefulSet {name}: the API server does not answer: {error}") from error


def connected() -> ScaleApi:
    """With the pod's service account, or the kubeconfig of whoever runs it. Raises ActuatorFailed."""
    try:
        config.load_incluster_config()
    except ConfigException:
        try:
            config.load_kube_config()
        except (ConfigException, OSError) as error:
            raise ActuatorFailed(f"there is neither a service account nor a kubeconfig: {error}") from error
    api: ScaleApi = client.AppsV1Api()
    return api


def _pods(name: str, count: int) -> list[str]:
    return [f"{name}-{at}" for at in range(count)]


def _ordinal(pod: str) -> int:
    return int(pod.rpartition("-")[2])
