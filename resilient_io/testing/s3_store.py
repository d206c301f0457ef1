"""The built-in S3 store: real enough for boto3, s3fs and aiobotocore, and fast. Any signature is accepted.

Not here: versions, access control, tags, encryption, range copies of conditions. What is not known
is answered 501 NotImplemented.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from email.utils import formatdate
from urllib.parse import unquote

from . import s3_xml as xml
from .calls import Body, Call, Head, Reply
from .memory import Bucket, ObjectStore, Page, Stored, Upload, etag_of, etag_of_parts
from .s3 import S3Protocol
from .s3_body import BadBody, stored_headers, whole_body
from .s3_conditions import Denied, byte_range, check_read, check_write

_XML = [("Content-Type", "application/xml")]


@dataclass(slots=True)
class Asked:
    """A request with everything that an operation may read."""

    head: Head
    call: Call
    query: dict[str, str]
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class S3Store:
    """A `Backend` that keeps objects in memory."""

    def __init__(self, protocol: S3Protocol | None = None) -> None:
        self.objects = ObjectStore()
        self._protocol = protocol or S3Protocol()
        self._operations: dict[str, Callable[[Asked], Reply]] = {
            name: getattr(self, "_" + method) for name, method in _OPERATIONS.items()
        }

    async def answer(self, head: Head, call: Call, body: Body, request_id: str) -> Reply:
        """Apply one S3 call; every error is an S3 error."""
        try:
            asked = await self._asked(head, call, body)
            reply = self._operations.get(call.op, self._unknown)(asked)
            reply.headers += [("x-amz-request-id", request_id), ("x-amz-id-2", request_id), ("Server", "AmazonS3")]
        except Denied as denied:
            reply = self._protocol.error(
                head, call, status=denied.status, code=denied.code, message=None, request_id=request_id
            )
            reply.headers += denied.headers
        except (BadBody, ValueError, LookupError) as error:
            code = error.code if isinstance(error, BadBody) else "InvalidRequest"
            reply = self._protocol.error(head, call, status=400, code=code, message=str(error), request_id=request_id)
        return reply

    async def close(self) -> None:
        """Nothing is open."""

    def fill(self, *, bucket: str, count: int, size_bytes: int, key: str, seed: int) -> None:
        """Make `count` objects; see `ObjectStore.fill`."""
        self.objects.fill(bucket=bucket, count=count, size_bytes=size_bytes, key=key, seed=seed)

    async def _asked(self, head: Head, call: Call, body: Body) -> Asked:
        query = head.query() if "?" in head.target else {}
        if head.method in ("GET", "HEAD", "DELETE"):
            return Asked(head, call, query, b"")
        data, trailers = await whole_body(head, body)
        return Asked(head, call, query, data, stored_headers({**head.headers, **trailers}))

    # Reading.

    def _get_object(self, asked: Asked) -> Reply:
        stored = self._object(asked.call)
        headers = asked.head.headers
        check_read(headers, stored)
        span = byte_range(headers.get("range"), len(stored.data)) if "range" in headers else None
        out = _object_headers(stored, checksums=span is None and "x-amz-checksum-mode" in headers)
        if span is None:
            return Reply(status=200, headers=out, body=stored.data)
        first, end = span
        out.append(("Content-Range", f"bytes {first}-{end - 1}/{len(stored.data)}"))
        return Reply(status=206, headers=out, body=memoryview(stored.data)[first:end])

    def _get_location(self, asked: Asked) -> Reply:
        self._bucket(asked.call)
        return Reply(status=200, headers=list(_XML), body=xml.document("LocationConstraint", ""))

    def _get_versioning(self, asked: Asked) -> Reply:
        self._bucket(asked.call)
        return Reply(status=200, headers=list(_XML), body=xml.document("VersioningConfiguration", ""))

    def _head_bucket(self, asked: Asked) -> Reply:
        self._bucket(asked.call)
        return Reply(status=200, headers=[("x-amz-bucket-region", "us-east-1"), *_XML])

    # Listing.

    def _list_buckets(self, asked: Asked) -> Reply:
        inner = "".join(
            f"<Bucket>{xml.tags(Name=name, CreationDate=xml.iso(one.created_s))}</Bucket>"
            for name, one in sorted(self.objects.buckets.items())
        )
        owner = "<Owner><ID>resilient-io</ID><DisplayName>resilient-io</DisplayName></Owner>"
        text = xml.document("ListAllMyBucketsResult", f"{owner}<Buckets>{inner}</Buckets>")
        return Reply(status=200, headers=list(_XML), body=text)

    def _list_v2(self, asked: Asked) -> Reply:
        token = asked.query.get("continuation-token")
        after = xml.key_of(token) if token else asked.query.get("start-after", "")
        page, limit = self._page(asked, after)
        text = xml.listing(asked.call.bucket, asked.query, page, limit=limit, version=2)
        return Reply(status=200, headers=list(_XML), body=text)

    def _list_v1(self, asked: Asked) -> Reply:
        page, limit = self._page(asked, asked.query.get("marker", ""))
        text = xml.listing(asked.call.bucket, asked.query, page, limit=limit, version=1)
        return Reply(status=200, headers=list(_XML), body=text)

    def _page(self, asked: Asked, after: str) -> tuple[Page, int]:
        query = asked.query
        limit = min(1000, int(query.get("max-keys") or 1000))
        bucket = self._bucket(asked.call)
        page = bucket.page(
            prefix=query.get("prefix", ""), delimiter=query.get("delimiter", ""), after=after, limit=limit
        )
        return (page if limit else replace(page, next_after=None)), limit

    def _list_uploads(self, asked: Asked) -> Reply:
        self._bucket(asked.call)
        inner = "".join(
            f"<Upload>{xml.tags(Key=one.key, UploadId=name, Initiated=xml.iso(one.started_s))}</Upload>"
            for name, one in sorted(self.objects.uploads.items(), key=lambda item: item[1].key)
            if one.bucket == asked.call.bucket and one.key.startswith(asked.query.get("prefix", ""))
        )
        text = xml.tags(Bucket=asked.call.bucket, IsTruncated="false") + inner
        return Reply(status=200, headers=list(_XML), body=xml.document("ListMultipartUploadsResult", text))

    def _list_parts(self, asked: Asked) -> Reply:
        upload = self._upload(asked)
        inner = "".join(
            f"<Part>{xml.tags(PartNumber=number, ETag=_quoted(part), Size=len(part.data))}</Part>"
            for number, part in sorted(upload.parts.items())
        )
        text = xml.tags(Bucket=upload.bucket, Key=upload.key, UploadId=asked.query["uploadId"], IsTruncated="false")
        return Reply(status=200, headers=list(_XML), body=xml.document("ListPartsResult", text + inner))

    # Writing.

    def _create_bucket(self, asked: Asked) -> Reply:
        self.objects.buckets.setdefault(asked.call.bucket, Bucket())
        return Reply(status=200, headers=[("Location", f"/{asked.call.bucket}")])

    def _put_object(self, asked: Asked) -> Reply:
        stored = _new(asked.body, asked.headers)
        self._store(asked, stored)
        return Reply(status=200, headers=[("ETag", _quoted(stored)), *_checksums(stored)])

    def _copy_object(self, asked: Asked) -> Reply:
        source = self._source(asked)
        keep = asked.head.headers.get("x-amz-metadata-directive", "COPY").upper() != "REPLACE"
        stored = _new(source.data, source.headers if keep else asked.headers)
        self._store(asked, stored)
        text = xml.tags(LastModified=xml.iso(stored.modified_s), ETag=_quoted(stored))
        return Reply(status=200, headers=list(_XML), body=xml.document("CopyObjectResult", text))

    def _store(self, asked: Asked, stored: Stored) -> None:
        bucket = self._bucket(asked.call)
        check_write(asked.head.headers, bucket.objects.get(asked.call.key))
        bucket.put(asked.call.key, stored)

    # Multipart uploads.

    def _create_upload(self, asked: Asked) -> Reply:
        self._bucket(asked.call)
        upload_id = self.objects.start_upload(asked.call.bucket, asked.call.key, asked.headers)
        text = xml.tags(Bucket=asked.call.bucket, Key=asked.call.key, UploadId=upload_id)
        return Reply(status=200, headers=list(_XML), body=xml.document("InitiateMultipartUploadResult", text))

    def _upload_part(self, asked: Asked) -> Reply:
        part = _new(asked.body, asked.headers)
        self._upload(asked).parts[int(asked.query["partNumber"])] = part
        return Reply(status=200, headers=[("ETag", _quoted(part)), *_checksums(part)])

    def _upload_part_copy(self, asked: Asked) -> Reply:
        source = self._source(asked)
        span = byte_range(asked.head.headers.get("x-amz-copy-source-range"), len(source.data))
        part = _new(source.data if span is None else source.data[slice(*span)], ())
        self._upload(asked).parts[int(asked.query["partNumber"])] = part
        text = xml.tags(LastModified=xml.iso(part.modified_s), ETag=_quoted(part))
        return Reply(status=200, headers=list(_XML), body=xml.document("CopyPartResult", text))

    def _complete_upload(self, asked: Asked) -> Reply:
        upload = self._upload(asked)
        parts = [_part(upload, wanted) for wanted in xml.children(asked.body, "Part")]
        if not parts:
            raise Denied(400, "MalformedXML")
        data = b"".join(part.data for part in parts)
        etag = etag_of_parts([part.etag for part in parts])
        stored = replace(_new(data, upload.headers), etag=etag, part_count=len(parts))
        self._store(asked, stored)
        del self.objects.uploads[asked.query["uploadId"]]
        call = asked.call
        location = f"http://{asked.head.headers.get('host', '')}/{call.bucket}/{call.key}"
        text = xml.tags(Location=location, Bucket=call.bucket, Key=call.key, ETag=_quoted(stored))
        return Reply(status=200, headers=list(_XML), body=xml.document("CompleteMultipartUploadResult", text))

    def _abort_upload(self, asked: Asked) -> Reply:
        self._upload(asked)
        del self.objects.uploads[asked.query["uploadId"]]
        return Reply(status=204)

    # Deleting.

    def _delete_object(self, asked: Asked) -> Reply:
        self._bucket(asked.call).delete(asked.call.key)
        return Reply(status=204)

    def _delete_objects(self, asked: Asked) -> Reply:
        bucket = self._bucket(asked.call)
        keys = [one["Key"] for one in xml.children(asked.body, "Object")]
        for key in keys:
            bucket.delete(key)
        quiet = b"<Quiet>true</Quiet>" in asked.body
        return Reply(status=200, headers=list(_XML), body=xml.deleted(keys, quiet=quiet))

    def _delete_bucket(self, asked: Asked) -> Reply:
        if self._bucket(asked.call).objects:
            raise Denied(409, "BucketNotEmpty")
        del self.objects.buckets[asked.call.bucket]
        return Reply(status=204)

    # Looking things up.

    def _unknown(self, asked: Asked) -> Reply:
        raise Denied(501, "NotImplemented")

    def _bucket(self, call: Call) -> Bucket:
        found = self.objects.buckets.get(call.bucket)
        if found is None:
            raise Denied(404, "NoSuchBucket")
        return found

    def _object(self, call: Call) -> Stored:
        found = self._bucket(call).objects.get(call.key)
        if found is None:
            raise Denied(404, "NoSuchKey")
        return found

    def _upload(self, asked: Asked) -> Upload:
        found = self.objects.uploads.get(asked.query["uploadId"])
        if found is None or (found.bucket, found.key) != (asked.call.bucket, asked.call.key):
            raise Denied(404, "NoSuchUpload")
        return found

    def _source(self, asked: Asked) -> Stored:
        path = unquote(asked.head.headers["x-amz-copy-source"]).partition("?")[0]
        bucket, _, key = path.lstrip("/").partition("/")
        return self._object(replace(asked.call, bucket=bucket, key=key))


_OPERATIONS = {
    "GetObject": "get_object",
    "HeadObject": "get_object",
    "GetBucketLocation": "get_location",
    "GetBucketVersioning": "get_versioning",
    "HeadBucket": "head_bucket",
    "ListBuckets": "list_buckets",
    "ListObjectsV2": "list_v2",
    "ListObjects": "list_v1",
    "ListMultipartUploads": "list_uploads",
    "ListParts": "list_parts",
    "CreateBucket": "create_bucket",
    "PutObject": "put_object",
    "CopyObject": "copy_object",
    "CreateMultipartUpload": "create_upload",
    "UploadPart": "upload_part",
    "UploadPartCopy": "upload_part_copy",
    "CompleteMultipartUpload": "complete_upload",
    "AbortMultipartUpload": "abort_upload",
    "DeleteObject": "delete_object",
    "DeleteObjects": "delete_objects",
    "DeleteBucket": "delete_bucket",
}


def _new(data: bytes, headers: tuple[tuple[str, str], ...]) -> Stored:
    return Stored(data=data, etag=etag_of(data), modified_s=int(time.time()), headers=headers)


def _part(upload: Upload, wanted: dict[str, str]) -> Stored:
    part = upload.parts.get(int(wanted.get("PartNumber", "0")))
    if part is None or wanted.get("ETag", "").strip('"') != part.etag:
        raise Denied(400, "InvalidPart")
    return part


def _quoted(stored: Stored) -> str:
    return f'"{stored.etag}"'


def _checksums(stored: Stored) -> list[tuple[str, str]]:
    return [(name, value) for name, value in stored.headers if name.startswith("x-amz-checksum-")]


def _object_headers(stored: Stored, *, checksums: bool) -> list[tuple[str, str]]:
    headers = [
        ("Last-Modified", formatdate(stored.modified_s, usegmt=True)),
        ("ETag", f'"{stored.etag}"'),
        ("Accept-Ranges", "bytes"),
    ]
    kept = stored.headers
    if not any(name == "content-type" for name, _ in kept):
        headers.append(("Content-Type", "binary/octet-stream"))
    headers += [pair for pair in kept if checksums or not pair[0].startswith("x-amz-checksum-")]
    return headers
