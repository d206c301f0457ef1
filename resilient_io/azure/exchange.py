"""One request of an Azure client over all its attempts: what its sync and its async form share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from azure.core.pipeline import PipelineContext, PipelineRequest, PipelineResponse
from azure.storage.blob import ExponentialRetry

from resilient_io.azure import errors, faults, keys, privates
from resilient_io.azure.batch import Batch, batch_of
from resilient_io.azure.extent import asked_for, told_by
from resilient_io.azure.lost import Look, judged, look_for
from resilient_io.azure.streams import Replay, replay_of
from resilient_io.classify.fault import Applied, FaultKind, Verdict
from resilient_io.control.span import WHOLE, Told, WrongRange, span_of
from resilient_io.drive.call import Call
from resilient_io.drive.operation import BodyHold, Operation, Surface, current
from resilient_io.drive.runtime import runtime
from resilient_io.policy import Policy

# The SDK's own retry policy, for what it takes out of a request's options: the transport knows none of it.
_STOCK: Final = ExponentialRetry()
_SECONDARY: Final = "secondary"
_OK: Final = 200
# The secondary takes no writes; the SDK would send it deletes.
_READING: Final = frozenset({"GET", "HEAD"})
_WITHOUT_BODY: Final = frozenset({"GET", "HEAD", "DELETE"})
# Options that count an answer for the SDK's hooks and progress; the rest of a body is none.
_COUNTING: Final = frozenset(
    {"raw_response_hook", "data_stream_total", "download_stream_current", "upload_stream_current"}
)
_WITH_MD5: Final = "x-ms-range-get-content-md5"
_RANGE_HEADERS: Final = frozenset({"x-ms-range", "range", _WITH_MD5, "x-ms-range-get-content-crc64"})


@dataclass(frozen=True, slots=True)
class Glance:
    """A `raw_response_hook` of this library's own: it may see the answers to two requests for one thing, or none."""

    look: Callable[[Any], None]

    def __call__(self, response: Any) -> None:
        """Look at an answer whose body has not been read."""
        self.look(response)


