"""What an exception inside a `with` block leaves behind: nothing, whatever stands between the block and the file."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import io
import json
import logging
import pickle
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import fsspec
import pytest

from resilient_io.errors import ResilientIOError

pytestmark = pytest.mark.wire
MIB = 2**20
# Above the smallest block, so that an upload has begun when the exception comes; and one that fits into one request.
SIZES = {"small": 1000, "large": 11 * MIB}
OPTIONS = {"small": {}, "large": {"block_size": 5 * MIB}}


class Broken(Exception):
    """What the tests raise."""


def nothing(store: Any, name: str) -> bool:
    """Say whether there is neither an object nor an upload that could become one."""
    committed = {"PutObject", "CompleteMultipartUpload", "PutBlob", "PutBlockList"} & set(store.sent())
    return store.content_of(name) is None and store.uploads() == 0 and not committed


@pytest.fixture(params=["fs.open", "OpenFile"])
def opened(request: pytest.FixtureRequest, store: Any) -> Callable[..., Any]:
    """Return what opens a file for `with`, by the filesystem and as `fsspec.open` does: `opened("name", "wb")`."""

    def open_it(name: str, mode: str = "wb", **options: Any) -> Any:
        if request.param == "fs.open":
            return store.fs.open(store.path(name), mode, **options)
        return fsspec.core.OpenFile(store.fs, store.path(name), mode, **options)

    store.server.reset()
    return open_it


# -- an exception inside the block -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "error"), [("small", Broken), ("large", KeyboardInterrupt), ("small", SystemExit), ("small", MemoryError)]
)
def test_an_exception_in_a_with_block_leaves_no_half_file(
    store: Any, size: str, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    store.server.reset()
    with pytest.raises(error), store.fs.open(store.path("x"), "wb", **OPTIONS[size]) as file:
        file.write(bytes(SIZES[size]))
        raise error
    assert file.closed
    assert nothing(store, "x")
    assert f"{store.path('x')} was not written: {error.__name__} ended its writing" in caplog.text
    file.close()
    assert nothing(store, "x")


@pytest.mark.parametrize("how", ["raise it", "from a function"])
@pytest.mark.parametrize("mode", ["wb", "w"])
def test_an_exception_that_is_raised_again_in_the_block_leaves_no_half_file(
    store: Any, opened: Callable[..., Any], mode: str, how: str
) -> None:
    """It was being handled when the file was opened, as where a save stands in an `except` block."""

    def again(error: BaseException) -> None:
        raise error

    def save() -> None:
        try:
            raise Broken
        except Broken as error:
            with opened("x", mode) as file:
                file.write(b"half" if mode == "wb" else "half")
                if how == "from a function":
                    again(error)
                raise error

    with pytest.raises(Broken):
        save()
    assert nothing(store, "x")


def test_fsspecs_open_file_does_not_publish_half_a_file(store: Any, opened: Callable[..., Any]) -> None:
    with pytest.raises(Broken), opened("x") as file:
        file.write(b"half")
        raise Broken
    assert nothing(store, "x")


def test_a_url_is_no_half_file(store: Any) -> None:
    with pytest.raises(Broken), fsspec.open(store.url("x"), "wb", **store.options) as file:
        file.write(b"half")
        raise Broken
    assert nothing(store, "x")
    with fsspec.open(store.url("x"), "wb", **store.options) as file:
        file.write(b"whole")
    assert store.content_of("x") == b"whole"


def test_an_object_that_was_there_stays_as_it_was(store: Any, opened: Callable[..., Any]) -> None:
    with opened("x") as file:
        file.write(b"the old one")
    with pytest.raises(Broken), opened("x") as file:
        file.write(b"half of the new one")
        raise Broken
    assert store.content_of("x") == b"the old one"


def test_text_mode_does_not_publish_half_a_file(store: Any, opened: Callable[..., Any]) -> None:
    with pytest.raises(Broken), opened("x", "w") as file:
        file.write("half\n")
        raise Broken
    gc.collect()
    assert nothing(store, "x")
    with opened("x", "w") as file:
        file.write("wholé\n")
    assert store.content_of("x") == "wholé\n".encode()


@pytest.mark.parametrize(("compression", "mode"), [("gzip", "wb"), ("gzip", "wt"), ("bz2", "wb"), ("xz", "wb")])
def test_compressed_files_are_published_whole_or_not_at_all(
    store: Any, opened: Callable[..., Any], compression: str, mode: str
) -> None:
    data: Any = "whole" if mode == "wt" else b"whole"
    with pytest.raises(Broken), opened("x", mode, compression=compression) as file:
        file.write(data)
        raise Broken
    del file
    gc.collect()
    assert nothing(store, "x")
    with opened("x", mode, compression=compression) as file:
        file.write(data)
    del file
    gc.collect()
    unpacked = fsspec.compression.compr[compression](io.BytesIO(store.content_of("x")), mode="r").read()
    assert unpacked == b"whole"


def test_a_gzip_file_around_an_open_file_is_no_half_file(store: Any) -> None:
    store.server.reset()
    with pytest.raises(Broken), store.fs.open(store.path("x"), "wb") as raw, gzip.GzipFile(fileobj=raw, mode="w") as f:
        f.write(b"half")
        raise Broken
    assert nothing(store, "x")


def test_a_finally_that_closes_does_not_publish_half_a_file(store: Any) -> None:
    def save() -> None:
        file = store.fs.open(store.path("x"), "wb")
        try:
            file.write(b"half")
            raise Broken
        finally:
            file.close()

    store.server.reset()
    with pytest.raises(Broken):
        save()
    assert nothing(store, "x")


def test_a_generator_that_is_closed_early_leaves_no_half_file(store: Any, opened: Callable[..., Any]) -> None:
    def rows() -> Iterator[None]:
        with opened("x") as file:
            while True:
                file.write(b"row")
                yield

    writing = rows()
    next(writing)
    next(writing)
    writing.close()
    assert nothing(store, "x")


def test_a_writer_below_that_closes_by_itself_is_no_half_file(store: Any) -> None:
    """As pickle, json and torch.save do it: the exception comes out of the one who writes."""

    class Unpicklable:
        def __reduce__(self) -> Any:
            raise Broken

    store.server.reset()
    with pytest.raises(Broken), store.fs.open(store.path("x"), "wb") as file:
        pickle.dump([bytes(200_000), Unpicklable()], file)
    assert nothing(store, "x")
    with pytest.raises(TypeError), store.fs.open(store.path("x"), "w") as text:
        json.dump({"a": 1, "b": object()}, text)
    assert nothing(store, "x")


# -- an exception that is raised again ---------------------------------------------------------------


def _in_an_exit_stack(opened: Callable[..., Any]) -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(opened("x")).write(b"half")
        raise  # of the exception that the caller handles


def _by_closing(opened: Callable[..., Any]) -> None:
    file = opened("x")
    with contextlib.closing(file.open() if isinstance(file, fsspec.core.OpenFile) else file) as file:
        file.write(b"half")
        raise


def _as_text_around_it(opened: Callable[..., Any]) -> None:
    with opened("x") as raw, io.TextIOWrapper(raw, write_through=True) as file:
        file.write("half")
        raise


def _in_a_zip(opened: Callable[..., Any]) -> None:
    """As torch.save writes: the archive's directory comes when the archive is closed."""
    with opened("x") as raw, zipfile.ZipFile(raw, "w") as archive:
        archive.writestr("a", b"half")
        raise


