"""`python -m tests.support.api_server --kubeconfig FILE [SCENE ...]` writes the recordings anew.

The kubeconfig has to be an administrator's: a namespace, the Role and a StatefulSet of pause containers are made, and
removed in the end. Two scenes are played only when named, for they need something special:

- `expired_token` needs `--expired-token FILE`: what `kubectl create token default --duration 10m` printed more than
  eleven minutes ago, for a token lives ten at least and one more is forgiven;
- `overloaded` needs an API server that takes on little: `kube-apiserver --enable-priority-and-fairness=false
  --max-requests-inflight=1`. It asks many times at once, so not of a cluster that has other things to do.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from urllib.parse import urlsplit

from kubernetes import client

from tests.support.api_server.cluster import Cluster
from tests.support.api_server.exchanges import RECORDINGS
from tests.support.api_server.recorder import NotRecorded, publishable, record
from tests.support.api_server.scenes import SCENES, Scene


async def _record(cluster: Cluster, names: list[str], expired_token: str) -> None:
    with cluster.namespace():
        for name in names:
            scene = SCENES[name]
            token = expired_token if scene.expired else cluster.token_of(scene.account)
            recording = await record(cluster, scene, token)
            path = RECORDINGS / f"{name}.json"
            path.write_bytes(publishable(recording, (token, urlsplit(cluster.host).netloc)))
            print(f"{path}: {recording.server}, {len(recording.exchanges)} exchanges")


def _special(scene: Scene) -> bool:
    return scene.expired or scene.crowded


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.api_server", description=__doc__)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--expired-token", type=Path, metavar="FILE")
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=", ".join(SCENES))
    asked = parser.parse_args()
    names = asked.scenes or [name for name, scene in SCENES.items() if not _special(scene)]
    if unknown := [name for name in names if name not in SCENES]:
        parser.error(f"there is no scene {unknown[0]}")
    if asked.expired_token is None and any(SCENES[name].expired for name in names):
        parser.error("expired_token needs --expired-token FILE")
    expired_token = asked.expired_token.read_text().strip() if asked.expired_token else ""
    try:
        asyncio.run(_record(Cluster(asked.kubeconfig), names, expired_token))
    except NotRecorded as error:
        print(error, file=sys.stderr)
        return 1
    except client.ApiException as error:
        print(f"the cluster refused to be prepared: {error.status} {error.reason}: {error.body}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
