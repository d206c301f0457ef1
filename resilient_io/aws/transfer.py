"""boto3's managed transfers (`upload_file`, `download_file`, `copy`...) as one operation each.

s3transfer does the work in its own threads, which inherit no ContextVar: it is given a view of the
client that runs each request in a copy of the caller's context. Its own retries count toward the
policy: it asks for a body that died again from the start of its part, after our backoff and with
the attempts that are left, and never for one that was given up.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Mapping
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from botocore import context as botocore_context
from botocore.exceptions import BotoCoreError

from resilient_io.aws import faults, privates
from resilient_io.aws.errors import annotated
from resilient_io.drive.operation import BodyHold, Operation, Surface, body_held, entered
from resilient_io.drive.runtime import runtime
from resilient_io.errors import message_of

if TYPE_CHECKING:
    from resilient_io.aws.hooks import Hardening

# The methods that boto3 adds to a client; one of plain botocore has none of them.
METHODS: Final = ("upload_file", "upload_fileobj", "download_file", "download_fileobj", "copy")
# What must still be sent when a transfer is lost: its parts would be stored, and paid for, for ever.
_CLEAN_UP: Final = frozenset({"AbortMultipartUpload"})


class TransferLost(BotoCoreError):
    """A request that was not sent, because another part of the same transfer was given up."""

    fmt = "{operation_name} was not sent: another part of the transfer was given up"


@dataclass(slots=True, eq=False)
class _Transfer:
    """One managed transfer: the operation it is, and what its threads share."""

    operation: Operation
    begun_at: int
    context: Context | None = None
    holds: set[BodyHold] = field(default_factory=set)
    dying: dict[int, _Read] = field(default_factory=dict)

    def is_lost(self) -> bool:
        """Say whether a part was given up, so that the rest is sent in vain."""
        return len(self.operation.ledger) > self.begun_at

    def run(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call `method` in a copy of the caller's context; of botocore's own, in that of this thread."""
        own = botocore_context.get_context()

        def inside() -> Any:
            if own is not None:
                botocore_context.set_context(own)
            return method(*args, **options)

        # A context can be entered once at a time, and the threads are many.
        return (self.context or copy_context()).copy().run(inside)

    def free_bodies(self) -> None:
        """Give back the permits of bodies that nobody reads to their end any more."""
        while self.holds:
            self.holds.pop().free()

    def tell(self, error: Exception) -> None:
        """Give the error that s3transfer or boto3 made of a give-up what the library knows of it."""
        records = [gave_up.record for gave_up in self.operation.ledger[self.begun_at :]]
        if not records or getattr(error, "resilient_io_gave_up", False):
            return
        record, text = records[0], str(error)
        if not any(message_of(each) in text for each in records):
            error.args = (f"{text} [{message_of(record)}]", *error.args[1:])
        for name in ("verdict", "attempts", "scope", "elapsed_s", "request_id"):
            setattr(error, name, getattr(record, name))
        error.resilient_io_gave_up = True  # type: ignore[attr-defined]


_transfer: ContextVar[_Transfer | None] = ContextVar("resilient_io_transfer", default=None)


def carry(done: Hardening) -> None:
    """Shadow the managed transfers of a hardened sync client, where it has any; undone with the rest."""
    client = done.client
    found = {name: getattr(type(client), name) for name in METHODS if hasattr(type(client), name)}
    for name, stock in found.items():
        _shadow(done, client, name, _carried(done, name, stock))
    if found:
        endpoint = privates.endpoint_of(client)
        _shadow(done, endpoint, "create_request", _unless_lost(endpoint.create_request))


