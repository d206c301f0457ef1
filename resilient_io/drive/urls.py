"""From a URL and a word for what is done there to the scope that it is counted under."""

from __future__ import annotations

import difflib
import os
import re
from typing import Final
from urllib.parse import unquote, urlsplit

from resilient_io.classify.operations import OpClass
from resilient_io.control.scopes import ScopePath, normal_endpoint, prefix_of, scope_path
from resilient_io.drive.azure_hosts import azure_host
from resilient_io.policy import Policy

_S3: Final = frozenset({"s3", "s3a", "s3n", "rs3"})
_AZURE: Final = frozenset({"abfs", "abfss", "az", "azure", "wasb", "wasbs", "rabfs", "raz"})
_GOOGLE: Final = frozenset({"gs", "gcs"})
_GOOGLE_ENDPOINT: Final = "https://storage.googleapis.com"

_OPS: Final = {
    **dict.fromkeys(("get", "head", "read"), OpClass.READ),
    **dict.fromkeys(("put", "write"), OpClass.WRITE),
    "list": OpClass.LIST,
    "delete": OpClass.DELETE,
}
# Presigned URLs: the bucket stands in the host's name.
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/VirtualHosting.html
_S3_HOST: Final = re.compile(r"(?:(?P<bucket>.+)\.)?(?P<rest>s3(?:[.-][a-z0-9-]+)?\.amazonaws\.com(?:\.cn)?)")
_AZURE_HOST: Final = re.compile(r"[a-z0-9-]+\.(?:[a-z0-9-]+\.)?(?:blob|dfs)\..+")


def op_class_of(op: str) -> OpClass:
    """Return the class of "get", "head", "put", "list" or "delete" (or of "read" and "write").

    Raises ValueError for any other word: a misspelt one must not be paced as something else.
    """
    try:
        return _OPS[op.lower()]
    except (KeyError, AttributeError):
        close = difflib.get_close_matches(str(op).lower(), _OPS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(_OPS)
        raise ValueError(f"unknown op {op!r}; {hint}") from None


def scope_of_url(url: str, *, op: str, policy: Policy, endpoint: str | None = None) -> ScopePath:
    """Return the scope under which `op` at `url` is counted: the one that clients of that store have too.

    The last segment of the URL is an object's name unless it ends in "/"; that of a listing is a
    directory. Raises ValueError for what is no URL.
    """
    kind = op_class_of(op)
    store, account, bucket, key = _place_of(url, endpoint)
    if kind is OpClass.LIST and key and not key.endswith("/"):
        key += "/"
    prefix = prefix_of(key, depth=policy.prefix_depth, rule=policy.prefix_rule) if bucket else ""
    return scope_path(
        endpoint=store, account=account, bucket=policy.bucket_of(bucket), prefix=prefix, op_class=kind.value
    )


def shown(url: str) -> str:
    """Return the URL as it may stand in messages: without a query, and without a user and password."""
    return re.sub(r"(?<=//)[^/@?#]*:[^/@?#]*@", "", re.split("[?#]", url, maxsplit=1)[0])


def _place_of(url: str, endpoint: str | None) -> tuple[str, str, str, str]:
    """Return (endpoint, account, bucket, key) of a URL; of a chain, of its last part."""
    scheme, found, rest = str(url).rpartition("::")[2].partition("://")
    scheme = scheme.lower()
    if not found or not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
        raise ValueError(f"{shown(str(url))!r} is no URL; write it with a scheme, such as s3://bucket/key")
    if scheme in ("http", "https"):
        return _http_place(scheme, rest, endpoint)
    # In the others "?" and "#" are letters of the key like any.
    host, _, key = rest.partition("/")
    if scheme in _S3:
        return endpoint or _s3_endpoint(), "", host, key
    if scheme in _GOOGLE:
        return endpoint or _GOOGLE_ENDPOINT, "", host, key
    if scheme in _AZURE:
        return _azure_place(host, key, endpoint)
    # Whatever else it is, a mount or another store: one limit for each place and class.
    return endpoint or f"{scheme}://{host.rpartition('@')[2]}", "", "", ""


def _s3_endpoint() -> str:
    """Return the endpoint that botocore takes where nothing is given: from the environment, by region.

    The profile's files are not read.
    """
    # https://docs.aws.amazon.com/sdkref/latest/guide/feature-ss-endpoints.html
    if os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() != "true":
        given = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        if given:
            return given
    region = os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    if region in ("us-east-1", "aws-global"):
        return "https://s3.amazonaws.com"
    return f"https://s3.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"


def _http_place(scheme: str, rest: str, endpoint: str | None) -> tuple[str, str, str, str]:
    parts = urlsplit(f"{scheme}://{rest}")
    origin = normal_endpoint(f"{scheme}://{parts.netloc}")
    host, path = (parts.hostname or ""), unquote(parts.path).lstrip("/")
    first, _, key = path.partition("/")
    if s3 := _S3_HOST.fullmatch(host):
        store = endpoint or f"{scheme}://{s3['rest']}"
        return (store, "", s3["bucket"], path) if s3["bucket"] else (store, "", first, key)
    if _AZURE_HOST.fullmatch(host):
        return *_azure_store(endpoint or origin), first, key
    if (account_url := _azure_endpoint()) and f"{origin}/{path}".startswith(f"{account_url}/"):
        container, _, key = f"{origin}/{path}"[len(account_url) + 1 :].partition("/")
        return *_azure_store(account_url), container, key
    if origin == _GOOGLE_ENDPOINT or origin == normal_endpoint(endpoint or _s3_endpoint()):
        return origin, "", first, key
    return origin, "", "", ""


def _azure_place(host: str, key: str, endpoint: str | None) -> tuple[str, str, str, str]:
    """Return the place of `container@account.dfs.core.windows.net/key`, or of adlfs's short `container/key`."""
    container, _, service = host.partition("@")
    named = f"https://{service}" if "." in service else ""
    return *_azure_store(endpoint or named or _azure_endpoint()), container, key


def _azure_store(url: str) -> tuple[str, str]:
    """Return the endpoint and the account of an account's URL, as a client's requests show them."""
    if not url:
        return "", ""
    found = azure_host(url)
    return found.endpoint, found.account or unquote(urlsplit(url).path).strip("/").partition("/")[0]


def _azure_endpoint() -> str:
    """Return the URL of the account that adlfs takes where nothing is given, without a slash; "" for none.

    That is the one of AZURE_STORAGE_CONNECTION_STRING, or else of AZURE_STORAGE_ACCOUNT_NAME.
    """
    pairs = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "").split(";")
    told = {name.strip().lower(): value for name, _, value in (pair.partition("=") for pair in pairs)}
    if given := told.get("blobendpoint"):
        return given.rstrip("/")
    account = told.get("accountname") or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
    scheme, suffix = told.get("defaultendpointsprotocol", "https"), told.get("endpointsuffix", "core.windows.net")
    return f"{scheme}://{account}.blob.{suffix}" if account else ""
