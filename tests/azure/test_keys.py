"""What a request is about: hosts, path styles, listings and operations; and that no signature gets into it."""

from __future__ import annotations

import pytest

from resilient_io import policy as policies
from resilient_io.azure.keys import Target, target_of
from resilient_io.drive.azure_hosts import azure_host

POLICY = policies.resolve({"prefix_depth": 2})
BLOB = "https://acct.blob.core.windows.net"
SAS = "sv=2021-12-02&ss=b&sp=rl&sig=c2VjcmV0%3D"


def get(url: str, **headers: str) -> Target:
    return target_of("GET", url, {name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize(
    ("url", "endpoint", "account", "container", "key"),
    [
        (f"{BLOB}/c/a/b/x.tar", BLOB, "acct", "c", "a/b/x.tar"),
        ("http://acct.blob.core.windows.net/c/x", BLOB, "acct", "c", "x"),
        ("https://ACCT.blob.core.windows.net:443/c/x", BLOB, "acct", "c", "x"),
        ("https://acct.dfs.core.windows.net/c/a/x", BLOB, "acct", "c", "a/x"),
        ("https://acct-ipv6.blob.core.windows.net/c/x", BLOB, "acct", "c", "x"),
        ("https://acct-dualstack.blob.core.windows.net/c/x", BLOB, "acct", "c", "x"),
        (
            "https://acct-secondary.blob.core.windows.net/c/x",
            "https://acct-secondary.blob.core.windows.net",
            "acct",
            "c",
            "x",
        ),
        (
            "https://acct-secondary-ipv6.blob.core.windows.net/c/x",
            "https://acct-secondary.blob.core.windows.net",
            "acct",
            "c",
            "x",
        ),
        ("https://acct.blob.core.chinacloudapi.cn/c/x", "https://acct.blob.core.chinacloudapi.cn", "acct", "c", "x"),
        ("https://acct.z12.blob.storage.azure.net/c/x", "https://acct.z12.blob.storage.azure.net", "acct", "c", "x"),
        ("https://acct.z12.dfs.storage.azure.net/c/x", "https://acct.z12.blob.storage.azure.net", "acct", "c", "x"),
        ("http://127.0.0.1:10000/devstoreaccount1/c/a/x", "http://127.0.0.1:10000", "devstoreaccount1", "c", "a/x"),
        ("http://localhost:10000/devstoreaccount1/c/x", "http://localhost:10000", "devstoreaccount1", "c", "x"),
        ("http://azurite:10000/devstoreaccount1/c/x", "http://azurite:10000", "devstoreaccount1", "c", "x"),
        ("http://[::1]:10000/devstoreaccount1/c/x", "http://[::1]:10000", "devstoreaccount1", "c", "x"),
        ("http://127.0.0.1:10000/acct-secondary/c/x", "http://127.0.0.1:10000", "acct", "c", "x"),
        ("http://acct.blob.localhost:10000/c/x", "http://acct.blob.localhost:10000", "acct", "c", "x"),
        ("https://data.example.org/c/a/x", "https://data.example.org", "data.example.org", "c", "a/x"),
        (f"{BLOB}/logo.png", BLOB, "acct", "$root", "logo.png"),
        (f"{BLOB}/$root/logo.png", BLOB, "acct", "$root", "logo.png"),
        ("http://127.0.0.1:10000/devstoreaccount1/x", "http://127.0.0.1:10000", "devstoreaccount1", "$root", "x"),
        (f"{BLOB}/c/a%2Fb/x%20y", BLOB, "acct", "c", "a/b/x y"),
        (f"{BLOB}/c//x", BLOB, "acct", "c", "/x"),
        (f"{BLOB}/c?restype=container", BLOB, "acct", "c", ""),
        (f"{BLOB}/?comp=list&prefix=tr", BLOB, "acct", "", "tr"),
        (f"{BLOB}/c?comp=batch&restype=container", BLOB, "acct", "c", ""),
        (f"{BLOB}/?comp=batch", BLOB, "acct", "", ""),
        (f"{BLOB}/c?restype=container&comp=list&prefix=a%2Fb%2Fc", BLOB, "acct", "c", "a/b/c"),
        ("https://acct.dfs.core.windows.net/c?resource=filesystem&directory=a%2Fb", BLOB, "acct", "c", "a/b/"),
    ],
)
def test_where_a_request_leads(url: str, endpoint: str, account: str, container: str, key: str) -> None:
    joint = "&" if "?" in url else "?"
    for signed in (url, f"{url}{joint}{SAS}"):
        found = get(signed)
        assert (found.endpoint, found.account, found.container, found.key) == (endpoint, account, container, key)


@pytest.mark.parametrize(
    ("url", "levels"),
    [
        (f"{BLOB}/c/a/b/x.tar", [BLOB, f"{BLOB}|acct", f"{BLOB}|acct|c", f"{BLOB}|acct|c|a/b"]),
        (f"{BLOB}/c/x.tar", [BLOB, f"{BLOB}|acct", f"{BLOB}|acct|c", f"{BLOB}|acct|c|"]),
        (f"{BLOB}/?restype=service&comp=properties", [BLOB, f"{BLOB}|acct"]),
    ],
)
def test_an_account_is_above_container_and_prefix(url: str, levels: list[str]) -> None:
    assert [level.rpartition("|")[0] for level in get(url).scope(POLICY).levels()] == levels


@pytest.mark.parametrize(
    ("prefix", "counted"), [("a", ""), ("a/", "a"), ("a/b", "a"), ("a/b/", "a/b"), ("a/b/c/d", "a/b")]
)
def test_a_listing_is_counted_under_the_whole_segments_of_its_prefix(prefix: str, counted: str) -> None:
    scope = get(f"{BLOB}/c?restype=container&comp=list&prefix={prefix.replace('/', '%2F')}").scope(POLICY)
    assert (scope.prefix, scope.op_class) == (counted, "list")


def test_the_prefix_rule_is_obeyed() -> None:
    policy = policies.resolve({"prefix_rule": "^(data/[^/]+/[^/]+)/"})
    assert get(f"{BLOB}/c/data/a/b/x").scope(policy).prefix == "data/a/b"


def test_no_signature_is_kept() -> None:
    found = get(f"{BLOB}/c/a/b/x?{SAS}")
    scope = found.scope(POLICY)
    for text in (repr(found), found.place, str(scope), *scope.levels()):
        assert "sig" not in text
        assert "c2VjcmV0" not in text


def test_places_are_urls_for_people() -> None:
    assert get(f"{BLOB}/c/a/b?{SAS}").place == "abfs://c@acct/a/b"
    assert get(f"{BLOB}/c?restype=container").place == "abfs://c@acct"
    assert get(f"{BLOB}/?comp=list").place == "abfs://acct"


BLOB_URL, DFS_URL = f"{BLOB}/c/a/x", "https://acct.dfs.core.windows.net/c/a/x"


@pytest.mark.parametrize(
    ("method", "url", "headers", "judged_as", "op_class"),
    [
        ("GET", BLOB_URL, {}, "GetBlob", "read"),
        ("HEAD", BLOB_URL, {}, "GetBlobProperties", "read"),
        ("DELETE", BLOB_URL, {}, "DeleteBlob", "delete"),
        ("PUT", BLOB_URL, {"x-ms-blob-type": "BlockBlob"}, "PutBlob", "write"),
        ("PUT", BLOB_URL, {"x-ms-blob-type": "BlockBlob", "If-None-Match": "*"}, "PutBlob-IfNoneMatch", "write"),
        ("PUT", BLOB_URL, {"x-ms-blob-type": "BlockBlob", "If-Match": '"1"'}, "PutBlob-IfMatch", "write"),
        ("PUT", BLOB_URL, {"x-ms-blob-type": "AppendBlob"}, "CreateAppendBlob", "write"),
        ("PUT", BLOB_URL, {"x-ms-blob-type": "PageBlob"}, "CreatePageBlob", "write"),
        ("PUT", BLOB_URL, {"x-ms-copy-source": "u"}, "CopyBlob", "write"),
        ("PUT", BLOB_URL, {"x-ms-copy-source": "u", "x-ms-requires-sync": "true"}, "CopyBlobFromURL", "write"),
        ("PUT", BLOB_URL, {"x-ms-blob-type": "BlockBlob", "x-ms-copy-source": "u"}, "PutBlobFromURL", "write"),
        ("PUT", f"{BLOB_URL}?comp=block&blockid=1", {}, "PutBlock", "write"),
        ("PUT", f"{BLOB_URL}?comp=block", {"x-ms-copy-source": "u"}, "PutBlockFromURL", "write"),
        ("PUT", f"{BLOB_URL}?comp=blocklist", {}, "PutBlockList", "write"),
        ("PUT", f"{BLOB_URL}?comp=blocklist", {"If-None-Match": "*"}, "PutBlockList-IfNoneMatch", "write"),
        ("GET", f"{BLOB_URL}?comp=blocklist", {}, "GetBlockList", "read"),
        ("PUT", f"{BLOB_URL}?comp=appendblock", {}, "AppendBlock", "write"),
        (
            "PUT",
            f"{BLOB_URL}?comp=appendblock",
            {"x-ms-blob-condition-appendpos": "0"},
            "AppendBlock-IfMatch",
            "write",
        ),
        ("PUT", f"{BLOB_URL}?comp=appendblock", {"If-Unmodified-Since": "now"}, "AppendBlock", "write"),
        ("PUT", f"{BLOB_URL}?comp=page", {}, "PutPage", "write"),
        ("GET", f"{BLOB_URL}?comp=pagelist", {}, "GetPageRanges", "read"),
        ("PUT", f"{BLOB_URL}?comp=metadata", {}, "SetBlobMetadata", "write"),
        ("PUT", f"{BLOB_URL}?comp=snapshot", {}, "SnapshotBlob", "write"),
        ("PUT", f"{BLOB_URL}?comp=lease", {"x-ms-lease-action": "acquire"}, "AcquireLease", "write"),
        ("PUT", f"{BLOB_URL}?comp=lease", {"x-ms-lease-action": "renew"}, "RenewLease", "write"),
        ("PUT", f"{BLOB_URL}?comp=tags", {}, "SetBlobTags", "write"),
        ("GET", f"{BLOB_URL}?comp=tags", {}, "GetBlobTags", "read"),
        ("POST", f"{BLOB_URL}?comp=query", {}, "SelectBlobContents", "read"),
        ("PUT", f"{BLOB}/c?restype=container", {}, "CreateContainer", "write"),
        ("DELETE", f"{BLOB}/c?restype=container", {}, "DeleteContainer", "delete"),
        ("HEAD", f"{BLOB}/c?restype=container", {}, "GetContainerProperties", "read"),
        ("GET", f"{BLOB}/c?restype=container&comp=list", {}, "ListBlobs", "list"),
        ("GET", f"{BLOB}/?comp=list", {}, "ListContainers", "list"),
        ("GET", f"{BLOB}/?comp=blobs&where=x", {}, "FindBlobsByTags", "list"),
        ("POST", f"{BLOB}/c?restype=container&comp=batch", {}, "SubmitBatch", "write"),
        ("POST", f"{BLOB}/?comp=batch", {}, "SubmitBatch", "write"),
        ("GET", f"{BLOB}/?restype=account&comp=properties", {}, "GetAccountInformation", "read"),
        ("POST", f"{BLOB}/?restype=service&comp=userdelegationkey", {}, "GetUserDelegationKey", "read"),
        ("PUT", f"{DFS_URL}?resource=file", {}, "CreatePath", "write"),
        ("PUT", f"{DFS_URL}?resource=file", {"If-None-Match": "*"}, "CreatePath-IfNoneMatch", "write"),
        ("PUT", DFS_URL, {"x-ms-rename-source": "/c/y"}, "RenamePath", "write"),
        ("PATCH", f"{DFS_URL}?action=append&position=0", {}, "AppendData", "write"),
        ("PATCH", f"{DFS_URL}?action=flush&position=9", {}, "FlushData", "write"),
        ("DELETE", f"{DFS_URL}?recursive=true", {}, "DeletePath", "delete"),
        ("HEAD", DFS_URL, {}, "GetBlobProperties", "read"),
        ("GET", DFS_URL, {}, "GetBlob", "read"),
        ("GET", "https://acct.dfs.core.windows.net/c?resource=filesystem", {}, "ListPaths", "list"),
        ("PUT", "https://acct.dfs.core.windows.net/c?resource=filesystem", {}, "CreateContainer", "write"),
    ],
)
def test_what_a_request_does(method: str, url: str, headers: dict[str, str], judged_as: str, op_class: str) -> None:
    joint = "&" if "?" in url else "?"
    found = target_of(method, f"{url}{joint}{SAS}", headers)
    assert found.judged_as == judged_as
    assert found.operation == judged_as.partition("-")[0]
    assert found.scope(POLICY).op_class == op_class


def test_a_host_that_is_none_of_azures_is_an_account_of_its_own() -> None:
    assert azure_host("https://blob.example.org").account == "blob.example.org"
    assert azure_host("https://example.org").dfs is False