def _plainly(**options: Any) -> Callable[[Callable[..., Any]], None]:
    def save(opened: Callable[..., Any]) -> None:
        with opened("x", **options) as file:
            file.write("half" if "b" not in options["mode"] else b"half")
            raise

    return save


RAISING_AGAIN: dict[str, Callable[[Callable[..., Any]], None]] = {
    "bytes": _plainly(mode="wb"),
    "text": _plainly(mode="w"),
    "gzip": _plainly(mode="wb", compression="gzip"),
    "gzip text": _plainly(mode="wt", compression="gzip"),
    "xz": _plainly(mode="wb", compression="xz"),
    "exit stack": _in_an_exit_stack,
    "closing": _by_closing,
    "text around it": _as_text_around_it,
    "zip": _in_a_zip,
}


@pytest.mark.parametrize("how", RAISING_AGAIN)
def test_a_bare_raise_published_half_a_file(store: Any, opened: Callable[..., Any], how: str) -> None:
    """It leaves no mark on the exception; but the `with` block is being left by one."""

    def save() -> None:
        try:
            raise Broken
        except Broken:
            RAISING_AGAIN[how](opened)

    with pytest.raises(Broken):
        save()
    gc.collect()
    assert nothing(store, "x")


def test_a_bare_raise_of_the_function_that_opened_published_half_a_file(store: Any, opened: Callable[..., Any]) -> None:
    def save() -> None:
        try:
            raise Broken
        except Broken:
            with opened("x", "w") as file:
                file.write("half")
                raise

    with pytest.raises(Broken):
        save()
    assert nothing(store, "x")


