from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from tests.integration.store.bucket import Bucket
from tests.support.faulty_link import FaultyLink, faulty_link
from tests.support.s3_server import S3Server, s3_server

_numbers = count()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def bucket(server: S3Server) -> Bucket:
    return Bucket(server, prefix=f"test-{next(_numbers)}/below")


@pytest.fixture
async def link(server: S3Server) -> AsyncIterator[FaultyLink]:
    async with faulty_link(str(server.access.s3_endpoint_url)) as planted:
        yield planted
