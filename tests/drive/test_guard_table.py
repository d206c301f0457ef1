"""Each method of each filesystem that sends requests is guarded, in both its forms."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from resilient_io.drive.guard import FILE_METHODS, METHODS, Kind

# Coroutines and generators that send nothing themselves, or are parts of what is guarded.
PARTS = {
    "s3": {
        *("bulk_delete", "cat_file_concurrent", "connect", "copy_basic", "copy_etag_preserved", "copy_managed"),
        *("download_file_part_concurrent", "get_delegated_s3pars", "iterdir", "list_pages"),
        *("upload_file_part_concurrent", "url"),
    },
    "azure": {
        "blob_of",
        "below",
        "listed",
        "details",
        "read_whole",
        "until_copied",
        "separate_directory_markers_for_non_empty_directories",
        "url",
    },
}
SHARED_PARTS = {"first", "open_async", "process_limits"}
FILESYSTEMS = {
    "s3": ("s3fs", "resilient_io.aws.filesystem", "ResilientS3FileSystem"),
    "azure": ("adlfs", "resilient_io.azure.filesystem", "ResilientAzureBlobFileSystem"),
}


@pytest.fixture(params=FILESYSTEMS)
def cloud(request: pytest.FixtureRequest) -> Any:
    stock, module, name = FILESYSTEMS[request.param]
    pytest.importorskip(stock)
    return request.param, getattr(pytest.importorskip(module), name)


def is_guarded(method: Any) -> bool:
    return getattr(getattr(method, "__code__", None), "co_filename", "").endswith(("guard.py", "walking.py"))


def test_each_coroutine_is_guarded_or_known_to_need_no_guard(cloud: Any) -> None:
    name, cls = cloud
    missing = []
    for attribute in dir(cls):
        method = getattr(cls, attribute)
        sends = inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)
        if not sends or not attribute.startswith("_") or attribute.startswith("__"):
            continue
        if not is_guarded(method) and attribute.lstrip("_") not in PARTS[name] | {
            "first",
            "open_async",
            "process_limits",
        }:
            missing.append(attribute)
    assert not missing


def test_each_sync_form_leads_to_the_guarded_one(cloud: Any) -> None:
    _, cls = cloud
    for name, kind in METHODS.items():
        sync, coroutine = getattr(cls, name, None), getattr(cls, f"_{name}", None)
        if kind is Kind.WALK and sync is not None:
            assert is_guarded(sync), name
        wrapped = getattr(sync, "__wrapped__", None)
        if inspect.iscoroutinefunction(wrapped):
            # Bound by the class: it must lead to our coroutine and not to that of the base.
            assert wrapped is coroutine, name


def test_what_the_base_bound_to_its_own_is_bound_anew() -> None:
    pytest.importorskip("adlfs")
    from adlfs import AzureBlobFileSystem

    from resilient_io.azure.file import ResilientAzureBlobFile
    from resilient_io.azure.filesystem import ResilientAzureBlobFileSystem

    for name in ("mkdir", "rm", "pipe_file", "put_file", "cp_file", "get_file", "setxattrs"):
        ours, stock = getattr(ResilientAzureBlobFileSystem, name), getattr(AzureBlobFileSystem, name)
        assert ours is not stock
        assert is_guarded(ours.__wrapped__), name
    for name in FILE_METHODS:
        assert is_guarded(getattr(ResilientAzureBlobFile, name)), name


def test_the_table_holds_no_name_that_nobody_has() -> None:
    pytest.importorskip("s3fs")
    pytest.importorskip("adlfs")
    from resilient_io.aws.filesystem import ResilientS3FileSystem
    from resilient_io.azure.filesystem import ResilientAzureBlobFileSystem

    both = (ResilientS3FileSystem, ResilientAzureBlobFileSystem)
    assert not [name for name in METHODS if not any(hasattr(c, f"_{name}") or hasattr(c, name) for c in both)]