def test_a_save_by_an_exit_that_an_exception_has_called_is_published(store: Any, opened: Callable[..., Any]) -> None:
    class Saving:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None: ...

        def __exit__(self, *about: object) -> None:
            with opened(self.name, "w") as file:
                file.write("the last words")

    for name in ("x", "y"):
        with pytest.raises(Broken), Saving(name), contextlib.ExitStack():
            raise Broken
        assert store.content_of(name) == b"the last words"
    with pytest.raises(Broken), contextlib.ExitStack() as stack:
        stack.callback(Saving("z").__exit__)
        raise Broken
    assert store.content_of("z") == b"the last words"


def test_a_save_before_the_exception_goes_on_is_published(store: Any, opened: Callable[..., Any]) -> None:
    def save() -> None:
        try:
            raise Broken
        except Broken:
            with opened("x", "w") as file, contextlib.suppress(KeyError):
                file.write("whole")
                raise KeyError from None
            raise

    with pytest.raises(Broken):
        save()
    assert store.content_of("x") == b"whole"


# -- what is no exception of the block ---------------------------------------------------------------


def test_a_save_inside_an_except_block_is_published(store: Any, opened: Callable[..., Any]) -> None:
    try:
        raise Broken
    except Broken:
        with opened("x") as file:
            file.write(b"the last words")
        file = opened("y")
        file = file.open() if isinstance(file, fsspec.core.OpenFile) else file
        file.write(b"more")
        file.close()
    assert store.content_of("x") == b"the last words"
    assert store.content_of("y") == b"more"


def test_a_new_exception_in_such_a_save_still_discards(store: Any, opened: Callable[..., Any]) -> None:
    with pytest.raises(KeyError):
        try:
            raise Broken
        except Broken:
            with opened("x") as file:
                file.write(b"half")
                raise KeyError from None
    assert nothing(store, "x")


def test_an_exception_handled_inside_the_block_is_none_of_its_end(store: Any, opened: Callable[..., Any]) -> None:
    with opened("x") as file:
        try:
            raise Broken
        except Broken:
            file.write(b"the default")
    assert store.content_of("x") == b"the default"


def test_a_file_opened_while_a_deeper_exception_was_handled_is_published(store: Any) -> None:
    try:
        raise Broken
    except Broken:
        try:
            raise KeyError
        except KeyError:
            file = store.fs.open(store.path("x"), "wb")
        file.write(b"whole")
        file.close()
    assert store.content_of("x") == b"whole"


