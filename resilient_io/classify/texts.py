"""Faults of which only a text is left: pyarrow, object_store, and errors rebuilt on the far side of a process border.

Every pattern is anchored at the start of the text, and names its producer there. Words inside a key, a path or a
service's message are never looked for: a text in which two readings disagree gives none.
"""

from __future__ import annotations

import builtins
import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFacts:
    """What a text says. `types` are class names that it quotes, for the table in transport.py."""

    provider: str = "unknown"
    operation: str | None = None
    status: int | None = None
    code: str | None = None
    types: tuple[str, ...] = ()


# Longer texts are cut in the middle: a traceback names its worker at the start and its error at the end.
_MAX_CHARS = 65_536

# Exact texts of one class: (class, text) -> code. fsspec asyn.py; asyncio base_events.py; azure-storage-blob
# _shared/response_handlers.py parse_length_from_content_range.
PROGRAM_TEXTS: dict[tuple[str, str], str] = {
    ("RuntimeError", "This class is not fork-safe"): "NotForkSafe",
    ("RuntimeError", "Event loop is closed"): "EventLoopClosed",
    ("ValueError", "Required Content-Range response header is missing or malformed."): "ContentRangeMissing",
}

_ERRNO = re.compile(r"\A\[Errno -?\d+\] ")
# botocore ClientError.MSG_TEMPLATE, which s3fs keeps as the words of its OSError where it knows no better
_CLIENT_ERROR = re.compile(
    r"An error occurred \((?P<code>[\w.#-]+)\) when calling the (?P<operation>\w+) operation"
    r"(?: \(reached max retries: \d+\))?: "
)
# azure-storage-blob _shared/response_handlers.py process_storage_error; adlfs puts its own words before it.
_AZURE_ERROR = re.compile(
    r"(?:Failed to upload block: )?(?:[^\n]*\nRequestId:[0-9A-Fa-f-]{36}\nTime:[^\n]{1,40}|"
    r"Operation returned an invalid status '[^\n]*')\nErrorCode:(?P<code>\w+)"
)
# azure-identity _internal: "ManagedIdentityCredential authentication failed: Unexpected response, status 429, ..."
_CREDENTIAL = re.compile(
    r"\w+Credential authentication (?:failed|unavailable)[:,.] Unexpected response, status (?P<status>\d{3})\b"
)
# Arrow C++ filesystem/s3_internal.h: "When x for key 'k' in bucket 'b': AWS Error CODE during Op operation: m"
_ARROW = re.compile(r"(?:When [^\n]*?: )?AWS Error [A-Z_]+(?: \(HTTP status \d{3}\))? during \w+ operation: ")
_ARROW_PART = re.compile(
    r"AWS Error (?P<code>[A-Z_]+)(?: \(HTTP status (?P<status>\d{3})\))? during (?P<operation>\w+) operation"
)
# object_store (Rust) client/retry.rs and lib.rs, as obstore, delta-rs, polars and lance print it.
_STORE = re.compile(
    r"(?:Generic (?P<store>S3|MicrosoftAzure|GCS|HTTP) error: |Object at location [^\n]* not found: )"
    r"(?:Error performing (?P<method>[A-Z]+) \S+ in \S+(?:, after \d+ retries,[^\n]*?)? - |"
    r"Error after \d+ retries in \S+, max_retries:\s?\d+, retry_timeout:\s?[^\s,]+, source:\s?)?(?P<rest>.*)",
    re.DOTALL,
)
_STORE_STATUS = re.compile(
    r"(?:Server returned non-2xx status code: |Server returned error response: |Client error with status |"
    r"Server error with status )(?P<status>\d{3})\b"
)
_STORE_CODE = re.compile(r"[^<]*(?:<\?xml[^>]*\?>\s*)?<Error>\s*<Code>(?P<code>[\w.]+)</Code>")
_STORE_KIND = re.compile(r"HttpError \{\s+kind: (?P<kind>[A-Z]\w+),")
_PROVIDERS = {"S3": "s3", "GCS": "s3", "MicrosoftAzure": "azure"}
# reqwest's words, whole: (what the rest starts with, what it ends with) -> the class that means the same.
_STORE_WORDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"error sending request for url \(\S+\): operation timed out\Z"), "builtins.TimeoutError"),
    (
        re.compile(r"(?:HTTP error: )?error sending request(?: for url \(\S+\))?(?:\n|\Z)"),
        "botocore.exceptions.EndpointConnectionError",
    ),
    (re.compile(r"(?:HTTP error: )?request or response body error(?:\n|\Z)"), "http.client.IncompleteRead"),
    (re.compile(r"(?:HTTP error: )?error decoding response body(?:\n|\Z)"), "http.client.IncompleteRead"),
)
# object_store HttpErrorKind -> the class that means the same.
_KINDS = {
    "Connect": "builtins.ConnectionRefusedError",
    "Timeout": "builtins.TimeoutError",
    "Interrupted": "http.client.IncompleteRead",
    "Decode": "http.client.IncompleteRead",
}

