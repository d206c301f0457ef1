"""Where the bytes of a large read land, piece by piece and in any order: memory, or a local file that appears whole."""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from resilient_io.control.ranges import Span

_NEW_FILE_MODE: Final = 0o666
_SHOWN_BYTES: Final = 2**20


class Landing(Protocol):
    """Takes the bytes of one object. Used by one event loop; not safe in threads."""

    def begin(self, size_bytes: int | None) -> None:
        """Make room for an object of this size; None where nobody tells it. Before the first `put`, maybe again."""

    def put(self, start: int, piece: bytes) -> None:
        """Take a piece that begins at the byte `start`."""

    def forget(self, start: int, end: int) -> None:
        """Forget the bytes [start, end): they come again."""

    def show(self, take: Callable[[Any], object]) -> None:
        """Call `take` with all bytes, in their order, a piece at a time; from another thread while nothing is put."""


class Whole(Landing, Protocol):
    """A landing that can be read back, to compare the checksum of what came in any order."""

    def read_back(self) -> Iterator[bytes | memoryview]:
        """Yield all that landed, in order; nothing where it cannot be read. From any thread, while nothing is put."""


class Memory:
    """Bytes in one allocation of the object's size, handed out without another copy."""

    __slots__ = ("_buffer", "_size_bytes", "_view", "_whole")

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._size_bytes: int | None = None
        self._view: memoryview | None = None
        self._whole: bytes | None = None

    def begin(self, size_bytes: int | None) -> None:
        """Note the size; a second call forgets all that came."""
        if self._view is not None:
            self._view.release()
        self._buffer, self._view, self._whole = io.BytesIO(), None, None
        self._size_bytes = size_bytes

    def put(self, start: int, piece: bytes) -> None:
        """Copy a piece to its place; one that is everything is kept as it is."""
        if self._view is None:
            if self._size_bytes is None:
                self._buffer.seek(start)
                self._buffer.write(piece)
                return
            if len(piece) == self._size_bytes:
                self._whole = piece
                return
            # BytesIO keeps this very object, lends it for writing, and gives it back as it is.
            self._buffer = io.BytesIO(bytes(self._size_bytes))
            self._view = self._buffer.getbuffer()
        self._view[start : start + len(piece)] = piece

    def forget(self, start: int, end: int) -> None:
        """Cut off what came where the size is unknown; else it is overwritten."""
        if self._size_bytes is None:
            self._buffer.truncate(start)

    def show(self, take: Callable[[Any], object]) -> None:
        """Call `take` with all bytes."""
        take(self._view if self._view is not None else self.value())

    def value(self) -> bytes:
        """Return all bytes; nothing may be put afterwards."""
        if self._whole is not None:
            return self._whole
        if self._view is not None:
            self._view.release()
        return self._buffer.getvalue()


class Shifted:
    """A landing for the part of an object that begins at the byte `start`."""

    __slots__ = ("_landing", "_start")

    def __init__(self, landing: Landing, start: int) -> None:
        self._landing = landing
        self._start = start

    def begin(self, size_bytes: int | None) -> None:
        """Make room for the part."""
        self._landing.begin(size_bytes)

    def put(self, start: int, piece: bytes) -> None:
        """Take a piece that begins at this byte of the object."""
        self._landing.put(start - self._start, piece)

    def forget(self, start: int, end: int) -> None:
        """Forget these bytes of the object."""
        self._landing.forget(start - self._start, end - self._start)

    def show(self, take: Callable[[Any], object]) -> None:
        """Call `take` with the part."""
        self._landing.show(take)


class Slot:
    """The part of a landing that one range fills from its beginning on; a `Sink` of `aws.body`, a file of Azure's SDK.

    More bytes than the range has are an error: they would lie on those of its neighbour.
    """

    __slots__ = ("_landing", "got_bytes", "span")

    def __init__(self, landing: Landing, span: Span) -> None:
        self._landing = landing
        self.span = span
        self.got_bytes = 0

    def append(self, piece: bytes) -> None:
        """Take the next piece."""
        if self.got_bytes + len(piece) > len(self.span):
            raise RangeNotKept(f"asked for {len(self.span)} bytes at {self.span.start} and got more")
        self._landing.put(self.span.start + self.got_bytes, piece)
        self.got_bytes += len(piece)

    def write(self, piece: bytes) -> int:
        """Take the next piece, as a file does."""
        self.append(piece)
        return len(piece)

    def clear(self) -> None:
        """Forget all pieces: the range begins anew."""
        self._landing.forget(self.span.start, self.span.start + self.got_bytes)
        self.got_bytes = 0

    def must_be_full(self) -> None:
        """Raise if bytes are missing."""
        if self.got_bytes != len(self.span):
            raise RangeNotKept(f"asked for {len(self.span)} bytes at {self.span.start} and got {self.got_bytes}")


