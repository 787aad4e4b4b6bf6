"""Which URL names which store."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shared.store.access import S3Access
from shared.store.open import store_from_url
from shared.store.s3 import S3Store

KEYS = S3Access(s3_access_key_id="id", s3_secret_access_key="the secret")


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/", "s3://my.bucket-1/some/prefix/"])
def test_a_bucket_with_or_without_a_prefix_is_a_store(url: str) -> None:
    assert isinstance(store_from_url(url, KEYS), S3Store)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/plain/path",
        "file://host/x",
        "file:relative",
        "s3:bucket",
        "s3://",
        "s3://UPPER",
        "s3://b/x?y=1",
        "s3://b#x",
    ],
)
def test_any_other_url_is_refused_by_name(url: str) -> None:
    with pytest.raises(ValueError, match="names no store") as refused:
        store_from_url(url, KEYS)
    assert repr(url) in str(refused.value)


def test_c54_a_prefix_leads_nowhere_else() -> None:
    with pytest.raises(ValueError, match="no object key"):
        store_from_url("s3://bucket/a/../b", KEYS)


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="no user and no password") as refused:
        store_from_url("s3://id:the-secret@bucket", S3Access())
    assert "the-secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("access", "reason"),
    [
        (S3Access(s3_access_key_id="id"), "belong together"),
        (S3Access(s3_secret_access_key="the secret"), "belong together"),
        (S3Access(s3_endpoint_url="no address"), "Invalid endpoint: no address"),
        (S3Access(s3_endpoint_url="http://me:the secret@host"), "s3_endpoint_url holds no user"),
    ],
)
def test_settings_of_which_no_client_can_be_made_are_refused(access: S3Access, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as refused:
        store_from_url("s3://bucket", access)
    assert "the secret" not in str(refused.value)


def test_a_fleet_on_a_folder_needs_no_boto3() -> None:
    program = (
        "import sys; from shared.store.open import store_from_url; from shared.store.access import S3Access;"
        "store_from_url('file:///x', S3Access()); sys.exit('boto3' in sys.modules or 'botocore' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