def test_a_block_that_ends_well_while_its_caller_handles_something_is_published(store: Any) -> None:
    def rows() -> Iterator[None]:
        with store.fs.open(store.path("x"), "wb") as file:
            file.write(b"first ")
            yield
            file.write(b"last")

    writing = rows()
    next(writing)
    try:
        raise Broken
    except Broken:
        assert next(writing, None) is None
    assert store.content_of("x") == b"first last"


def _by_a_generator(opening: Any) -> None:
    def saver() -> Iterator[None]:
        with opening as file:
            yield
            file.write(b"whole")

    writing = saver()
    next(writing)
    try:
        raise Broken
    except Broken:
        assert next(writing, None) is None


def _beside_a_suppressed_one(opening: Any) -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(opening).write(b"whole")
        stack.enter_context(contextlib.suppress(Broken))
        raise Broken


def _by_a_context_manager(opening: Any) -> None:
    @contextlib.contextmanager
    def around() -> Iterator[Any]:
        with opening as file:
            yield file

    _beside_a_suppressed_one(around())


def _by_close_of_a_stack(opening: Any) -> None:
    stack = contextlib.ExitStack()
    stack.enter_context(opening).write(b"whole")
    try:
        raise Broken
    except Broken:
        stack.close()


def _by_hand(opening: Any) -> None:
    opening.__enter__().write(b"whole")
    try:
        raise Broken
    except Broken:
        opening.__exit__(None, None, None)


ENDING_WELL: dict[str, Callable[[Any], None]] = {
    "generator": _by_a_generator,
    "exit stack": _beside_a_suppressed_one,
    "context manager": _by_a_context_manager,
    "close of a stack": _by_close_of_a_stack,
    "by hand": _by_hand,
}


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("how", ENDING_WELL)
def test_a_block_that_was_left_well_while_another_exception_was_handled_is_published(
    store: Any, how: str, compression: str | None
) -> None:
    """fsspec's `OpenFile` is told that all is well, and closes its file without a word."""
    ENDING_WELL[how](fsspec.open(store.url("x"), "wb", compression=compression, **store.options))
    content = store.content_of("x")
    assert content is not None
    assert (gzip.decompress(content) if compression else content) == b"whole"


def test_a_compressor_that_cannot_write_its_end_leaves_no_half_file(store: Any) -> None:
    """The block ended well, and the exception is one of the closing: it is what ends the file."""
    opening = fsspec.open(store.url("x"), "wb", **store.options)
    file = opening.open()

    class Ending(io.BytesIO):
        def close(self) -> None:
            try:
                raise Broken
            finally:
                file.close()

    file.write(b"half")
    opening.fobjects.append(Ending())
    try:
        raise KeyError
    except KeyError:
        with pytest.raises(Broken):
            opening.__exit__(None, None, None)
    assert nothing(store, "x")


def test_what_is_told_of_another_file_is_none_of_this_one(store: Any) -> None:
    """A file of its own that is closed on the way, by the end of another's block."""
    inner = store.fs.open(store.path("inner"), "wb")
    inner.write(b"half")

    class Closing(io.BytesIO):
        def close(self) -> None:
            inner.close()
            super().close()

    outer = fsspec.open(store.url("x"), "wb", **store.options)
    outer.open().write(b"whole")
    outer.fobjects.append(Closing())
    try:
        raise Broken
    except Broken:
        outer.__exit__(None, None, None)
    assert store.content_of("x") == b"whole"
    assert store.content_of("inner") is None


def test_a_file_closed_by_another_thread_is_published(store: Any) -> None:
    file = store.fs.open(store.path("x"), "wb")
    file.write(b"whole")
    thread = threading.Thread(target=file.close)
    thread.start()
    thread.join()
    assert store.content_of("x") == b"whole"


def test_reading_is_closed_as_ever(store: Any) -> None:
    store.fs.pipe_file(store.path("x"), b"data")
    with pytest.raises(Broken), store.fs.open(store.path("x")) as file:
        assert file.read() == b"data"
        raise Broken
    assert file.closed


