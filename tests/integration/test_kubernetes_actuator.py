"""The actuator of Kubernetes against what an API server answered: the official client on HTTP, and recordings."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import cast

import pytest
import yaml
from kubernetes import client
from kubernetes.config import incluster_config, kube_config

from services.autoscaler.core.orders import PoolSpec
from services.autoscaler.io.actuator import ActuatorFailed
from services.autoscaler.io.statefulsets import ScaleApi, StatefulSets, connected, scale_api
from tests.support.api_server.exchanges import Recording, recorded
from tests.support.api_server.scenes import NAMESPACE, POOL, SCENES, STATEFUL_SET, kubeconfig_at, stateful_at
from tests.support.api_server.wire import replaying
from tests.support.scripted_http import Answer, answering

ROOT = Path(__file__).resolve().parents[2]
FAILING = {
    "scaled_meanwhile": r"StatefulSet replica: 409 Conflict: .*the object has been modified",
    "no_such_stateful_set": r'StatefulSet replica: 404 Not Found: statefulsets.apps "replica" not found$',
    "no_right_to": r'StatefulSet replica: 403 Forbidden: .*:stranger" cannot get resource "statefulsets/scale"',
    "no_right_elsewhere": r'403 Forbidden: .*:lorafleet-autoscaler" cannot get resource .* in the namespace "default"$',
    "expired_token": r"StatefulSet replica: 401 Unauthorized: Unauthorized$",
    "overloaded": r"StatefulSet replica: 429 Too Many Requests$",
    "more_than_there_can_be": r"StatefulSet replica: 422 Unprocessable Entity: .* must be greater than or equal to 0$",
}


def patched(recording: Recording) -> list[int]:
    questions = [exchange.question for exchange in recording.exchanges]
    return [json.loads(question.body)["spec"]["replicas"] for question in questions if question.method == "PATCH"]


async def test_replicas_are_the_pods_and_are_patched_only_to_what_may_go() -> None:
    recording = recorded("grow_and_shrink")
    with replaying(recording) as url:
        seen = await SCENES["grow_and_shrink"].told(stateful_at(url))
    assert seen == [{f"replica-{at}" for at in range(3)}, {f"replica-{at}" for at in range(4)}]
    assert patched(recording) == [5, 4]
    order = stateful_at(url).removal_order(POOL, frozenset({"replica-9", "replica-10"}))
    assert order == ("replica-10", "replica-9")


async def test_a_scale_of_none_is_no_replica() -> None:
    """The API server leaves a zero out of what it answers."""
    recording = recorded("to_none_and_back")
    with replaying(recording) as url:
        seen = await SCENES["to_none_and_back"].told(stateful_at(url))
    assert seen == [frozenset(), {"replica-0"}]
    assert patched(recording) == [0, 1]


@pytest.mark.parametrize("name", FAILING)
async def test_what_the_api_server_refuses_is_said_and_asked_once(name: str) -> None:
    with replaying(recorded(name)) as url, pytest.raises(ActuatorFailed, match=FAILING[name]):
        await SCENES[name].told(stateful_at(url, namespace=SCENES[name].namespace))


async def test_other_pools_are_nobody_here() -> None:
    with answering(lambda asked: Answer(500, b"")) as url:
        assert await stateful_at(url).existing(PoolSpec(pool_id="base-r64")) is None


async def test_a_server_that_never_answers_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        api = scale_api(client.Configuration(host=f"http://127.0.0.1:{silent.getsockname()[1]}"))
        stateful = StatefulSets(api, NAMESPACE, {POOL.pool_id: STATEFUL_SET}, deadline_s=0.05)
        with pytest.raises(ActuatorFailed, match=r"StatefulSet replica: the API server does not answer: .*timed out"):
            await asyncio.wait_for(stateful.existing(POOL), 5)


async def test_what_a_proxy_answers_in_its_place_is_a_failure_too() -> None:
    with (
        answering(lambda asked: Answer(503, b"<html>upstream</html>")) as url,
        pytest.raises(ActuatorFailed, match=r"StatefulSet replica: 503 Service Unavailable$"),
    ):
        await stateful_at(url).existing(POOL)
    with pytest.raises(ActuatorFailed, match="does not answer"):
        await stateful_at(url).existing(POOL)


async def test_a_server_without_tls_is_said_in_one_line() -> None:
    with answering(lambda asked: Answer(200, b"")) as url, pytest.raises(ActuatorFailed) as failed:
        await stateful_at(url.replace("http:", "https:")).existing(POOL)
    assert "does not answer: SSLError" in str(failed.value)
    assert "\n" not in str(failed.value)


async def test_a_kubeconfig_is_followed_and_asked_with_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = recorded("overloaded")
    with replaying(recording) as url:
        (tmp_path / "config").write_text(yaml.safe_dump(kubeconfig_at(url)))
        monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))
        with pytest.raises(ActuatorFailed, match="429"):
            await StatefulSets(connected(), NAMESPACE, {POOL.pool_id: STATEFUL_SET}).existing(POOL)
    assert recording.exchanges[0].question.authorization == "bearer"


def test_in_a_pod_its_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("of-the-pod")
    (tmp_path / "ca.crt").write_text("of the cluster")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    settings = cast(client.AppsV1Api, connected()).api_client.configuration
    assert settings.host == "https://10.96.0.1:443"
    assert settings.ssl_ca_cert == str(tmp_path / "ca.crt")
    assert settings.get_api_key_with_prefix("authorization") == "bearer of-the-pod"
    assert settings.retries is False


def test_without_a_kubeconfig_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    with pytest.raises(ActuatorFailed, match="neither a service account nor a kubeconfig"):
        connected()


def test_the_role_allows_what_the_actuator_asks_and_no_more() -> None:
    asked = {name.split("_", 1)[0].replace("read", "get") for name in dir(ScaleApi) if name.endswith("_scale")}
    documents = yaml.safe_load_all((ROOT / "infra/kubernetes/autoscaler-role.yaml").read_text())
    rules = [rule for document in documents for rule in document.get("rules", ())]
    assert rules == [{"apiGroups": ["apps"], "resources": ["statefulsets/scale"], "verbs": sorted(asked)}]
