"""The S3 protocol plug-in: which operation a request is, and how S3 words an error."""

from __future__ import annotations

from dataclasses import dataclass, replace
from xml.sax.saxutils import escape

from .calls import Call, Head, Reply, decoded, prefix_of
from .s3_xml import children

# Names of the query that make an operation of their own, with the operation's stem.
# https://docs.aws.amazon.com/AmazonS3/latest/API/API_Operations_Amazon_Simple_Storage_Service.html
_SUBRESOURCES = {
    "acl": "Acl",
    "tagging": "Tagging",
    "retention": "Retention",
    "legal-hold": "LegalHold",
    "attributes": "Attributes",
    "torrent": "Torrent",
    "versioning": "Versioning",
    "policy": "Policy",
    "cors": "Cors",
    "lifecycle": "LifecycleConfiguration",
    "encryption": "Encryption",
    "location": "Location",
    "notification": "NotificationConfiguration",
    "object-lock": "ObjectLockConfiguration",
    "publicAccessBlock": "PublicAccessBlock",
    "website": "Website",
    "logging": "Logging",
}
_BUCKET_GETS = (
    ("uploads", "ListMultipartUploads"),
    ("versions", "ListObjectVersions"),
    ("list-type", "ListObjectsV2"),
)
_VERBS = {"GET": "Get", "HEAD": "Head", "PUT": "Put", "DELETE": "Delete", "POST": "Post"}
# S3's own code for a status, where an error does not name one.
_CODES = {
    400: "InvalidRequest",
    403: "AccessDenied",
    404: "NoSuchKey",
    408: "RequestTimeout",
    409: "OperationAborted",
    412: "PreconditionFailed",
    416: "InvalidRange",
    429: "TooManyRequests",
    500: "InternalError",
    501: "NotImplemented",
    502: "BadGateway",
    503: "SlowDown",
    504: "GatewayTimeout",
}
_MESSAGES = {
    "SlowDown": "Please reduce your request rate.",
    "InternalError": "We encountered an internal error. Please try again.",
    "NoSuchKey": "The specified key does not exist.",
    "NoSuchBucket": "The specified bucket does not exist",
    "NoSuchUpload": "The specified multipart upload does not exist.",
    "PreconditionFailed": "At least one of the pre-conditions you specified did not hold",
    "InvalidRange": "The requested range is not satisfiable",
    "ServiceUnavailable": "Service is unable to handle request.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Protocol:
    """S3 over HTTP, path style and virtual-hosted style.

    A Host that ends in one of `virtual_hosts` with a label before it names a bucket
    ("bucket.localhost:9000"); any other Host, and every address, means path style.
    """

    virtual_hosts: tuple[str, ...] = ("localhost", "s3.amazonaws.com")

    def parse(self, head: Head, *, prefix_depth: int) -> Call:
        """Return the S3 operation that the request names."""
        bucket, key = self.place(head)
        query = head.query() if "?" in head.target else {}
        op = _op_of(head, query, bucket=bucket, key=key)
        named = key or (query.get("prefix", "") if op.startswith("List") else "")
        return Call(
            op=op,
            op_class=op_class_of(op),
            bucket=bucket,
            key=key,
            prefix=prefix_of(named, depth=prefix_depth),
            attempt=_attempt_of(head.headers.get("amz-sdk-request", "")),
        )

    def place(self, head: Head) -> tuple[str, str]:
        """Return the bucket and the key, both decoded; "" where the request names none."""
        path = head.path.lstrip("/") if head.path.startswith("/") else ""
        host = head.headers.get("host", "").partition(":")[0]
        for suffix in self.virtual_hosts:
            if host.endswith("." + suffix):
                return host[: -len(suffix) - 1], decoded(head.path[1:])
        bucket, _, key = path.partition("/")
        return decoded(bucket), decoded(key)

    def body_tells(self, call: Call) -> bool:
        """Return True for DeleteObjects: its keys stand in the body."""
        return call.op == "DeleteObjects"

    def refined(self, call: Call, body: bytes, *, prefix_depth: int) -> Call:
        """Return a bulk delete with the prefix of its first key; a body that is no XML changes nothing."""
        try:
            keys = [one.get("Key", "") for one in children(body, "Object")]
        except ValueError:
            return call
        return replace(call, prefix=prefix_of(keys[0], depth=prefix_depth)) if keys else call

    def error(
        self, head: Head, call: Call, *, status: int, code: str | None, message: str | None, request_id: str
    ) -> Reply:
        """Return an S3 XML error; a HEAD gets no body. One with code "" is not S3's."""
        if code == "":
            return Reply(status=status, headers=[("Content-Type", "text/html")], body=b"")
        code = code or _CODES.get(status, "InternalError")
        if code == "NoSuchKey" and not call.key:
            code = "NoSuchBucket"
        message = message or _MESSAGES.get(code, code)
        resource = f"/{call.bucket}/{call.key}" if call.key else f"/{call.bucket}"
        text = (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f"<Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
            f"<Resource>{escape(resource)}</Resource><RequestId>{request_id}</RequestId>"
            f"<HostId>{request_id}</HostId></Error>"
        )
        headers = [("x-amz-request-id", request_id), ("x-amz-id-2", request_id), ("Content-Type", "application/xml")]
        return Reply(status=status, headers=headers, body=b"" if head.method == "HEAD" else text.encode())

    def refusal(self) -> tuple[int, str]:
        """Return 503 and SlowDown."""
        return 503, "SlowDown"


def op_class_of(op: str) -> str:
    """Return "list", "delete", "read" or "write" for an operation's name.

    Aborting an upload is a delete; creating, copying, uploading and completing are writes.
    """
    if op.startswith("List"):
        return "list"
    if op.startswith(("Delete", "Abort")):
        return "delete"
    return "read" if op.startswith(("Get", "Head", "Select")) else "write"


def _op_of(head: Head, query: dict[str, str], *, bucket: str, key: str) -> str:
    if not bucket:
        return "ListBuckets" if head.method == "GET" else "Unknown"
    return _object_op(head, query) if key else _bucket_op(head.method, query)


def _bucket_op(method: str, query: dict[str, str]) -> str:
    if method == "GET":
        for name, op in _BUCKET_GETS:
            if name in query:
                return op
    if method == "POST":
        return "DeleteObjects" if "delete" in query else "PostObject"
    plain = {"GET": "ListObjects", "HEAD": "HeadBucket", "PUT": "CreateBucket", "DELETE": "DeleteBucket"}
    return _subresource_op(method, query, "Bucket") or plain.get(method, "Unknown")


def _object_op(head: Head, query: dict[str, str]) -> str:
    method, copied = head.method, "x-amz-copy-source" in head.headers
    if "uploadId" in query:
        put = "UploadPartCopy" if copied else "UploadPart"
        ops = {"GET": "ListParts", "PUT": put, "POST": "CompleteMultipartUpload", "DELETE": "AbortMultipartUpload"}
        return ops.get(method, "Unknown")
    if method == "POST":
        return "CreateMultipartUpload" if "uploads" in query else "PostObject"
    plain = {"GET": "GetObject", "HEAD": "HeadObject", "DELETE": "DeleteObject"}
    plain["PUT"] = "CopyObject" if copied else "PutObject"
    return (_subresource_op(method, query, "Object") if query else "") or plain.get(method, "Unknown")


def _subresource_op(method: str, query: dict[str, str], noun: str) -> str:
    for name, stem in _SUBRESOURCES.items():
        if name in query:
            return f"{_VERBS.get(method, method)}{noun}{stem}"
    return ""


def _attempt_of(header: str) -> str:
    """Return the number in botocore's `amz-sdk-request: attempt=2; max=3`, or ""."""
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name == "attempt":
            return value
    return ""
