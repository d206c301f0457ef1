"""What a request of the Azure SDK is about: its operation and its scope, read off method, URL and headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, unquote_plus

from resilient_io.classify.azure_requests import azure_operation, qualified
from resilient_io.classify.operations import class_name
from resilient_io.control.scopes import ScopePath, prefix_of, scope_path
from resilient_io.drive.azure_hosts import azure_host
from resilient_io.policy import Policy

# What of a query says which operation it is, and where. Nothing else of it is kept: the rest may be a signature.
_TELLING: Final = frozenset({"restype", "comp", "prefix", "resource", "action", "directory"})
# A name by itself is a container where one of these asks for it, else a blob in the root container.
_OF_A_CONTAINER: Final = frozenset({"list", "batch", "blobs"})
# Whose headers say nothing of the operation. Nine requests in ten are such, and reading headers is slow.
_SAID_BY_THE_URL: Final = frozenset({"GET", "HEAD", "DELETE"})


# Whose bodies are data.
_WRITING: Final = frozenset({"PutBlob", "PutBlock", "AppendBlock", "PutPage"})


class Target(NamedTuple):
    """Where one request goes and what it does there; free of credentials.

    `judged_as` is the operation's name as `classify` takes it: a conditional write says so in it.
    """

    operation: str
    judged_as: str
    endpoint: str
    account: str
    container: str
    key: str

    @property
    def place(self) -> str:
        """The URL for people: `abfs://container@account/key`."""
        if not self.container:
            return f"abfs://{self.account}"
        return f"abfs://{self.container}@{self.account}/{self.key}".rstrip("/")

    def scope(self, policy: Policy) -> ScopePath:
        """Return the scope under which the request is counted."""
        prefix = prefix_of(self.key, depth=policy.prefix_depth, rule=policy.prefix_rule) if self.container else ""
        return scope_path(
            endpoint=self.endpoint,
            account=self.account,
            bucket=self.container,
            prefix=prefix,
            op_class=class_name(self.operation),
        )

    def blob_of(self, path: ScopePath) -> str:
        """Return the blob's name within its prefix: Azure limits each blob, too. "" where it is about none."""
        if not self.container or path.op_class == "list":
            return ""
        return self.key[len(path.prefix) :].lstrip("/") if self.key.startswith(path.prefix) else self.key


def moved_bytes(operation: str, request: Any, response: Any) -> int:
    """Return how many bytes of data an answer has or its request had, as far as their headers tell."""
    if operation != "GetBlob" and operation not in _WRITING:
        return 0
    length = (response if operation == "GetBlob" else request).headers.get("Content-Length")
    return int(length) if length is not None else 0


def target_of(method: str, url: str, headers: Mapping[str, str]) -> Target:
    """Return what a request of this method, URL and headers is about."""
    method = method.upper()
    told = {} if method in _SAID_BY_THE_URL else {name.lower(): value for name, value in headers.items()}
    base, _, text = url.partition("?")
    query = _query_of(text) if text else {}
    endpoint, account, container, key, dfs = _place(base, query)
    operation = azure_operation(method, query, told, container=container, key=key, dfs=dfs)
    return Target(operation, qualified(operation, told), endpoint, account, container, key or _listed(query))


def _query_of(text: str) -> dict[str, str]:
    """Return what the query tells, and nothing else of it."""
    pairs = (pair.partition("=") for pair in text.split("&"))
    return {name: unquote_plus(value) for name, _, value in pairs if name in _TELLING}


def _place(base: str, query: Mapping[str, str]) -> tuple[str, str, str, str, bool]:
    """Return endpoint, account, container and blob of a URL without its query, and whether it is the dfs door."""
    end = base.find("/", base.find("//") + 2)
    origin, path = (base, "") if end < 0 else (base[:end], base[end + 1 :].partition("#")[0])
    host = azure_host(origin)
    account = host.account
    if not account:
        account, _, path = path.partition("/")
        account = unquote(account).removesuffix("-secondary")
    container, _, key = path.partition("/")
    if container and not key and not ("restype" in query or host.dfs or query.get("comp") in _OF_A_CONTAINER):
        container, key = "$root", container
    return host.endpoint, account, unquote(container), unquote(key), host.dfs


def _listed(query: Mapping[str, str]) -> str:
    """Return the prefix that a listing asks for; a directory of the dfs door is a whole one."""
    directory = query.get("directory")
    return f"{directory.rstrip('/')}/" if directory else query.get("prefix", "")
