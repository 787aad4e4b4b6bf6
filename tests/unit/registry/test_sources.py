"""From where weights may come, by the text of the URI alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.registry.core.files.sources import ObjectSource, PathSource, Prefixes, UploadSource, locate
from shared.messages.adapters import Defect

PREFIXES = Prefixes(folders=("/srv/inbox", "/srv/other"), buckets=("s3://models/acme", "s3://b"))
DIGEST = "0" * 64


def test_files_below_a_folder_and_uploads_are_taken() -> None:
    assert locate("file:///srv/inbox/acme//v1", PREFIXES) == PathSource(folder="/srv/inbox", steps=("acme", "v1"))
    spaced = PathSource(folder="/srv/other", steps=("a b", "x.safetensors"))
    assert locate("file:///srv/other/a%20b/x.safetensors", PREFIXES) == spaced
    assert locate("file:///x", Prefixes(folders=("/",))) == PathSource(folder="/", steps=("x",))
    assert locate(f"upload:{DIGEST}", PREFIXES) == UploadSource(digest=DIGEST)


def test_the_longest_prefix_counts() -> None:
    nested = Prefixes(folders=("/srv", "/srv/inbox"), buckets=("s3://models", "s3://models/acme"))
    assert locate("file:///srv/inbox/v1", nested) == PathSource(folder="/srv/inbox", steps=("v1",))
    assert locate("s3://models/acme/v1", nested) == ObjectSource(bucket="s3://models/acme", key="v1")


def test_objects_below_a_bucket_prefix_are_taken() -> None:
    assert locate("s3://models/acme/v1/", PREFIXES) == ObjectSource(bucket="s3://models/acme", key="v1")
    file = ObjectSource(bucket="s3://models/acme", key="a/x.safetensors")
    assert locate("s3://models/acme/a/x.safetensors", PREFIXES) == file


def test_c26_buckets_and_keys_do_not_run_into_one_another() -> None:
    both = Prefixes(buckets=("s3://aaa", "s3://aaa_b"))
    assert locate("s3://aaa/b_c", both) == ObjectSource(bucket="s3://aaa", key="b_c")
    assert locate("s3://aaa_b/c", both) == ObjectSource(bucket="s3://aaa_b", key="c")


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "/etc/passwd",
        "etc/passwd",
        "../../etc",
        "file:///etc/passwd",
        "file:///srv/inbox",
        "file:///srv/inbox2/x",
        "file:///srv/inbox/../../etc/passwd",
        "file:///srv/inbox/a/../b",
        "file:///srv/inbox/./b",
        "file:///srv/inbox/a\0b",
        "file:///srv/inbox/a%00b",
        "file:///srv/inbox/%2e%2e/%2e%2e/etc/passwd",
        "file:///srv/inbox/..%2f..%2fetc",
        "file:///srv/inbox/%252e%252e/x",
        "file:///srv/inbox/a%5cb",
        "file:///srv/inbox/a%0ab",
        "file:///srv/inbox/a%",
        "file:///srv/inbox/%ff",
        "file:///srv/inbox/a\\..\\b",
        "file:///srv/inbox/a?x=1",
        "file:///srv/inbox/a#x",
        "file:///srv/inbox/" + "x" * 4096,
        "file:///srv/inbox/\u2024\u2024/x",
        "file://host/srv/inbox/x",
        "FILE:///srv/inbox/x",
        "file:///srv/inbox/",
        "https://example.com/x",
        "s3://bucket/x",
        "s3://models/acme",
        "s3://models/acme/",
        "s3://models/acme2/x",
        "s3://models/acme/../x",
        "s3://models/acme/a//b",
        "s3://models/acme/.x",
        "s3://models/acme/a%2fb",
        "s3://models/acme/a b",
        "s3://user:secret@b/x",
        "S3://b/x",
        "upload:",
        "upload:../../etc",
        "upload:" + "A" * 64,
    ],
)
def test_c54_everything_else_is_refused_by_its_text(uri: str) -> None:
    refused = locate(uri, PREFIXES)
    assert isinstance(refused, Defect)
    assert (refused.code, refused.field) == ("weights_uri_refused", "weights_uri")


def test_what_leads_outside_is_told_which_folders_are_allowed() -> None:
    outside = locate("file:///etc/passwd", PREFIXES)
    assert isinstance(outside, Defect)
    allowed = "file:///srv/inbox, file:///srv/other, s3://models/acme, s3://b"
    assert outside.message.endswith(f"may come from ({allowed}).")
    assert (outside.found, outside.allowed) == ("file:///etc/passwd", allowed)
    nowhere = locate("file:///etc/passwd", Prefixes())
    assert isinstance(nowhere, Defect)
    assert nowhere.message.endswith("may come from (none; only uploads are taken).")


@pytest.mark.parametrize("name", ["adapter_model.bin", "x.pt", "x.PTH", "x.pkl", "x.ckpt"])
def test_c56_a_pickle_is_refused_by_its_name(name: str) -> None:
    for prefix in ("file:///srv/inbox", "s3://b"):
        refused = locate(f"{prefix}/{name}", PREFIXES)
        assert isinstance(refused, Defect)
        assert refused.code == "pickle_refused"


@given(st.text(max_size=60))
def test_c54_what_is_taken_lies_below_a_folder(tail: str) -> None:
    found = locate(f"file:///srv/inbox/{tail}", PREFIXES)
    if isinstance(found, PathSource):
        assert found.folder == "/srv/inbox"
        assert found.steps
        assert not {"..", ".", ""} & set(found.steps)
        assert not any("/" in step for step in found.steps)
