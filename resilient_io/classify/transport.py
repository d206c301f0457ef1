"""What the class of an exception means where no code and no status says more.

The rows are tried in order against all class names of an exception, of its bases and of what it wraps; the first row
that shares a name with them decides. So the finer rows stand above the coarser ones: a NewConnectionError is also
a TimeoutError of urllib3, a ClientConnectorError is also a ClientOSError, and a certificate error is
also a ValueError. Names are those of botocore 1.43, aiobotocore 3.10, s3transfer, aiohttp 3.14, urllib3 2.8,
requests 2, azure-core 1.41, azure-identity 1.27, fsspec 2026.9, s3fs 2026.9, obstore and CPython 3.10 to 3.14.
"""

from __future__ import annotations

import errno
from enum import Enum
from functools import lru_cache


class TypeMeaning(Enum):
    """What the class of an exception means. One value stands for one rule."""

    OWN_THROTTLED = "own_throttled"
    OWN_EXHAUSTED = "own_exhausted"
    OWN_CHANGED = "own_changed"
    OWN_AMBIGUOUS = "own_ambiguous"
    OWN_FATAL = "own_fatal"
    OWN_CLIENT_BUG = "own_client_bug"
    TLS_REFUSED = "tls_refused"
    CREDENTIALS = "credentials"
    MISUSE = "misuse"
    OBJECT_CHANGED = "object_changed"
    CONNECT_REFUSED = "connect_refused"
    PROXY = "proxy"
    CONNECT_TIMEOUT = "connect_timeout"
    CHECKSUM = "checksum"
    BODY_CUT = "body_cut"
    ANSWER_TIMEOUT = "answer_timeout"
    CONNECTION_LOST = "connection_lost"
    UNREADABLE = "unreadable"
    REQUEST_FAILED = "request_failed"
    DENIED = "denied"
    ABSENT = "absent"
    PRESENT = "present"
    PROGRAM_BUG = "program_bug"
    HTTP_CLIENT = "http_client"
    NONE = "none"


def _names(module: str, names: str) -> tuple[str, ...]:
    return tuple(f"{module}.{name}" for name in names.split())


_Row = tuple[TypeMeaning, tuple[str, ...]]

# What this library raised itself, also where only the name came through a process border.
_OWN_ROWS: tuple[_Row, ...] = (
    (TypeMeaning.OWN_THROTTLED, _names("resilient_io.errors", "ThrottledError")),
    (TypeMeaning.OWN_EXHAUSTED, _names("resilient_io.errors", "RetriesExhausted DeadlineExceeded")),
    (TypeMeaning.OWN_CHANGED, _names("resilient_io.errors", "ObjectChanged")),
    (TypeMeaning.OWN_AMBIGUOUS, _names("resilient_io.errors", "AmbiguousWriteError")),
    (TypeMeaning.OWN_CLIENT_BUG, _names("resilient_io.errors", "NotForkSafe")),
    (TypeMeaning.CREDENTIALS, _names("resilient_io.errors", "CredentialsError")),
    (TypeMeaning.OWN_FATAL, _names("resilient_io.errors", "ResilientIOError")),
)

