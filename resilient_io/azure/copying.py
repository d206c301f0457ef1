"""A copy inside the service, waited for: it may only have begun when the request for it is answered."""

from __future__ import annotations

import errno
import os
from typing import Any, Final

from adlfs.spec import AzureBlobFileSystem
from azure.core.exceptions import ResourceNotFoundError

from resilient_io import policy as policies
from resilient_io.azure.listing import unless_off
from resilient_io.drive.runtime import runtime
from resilient_io.errors import DeadlineExceeded, GiveUp, message_of

# Between two looks at a copy that goes on: most are done at once, one across accounts takes minutes.
_FIRST_WAIT_S: Final = 0.2
_LONGEST_WAIT_S: Final = 5.0
_PENDING: Final = "pending"


class Copying(AzureBlobFileSystem):  # type: ignore[misc]  # adlfs is untyped
    """The part of the filesystem that copies blobs.

    adlfs reports a copy that has only begun as done; a move then deletes its source, which ends the copy.
    """

    _overlay: Any

    @unless_off
    async def _cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copy a blob inside the service; returns when it is whole. Raises OSError where the service gives up on it."""
        container, blob, version_id = self.split_path(path1, delimiter="/")
        source = self.service_client.get_blob_client(container, blob).url
        if version_id is not None:
            source += f"{'&' if '?' in source else '?'}versionid={version_id}"
        container, blob, _ = self.split_path(path2, delimiter="/")
        target = self.service_client.get_blob_client(container, blob)
        try:
            answer = await target.start_copy_from_url(source)
        except ResourceNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path1) from error
        if answer.get("copy_status") == _PENDING:
            await _until_copied(target, answer["copy_id"], path2, policies.resolve(self._overlay).deadline_s)
        for path in (path1, path2):
            self.invalidate_cache(self.split_path(path, delimiter="/")[0])


async def _until_copied(target: Any, copy_id: str, path: str, deadline_s: float) -> None:
    """Look at a copy until it is whole; `deadline_s` without any progress of it ends the wait."""
    clock, seen, wait_s = runtime().clock, None, _FIRST_WAIT_S
    started_at = progress_at = clock.now()
    while True:
        await clock.sleep_async(wait_s)
        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        copy = (await target.get_blob_properties()).copy
        if copy.id != copy_id:
            raise OSError(errno.EIO, "another copy took the place of this one before it was whole", path)
        if copy.status != _PENDING:
            break
        if copy.progress != seen:
            seen, progress_at = copy.progress, clock.now()
        elif clock.now() - progress_at >= deadline_s:
            raise _too_long(path, clock.now() - started_at)
    if copy.status != "success":
        raise OSError(errno.EIO, f"the service ended the copy: {copy.status} {copy.status_description or ''}", path)


def _too_long(path: str, elapsed_s: float) -> DeadlineExceeded:
    record = GiveUp(operation="CopyBlob", path=path, attempts=1, elapsed_s=elapsed_s, reason="deadline")
    return DeadlineExceeded(message_of(record), record=record)
