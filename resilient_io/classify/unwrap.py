"""Reads the facts off an exception and what it wraps. No SDK is imported: classes are known by their names.

Nothing here trusts an exception: attributes may raise, hold values of any type, or point back in a circle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .chain import attribute, links, names_of
from .codes import StatusMeaning, status_meaning
from .fault import Fault, Verdict
from .operations import is_write, merge_names
from .retry_after import retry_after_s
from .texts import PROGRAM_TEXTS, TextFacts, read_remote_traceback, read_text
from .transport import TLS_REFUSALS, was_sent

# Classes that carry an HTTP answer in plain attributes: class -> (status attribute, headers attribute).
# aiohttp's http_exceptions have a `code` 400 of their own making and are left out on purpose.
_ANSWER_CARRIERS = {
    "aiohttp.client_exceptions.ClientResponseError": ("status", "headers"),
    "urllib.error.HTTPError": ("code", "headers"),
    "gcsfs.retry.HttpError": ("code", ""),
    "google.api_core.exceptions.GoogleAPICallError": ("code", ""),
}
_AZURE_ANSWER = "azure.core.exceptions.HttpResponseError"
_RESPONSE_CARRIERS = frozenset(("requests.exceptions.HTTPError", "httpx.HTTPStatusError", _AZURE_ANSWER))
# Classes whose text may be all that is left of a service's answer.
_TEXT_CARRIERS = frozenset(
    (
        "builtins.OSError",
        "builtins.RuntimeError",
        "obstore.exceptions.BaseError",
        "obstore.exceptions.GenericError",
        _AZURE_ANSWER,
    )
)
_REMOTE_TRACEBACKS = frozenset(("concurrent.futures.process._RemoteTraceback", "multiprocessing.pool.RemoteTraceback"))
# Operations of a credential service: its refusals say nothing of a storage prefix.
_CREDENTIAL_OPERATIONS = frozenset(
    (
        *("AssumeRole", "AssumeRoleWithWebIdentity", "AssumeRoleWithSAML", "GetSessionToken", "GetFederationToken"),
        *("GetCallerIdentity", "GetRoleCredentials", "CreateToken"),
    )
)
_OWN_BASE = "resilient_io.errors.ResilientIOError"
_OWN_MODULE = "resilient_io.errors."
_TLS_REFUSED = "ssl.SSLCertVerificationError"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What one link of the chain says of the service's answer."""

    provider: str = "unknown"
    operation: str | None = None
    status: int | None = None
    code: str | None = None
    message: str = ""
    headers: Mapping[str, str] | None = None
    request_id: str | None = None
    types: tuple[str, ...] = ()

    @property
    def speaks(self) -> bool:
        """Whether it says enough to stop looking: a code, or a status that is an error."""
        return self.code is not None or status_meaning(self.status) is not StatusMeaning.NONE


_SILENT = _Answer()


def fault_of(error: BaseException, *, operation: str | None = None) -> Fault:
    """Return the facts of an exception and of what it wraps.

    `operation` is what the caller asked for; a name that the error itself gives is finer and wins, and keeps
    the caller's qualifier ("pipe_file-create" and PutObject give "PutObject-create").
    """
    answer, number, gave_up = _SILENT, None, False
    types: tuple[str, ...] = ()
    wordy: list[tuple[BaseException, tuple[str, ...]]] = []
    for link in links(error):
        names = names_of(link)
        types += names
        gave_up = gave_up or _is_own(names) or _is_marked(link)
        if not answer.speaks:
            answer = _merge(answer, _answer_of(link, names))
            number = number if number is not None else _errno_of(link, names)
            wordy.append((link, names))
    if not answer.speaks:
        # Only now: a translated error repeats the words of an answer whose facts stand further down the chain.
        answer = _merge(answer, _words_of(wordy))
    gave_up = gave_up or _is_own(answer.types)
    return _fault(answer, types + answer.types, number, gave_up, merge_names(own=answer.operation, asked=operation))