_ROWS: tuple[_Row, ...] = (
    *_OWN_ROWS,
    # The peer or the protocol is the wrong one: a repeat meets it again. unwrap.py adds the first name when an
    # OpenSSL reason says so, for classes that keep only its text.
    (
        TypeMeaning.TLS_REFUSED,
        (
            *_names("ssl", "SSLCertVerificationError CertificateError"),
            *_names("aiohttp.client_exceptions", "ClientConnectorCertificateError ServerFingerprintMismatch"),
        ),
    ),
    (
        TypeMeaning.CREDENTIALS,
        (
            *_names(
                "botocore.exceptions",
                "NoCredentialsError PartialCredentialsError CredentialRetrievalError TokenRetrievalError "
                "NoAuthTokenError MetadataRetrievalError SSOError LoginError UnknownCredentialError "
                "RefreshWithMFAUnsupportedError",
            ),
            *_names("azure.core.exceptions", "ClientAuthenticationError"),
            *_names("obstore.exceptions", "UnauthenticatedError"),
        ),
    ),
    (
        TypeMeaning.MISUSE,
        (
            *_names(
                "botocore.exceptions",
                "ParamValidationError ValidationError MissingParametersError InvalidDNSNameError InvalidConfigError "
                "BaseEndpointResolverError EndpointProviderError ProfileNotFound ConfigNotFound ConfigParseError "
                "UnsupportedS3ArnError UnsupportedS3ConfigurationError UnseekableStreamError InvalidRegionError",
            ),
            *_names("azure.core.exceptions", "StreamClosedError StreamConsumedError ResponseNotReadError"),
            *_names("requests.exceptions", "StreamConsumedError UnrewindableBodyError InvalidURL InvalidHeader"),
            *_names("urllib3.exceptions", "UnrewindableBodyError LocationValueError InvalidHeader ClosedPoolError"),
            *_names("aiohttp.client_exceptions", "InvalidURL NonHttpUrlClientError"),
            *_names("obstore.exceptions", "InvalidPathError NotSupportedError UnknownConfigurationKeyError"),
        ),
    ),
    # The object is no longer the one whose reading began.
    (
        TypeMeaning.OBJECT_CHANGED,
        (
            *_names("s3fs.utils", "FileExpired"),
            *_names("s3transfer.exceptions", "S3DownloadFailedError"),
            *_names("azure.core.exceptions", "ResourceModifiedError ResourceNotModifiedError"),
            *_names("obstore.exceptions", "PreconditionError NotModifiedError"),
        ),
    ),
    # Above the failed connects that it consists of.
    (
        TypeMeaning.PROXY,
        (
            *_names("botocore.exceptions", "ProxyConnectionError"),
            *_names("aiohttp.client_exceptions", "ClientProxyConnectionError ClientHttpProxyError"),
            *_names("urllib3.exceptions", "ProxyError"),
            *_names("requests.exceptions", "ProxyError"),
        ),
    ),
    # No request left this machine. (aiobotocore calls resets EndpointConnectionError too: that name is below.)
    (
        TypeMeaning.CONNECT_REFUSED,
        (
            *_names("builtins", "ConnectionRefusedError"),
            *_names("socket", "gaierror herror"),
            *_names("aiohttp.client_exceptions", "ClientConnectorError"),
            *_names("urllib3.exceptions", "NewConnectionError NameResolutionError"),
            *_names("httpx", "ConnectError"),
        ),
    ),
    (
        TypeMeaning.CONNECT_TIMEOUT,
        (
            *_names("botocore.exceptions", "ConnectTimeoutError"),
            *_names("aiohttp.client_exceptions", "ConnectionTimeoutError"),
            *_names("urllib3.exceptions", "ConnectTimeoutError EmptyPoolError"),
            *_names("requests.exceptions", "ConnectTimeout"),
            *_names("azure.core.exceptions", "ServiceRequestTimeoutError"),
            *_names("httpx", "ConnectTimeout PoolTimeout"),
        ),
    ),
    (TypeMeaning.CHECKSUM, _names("botocore.exceptions", "FlexibleChecksumError ChecksumError")),
    (
        TypeMeaning.ANSWER_TIMEOUT,
        (
            *_names("builtins", "TimeoutError"),
            *_names("asyncio.exceptions", "TimeoutError"),  # CPython 3.10
            *_names("concurrent.futures._base", "TimeoutError"),  # CPython 3.10
            *_names("botocore.exceptions", "ReadTimeoutError"),
            *_names("aiobotocore.response", "AioReadTimeoutError"),
            *_names("aiohttp.client_exceptions", "ServerTimeoutError SocketTimeoutError"),
            *_names("urllib3.exceptions", "ReadTimeoutError TimeoutError"),
            *_names("requests.exceptions", "ReadTimeout Timeout"),
            *_names("azure.core.exceptions", "ServiceResponseTimeoutError"),
            *_names("fsspec.exceptions", "FSTimeoutError"),
            *_names("httpx", "TimeoutException ReadTimeout WriteTimeout"),
        ),
    ),
    (
        TypeMeaning.BODY_CUT,
        (
            *_names("http.client", "IncompleteRead"),
            *_names("botocore.exceptions", "IncompleteReadError ResponseStreamingError"),
            *_names("aiohttp.client_exceptions", "ClientPayloadError"),
            *_names("aiohttp.http_exceptions", "PayloadEncodingError"),
            *_names("urllib3.exceptions", "IncompleteRead"),
            *_names("requests.exceptions", "ChunkedEncodingError"),
            *_names("azure.core.exceptions", "IncompleteReadError"),
            *_names("s3transfer.exceptions", "S3ValidationError"),  # a range or length that was not asked for
        ),
    ),
    (
        TypeMeaning.CONNECTION_LOST,
        (
            *_names("builtins", "ConnectionResetError ConnectionAbortedError BrokenPipeError"),
            *_names("http.client", "RemoteDisconnected BadStatusLine"),
            *_names("ssl", "SSLEOFError SSLZeroReturnError SSLSyscallError SSLError"),
            *_names("asyncio.exceptions", "IncompleteReadError"),
            *_names("botocore.exceptions", "ConnectionClosedError SSLError"),
            *_names("aiohttp.client_exceptions", "ServerDisconnectedError ClientConnectionResetError ClientOSError"),
            *_names("urllib3.exceptions", "ProtocolError SSLError"),
            *_names("requests.exceptions", "SSLError"),
            *_names("azure.core.exceptions", "ServiceResponseError"),
            *_names("httpx", "ReadError WriteError CloseError RemoteProtocolError"),
        ),
    ),
    (
        TypeMeaning.UNREADABLE,
        (
            *_names("botocore.parsers", "ResponseParserError"),  # a cut answer of DeleteObjects, s3fs#1005
            *_names("azure.core.exceptions", "DecodeError"),
            *_names("aiohttp.http_exceptions", "HttpProcessingError"),
            *_names("aiohttp.client_exceptions", "ContentTypeError"),
            *_names("requests.exceptions", "ContentDecodingError"),
            *_names("urllib3.exceptions", "DecodeError"),
        ),
    ),
    # "Could not be sent", which the asynchronous transports also say of a reset after sending.
    (
        TypeMeaning.REQUEST_FAILED,
        (
            *_names("botocore.exceptions", "ConnectionError EndpointConnectionError"),
            *_names("azure.core.exceptions", "ServiceRequestError"),
        ),
    ),
    (TypeMeaning.DENIED, _names("obstore.exceptions", "PermissionDeniedError")),
    (
        TypeMeaning.ABSENT,
        (
            *_names("azure.core.exceptions", "ResourceNotFoundError"),
            *_names("obstore.exceptions", "NotFoundError"),
            *_names("builtins", "FileNotFoundError"),
        ),
    ),
    (
        TypeMeaning.PRESENT,
        (
            *_names("azure.core.exceptions", "ResourceExistsError"),
            *_names("obstore.exceptions", "AlreadyExistsError"),
            *_names("builtins", "FileExistsError"),
        ),
    ),
    (
        TypeMeaning.PROGRAM_BUG,
        _names(
            "builtins",
            "ValueError TypeError LookupError AttributeError AssertionError NameError ArithmeticError ImportError "
            "NotImplementedError RecursionError",
        ),
    ),
    # Envelopes that say nothing themselves: below the bugs, because botocore wraps those in HTTPClientError too.
    (
        TypeMeaning.HTTP_CLIENT,
        (
            *_names("botocore.exceptions", "HTTPClientError"),
            *_names("boto3.exceptions", "RetriesExceededError"),
            *_names("s3transfer.exceptions", "RetriesExceededError"),
            *_names("aiohttp.client_exceptions", "ClientConnectionError"),
            *_names("urllib3.exceptions", "MaxRetryError"),
            *_names("requests.exceptions", "ConnectionError"),
            *_names("builtins", "ConnectionError"),
            *_names("http.client", "HTTPException"),
            *_names("httpx", "TransportError"),
        ),
    ),
)
_SETS = tuple((meaning, frozenset(names)) for meaning, names in _ROWS)
_NEVER_SENT = frozenset((TypeMeaning.CONNECT_REFUSED, TypeMeaning.PROXY, TypeMeaning.CONNECT_TIMEOUT))