# torch/_utils.py ExceptionWrapper: "Caught X in DataLoader worker process 5.\nOriginal Traceback (most recent call ..."
_CAUGHT = re.compile(
    r"Caught (?P<name>\w+) in "
    r"(?:DataLoader worker process \d+|pin memory thread for device \d+|replica \d+ on device \d+)\.\n"
)
_DIRECT_CAUSE = "\nThe above exception was the direct cause of the following exception:\n"
_IN_HANDLER = "\nDuring handling of the above exception, another exception occurred:\n"
_BLOCK = re.compile(
    r"(?:\A|\n)(?:Original )?Traceback \(most recent call last\):\n(?:[ \t]+[^\n]*\n)+"
    r"(?P<type>[A-Za-z_][\w.]*)(?:: (?P<text>[^\0]*))?\Z"
)
# Classes that only repeat somebody else's words; the block before, if it is the direct cause, says more.
_CARRIERS = frozenset(
    ("OSError", "RuntimeError", "PermissionError", "FileNotFoundError", "FileExistsError", "TimeoutError")
)
# What multiprocessing and concurrent.futures attach to an error of another process: the traceback, quoted.
_REMOTE = re.compile(r'\n"""\n(?P<traceback>.*)"""\Z', re.DOTALL)


def read_text(text: str) -> TextFacts | None:
    """Return what a text of a known producer says, None for every other text."""
    if len(text) > _MAX_CHARS:
        # At line ends, so that no part of a line looks like a line of its own.
        text = text[: _MAX_CHARS // 2].rpartition("\n")[0] + "\n" + text[-_MAX_CHARS // 2 :].partition("\n")[2]
    caught = _CAUGHT.match(text)
    return _read_traceback(text, caught["name"]) if caught else _read_message(text)


def read_remote_traceback(text: str) -> TextFacts | None:
    """Return what the traceback of another process says, as multiprocessing and concurrent.futures attach it."""
    match = _REMOTE.match(text[-_MAX_CHARS:])
    return _read_traceback(match["traceback"], None) if match else None


def _read_message(text: str) -> TextFacts | None:
    if match := _AZURE_ERROR.match(text):
        return TextFacts(provider="azure", code=match["code"])
    if match := _CLIENT_ERROR.match(text):
        return TextFacts(provider="s3", code=match["code"], operation=match["operation"])
    if match := _CREDENTIAL.match(text):
        return TextFacts(provider="credential", status=int(match["status"]))
    if _ARROW.match(text):
        return _read_arrow(text)
    if match := _STORE.match(text):
        return _read_store(match)
    return None


def _read_arrow(text: str) -> TextFacts | None:
    readings = {match.groups() for match in _ARROW_PART.finditer(text)}
    if len(readings) != 1:
        return None
    code, status, operation = readings.pop()
    return TextFacts(provider="s3", code=code, status=int(status) if status else None, operation=operation)


def _read_store(match: re.Match[str]) -> TextFacts | None:
    provider, rest = _PROVIDERS.get(match["store"] or "", "unknown"), match["rest"]
    operation = match["method"].lower() if match["method"] in ("GET", "HEAD") else None
    if answer := _STORE_STATUS.match(rest):
        code = _STORE_CODE.match(rest, answer.end())
        return TextFacts(
            provider=provider, operation=operation, status=int(answer["status"]), code=code["code"] if code else None
        )
    for pattern, name in _STORE_WORDS:
        if pattern.match(rest):
            kind = _STORE_KIND.search(rest)
            types = (_KINDS.get(kind["kind"] if kind else "", name),)
            return TextFacts(provider=provider, operation=operation, types=types)
    return None


def _read_traceback(text: str, name: str | None) -> TextFacts | None:
    """Read the last error of a printed traceback, and the direct cause of one that only carries words."""
    last: TextFacts | None = None
    for block in reversed(text.split(_DIRECT_CAUSE)):
        _, handled, block = block.rpartition(_IN_HANDLER)
        match = _BLOCK.search(block.rstrip("\n"))
        if match is None or (last is None and name not in (None, match["type"].rpartition(".")[2])):
            return last
        facts = read_error(match["type"], match["text"] or "")
        if facts is not None:
            return facts
        last = last or TextFacts(types=_qualified(match["type"]))
        if handled or match["type"] not in _CARRIERS:
            return last
    return last


def read_error(quoted: str, text: str) -> TextFacts | None:
    """Return what one printed error says, from its class name and its words."""
    text = _ERRNO.sub("", text, count=1)
    if quoted in _CARRIERS or quoted.startswith(("botocore.", "azure.", "obstore.")):
        return _read_message(text)
    return None


def _qualified(quoted: str) -> tuple[str, ...]:
    """Return the names of a quoted class; those of its bases too where it is a builtin, which is all that is known."""
    if "." in quoted:
        return (quoted,)
    cls = getattr(builtins, quoted, None)
    bases = cls.__mro__ if isinstance(cls, type) else ()
    return tuple(f"builtins.{base.__name__}" for base in bases if base is not object) or (f"builtins.{quoted}",)