def test_no_frame_is_kept_alive_by_a_file_that_was_closed(store: Any) -> None:
    try:
        raise Broken
    except Broken:
        file = store.fs.open(store.path("x"), "wb")
        file.close()
    assert file._handled_at_open == ()


# -- files that nobody closes ------------------------------------------------------------------------


def test_a_file_collected_unclosed_is_published_as_stock_does(store: Any) -> None:
    """`pickle.dump(state, fs.open(path, "wb"))` is a common line; to lose its object silently would be worse."""
    pickle.dump({"step": 1}, store.fs.open(store.path("x"), "wb"))
    gc.collect()
    assert pickle.loads(store.content_of("x")) == {"step": 1}


def test_a_file_let_go_on_the_loop_that_would_send_it_is_published_too(store: Any) -> None:
    """The last reference goes in any thread; there the file would wait for itself."""
    held = [store.fs.open(store.path("x"), "wb")]
    held[0].write(b"whole")

    async def let_go() -> None:
        held.clear()

    asyncio.run_coroutine_threadsafe(let_go(), store.fs.loop).result(10)
    for thread in threading.enumerate():
        if thread.name == "resilient-io-close":
            thread.join(10)
    assert store.content_of("x") == b"whole"


def test_a_file_collected_while_an_exception_ends_its_function_is_no_half_file(store: Any) -> None:
    store.server.reset()
    with pytest.raises(Broken), contextlib.closing(store.fs.open(store.path("x"), "wb", **OPTIONS["large"])) as file:
        file.write(bytes(SIZES["large"]))
        raise Broken
    assert nothing(store, "x")


UNCLOSED = """
import sys
import fsspec
file = fsspec.open(sys.argv[1], "wb", **eval(sys.argv[2])).open()
file.write(b"half")
"""


def test_a_file_open_at_the_end_of_the_program_neither_hangs_nor_is_half(store: Any) -> None:
    """Stock s3fs waits for ever: the thread that would send does not run any more."""
    command = [sys.executable, "-c", UNCLOSED, store.url("x"), repr(store.options)]
    subprocess.run(command, timeout=60, check=True)
    assert store.content_of("x") is None


# -- what fails while it is written ------------------------------------------------------------------


