"""What adlfs answers wrongly or asks twice: whether something is there, what lies below it, and that it is deleted."""

from __future__ import annotations

import asyncio
import errno
import functools
import os
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from glob import has_magic
from typing import Any

from adlfs.spec import AzureBlobFileSystem
from azure.core.exceptions import ResourceNotFoundError

from resilient_io.azure.denied import is_denied
from resilient_io.errors import GaveUp, ResilientIOError

Method = Callable[..., Awaitable[Any]]


def unless_off(inner: Method) -> Method:
    """Return a method that gives way to adlfs's own where the policy switches the library off."""
    stock: Method = getattr(AzureBlobFileSystem, inner.__name__)

    @functools.wraps(inner)
    async def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await (inner if self._enabled() else stock)(self, *args, **kwargs)

    return method


class Listing(AzureBlobFileSystem):  # type: ignore[misc]  # adlfs is untyped
    """The part of the filesystem that finds out what there is."""

    def _enabled(self) -> bool:
        raise NotImplementedError

    @unless_off
    async def _isfile(self, path: str) -> bool:
        """Say whether a blob of this name is there that is no directory's marker; adlfs swallows cancellation here."""
        listed = self.dircache.get(path.rpartition("/")[0], ()) if "/" in path else ()
        if any(entry["name"] == path and entry["type"] == "file" for entry in listed):
            return True
        try:
            entry = await self._blob_of(path)
        except (GaveUp, ResilientIOError):
            raise
        except Exception as error:
            if is_denied(error):
                raise
            return False
        return entry is not None and entry["type"] == "file"

    @unless_off
    async def _isdir(self, path: str) -> bool:
        """Say whether blobs lie below this path, or a directory's marker at it."""
        if any(entry["name"] != path for entry in self.dircache.get(path, ())):
            return True
        container, blob, _ = self.split_path(path)
        if not blob:
            return bool(await self._container_exists(container))
        entry = await self._blob_of(path)
        if entry is not None:
            return bool(entry["type"] == "directory")
        return bool(await self._dir_exists(container, blob))

    async def _blob_of(self, path: str) -> dict[str, Any] | None:
        """Return what adlfs tells of the blob of exactly this name; None without one."""
        container, blob, version_id = self.split_path(path)
        if not blob:
            return None
        try:
            async with self.service_client.get_blob_client(container, blob) as client:
                properties = await client.get_blob_properties(version_id=version_id)
        except ResourceNotFoundError:
            return None
        entry: dict[str, Any] = (await self._details([properties]))[0]
        return entry

    @unless_off
    async def _find(
        self, path: str, withdirs: bool = False, prefix: str = "", maxdepth: int | None = None, **kwargs: Any
    ) -> Any:
        """Return what lies below a path, by one listing; `maxdepth` levels of it, which adlfs does not count."""
        if maxdepth is None:
            return await super()._find(path, withdirs, prefix, **kwargs)
        _check_depth(maxdepth)
        detail = kwargs.pop("detail", False)
        found = await super()._find(path, withdirs, prefix, detail=True, **kwargs)
        if isinstance(found, list):  # adlfs answers so for a path that is a file
            return found
        deepest = self._strip_protocol(path).strip("/").count("/") + maxdepth
        near = {name: entry for name, entry in found.items() if name.count("/") <= deepest}
        return near if detail else sorted(near)

    @unless_off
    async def _expand_path(
        self,
        path: str | list[str],
        recursive: bool = False,
        maxdepth: int | None = None,
        skip_noexist: bool = True,
        assume_literal: bool = False,
        **kwargs: Any,
    ) -> list[str]:
        """Return the paths that patterns and directories stand for; adlfs drops patterns of a list, and the depth."""
        paths = [path] if isinstance(path, str) else path
        found: list[str]
        if maxdepth is None and not assume_literal and not any(map(has_magic, paths)):
            found = await super()._expand_path(path, recursive, maxdepth, skip_noexist, **kwargs)
            return found
        _check_depth(maxdepth)
        found = sorted({name for one in paths for name in await self._below(one, recursive, maxdepth, assume_literal)})
        if not found:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return found

    async def _below(self, path: str, recursive: bool, maxdepth: int | None, literal: bool) -> set[str]:
        """Return what one path or pattern stands for, itself among it if it is there."""
        path = self._strip_protocol(path).rstrip("/")
        if has_magic(path) and not literal:
            matches = set(await self._glob(path, maxdepth=maxdepth))
            if not recursive or not matches or maxdepth == 1:
                return matches
            # The pattern has gone one level down.
            rest = maxdepth - 1 if maxdepth is not None else None
            return matches.union(*[await self._below(match, True, rest, True) for match in sorted(matches)])
        if not recursive:
            return {path}
        found = set(await self._find(path, withdirs=True, maxdepth=maxdepth))
        return found | ({path} if path in found or await self._exists(path) else set())

    @unless_off
    async def _du(self, path: str, total: bool = True, maxdepth: int | None = None, **kwargs: Any) -> Any:
        """Return the bytes below a path, or those of each file; the listing tells them, no file is asked."""
        found = await self._find(path, maxdepth=maxdepth, detail=True, **kwargs)
        if isinstance(found, list):  # adlfs answers so for a path that is a file
            found = {name: await self._info(name) for name in found}
        sizes = {name: entry["size"] or 0 for name, entry in found.items()}
        return sum(sizes.values()) if total else sizes

    async def _async_walk(
        self, path: str, maxdepth: int | None = None, on_error: Any = "omit", **kwargs: Any
    ) -> AsyncIterator[Any]:
        """Walk as adlfs does; `on_error` is told of errors, as fsspec has it, or is "raise". adlfs knows neither."""
        if on_error == "omit" or not self._enabled():
            async for step in super()._async_walk(path, maxdepth, **kwargs):
                yield step
            return
        path, detail = self._strip_protocol(path), kwargs.pop("detail", False)
        listing = await self._listed(path, on_error, **kwargs)
        names = {entry["name"].rstrip("/"): entry for entry in listing}
        dirs = {name: entry for name, entry in names.items() if entry["type"] == "directory" and name != path}
        files = {_last(name) if name != path else "": entry for name, entry in names.items() if name not in dirs}
        near = {_last(name): entry for name, entry in dirs.items()}
        yield (path, near, files) if detail else (path, list(near), list(files))
        for name in dirs if maxdepth is None or maxdepth > 1 else ():
            deeper = None if maxdepth is None else maxdepth - 1
            async for step in self._async_walk(name, deeper, on_error=on_error, detail=detail, **kwargs):
                yield step

    async def _listed(self, path: str, on_error: Any, **kwargs: Any) -> Any:
        try:
            return await self._ls(path, detail=True, return_glob=True, **kwargs)
        except OSError as error:
            if not callable(on_error):
                raise
            on_error(error)
            return []

    @unless_off
    async def _container_exists(self, container_name: str) -> bool:
        """Say whether the container is there; adlfs assumes so after an error, but a refusal tells nothing."""
        if self.assume_container_exists:
            return True
        try:
            async with self.service_client.get_container_client(container_name) as client:
                await client.get_container_properties()
        except ResourceNotFoundError:
            return False
        except (GaveUp, ResilientIOError):
            raise
        except Exception as error:
            if is_denied(error):
                raise
            what = f"Failed to fetch container properties for {container_name}"
            if self.assume_container_exists is None:
                warnings.warn(f"{what}. Assume it exists already", stacklevel=2)
                return True
            raise ValueError(f"{what} for {error}") from error
        return True

    @unless_off
    async def _mkdir(self, path: str, create_parents: bool = True, delimiter: str = "/", **kwargs: Any) -> None:
        """Make a container; below one there is nothing to make, and who may only write blobs may not ask for it."""
        try:
            await super()._mkdir(path, create_parents, delimiter, **kwargs)
        except Exception as error:
            if not (is_denied(error) and create_parents and self.split_path(path, delimiter=delimiter)[1]):
                raise

    @unless_off
    async def _rm_files(self, container_name: str, file_paths: Iterable[str], **kwargs: Any) -> None:
        """Delete blobs, and directories' markers after what is in them; one that is gone does not save the others."""
        paths = list(file_paths)
        blobs, markers = await self._separate_directory_markers_for_non_empty_directories(paths)
        client = self.service_client.get_container_client(container=container_name)
        ends = await asyncio.gather(*(client.delete_blob(blob) for blob in blobs), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException) and not isinstance(end, ResourceNotFoundError):
                raise end
        for marker in reversed(markers):
            try:
                await client.delete_blob(marker)
            except ResourceNotFoundError:
                continue
        for path in paths:
            self.invalidate_cache(self._parent(path))


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _check_depth(maxdepth: int | None) -> None:
    if maxdepth is not None and maxdepth < 1:
        raise ValueError("maxdepth must be at least 1")
