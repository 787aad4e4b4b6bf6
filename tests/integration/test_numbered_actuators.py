"""Kubernetes' and Compose's actuators against what their servers answer: the official client on HTTP, and a program."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from kubernetes import client

from services.autoscaler.core.orders import PoolSpec, ScaleOrder
from services.autoscaler.io.actuator import Actuator, ActuatorFailed
from services.autoscaler.io.compose import Compose
from services.autoscaler.io.statefulsets import ScaleApi, StatefulSets
from tests.support.scripted_http import Answer, Asked, answering

ROOT = Path(__file__).resolve().parents[2]
POOL, OTHER = PoolSpec(pool_id="base-r16"), PoolSpec(pool_id="base-r64")
SCALE = "/apis/apps/v1/namespaces/fleet/statefulsets/replica/scale"


class ApiServer:
    """Answers as an API server did when it was asked for the scale of a StatefulSet, with the numbers of now."""

    def __init__(self, replicas: int) -> None:
        self.replicas = replicas
        self.version = 4711
        self.asked: list[Asked] = []
        self.refuses: Answer | None = None

    def answer(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        if self.refuses is not None:
            return self.refuses
        if asked.path != SCALE:
            return _status(404, "NotFound", f"{asked.path} not found")
        if asked.method == "PATCH":
            body = json.loads(asked.body)
            if body["metadata"]["resourceVersion"] != str(self.version):
                return _status(409, "Conflict", "the object has been modified")
            self.replicas, self.version = body["spec"]["replicas"], self.version + 1
        return _json(200, self._scale())

    def _scale(self) -> dict[str, Any]:
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {
                "name": "replica",
                "namespace": "fleet",
                "uid": "5c1d8c33-5a56-4f7c-a8ab-4c4f4ad50c1c",
                "resourceVersion": str(self.version),
                "creationTimestamp": "2026-11-02T09:12:44Z",
            },
            "spec": {"replicas": self.replicas},
            "status": {"replicas": self.replicas, "selector": "app=lorafleet-replica"},
        }


def _json(status: int, body: Any) -> Answer:
    return Answer(status, json.dumps(body).encode(), {"Content-Type": "application/json"})


def _status(code: int, reason: str, message: str) -> Answer:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return _json(code, {**body, "reason": reason, "code": code})


@pytest.fixture
def server() -> ApiServer:
    return ApiServer(replicas=3)


@pytest.fixture
def stateful(server: ApiServer) -> Iterator[StatefulSets]:
    with answering(server.answer) as url:
        configuration = client.Configuration(host=url)
        configuration.retries = False
        with client.ApiClient(configuration) as connection:
            yield StatefulSets(client.AppsV1Api(connection), "fleet", {"base-r16": "replica"})


async def test_replicas_are_the_pods_of_the_stateful_set(stateful: StatefulSets) -> None:
    existing = await stateful.existing(POOL)
    assert existing == {"replica-0", "replica-1", "replica-2"}
    assert stateful.removal_order(POOL, existing) == ("replica-2", "replica-1", "replica-0")
    assert await stateful.existing(OTHER) is None


async def test_the_scale_is_patched_once_and_only_to_what_may_go(stateful: StatefulSets, server: ApiServer) -> None:
    for _ in range(2):
        await stateful.apply(ScaleOrder(pool=POOL, desired=5))
    assert [asked.method for asked in server.asked] == ["GET", "PATCH", "GET"]
    await stateful.apply(ScaleOrder(pool=POOL, desired=3, remove=("replica-4", "replica-2")))
    assert server.replicas == 4
    await stateful.apply(ScaleOrder(pool=OTHER, desired=9))
    assert server.replicas == 4


async def test_what_somebody_else_scaled_meanwhile_is_not_overwritten(
    stateful: StatefulSets, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer_late(asked: Asked) -> Answer:
        if asked.method == "PATCH":
            server.replicas, server.version = 7, server.version + 1
        return ApiServer.answer(server, asked)

    with answering(answer_late) as url, client.ApiClient(client.Configuration(host=url)) as connection:
        late = StatefulSets(client.AppsV1Api(connection), "fleet", {"base-r16": "replica"})
        with pytest.raises(ActuatorFailed, match="StatefulSet replica: 409"):
            await late.apply(ScaleOrder(pool=POOL, desired=5))
    assert server.replicas == 7


async def test_a_refusal_and_a_server_that_is_away_are_said(stateful: StatefulSets, server: ApiServer) -> None:
    server.refuses = _status(403, "Forbidden", "statefulsets.apps is forbidden")
    with pytest.raises(ActuatorFailed, match="StatefulSet replica: 403 Forbidden"):
        await stateful.existing(POOL)
    configuration = client.Configuration(host="http://127.0.0.1:9")
    configuration.retries = False
    with client.ApiClient(configuration) as connection:
        away = StatefulSets(client.AppsV1Api(connection), "fleet", {"base-r16": "replica"})
        with pytest.raises(ActuatorFailed, match="does not answer"):
            await away.existing(POOL)


def test_the_role_allows_what_the_actuator_asks_and_no_more() -> None:
    asked = {name.split("_", 1)[0].replace("read", "get") for name in dir(ScaleApi) if name.endswith("_scale")}
    documents = yaml.safe_load_all((ROOT / "infra/kubernetes/autoscaler-role.yaml").read_text())
    rules = [rule for document in documents for rule in document.get("rules", ())]
    assert rules == [{"apiGroups": ["apps"], "resources": ["statefulsets/scale"], "verbs": sorted(asked)}]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that scales as Compose does: highest numbers go first, and `ps` prints a JSON object a line."""
    path = tmp_path / "docker-compose"
    path.write_text(
        dedent("""\
        #!/usr/bin/env python3
        import json, pathlib, sys
        state = pathlib.Path(__file__).with_name("containers")
        running = int(state.read_text())
        with pathlib.Path(__file__).with_name("said").open("a") as said:
            print(*sys.argv[1:], file=said)
        if "up" in sys.argv:
            wanted = next(word for word in sys.argv if word.startswith("replica="))
            state.write_text(wanted.partition("=")[2])
        elif "ps" in sys.argv:
            if running > 90:
                sys.exit("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.")
            for at in reversed(range(running)):
                name = f"fleet-replica-{at + 1}"
                print(json.dumps({"ID": f"{at:012x}", "Name": name, "Service": "replica", "State": "running"}))
        """)
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "containers").write_text("2")
    return path


