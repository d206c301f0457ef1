"""A batch, part by part: those that were refused or failed are sent again, and no others.

https://learn.microsoft.com/rest/api/storageservices/blob-batch: the batch itself answers 202, whatever its parts came
to. Its parts are deletes or changes of tier, which converge when they are repeated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from resilient_io.classify import judge
from resilient_io.classify.fault import Applied, Fault, Load, Verdict

_BOUNDARY: Final = re.compile(r'boundary="?([^";,]+)"?', re.IGNORECASE)
_ID: Final = re.compile(rb"^Content-ID:[ \t]*(\d+)", re.IGNORECASE | re.MULTILINE)
_STATUS: Final = re.compile(rb"^HTTP/1\.\d (\d{3})", re.MULTILINE)
_CODE: Final = re.compile(rb"^x-ms-error-code:[ \t]*(\S+)", re.IGNORECASE | re.MULTILINE)
_DELETES: Final = re.compile(rb"^DELETE ", re.MULTILINE)
_GONE: Final = b"HTTP/1.1 202 Accepted\r\n\r\n"


class Batch:
    """The parts of one batch over all its rounds, and what each came to."""

    __slots__ = ("_answers", "_boundary", "_left", "_sent", "_unsure")

    def __init__(self, boundary: str, parts: Mapping[int, bytes]) -> None:
        self._boundary = boundary
        self._sent = dict(parts)
        self._left = list(parts)
        self._answers: dict[int, bytes] = {}
        self._unsure: set[int] = set()

    def was_lost(self) -> None:
        """Note that the answer to a round was lost: each of its parts may have been done."""
        self._unsure.update(self._left)

    def take(self, http_response: Any) -> tuple[Verdict | None, bool]:
        """Take the answer to a round: the verdict on what must be sent again, and whether other parts are done."""
        answers = self._answers_in(http_response)
        verdicts: dict[int, Verdict] = {}
        for number, answer in answers.items():
            self._answers[number] = self._unless_gone(number, answer)
            verdict = self._verdict_on(number)
            if verdict is not None and verdict.retryable:
                verdicts[number] = verdict
                if verdict.applied is Applied.MAYBE:
                    self._unsure.add(number)
        if not verdicts:
            return None, False
        is_progress = len(verdicts) < len(self._left)
        self._left = list(verdicts)
        return max(verdicts.values(), key=lambda each: each.load is Load.REFUSED), is_progress

    def turn_to_left(self, http_request: Any) -> None:
        """Make the request that of the parts that are left."""
        if len(self._left) < len(self._sent):
            http_request.set_bytes_body(_joined(self._boundary, [self._sent[number] for number in self._left]))

    def make_whole(self, http_response: Any) -> None:
        """Put what all parts came to into the answer to the last round, in the order of the parts."""
        if len(self._answers) < len(self._sent):
            return
        boundary = _boundary_of(http_response.headers.get("Content-Type", ""))
        body = _joined(boundary, [self._answers[number] for number in self._sent])
        http_response.body = lambda: body

    def _answers_in(self, http_response: Any) -> dict[int, bytes]:
        """Return the answers to the parts of a round; those without a number are in the order of the parts."""
        boundary = _boundary_of(http_response.headers.get("Content-Type", ""))
        parts = _split(http_response.body() or b"", boundary) if boundary else []
        found = {}
        for place, part in enumerate(parts):
            number = _number_of(part)
            if number is None:
                number = self._left[place] if place < len(self._left) else None
            if number in self._sent:
                found[number] = part
        return found

    def _unless_gone(self, number: int, answer: bytes) -> bytes:
        """Return an answer; one that does not find what an earlier round may have deleted says that it is deleted."""
        status = _STATUS.search(answer)
        if number not in self._unsure or status is None or status[1] != b"404":
            return answer
        return answer[: status.start()] + _GONE if _DELETES.search(self._sent[number]) else answer

    def _verdict_on(self, number: int) -> Verdict | None:
        answer = self._answers[number]
        status, code = _STATUS.search(answer), _CODE.search(answer)
        if status is None or int(status[1]) < 300:
            return None
        told = code[1].decode("ascii", "replace") if code is not None else None
        name = "DeleteBlob" if _DELETES.search(self._sent[number]) else "SetBlobTier"
        return judge(Fault(provider="azure", operation=name, status=int(status[1]), code=told, write=True))


def batch_of(http_request: Any) -> Batch | None:
    """Return the parts of a request that is a batch; None where its body cannot be told apart."""
    boundary, body = _boundary_of(http_request.headers.get("Content-Type", "")), http_request.body
    if not boundary or not isinstance(body, bytes):
        return None
    parts = {number: part for part in _split(body, boundary) if (number := _number_of(part)) is not None}
    return Batch(boundary, parts) if parts else None


def _boundary_of(content_type: str) -> str:
    found = _BOUNDARY.search(content_type)
    return found[1].strip() if found else ""


def _split(body: bytes, boundary: str) -> list[bytes]:
    """Return the parts of a multipart body, with their headers."""
    between = re.split(rb"(?:\A|\r?\n)--" + re.escape(boundary.encode()) + rb"(?:\r?\n|--)", body)
    return between[1:-1] if len(between) > 2 else []


def _joined(boundary: str, parts: list[bytes]) -> bytes:
    mark = b"--" + boundary.encode()
    return b"".join(mark + b"\r\n" + part + b"\r\n" for part in parts) + mark + b"--\r\n"


def _number_of(part: bytes) -> int | None:
    found = _ID.search(part)
    return int(found[1]) if found else None
