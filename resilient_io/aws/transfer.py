"""boto3's managed transfers (`upload_file`, `download_file`, `copy`...) as one operation each.

s3transfer does the work in its own threads, which inherit no ContextVar: it is given a view of the
client that runs each request in a copy of the caller's context. A body that dies goes on below it; what
was given up reaches it as an error that it does not retry.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, Final

from botocore import context as botocore_context
from botocore.exceptions import BotoCoreError

from resilient_io.aws import hedged, privates
from resilient_io.aws.hardening import Hardening
from resilient_io.aws.splice import Spliced
from resilient_io.drive.call import Call
from resilient_io.drive.operation import BodyHold, Operation, Surface, body_held, entered
from resilient_io.errors import message_of

# The methods that boto3 adds to a client; one of plain botocore has none of them.
METHODS: Final = ("upload_file", "upload_fileobj", "download_file", "download_fileobj", "copy")
# What must still be sent when a transfer is lost: its parts would be stored, and paid for, for ever.
_CLEAN_UP: Final = frozenset({"AbortMultipartUpload"})
# s3transfer's own is 256 KiB. Each piece is a task for the thread that writes: of four times the size a download of
# 64 MiB costs a stock client a sixth less CPU.
_WRITE_BYTES: Final = 2**20


class TransferLost(BotoCoreError):
    """A request that was not sent, because another part of the same transfer was given up."""

    fmt = "{operation_name} was not sent: another part of the transfer was given up"


@dataclass(slots=True, eq=False)
class _Transfer:
    """One managed transfer: the operation it is, and what its threads share."""

    operation: Operation
    begun_at: int
    overlay: Mapping[str, object] | None = None
    context: Context | None = None
    holds: set[BodyHold] = field(default_factory=set)

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
        done.shadow(client, name, _carried(done, name, stock))
    if found:
        endpoint = privates.endpoint_of(client)
        done.shadow(endpoint, "create_request", _unless_lost(endpoint.create_request))


def _carried(done: Hardening, name: str, stock: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(stock)

    @functools.wraps(stock)
    def carried(*args: Any, **options: Any) -> Any:
        call = signature.bind(done.client, *args, **options)
        own = Operation(name=name, surface=Surface.CLIENT, overlay=done.overlay)
        with entered(own) as operation:
            if not operation.policy(done.overlay).enabled:
                return stock(done.client, *args, **options)
            return _run(_Transfer(operation, len(operation.ledger), done.overlay), stock, call)

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

    The CRT client sends its requests itself, past botocore and every hook. Where the caller says nothing of the pieces
    in which downloads are written they are of 1 MiB.
    """
    from boto3.s3.transfer import TransferConfig

    ours = copy.copy(config) if config is not None else TransferConfig()
    ours.num_download_attempts = sys.maxsize
    ours.preferred_transfer_client = "classic"
    if ours.max_bandwidth is None and _written_in(ours) == _written_in(TransferConfig()):
        # As many bytes may wait for the disk as before.
        ours.max_io_queue_size = max(1, ours.max_io_queue_size * ours.io_chunksize // _WRITE_BYTES)
        ours.io_chunksize = _WRITE_BYTES
    return ours


def _written_in(config: Any) -> tuple[int, int]:
    """Return how many bytes a download writes at a time, and how many of these may wait."""
    return config.io_chunksize, config.max_io_queue_size


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
        """Ask for a body that goes on where it dies, and whose permit is held until it is read."""
        return self._transfer.run(functools.partial(_held_body, self._client, self._transfer, request))


def _held_body(client: Any, transfer: _Transfer, request: Mapping[str, Any]) -> Any:
    from s3transfer.exceptions import RetriesExceededError
    from s3transfer.utils import S3_RETRYABLE_DOWNLOAD_ERRORS

    try:
        answer, hold = _answered(client, transfer, request)
    except S3_RETRYABLE_DOWNLOAD_ERRORS as error:
        # The attempts are spent, and s3transfer would begin anew.
        raise RetriesExceededError(error) from error
    if not isinstance(hold.call, Call):
        return answer  # switched off meanwhile
    part = _Part(transfer=transfer, hold=hold)
    transfer.holds.add(hold)
    return Spliced(client, hold.call, request, part).begin(answer)


def _answered(client: Any, transfer: _Transfer, request: Mapping[str, Any]) -> tuple[Any, BodyHold]:
    """Return the answer to the GET of one part, and what holds its permit."""
    policy = transfer.operation.policy(transfer.overlay)
    if policy.hedge:
        return hedged.part_in_threads(client, request, policy)
    with body_held() as held:
        answer = client.get_object(**request)
        hold = BodyHold(held.permit, held.machine, held.call)
        held.permit = None
    return answer, hold


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One part of a download, as its body sees it: where it runs, where its permit is, and how it ends."""

    transfer: _Transfer
    hold: BodyHold

    def run(self, ask: Callable[[], Any]) -> Any:
        """Ask for the rest in the caller's context: s3transfer reads in its own threads."""
        return self.transfer.run(ask)

    def over(self) -> None:
        """Give the permit back."""
        self.transfer.holds.discard(self.hold)
        self.hold.free()

    def raised(self, error: Exception) -> Exception:
        """Return what ends the part: s3transfer begins it anew for what it takes for a body that died."""
        from s3transfer.exceptions import RetriesExceededError
        from s3transfer.utils import S3_RETRYABLE_DOWNLOAD_ERRORS

        return RetriesExceededError(error) if isinstance(error, S3_RETRYABLE_DOWNLOAD_ERRORS) else error
