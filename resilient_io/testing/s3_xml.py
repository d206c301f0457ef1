"""The XML that the built-in S3 store speaks."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from urllib.parse import quote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from .memory import Page, Stored

_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


def document(root: str, inner: str) -> bytes:
    """Return an XML document with S3's namespace."""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{root} xmlns="{_NAMESPACE}">{inner}</{root}>'.encode()


def tags(**values: object) -> str:
    """Return one element per argument, in order; None is left out."""
    return "".join(f"<{name}>{escape(str(value))}</{name}>" for name, value in values.items() if value is not None)


def iso(epoch_s: int) -> str:
    """Return an instant in the form of S3's XML."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(epoch_s))


def children(text: bytes, name: str) -> list[dict[str, str]]:
    """Return every element of that name as a mapping of its children; ValueError on bad XML."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"malformed XML: {error}") from error
    return [
        {_local(child.tag): child.text or "" for child in element}
        for element in root.iter()
        if _local(element.tag) == name
    ]


def listing(bucket: str, query: dict[str, str], page: Page, *, limit: int, version: int) -> bytes:
    """Return a page as ListObjectsV2 (version 2) or ListObjects (version 1) gives it."""
    encoded = query.get("encoding-type") == "url"
    name = _quoted if encoded else str
    inner = tags(
        Name=bucket,
        Prefix=name(query.get("prefix", "")),
        Delimiter=name(query["delimiter"]) if "delimiter" in query else None,
        EncodingType="url" if encoded else None,
        MaxKeys=limit,
        IsTruncated=str(page.next_after is not None).lower(),
    )
    if version == 2:
        inner += tags(
            KeyCount=len(page.objects) + len(page.prefixes),
            ContinuationToken=query.get("continuation-token"),
            NextContinuationToken=page.next_after and token_of(page.next_after),
            StartAfter=name(query["start-after"]) if "start-after" in query else None,
        )
    else:
        inner += tags(Marker=name(query.get("marker", "")), NextMarker=page.next_after and name(page.next_after))
    inner += "".join(_content(name(key), stored) for key, stored in page.objects)
    inner += "".join(f"<CommonPrefixes>{tags(Prefix=name(one))}</CommonPrefixes>" for one in page.prefixes)
    return document("ListBucketResult", inner)


def token_of(key: str) -> str:
    """Return a continuation token: opaque to the client, the last key to us."""
    return key.encode().hex()


def key_of(token: str) -> str:
    """Return the key behind a continuation token; ValueError if it is none."""
    return bytes.fromhex(token).decode()


def deleted(keys: Iterable[str], *, quiet: bool) -> bytes:
    """Return the answer to DeleteObjects, all of which went well."""
    inner = "" if quiet else "".join(f"<Deleted>{tags(Key=key)}</Deleted>" for key in keys)
    return document("DeleteResult", inner)


def _content(key: str, stored: Stored) -> str:
    return "<Contents>{}</Contents>".format(
        tags(
            Key=key,
            LastModified=iso(stored.modified_s),
            ETag=f'"{stored.etag}"',
            Size=len(stored.data),
            StorageClass="STANDARD",
        )
    )


def _quoted(text: str) -> str:
    return quote(text, safe="/")


def _local(tag: str) -> str:
    return re.sub(r"^\{.*\}", "", tag)