@dataclass(slots=True, eq=False)
class Exchange:
    """One request of the pipeline: its call, and what must be put back before it can be sent again."""

    call: Call
    target: keys.Target
    request: PipelineRequest[Any]
    settings: dict[str, Any]
    options: Mapping[str, Any]
    header_names: Collection[str]
    is_streamed: bool
    """Whether the body of the answer is read outside the pipeline."""
    replay: Replay | None = None
    is_part: bool = False
    hold: BodyHold | None = None
    batch: Batch | None = None
    told: Told | None = None
    """What the answer said that it brings, where its headers say something else by now."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the request as it came, without those of the policies below."""
        found = self.request.http_request.headers
        return {name: found[name] for name in self.header_names if name in found}

    # -- what an attempt came to -------------------------------------------------------------------

    @property
    def has_md5(self) -> bool:
        """Whether the SDK compares the MD5 of a body that is streamed: then each answer is read within its attempt.

        What was read is looked at as every body is, and what is missing of it asked for, when it is handed on.
        """
        return self.request.context.get("validate_content") in (True, "md5")

    def must_load(self, http_response: Any) -> bool:
        """Say whether the body has to be read within the attempt: that of an error names its code."""
        return self.is_streamed and (http_response.status_code >= 300 or self.has_md5)

    def is_left_to_sdk(self, http_response: Any) -> bool:
        """Say whether the SDK itself will refuse an answer that was given up: one with another MD5 than it says."""
        return self.has_md5 and not self.is_part and faults.is_damaged(http_response)

    def must_say_what_it_is(self, http_response: Any) -> None:
        """Raise WrongRangeBody if nobody can read which bytes an answer brings: the SDK would count by what it says.

        It can do nothing with a range that does not tell the whole size, other than one that goes on with a body.
        """
        if not self.is_streamed or http_response.status_code >= 300:
            return
        try:
            told = told_by(http_response)
            if told.is_range and told.size is None and not self.is_part:
                raise WrongRange("the answer does not tell the size of the blob")
        except WrongRange as error:
            drop(http_response)
            raise errors.WrongRangeBody(str(error)) from None

    def answered(self, http_response: Any) -> bool:
        """Note an answer; say whether it is the one to hand on. One that is not is a fault of the call now."""
        verdict = self._verdict_of(http_response)
        if verdict is None:
            return self.batch is None or self._is_batch_done(self.batch, http_response)
        if self.call.lost_answer:
            status = faults.status_if_done(http_response, self.target.operation)
            if status is not None:
                # An attempt whose answer was lost did it, or it was so before: what was asked for is the case.
                http_response.status_code = status
                return True
        if self.is_streamed and http_response.status_code < 300:
            drop(http_response)  # nobody reads it
        self._failed(verdict)
        return False

    def _is_batch_done(self, batch: Batch, http_response: Any) -> bool:
        """Take the answers to the parts of a batch; those that were refused are a fault of the call."""
        verdict, is_progress = batch.take(http_response)
        if verdict is None:
            batch.make_whole(http_response)
            return True
        self.call.failed(verdict)
        if is_progress:
            self.call.progressed()
        return False

    def _verdict_of(self, http_response: Any) -> Verdict | None:
        if self.is_streamed and http_response.status_code < 300 and self.has_md5 and faults.is_damaged(http_response):
            return faults.DAMAGED
        verdict = faults.verdict_of_answer(
            http_response, self.call.judged_as, lost_answer=self.call.lost_answer, is_streamed=self.is_streamed
        )
        if verdict is not None and verdict.kind is FaultKind.NOT_FOUND and self._may_ask_elsewhere(_SECONDARY):
            return faults.absent_at_secondary(verdict)
        return verdict

    def fault_of(self, error: Exception) -> Exception | None:
        """Return the error with which an attempt ended without an answer; None if it is none of an attempt."""
        if faults.is_of_the_wire(error):
            return error
        if self.is_streamed and privates.is_about_content_range(error):
            return errors.WrongRangeBody("the answer has a Content-Range that cannot be read")
        return None

    def lost(self, error: BaseException) -> None:
        """Note an attempt without an answer."""
        self._failed(faults.verdict_of_error(error, self.call.judged_as))

    def _failed(self, verdict: Verdict) -> None:
        if self.batch is not None and verdict.applied is Applied.MAYBE:
            self.batch.was_lost()
        again = self.replay is None or self.replay.rewound()
        self.call.failed(verdict if again else replace(verdict, retryable=False))

    # -- between two attempts ----------------------------------------------------------------------

    def turn_to_next(self) -> None:
        """Ask the other location next time, where the client was told so."""
        self.settings["count"] += 1
        if self.batch is not None:
            self.batch.turn_to_left(self.request.http_request)
        if self._may_ask_elsewhere(self.settings["mode"]):
            hosts, mode = self.settings["hosts"], self.settings["mode"]
            other = next(each for each in hosts if each != mode)
            http = self.request.http_request
            http.url = http.url.replace(f"://{hosts[mode]}", f"://{hosts[other]}", 1)
            self.settings["mode"] = other
            self.target = keys.target_of(http.method, http.url, self.headers)
            self.call.path = self.target.scope(self.call.policy)

    def _may_ask_elsewhere(self, mode: str) -> bool:
        """Say whether the request is at this location and may be sent to the other one: writes go to the primary."""
        hosts, http = self.settings["hosts"] or {}, self.request.http_request
        at = self.settings["mode"] == mode and f"://{hosts.get(mode)}" in http.url
        return at and bool(self.settings["retry_secondary"]) and http.method in _READING and all(hosts.values())

    def hook_arguments(self, answer: Any, error: BaseException | None) -> dict[str, Any]:
        """Return what the SDK tells the caller's `retry_hook`."""
        return {
            "retry_count": self.settings["count"] - 1,
            "location_mode": self.settings["mode"],
            "request": self.request.http_request,
            "response": answer.http_response if answer is not None else None,
            "error": error,
        }

    # -- the end -----------------------------------------------------------------------------------

    def finished(self, response: Any) -> None:
        """Note the answer that is handed on; `hold` has its permit if its body is still to be read."""
        http = response.http_response
        http.location_mode = self.settings["mode"]
        self.call.moves(keys.moved_bytes(self.target.operation, self.request.http_request, http))
        if not self.is_streamed or http.status_code >= 300 or not self._has_body(http):
            self.call.succeeded()
            return
        self.hold = BodyHold()
        self.call.leave_permit(self.hold)
        self._look_at_range(http)

    def _look_at_range(self, http: Any) -> None:
        """Let a whole blob that was sent for a range pass for that range: the SDK knows no other answer to it."""
        asked = asked_for(self.request.http_request.headers)
        if self.is_part or http.status_code != _OK or asked is WHOLE or http.headers.get("Content-Range"):
            return
        told = self.told = told_by(http)
        if told.size is not None:
            span = span_of(asked, told)
            http.headers["Content-Range"] = f"bytes {span.begin}-{(span.end or 1) - 1}/{told.size}"

    def _has_body(self, http: Any) -> bool:
        """Say whether a body will be read: an empty one never is, and that of a query when and as the caller likes."""
        if self.target.operation != "GetBlob":
            return False
        return http.headers.get("Content-Length") != "0" or self._is_more_wanted(http)

    def _is_more_wanted(self, http: Any) -> bool:
        """Say whether an answer that brings nothing was to bring something: the SDK takes it for the whole range."""
        try:
            span = span_of(asked_for(self.request.http_request.headers), told_by(http))
        except WrongRange:
            return True
        return span.end is not None and span.end > span.begin

    # -- a write whose answer was lost -------------------------------------------------------------

    def look(self, response: Any) -> Look | None:
        """Return the look at the store that may tell what this request came to, before `ended` reports it."""
        return look_for(self.call, self.request.http_request, self.headers, self._code_of(response))

    def looking(self, look: Look) -> Exchange:
        """Return the exchange of a look: a request of its own, which neither counts as this one nor fails for it."""
        http = self.request.http_request
        request = self._anew(type(http)(look.method, look.url, headers=look.headers))
        target = keys.target_of(look.method, look.url, look.headers)
        operation = self.call.lookup()
        settings = {**self.settings, "retry_secondary": False, "hook": None}
        policy, most = self.call.policy, operation.most_attempts
        if most is not None:
            policy = replace(policy, max_attempts=most, max_throttle_attempts=most)
        return Exchange(
            _call_of(operation, target, policy), target, request, settings, self.options, tuple(look.headers), False
        )

    def settled(self, look: Look, found: Any, response: Any) -> Any:
        """Return the answer of a write that turns out to have happened, by the answer to a look; or None."""
        if not judged(self.call, look, found, self._code_of(response)):
            return None
        found.http_response.location_mode = self.settings["mode"]
        # Its body, if any, is that of the look: nobody is to parse it.
        found.context.options["stream"] = True
        return PipelineResponse(self.request.http_request, found.http_response, found.context)

    @staticmethod
    def _code_of(response: Any) -> str | None:
        return faults.code_of(response.http_response) if response is not None else None

    # -- the rest of a body ------------------------------------------------------------------------

    def rest(self, first_byte: int, last_byte: int | None, etag: str | None) -> PipelineRequest[Any]:
        """Return the request for the rest of the body, of the version that it began with; not yet signed."""
        http = self.request.http_request
        left_out = _RANGE_HEADERS - {_WITH_MD5} if self.has_md5 else _RANGE_HEADERS
        headers = {name: value for name, value in self.headers.items() if name.lower() not in left_out}
        headers["x-ms-range"] = f"bytes={first_byte}-{'' if last_byte is None else last_byte}"
        if etag:
            headers["If-Match"] = etag
        return self._anew(type(http)(http.method, http.url, headers=headers))

    def again(self, *, counts: bool = False) -> PipelineRequest[Any]:
        """Return the request once more, not yet signed; its answer `counts` for the SDK if it is not part of a body."""
        http = self.request.http_request
        return self._anew(type(http)(http.method, http.url, headers=self.headers), () if counts else _COUNTING)

    def _anew(self, http: Any, without: Collection[str] = _COUNTING) -> PipelineRequest[Any]:
        options = {name: value for name, value in self.options.items() if name not in without}
        context = PipelineContext(self.request.context.transport, **options)
        if self.is_streamed and self.has_md5:
            # The policy that puts it there stands above the retries.
            context["validate_content"] = self.request.context["validate_content"]
        return PipelineRequest(http, context)

    def part(self, request: PipelineRequest[Any]) -> Exchange:
        """Return the exchange that asks for a part of the body, with the same attempts."""
        settings = {**self.settings, "retry_secondary": False, "hook": None}
        names = tuple(request.http_request.headers)
        return Exchange(self.call, self.target, request, settings, self.options, names, self.is_streamed, is_part=True)