def composing(program: Path) -> Actuator:
    return Compose([str(program), "-p", "fleet"], {"base-r16": "replica"})


async def test_replicas_are_the_containers_of_the_service(program: Path) -> None:
    compose = composing(program)
    existing = await compose.existing(POOL)
    assert existing == {"000000000000", "000000000001"}
    assert compose.removal_order(POOL, existing) == ("000000000001", "000000000000")
    assert await compose.existing(OTHER) is None


async def test_the_service_is_scaled_once_and_nothing_else_is_touched(program: Path) -> None:
    compose = composing(program)
    for _ in range(2):
        await compose.apply(ScaleOrder(pool=POOL, desired=3))
    await compose.apply(ScaleOrder(pool=POOL, desired=1, remove=("000000000002", "000000000000")))
    assert await compose.existing(POOL) == {"000000000000", "000000000001"}
    said = program.with_name("said").read_text()
    assert said.count(" up ") == 2
    assert "-p fleet up --detach --no-deps --no-recreate --no-build --scale replica=3 replica" in said


async def test_what_compose_complains_of_is_the_failure(program: Path) -> None:
    program.with_name("containers").write_text("99")
    with pytest.raises(ActuatorFailed, match="Compose could not ps: Cannot connect to the Docker daemon"):
        await composing(program).existing(POOL)
    with pytest.raises(ActuatorFailed, match=f"{os.sep}nowhere cannot be run: No such file"):
        await Compose([str(program.with_name("nowhere"))], {"base-r16": "replica"}).existing(POOL)