def _shadow(done: Hardening, owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    owner.__dict__[name] = replacement
    done.undo.append(lambda: owner.__dict__.pop(name, None))


def _carried(done: Hardening, name: str, stock: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(stock)

    @functools.wraps(stock)
    def carried(*args: Any, **options: Any) -> Any:
        call = signature.bind(done.client, *args, **options)
        own = Operation(name=name, surface=Surface.CLIENT, overlay=done.overlay)
        with entered(own) as operation:
            if not operation.policy(done.overlay).enabled:
                return stock(done.client, *args, **options)
            return _run(_Transfer(operation, len(operation.ledger)), stock, call)

    return carried


def _run(transfer: _Transfer, stock: Callable[..., Any], call: inspect.BoundArguments) -> Any:
    """Run boto3's own function on a view of the client."""
    call.arguments["self"] = View(call.arguments["self"], transfer)
    call.arguments["Config"] = _config(call.arguments.get("Config"))
    if call.arguments.get("SourceClient") is not None:
        call.arguments["SourceClient"] = View(call.arguments["SourceClient"], transfer)
    token = _transfer.set(transfer)
    transfer.context = copy_context()
    try:
        return stock(*call.args, **call.kwargs)
    except Exception as error:
        transfer.tell(error)
        raise
    finally:
        _transfer.reset(token)
        transfer.free_bodies()
        transfer.context = None  # it holds this very transfer


def _config(config: Any) -> Any:
    """Return the caller's configuration as a copy, with the retries left to us and the CRT client off.

    The CRT client sends its requests itself, past botocore and every hook.
    """
    from boto3.s3.transfer import TransferConfig

    ours = copy.copy(config) if config is not None else TransferConfig()
    ours.num_download_attempts = sys.maxsize
    ours.preferred_transfer_client = "classic"
    return ours


def _unless_lost(create_request: Callable[..., Any]) -> Callable[..., Any]:
    """Return `create_request`, which asks for a permit, but not for a transfer that is lost."""

    def create(params: Any, operation_model: Any = None) -> Any:
        transfer = _transfer.get()
        if transfer is not None and transfer.is_lost():
            name = getattr(operation_model, "name", None)
            if name is not None and name not in _CLEAN_UP:
                raise TransferLost(operation_name=name)
        return create_request(params, operation_model)

    return create


class View:
    """The client as s3transfer's threads see it; everything else is the client's own."""

    __slots__ = ("_client", "_transfer")

    def __init__(self, client: Any, transfer: _Transfer) -> None:
        self._client = client
        self._transfer = transfer

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._client, name)
        return functools.partial(self._transfer.run, value) if inspect.ismethod(value) else value

    def get_object(self, **request: Any) -> Any:
        """Ask for a body whose permit is held until it is read; one that died a moment ago goes on counting."""
        transfer = self._transfer
        read = transfer.dying.pop(threading.get_ident(), None)
        if read is None or read.request != request:
            read = _Read(transfer, request)
        return transfer.run(read.ask, self._client)


@dataclass(slots=True, eq=False)
class _Read:
    """One part of a download with all its attempts; s3transfer reads it in one thread, from its start each time."""

    transfer: _Transfer
    request: Mapping[str, Any]
    etag: str | None = None
    hold: BodyHold | None = None

    def ask(self, client: Any) -> Any:
        """Send the request and return the answer with a body that reports how it ends."""
        from s3transfer.exceptions import RetriesExceededError
        from s3transfer.utils import S3_RETRYABLE_DOWNLOAD_ERRORS

        with body_held() as held:
            held.machine = self.hold.machine if self.hold is not None else None
            try:
                answer = client.get_object(**self._same_version())
            except S3_RETRYABLE_DOWNLOAD_ERRORS as error:
                # The attempts are spent, and s3transfer would begin anew.
                raise RetriesExceededError(error) from error
            self.hold = hold = BodyHold(held.permit, held.machine, held.call)
            self.transfer.holds.add(hold)
            held.permit = None
        self.etag = answer.get("ETag")
        return {**answer, "Body": _Body(answer["Body"], self, hold)}

    def _same_version(self) -> Mapping[str, Any]:
        """Return the request; one that is repeated must not bring bytes of another version."""
        if self.etag is None or "IfMatch" in self.request or "VersionId" in self.request:
            return self.request
        return {**self.request, "IfMatch": self.etag}

    def died(self, error: BaseException) -> None:
        """Back off after a body that died; raise what s3transfer does not retry if it was the last attempt."""
        from s3transfer.exceptions import RetriesExceededError

        call = self.hold.call if self.hold is not None else None
        delay_s = None
        if call is not None:
            call.failed(faults.verdict_of_error(error, "GetObject"))
            delay_s = call.decide()
        if delay_s is not None:
            runtime().clock.sleep(delay_s)
            self.transfer.dying[threading.get_ident()] = self
            return
        if call is not None:
            annotated(error, call)  # type: ignore[arg-type]  # what fills `hold.call` is always a Call
            call.gave_up(error)
        raise RetriesExceededError(error) from error


class _Body:
    """A body on its way to s3transfer, which only reads it."""

    __slots__ = ("_body", "_hold", "_read")

    def __init__(self, body: Any, read: _Read, hold: BodyHold) -> None:
        self._body = body
        self._read = read
        self._hold = hold

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    def read(self, amt: int | None = None) -> bytes:
        """Read as the body does; at its end, and at every error, the permit goes back."""
        from s3transfer.utils import S3_RETRYABLE_DOWNLOAD_ERRORS

        try:
            piece: bytes = self._body.read(amt)
        except S3_RETRYABLE_DOWNLOAD_ERRORS as error:
            self._free()
            self._read.died(error)
            raise
        except BaseException:
            self._free()
            raise
        if amt is None or (not piece and amt != 0):
            self._free()
        return piece

    def close(self) -> None:
        """Close the body."""
        self._free()
        self._body.close()

    def _free(self) -> None:
        self._read.transfer.holds.discard(self._hold)
        self._hold.free()
