from __future__ import annotations

import pytest

from resilient_io.aws.keys import scope_of
from resilient_io.drive.urls import op_class_of, scope_of_url, shown
from resilient_io.policy import Policy

AWS = "https://s3.amazonaws.com"
AZURE = "https://acct.blob.core.windows.net"


def levels(url: str, op: str = "get", endpoint: str | None = None, **policy: object) -> str:
    path = scope_of_url(url, op=op, policy=Policy(**policy), endpoint=endpoint)  # type: ignore[arg-type]
    return path.levels()[-1]


@pytest.mark.parametrize(
    ("url", "leaf"),
    [
        ("s3://b/train/imagenet/0001.tar", f"{AWS}||b|train/imagenet|read"),
        ("s3a://b/train/imagenet/v1/0001.tar", f"{AWS}||b|train/imagenet|read"),
        ("rs3://b/0001.tar", f"{AWS}||b||read"),
        ("s3://b/train/imagenet/", f"{AWS}||b|train/imagenet|read"),
        ("s3://b", f"{AWS}||b||read"),
        ("S3://b/x/y", f"{AWS}||b|x|read"),
        ("s3://b/what?/is#this", f"{AWS}||b|what?|read"),
        ("resilient::s3://b/x/y", f"{AWS}||b|x|read"),
        ("gs://b/x/y", "https://storage.googleapis.com||b|x|read"),
        ("https://storage.googleapis.com/b/x/y?X-Goog-Signature=1", "https://storage.googleapis.com||b|x|read"),
        ("https://b.s3.amazonaws.com/x/y?X-Amz-Signature=1", f"{AWS}||b|x|read"),
        ("https://my.b.s3.eu-west-1.amazonaws.com/x/y", "https://s3.eu-west-1.amazonaws.com||my.b|x|read"),
        ("https://s3.eu-west-1.amazonaws.com/b/x%20z/y", "https://s3.eu-west-1.amazonaws.com||b|x z|read"),
        ("abfs://c@acct.dfs.core.windows.net/x/y", f"{AZURE}|acct|c|x|read"),
        ("abfss://c@acct.blob.core.windows.net/x/y", f"{AZURE}|acct|c|x|read"),
        ("https://acct.blob.core.windows.net/c/x/y?sig=1", f"{AZURE}|acct|c|x|read"),
        ("az://c/x/y", "||c|x|read"),
        ("https://user:word@example.com/x/y", "https://example.com|read"),
        ("http://example.com:8080/x/y", "http://example.com:8080|read"),
        ("file:///mnt/data/x", "file://|read"),
        ("hf://datasets/x/y", "hf://datasets|read"),
    ],
)
def test_the_scope_of_a_url(url: str, leaf: str) -> None:
    assert levels(url) == leaf


def test_adlfs_short_urls_take_the_account_that_adlfs_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "acct")
    assert levels("raz://c/x/y") == levels("abfs://c@acct.dfs.core.windows.net/x/y")


@pytest.mark.parametrize(
    ("op", "leaf"),
    [
        ("get", "b|x|read"),
        ("head", "b|x|read"),
        ("put", "b|x|write"),
        ("delete", "b|x|delete"),
        # What is listed is a directory, with or without the slash.
        ("list", "b|x/y|list"),
        ("LIST", "b|x/y|list"),
    ],
)
def test_the_class_and_place_of_an_op(op: str, leaf: str) -> None:
    assert levels("s3://b/x/y", op) == f"{AWS}||{leaf}"


def test_an_unknown_op_is_refused() -> None:
    with pytest.raises(ValueError, match="did you mean 'delete'"):
        op_class_of("delet")
    with pytest.raises(ValueError, match="known: get"):
        op_class_of("frobnicate")


@pytest.mark.parametrize("url", ["bucket/key", "/mnt/data", "", "1x://b/k"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="scheme"):
        levels(url)


def test_the_policy_says_what_a_prefix_is() -> None:
    assert levels("s3://b/x/y/z", prefix_depth=1) == f"{AWS}||b|x|read"
    assert levels("s3://b/x/y/z", prefix_depth=0) == f"{AWS}||b||read"
    assert levels("s3://b/x/y/z", prefix_rule="x/(y)") == f"{AWS}||b|y|read"


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"])
def test_the_endpoint_of_the_environment(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "http://minio:9000/")
    assert levels("s3://b/x/y") == "http://minio:9000||b|x|read"
    assert levels("http://minio:9000/b/x/y") == "http://minio:9000||b|x|read"
    assert levels("s3://b/x/y", endpoint="https://other") == "https://other||b|x|read"
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    assert levels("s3://b/x/y") == f"{AWS}||b|x|read"


@pytest.mark.parametrize("region", [None, "us-east-1", "eu-west-1", "cn-north-1"])
@pytest.mark.parametrize("endpoint", [None, "http://127.0.0.1:9"])
def test_it_meets_the_scope_of_a_client(
    monkeypatch: pytest.MonkeyPatch, region: str | None, endpoint: str | None
) -> None:
    boto3 = pytest.importorskip("boto3")
    if region is None:
        monkeypatch.delenv("AWS_DEFAULT_REGION")
    else:
        monkeypatch.setenv("AWS_DEFAULT_REGION", region)
    if endpoint is not None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    client = boto3.session.Session().client("s3", region_name=region)
    params = {"Bucket": "b", "Key": "train/imagenet/0001.tar"}
    theirs = scope_of("GetObject", params, client.meta.endpoint_url, Policy())
    ours = scope_of_url("s3://b/train/imagenet/0001.tar", op="get", policy=Policy())
    assert ours is theirs


def test_what_is_shown_holds_no_secret() -> None:
    assert shown("https://u:p@host/k?X-Amz-Signature=abc#f") == "https://host/k"
    assert shown("abfs://container@account/k") == "abfs://container@account/k"
