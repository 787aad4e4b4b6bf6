"""The cluster that is recorded: a namespace of its own, with the actuator's Role and one StatefulSet."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client, config, utils

from tests.support.api_server.scenes import NAMESPACE, STATEFUL_SET, STRANGER
from tests.support.scripted_http import Answer, Asked

ROLE = Path(__file__).resolve().parents[3] / "infra/kubernetes/autoscaler-role.yaml"

_HOP = frozenset({"host", "content-length", "transfer-encoding", "connection"})
_CROWD = 16


class Cluster:
    """Of a kubeconfig that may do anything. What it makes goes with its namespace."""

    def __init__(self, kubeconfig: str) -> None:
        settings = client.Configuration()
        config.load_kube_config(kubeconfig, client_configuration=settings)
        self.host = settings.host
        self._admin = client.ApiClient(settings)
        self._apps, self._core = client.AppsV1Api(self._admin), client.CoreV1Api(self._admin)
        self._pool = _without_rights(settings).rest_client.pool_manager

    def version(self) -> str:
        return f"Kubernetes {client.VersionApi(self._admin).get_code().git_version}"

    @contextmanager
    def namespace(self) -> Iterator[None]:
        self._core.create_namespace({"metadata": {"name": NAMESPACE}})
        try:
            self._core.create_namespaced_service_account(NAMESPACE, {"metadata": {"name": STRANGER}})
            for document in yaml.safe_load_all(ROLE.read_text()):
                utils.create_from_dict(self._admin, document, namespace=NAMESPACE)
            yield
        finally:
            self._core.delete_namespace(NAMESPACE)

    def token_of(self, account: str) -> str:
        """Lives ten minutes, the shortest there is."""
        request = {"spec": {"expirationSeconds": 600, "audiences": []}}
        issued = self._core.create_namespaced_service_account_token(account, NAMESPACE, request)
        return str(issued.status.token)

    def lay(self, replicas: int | None) -> None:
        """A new StatefulSet of that size, or none."""
        if self._apps.list_namespaced_stateful_set(NAMESPACE).items:
            self._apps.delete_namespaced_stateful_set(STATEFUL_SET, NAMESPACE)
        if replicas is not None:
            self._apps.create_namespaced_stateful_set(NAMESPACE, _stateful_set(replicas))

    def scale(self, replicas: int) -> None:
        self._apps.patch_namespaced_stateful_set_scale(STATEFUL_SET, NAMESPACE, {"spec": {"replicas": replicas}})

    def forward(self, asked: Asked) -> Answer:
        """With the rights of whoever asks."""
        headers = {name: value for name, value in asked.headers.items() if name.lower() not in _HOP}
        url, body = self.host + asked.path, asked.body or None
        response = self._pool.request(asked.method, url, body=body, headers=headers, retries=False)
        return Answer(response.status, response.data, dict(response.headers))

    @contextmanager
    def crowded(self, asked: Asked) -> Iterator[None]:
        """While it lasts, many ask the same."""
        over = threading.Event()

        def ask() -> None:
            while not over.is_set():
                self.forward(asked)

        crowd = [threading.Thread(target=ask) for _ in range(_CROWD)]
        for one in crowd:
            one.start()
        try:
            yield
        finally:
            over.set()
            for one in crowd:
                one.join()


def _without_rights(admin: client.Configuration) -> client.ApiClient:
    settings = client.Configuration(host=admin.host)
    settings.ssl_ca_cert, settings.verify_ssl = admin.ssl_ca_cert, admin.verify_ssl
    settings.connection_pool_maxsize = 2 * _CROWD
    return client.ApiClient(settings)


def _stateful_set(replicas: int) -> dict[str, Any]:
    labels = {"app": "lorafleet-replica"}
    pod = {"containers": [{"name": "replica", "image": "registry.k8s.io/pause:3.10"}]}
    return {
        "metadata": {"name": STATEFUL_SET},
        "spec": {
            "replicas": replicas,
            "serviceName": STATEFUL_SET,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