class RangeNotKept(OSError):
    """An answer brought more or fewer bytes than the range that it was asked for has."""


class NotLanded(BaseException):
    """This machine's own disk did not take a piece; the cause is the OSError, which `published` raises in its place.

    No Exception, because those of a body are taken for faults of the service, and asked for again.
    """


@contextlib.contextmanager
def landed() -> Iterator[None]:
    """Raise NotLanded for an OSError of the block, which is one of the disk's."""
    try:
        yield
    except OSError as error:
        raise NotLanded(str(error)) from error


class LocalFile:
    """A local file that is filled under another name in the same folder, and gets its own when it is whole.

    So an interrupted read leaves no file of the right name, and what stood there before stays as it was until then.
    The other name is that of a hidden file, which is removed when the read fails; a killed process leaves it behind.
    What is no plain file (a pipe, /dev/null) is written straight.
    """

    def __init__(self, path: str, callback: Any) -> None:
        # A link stays one: what it leads to is replaced.
        self._path = os.path.realpath(path)
        self._callback = callback
        self._part: str | None = None
        self._file: io.FileIO | None = None
        self._at = 0

    def begin(self, size_bytes: int | None) -> None:
        """Make the file, if it is not there; called with the first answer, so that a missing object makes none."""
        self._callback.set_size(size_bytes)
        if self._file is None:
            with landed():
                self._open()

    def _open(self) -> None:
        if os.path.exists(self._path) and not os.path.isfile(self._path):
            self._file = io.FileIO(self._path, "w")
            return
        part = os.path.join(os.path.dirname(self._path), f".{os.urandom(8).hex()}.part")
        self._file = io.FileIO(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | _binary(), _NEW_FILE_MODE), "w")
        self._part = part

    def put(self, start: int, piece: bytes) -> None:
        """Write a piece to its place; raises NotLanded if the disk does not take it."""
        with landed():
            self._write(start, piece)
        self._callback.relative_update(len(piece))

    def _write(self, start: int, piece: bytes) -> None:
        file = self._file
        assert file is not None
        if start != self._at:
            file.seek(start)
        rest = memoryview(piece)
        while rest:
            rest = rest[file.write(rest) :]
        self._at = start + len(piece)

    def forget(self, start: int, end: int) -> None:
        """Take back what was told of these bytes, and cut the file before them: fewer may come in their place."""
        self._callback.relative_update(start - end)
        if self._file is not None and self._part is not None and end == os.fstat(self._file.fileno()).st_size:
            self._file.truncate(start)

    def show(self, take: Callable[[Any], object]) -> None:
        """Call `take` with what was written; a device that is no file shows nothing."""
        if self._part is None:
            return
        with landed(), open(self._part, "rb") as written:
            while piece := written.read(_SHOWN_BYTES):
                take(piece)

    def publish(self) -> None:
        """Give the file its name; it replaces one that has it, and keeps that one's permissions."""
        file, part = self._file, self._part
        if file is None:
            return
        file.close()
        if part is not None:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(part, stat.S_IMODE(os.stat(self._path).st_mode))
            os.replace(part, self._path)
            self._part = None

    def discard(self) -> None:
        """Remove what was written; does not raise."""
        file, part = self._file, self._part
        self._file = self._part = None
        with contextlib.suppress(OSError):
            if file is not None:
                file.close()
        with contextlib.suppress(OSError):
            if part is not None:
                os.unlink(part)


def _binary() -> int:
    return getattr(os, "O_BINARY", 0)


@contextlib.contextmanager
def published(file: LocalFile) -> Iterator[LocalFile]:
    """Give the file its name at the end of the block, or remove it if that is left with an error."""
    try:
        yield file
        file.publish()
    except NotLanded as error:
        file.discard()
        raise error.__cause__ or error from None
    except BaseException:
        file.discard()
        raise