def drop(http_response: Any) -> None:
    """Close an answer whose body is not read."""
    internal = getattr(http_response, "internal_response", None)
    if internal is not None:
        internal.close()


def begin(
    request: PipelineRequest[Any], overlay: Mapping[str, object], *, to_secondary: bool = False
) -> Exchange | None:
    """Return the exchange of a request, or None if the library is switched off.

    `to_secondary` says whether the client wants a retry to go to the other location, where the call says nothing.
    """
    http = request.http_request
    target = keys.target_of(http.method, http.url, http.headers)
    operation = current() or Operation(name=target.operation, surface=Surface.CLIENT, overlay=overlay)
    policy = operation.policy(overlay)
    if not policy.enabled:
        return None
    if operation.surface is Surface.FILESYSTEM and operation.ledger:
        # adlfs goes on with the next block or page after a request that failed; that would be a second round.
        raise operation.ledger[-1]
    request.context.options.setdefault("retry_to_secondary", to_secondary)
    settings = _STOCK.configure_retries(request)
    options = dict(request.context.options)
    return Exchange(
        _call_of(operation, target, policy),
        target,
        request,
        settings,
        options,
        tuple(http.headers),
        bool(options.get("stream")),
        None if http.method in _WITHOUT_BODY else replay_of(http, settings["body_position"]),
        batch=batch_of(http) if target.operation == "SubmitBatch" else None,
    )


def _call_of(operation: Operation, target: keys.Target, policy: Policy) -> Call:
    path = target.scope(policy)
    return Call(
        runtime(),
        operation,
        name=target.operation,
        judged_as=target.judged_as,
        place=lambda: target.place,
        path=path,
        policy=policy,
        blob=target.blob_of(path),
    )
