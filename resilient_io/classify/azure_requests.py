"""Which Azure Blob operation a request is: the names of the REST reference, read off its method, query and headers.

https://learn.microsoft.com/rest/api/storageservices/operations-on-blobs, -on-containers, -on-the-account, and
https://learn.microsoft.com/rest/api/storageservices/datalakestoragegen2/path
"""

from __future__ import annotations

from collections.abc import Mapping

from .operations import OpClass, is_idempotent, op_class

# (method, comp) of the query -> operation.
_SERVICE_OPS = {
    ("GET", "list"): "ListContainers",
    ("GET", "blobs"): "FindBlobsByTags",
    ("GET", "properties"): "GetBlobServiceProperties",
    ("PUT", "properties"): "SetBlobServiceProperties",
    ("GET", "stats"): "GetBlobServiceStats",
    ("POST", "batch"): "SubmitBatch",
    ("POST", "userdelegationkey"): "GetUserDelegationKey",
}
_CONTAINER_OPS = {
    ("PUT", ""): "CreateContainer",
    ("DELETE", ""): "DeleteContainer",
    ("GET", ""): "GetContainerProperties",
    ("GET", "list"): "ListBlobs",
    ("GET", "blobs"): "FindBlobsByTags",
    ("GET", "metadata"): "GetContainerMetadata",
    ("PUT", "metadata"): "SetContainerMetadata",
    ("GET", "acl"): "GetContainerACL",
    ("PUT", "acl"): "SetContainerACL",
    ("PUT", "undelete"): "RestoreContainer",
    ("PUT", "rename"): "RenameContainer",
    ("POST", "batch"): "SubmitBatch",
}
_BLOB_OPS = {
    ("GET", ""): "GetBlob",
    ("DELETE", ""): "DeleteBlob",
    ("PUT", "block"): "PutBlock",
    ("PUT", "blocklist"): "PutBlockList",
    ("GET", "blocklist"): "GetBlockList",
    ("PUT", "appendblock"): "AppendBlock",
    ("PUT", "page"): "PutPage",
    ("GET", "pagelist"): "GetPageRanges",
    ("PUT", "metadata"): "SetBlobMetadata",
    ("GET", "metadata"): "GetBlobMetadata",
    ("PUT", "properties"): "SetBlobProperties",
    ("PUT", "snapshot"): "SnapshotBlob",
    ("PUT", "tier"): "SetBlobTier",
    ("PUT", "tags"): "SetBlobTags",
    ("GET", "tags"): "GetBlobTags",
    ("PUT", "copy"): "AbortCopyBlob",
    ("PUT", "incrementalcopy"): "IncrementalCopyBlob",
    ("PUT", "undelete"): "UndeleteBlob",
    ("PUT", "expiry"): "SetBlobExpiry",
    ("PUT", "immutabilityPolicies"): "SetBlobImmutabilityPolicy",
    ("DELETE", "immutabilityPolicies"): "DeleteBlobImmutabilityPolicy",
    ("PUT", "legalhold"): "SetBlobLegalHold",
    ("POST", "query"): "SelectBlobContents",
    ("PUT", "seal"): "SealAppendBlob",
}
_NEW_BLOBS = {"BlockBlob": "PutBlob", "AppendBlob": "CreateAppendBlob", "PageBlob": "CreatePageBlob"}
# With the header x-ms-copy-source the data come from there.
_FROM_URL = {
    "PutBlob": "PutBlobFromURL",
    "PutBlock": "PutBlockFromURL",
    "AppendBlock": "AppendBlockFromURL",
    "PutPage": "PutPageFromURL",
}
# What a condition makes of a write: its repeat is refused by the store if the first one was applied.
_CONDITIONS = (
    ("if-none-match", "IfNoneMatch"),
    ("if-match", "IfMatch"),
    ("x-ms-blob-condition-appendpos", "IfMatch"),
    ("if-unmodified-since", "IfMatch"),
)


def azure_operation(
    method: str, query: Mapping[str, str], headers: Mapping[str, str], *, container: str, key: str, dfs: bool = False
) -> str:
    """Return the operation's name; "Unknown" where the REST reference has none for the request.

    `headers` is read by lower-case names. `dfs` says that the request goes to the Data Lake door of the account.
    """
    comp = query.get("comp", "")
    if comp == "lease" and method == "PUT":
        return f"{headers.get('x-ms-lease-action', '').capitalize()}Lease"
    if query.get("restype") == "account":
        return "GetAccountInformation"
    verb = "GET" if method == "HEAD" else method
    if dfs:
        return _dfs_op(method, query, headers, key)
    if key:
        return _blob_op(method, comp, verb, headers)
    return (_CONTAINER_OPS if container else _SERVICE_OPS).get((verb, comp), "Unknown")


def qualified(operation: str, headers: Mapping[str, str]) -> str:
    """Return the name under which faults of this request are judged: a conditional write says so in it."""
    if op_class(operation) is not OpClass.WRITE:
        return operation
    for header, qualifier in _CONDITIONS:
        # Times have whole seconds: an append repeated within one would pass.
        if header in headers and (header != "if-unmodified-since" or is_idempotent(operation)):
            return f"{operation}-{qualifier}"
    return operation


def _blob_op(method: str, comp: str, verb: str, headers: Mapping[str, str]) -> str:
    if method == "HEAD" and not comp:
        return "GetBlobProperties"
    op = _put_op(headers) if (verb, comp) == ("PUT", "") else _BLOB_OPS.get((verb, comp), "Unknown")
    return _FROM_URL.get(op, op) if "x-ms-copy-source" in headers else op


def _put_op(headers: Mapping[str, str]) -> str:
    """Return what a PUT of a blob does: its type makes a new one, a source without a type copies."""
    new = _NEW_BLOBS.get(headers.get("x-ms-blob-type", ""))
    if new is not None:
        return new
    if "x-ms-copy-source" not in headers:
        return "Unknown"
    return "CopyBlobFromURL" if headers.get("x-ms-requires-sync") == "true" else "CopyBlob"


_FILESYSTEM_OPS = {"PUT": "CreateContainer", "DELETE": "DeleteContainer", "HEAD": "GetContainerProperties"}
_PATH_OPS = {"GET": "GetBlob", "HEAD": "GetBlobProperties", "DELETE": "DeletePath"}
# A flush at a position, and an append to one, converge when they are repeated.
_PATCHES = {
    "append": "AppendData",
    "flush": "FlushData",
    "setAccessControlRecursive": "SetAccessControlRecursive",
}


def _dfs_op(method: str, query: Mapping[str, str], headers: Mapping[str, str], key: str) -> str:
    if query.get("resource") == "filesystem" or not key:
        return "ListPaths" if method == "GET" else _FILESYSTEM_OPS.get(method, "SetContainerMetadata")
    if method == "PUT":
        return "RenamePath" if "x-ms-rename-source" in headers else "CreatePath"
    if method == "PATCH":
        return _PATCHES.get(query.get("action", ""), "SetBlobProperties")
    if method == "POST":
        return f"{headers.get('x-ms-lease-action', '').capitalize()}Lease"
    return _PATH_OPS.get(method, "Unknown")