def carried_verdict(error: BaseException) -> Verdict | None:
    """Return the verdict that an error of this library carries, marked as given up; None for any other error."""
    for link in links(error):
        verdict = attribute(link, "verdict")
        if verdict is None:
            verdict = attribute(attribute(link, "record"), "verdict")
        if not isinstance(verdict, Verdict):
            continue
        if not verdict.retryable:
            return verdict
        if _is_own(names_of(link)):
            return replace(verdict, retryable=False)
    return None


def _is_own(names: tuple[str, ...]) -> bool:
    """Whether this library raised it: each error of ours is a give-up, also where only its name is left."""
    return _OWN_BASE in names or (bool(names) and names[0].startswith(_OWN_MODULE))


def _is_marked(link: BaseException) -> bool:
    """Whether it was marked as given up; azure-storage-blob makes its errors anew from the answer, which is marked."""
    marked = (link, attribute(link, "response"))
    return any(attribute(thing, "resilient_io_gave_up") is True for thing in marked)


def _fault(answer: _Answer, types: tuple[str, ...], number: int | None, gave_up: bool, operation: str | None) -> Fault:
    return Fault(
        provider=answer.provider,
        operation=operation,
        status=answer.status,
        code=answer.code,
        message=answer.message,
        types=types,
        errno=number,
        write=is_write(operation),
        sent=answer.speaks or was_sent(types=types, number=number),
        retry_after_s=retry_after_s(answer.headers) if answer.headers else None,
        request_id=answer.request_id,
        gave_up=gave_up,
    )


def _merge(first: _Answer, second: _Answer) -> _Answer:
    """Keep what an outer link said, and take from the inner one what the outer one left out."""
    if second is _SILENT:
        return first
    if first is _SILENT:
        return second
    return replace(
        second,
        provider=second.provider if second.provider != "unknown" else first.provider,
        operation=second.operation or first.operation,
        request_id=second.request_id or first.request_id,
        headers=second.headers or first.headers,
        types=first.types + second.types,
    )


# --- one link


def _answer_of(link: BaseException, names: tuple[str, ...]) -> _Answer:
    response = attribute(link, "response")
    if isinstance(response, dict):
        return _botocore_answer(link, response)
    for name in names:
        if name in _ANSWER_CARRIERS:
            return _plain_answer(link, *_ANSWER_CARRIERS[name])
    # One that went through pickle has no response any more, but its status.
    answered = response is not None or (_AZURE_ANSWER in names and _status(attribute(link, "status_code")) is not None)
    if answered and not _RESPONSE_CARRIERS.isdisjoint(names):
        return _response_answer(link, response, names)
    code = PROGRAM_TEXTS.get((type(link).__name__, _first_text(link) or ""))
    return _SILENT if code is None else _Answer(provider="program", code=code)


def _botocore_answer(link: BaseException, response: dict[object, object]) -> _Answer:
    error, metadata = response.get("Error"), response.get("ResponseMetadata")
    error = error if isinstance(error, dict) else {}
    metadata = metadata if isinstance(metadata, dict) else {}
    code, operation = _text(error.get("Code")), _text(attribute(link, "operation_name"))
    status = _status(metadata.get("HTTPStatusCode"))
    if code is not None and code.isdigit():
        # A bodyless answer: botocore puts the status where the code would be.
        status, code = _status(int(code)) if len(code) == 3 else status, None
    return _Answer(
        provider="credential" if operation in _CREDENTIAL_OPERATIONS else "s3",
        operation=operation,
        status=status,
        code=code,
        message=_text(error.get("Message")) or "",
        headers=_headers(metadata.get("HTTPHeaders")),
        request_id=_text(metadata.get("RequestId")),
    )