# Cancellations that are Exceptions all the same; asyncio's is none.
CANCELLATIONS = frozenset(("concurrent.futures._base.CancelledError", "s3transfer.exceptions.FatalError"))

# OpenSSL reasons that speak of who the peer is or how it talks, not of the line. (CPython Modules/_ssl_data.h)
TLS_REFUSALS = frozenset(
    (
        "CERTIFICATE_VERIFY_FAILED",
        "HTTP_REQUEST",
        "NO_PROTOCOLS_AVAILABLE",
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_HANDSHAKE_FAILURE",
        "TLSV13_ALERT_CERTIFICATE_REQUIRED",
        "TLSV1_ALERT_PROTOCOL_VERSION",
        "TLSV1_ALERT_UNKNOWN_CA",
        "UNKNOWN_PROTOCOL",
        "UNSAFE_LEGACY_RENEGOTIATION_DISABLED",
        "UNSUPPORTED_PROTOCOL",
        "WRONG_VERSION_NUMBER",
    )
)


class ErrnoMeaning(Enum):
    """What the errno of an OSError means where nothing else is known."""

    LOST = "lost"
    UNREACHABLE = "unreachable"
    LOCAL = "local"
    NONE = "none"


def _numbers(names: str) -> frozenset[int]:
    # Windows knows not all of them.
    return frozenset(getattr(errno, name) for name in names.split() if hasattr(errno, name))


# POSIX errno.h. Everything else (ENOSPC, EBUSY, EACCES, EMFILE...) is a fault of this machine.
_LOST = _numbers("ECONNRESET ECONNABORTED EPIPE ETIMEDOUT ENETRESET ESHUTDOWN ENOTCONN")
_UNREACHABLE = _numbers("ECONNREFUSED EHOSTUNREACH ENETUNREACH ENETDOWN EHOSTDOWN EADDRNOTAVAIL")


@lru_cache(maxsize=1024)
def type_meaning(types: tuple[str, ...]) -> TypeMeaning:
    """Return what the class names of an exception, its bases and what it wraps mean; NONE if no row knows them."""
    for meaning, names in _SETS:
        if not names.isdisjoint(types):
            return meaning
    return TypeMeaning.NONE


def errno_meaning(number: int | None) -> ErrnoMeaning:
    """Return what an errno means by itself."""
    if number is None:
        return ErrnoMeaning.NONE
    if number in _LOST:
        return ErrnoMeaning.LOST
    return ErrnoMeaning.UNREACHABLE if number in _UNREACHABLE else ErrnoMeaning.LOCAL


def was_sent(*, types: tuple[str, ...], number: int | None) -> bool:
    """Return False only where it is certain that the service never saw the request."""
    meaning = type_meaning(types)
    if meaning is TypeMeaning.NONE:
        return errno_meaning(number) is not ErrnoMeaning.UNREACHABLE
    return meaning not in _NEVER_SENT