def test_a_refused_part_is_raised_once_and_taken_back(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    store.break_it("UploadPart", calls=(2, 3, 4, 5, 6, 7, 8))
    caplog.set_level(logging.WARNING)
    with pytest.raises(ResilientIOError), store.fs.open(store.path("x"), "wb", block_size=5 * MIB) as file:
        for _ in range(4):
            file.write(bytes(5 * MIB))
    assert nothing(store, "x")


def test_a_failed_write_that_the_block_swallows_is_raised_at_its_end(store: Any) -> None:
    store.break_it("UploadPart")
    with pytest.raises(ResilientIOError), store.fs.open(store.path("x"), "wb", block_size=5 * MIB) as file:
        with contextlib.suppress(OSError):
            file.write(bytes(6 * MIB))
    assert nothing(store, "x")


def test_an_upload_that_cannot_be_aborted_is_named(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    if store.cloud != "s3":
        pytest.skip("Azure drops uncommitted blocks by itself")
    store.break_it("AbortMultipartUpload", status=500, code="InternalError")
    with pytest.raises(Broken), store.fs.open(store.path("x"), "wb", block_size=5 * MIB) as file:
        file.write(bytes(6 * MIB))
        raise Broken
    assert store.content_of("x") is None
    assert "could not be aborted" in caplog.text
    assert "mpu abort" in caplog.text


# -- transactions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_a_transaction_publishes_at_its_end(store: Any, size: str) -> None:
    data = bytes(SIZES[size])
    with store.fs.transaction:
        with store.fs.open(store.path("x"), "wb", **OPTIONS[size]) as file:
            file.write(data)
        with store.fs.open(store.path("empty"), "wb"):
            pass
        assert store.content_of("x") is None
        assert store.content_of("empty") is None
    assert store.content_of("x") == data
    assert store.content_of("empty") == b""


def test_a_transaction_that_fails_publishes_nothing(store: Any) -> None:
    with pytest.raises(Broken), store.fs.transaction:
        with store.fs.open(store.path("x"), "wb") as file:
            file.write(b"whole")
        raise Broken
    assert store.content_of("x") is None
    assert store.uploads() == 0
    with store.fs.open(store.path("x"), "wb") as file:
        file.write(b"afterwards")
    assert store.content_of("x") == b"afterwards"


def test_a_file_that_failed_inside_a_transaction_is_not_committed_with_the_others(store: Any) -> None:
    with store.fs.transaction:
        with pytest.raises(Broken), store.fs.open(store.path("x"), "wb") as file:
            file.write(b"half")
            raise Broken
        with store.fs.open(store.path("y"), "wb") as file:
            file.write(b"whole")
    assert store.content_of("x") is None
    assert store.content_of("y") == b"whole"
    assert store.uploads() == 0


def test_what_is_appended_in_a_transaction_waits_for_its_end(store: Any) -> None:
    with store.fs.open(store.path("log"), "ab") as file:
        file.write(b"one ")
    with pytest.raises(Broken), store.fs.transaction:
        with store.fs.open(store.path("log"), "ab") as file:
            file.write(b"lost ")
        raise Broken
    assert store.content_of("log") == b"one "
    with store.fs.transaction, store.fs.open(store.path("log"), "ab") as file:
        file.write(b"two")
    assert store.content_of("log") == b"one two"


# -- exclusive files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"new"])
def test_an_exclusive_file_does_not_overwrite_another(store: Any, data: bytes) -> None:
    """s3fs would overwrite with an empty one."""
    store.fs.pipe_file(store.path("x"), b"the first")
    with pytest.raises(OSError, match=r"x|pre-conditions"), store.fs.open(store.path("x"), "xb") as file:
        file.write(data)
    assert store.content_of("x") == b"the first"
    with store.fs.open(store.path("y"), "xb") as file:
        file.write(data)
    assert store.content_of("y") == data


# -- the libraries above -----------------------------------------------------------------------------


def test_pandas_to_csv_leaves_no_half_file(store: Any) -> None:
    pandas = pytest.importorskip("pandas")

    class Cell:
        def __str__(self) -> str:
            raise Broken

    frame = pandas.DataFrame({"a": ["x"] * 10 + [Cell()]})
    store.server.reset()
    for url in (store.url("x.csv"), store.url("x.csv.gz")):
        with pytest.raises(Broken):
            frame.to_csv(url, storage_options=store.options, chunksize=2)
    gc.collect()
    assert nothing(store, "x.csv")
    assert store.content_of("x.csv.gz") is None
    for name in ("y.csv", "y.csv.gz"):
        frame.head(5).to_csv(store.url(name), storage_options=store.options, index=False)
        back = pandas.read_csv(store.url(name), storage_options=store.options)
        assert list(back["a"]) == ["x"] * 5


def test_pandas_to_parquet_leaves_no_half_file(store: Any) -> None:
    pandas = pytest.importorskip("pandas")
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    store.server.reset()
    with pytest.raises((pyarrow.ArrowException, TypeError)):
        pandas.DataFrame({"a": [1, object()]}).to_parquet(store.url("x.parquet"), storage_options=store.options)
    assert nothing(store, "x.parquet")
    table = pyarrow.table({"a": list(range(1000))})
    with pytest.raises(Broken), store.fs.open(store.path("x.parquet"), "wb") as file:
        with parquet.ParquetWriter(file, table.schema) as writer:
            writer.write_table(table)
            raise Broken
    assert nothing(store, "x.parquet")
    pandas.DataFrame({"a": [1, 2]}).to_parquet(store.url("y.parquet"), storage_options=store.options)
    assert list(pandas.read_parquet(store.url("y.parquet"), storage_options=store.options)["a"]) == [1, 2]
