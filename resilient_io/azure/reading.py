"""Reading the first bytes of a blob instead of its properties."""

from __future__ import annotations

from typing import Any

from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

from resilient_io.azure.whole import whole_size_of
from resilient_io.drive.first import First
from resilient_io.errors import GiveUp, ObjectChanged

_READ = "GetBlob"


async def read_first(fs: Any, container: str, blob: str, length_bytes: int) -> First | None:
    """Return the first bytes of a blob and its details; None where no bytes answer: a directory, an empty blob.

    Raises ResourceNotFoundError.
    """
    client = fs.service_client.get_blob_client(container, blob)
    try:
        stream = await client.download_blob(offset=0, length=length_bytes, max_concurrency=1)
        data: bytes = await stream.readall()
    except ResourceNotFoundError:
        raise
    except HttpResponseError as error:
        if error.status_code == 416:
            return None
        raise
    properties = stream.properties
    properties.size = whole_size_of(stream)
    return First(data=data, details=(await fs._details([properties]))[0])


def changed(path: str) -> ObjectChanged:
    """Return the error for a blob that was replaced between two requests for its bytes."""
    record = GiveUp(operation=_READ, path=path)
    return ObjectChanged(f"{_READ} {path}: the blob was replaced while it was being read", record=record)
