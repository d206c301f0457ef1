"""What a request is (`Call`), what an answer is (`Reply`), and the plug-in that knows a store's language."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import parse_qsl, unquote

#: The four classes of calls that ceilings tell apart.
OP_CLASSES = ("read", "write", "list", "delete")


@dataclass(slots=True, kw_only=True)
class Head:
    """The head of a request. `raw` is what came over the wire; header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    raw: bytes = b""

    @property
    def path(self) -> str:
        """The undecoded path, without the query."""
        return self.target.partition("?")[0]

    def query(self) -> dict[str, str]:
        """Return the decoded query; a name without a value has the value ""."""
        text = self.target.partition("?")[2]
        return dict(parse_qsl(text, keep_blank_values=True)) if text else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a request asks of a store. `op` is the SDK's name; `prefix` is what ceilings count by.

    `bucket` is a container on Azure; `account` is Azure's only.
    """

    op: str
    op_class: str
    bucket: str = ""
    key: str = ""
    prefix: str = ""
    attempt: str = ""
    account: str = ""


@dataclass(slots=True, kw_only=True)
class Reply:
    """An answer: status, headers in order, and a body as bytes or as a stream of `length` bytes.

    `length` None with a stream means that the length is not known (it goes out chunked). `release`
    is called once when the answer is sent or given up.
    """

    status: int
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes | memoryview = b""
    stream: AsyncIterator[bytes | memoryview] | None = None
    length: int | None = None
    release: Callable[[], None] | None = None


class StoreProtocol(Protocol):
    """What a server must know of a store's language: the plug-in point for S3, Azure and others."""

    def parse(self, head: Head, *, prefix_depth: int) -> Call:
        """Return what the request asks for; a request that is not understood is op "Unknown"."""

    def body_tells(self, call: Call) -> bool:
        """Return whether only the body says which prefix the call is for; such a body must be small."""

    def refined(self, call: Call, body: bytes, *, prefix_depth: int) -> Call:
        """Return the call with what its body tells."""

    def error(
        self, head: Head, call: Call, *, status: int, code: str | None, message: str | None, request_id: str
    ) -> Reply:
        """Return an error answer; `code` None means the store's own code for the status. No body for HEAD."""

    def refusal(self) -> tuple[int, str]:
        """Return the status and the code with which this store says "too fast"."""


class Body(Protocol):
    """The body of a request as a stream of decoded pieces; read at most once.

    `chunked`: the client did not say how long it is. `started`: some of it was read.
    """

    @property
    def chunked(self) -> bool:
        """Whether the client did not say how long the body is."""

    started: bool

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def __anext__(self) -> bytes: ...


class BackendFailed(ConnectionError):
    """The backend gave no answer; the client gets 502."""


class Backend(Protocol):
    """What applies a call when no fault forbids it: the built-in store, or an endpoint behind a proxy."""

    async def answer(self, head: Head, call: Call, body: Body, request_id: str) -> Reply:
        """Apply the call and return the answer; the body is read at most once."""

    async def close(self) -> None:
        """Close what is open."""


def prefix_of(key: str, *, depth: int) -> str:
    """Return the first `depth` directory segments of a key; the object's own name is never part.

    "train/imagenet/0001.tar" has "train/imagenet" at depth 2, "train" at 1, "" at 0.
    """
    if depth <= 0:
        return ""
    return "/".join(key.split("/")[:-1][:depth])


def decoded(text: str) -> str:
    """Return a path segment without percent escapes."""
    return unquote(text) if "%" in text else text