def _response_answer(link: BaseException, response: object, names: tuple[str, ...]) -> _Answer:
    """Read azure-core, requests and httpx: an exception with a response object."""
    status = _status(attribute(link, "status_code")) or _status(attribute(response, "status_code"))
    headers = _headers(attribute(response, "headers")) or {}
    if _AZURE_ANSWER not in names:
        return _Answer(status=status, headers=headers)
    # The store refused our read of another store: that one's code is the finer one.
    code = _header(headers, "x-ms-copy-source-error-code") or _code_text(attribute(link, "error_code"))
    throttled = status_meaning(status) is StatusMeaning.THROTTLED
    credential = throttled and "azure.core.exceptions.ClientAuthenticationError" in names
    return _Answer(
        provider="credential" if credential else "azure",
        status=status,
        code=code or _header(headers, "x-ms-error-code"),
        message=_text(attribute(link, "message")) or "",
        headers=headers,
        request_id=_header(headers, "x-ms-request-id"),
    )


def _plain_answer(link: BaseException, status: str, headers: str) -> _Answer:
    return _Answer(status=_status(attribute(link, status)), headers=_headers(attribute(link, headers)))


def _words_of(wordy: list[tuple[BaseException, tuple[str, ...]]]) -> _Answer:
    """Return what the text of the first link says that says anything."""
    for link, names in wordy:
        answer = _text_answer(link, names)
        if answer is not _SILENT:
            return answer
    return _SILENT


def _text_answer(link: BaseException, names: tuple[str, ...]) -> _Answer:
    text = _first_text(link) or ""
    if _names_tls_refusal(link, names, text):
        return _Answer(types=(_TLS_REFUSED,))
    facts: TextFacts | None = None
    if not _REMOTE_TRACEBACKS.isdisjoint(names):
        facts = read_remote_traceback(_text(attribute(link, "tb")) or "")
    elif not _TEXT_CARRIERS.isdisjoint(names):
        facts = read_text(text)
    return _SILENT if facts is None else _from_text(facts)


def _from_text(facts: TextFacts) -> _Answer:
    return _Answer(
        provider=facts.provider, operation=facts.operation, status=facts.status, code=facts.code, types=facts.types
    )


def _names_tls_refusal(link: BaseException, names: tuple[str, ...], text: str) -> bool:
    """Whether a TLS error names an OpenSSL reason that no repeat cures; its classes keep it as attribute or text."""
    if not any(name.endswith(".SSLError") for name in names):
        return False
    reason = attribute(link, "reason")
    if isinstance(reason, str) and reason in TLS_REFUSALS:
        return True
    kwargs = attribute(link, "kwargs")
    detail = kwargs.get("error") if isinstance(kwargs, dict) else None
    for words in (detail, text):
        if isinstance(words, str) and words.startswith("[SSL: ") and words[6:].partition("]")[0] in TLS_REFUSALS:
            return True
    return False


def _first_text(link: BaseException) -> str | None:
    """Return the words of an exception: its only text argument, or what it prints."""
    message = attribute(link, "message")
    if isinstance(message, str):
        return message
    for argument in link.args:
        if isinstance(argument, str):
            return argument
    return None


def _errno_of(link: BaseException, names: tuple[str, ...]) -> int | None:
    number = attribute(link, "errno") if "builtins.OSError" in names else None
    return number if isinstance(number, int) and not isinstance(number, bool) else None


# --- values of any type


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _code_text(value: object) -> str | None:
    return _text(attribute(value, "value")) or _text(value)


def _status(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 100 <= value <= 999 else None


def _headers(value: object) -> Mapping[str, str] | None:
    """Return headers as a plain dict of texts, whatever they came in."""
    items = attribute(value, "items")
    if not callable(items):
        return None
    try:
        return {name: text for name, text in items() if isinstance(name, str) and isinstance(text, str)}
    except Exception:  # not headers after all; the code and the status still stand
        return None


def _header(headers: Mapping[str, str], name: str) -> str | None:
    for key, value in headers.items():
        if key.lower() == name:
            return value
    return None
