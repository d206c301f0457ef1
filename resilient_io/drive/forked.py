"""Filesystems and files that a fork or a failure leaves in a state which their own classes do not know."""

from __future__ import annotations

import os
import threading
from typing import Any

from resilient_io.errors import NotForkSafe

# What a child inherited and must neither use nor free: freeing it would wait for locks that no thread here will
# release, and would take the parent's sockets out of an epoll that parent and child share.
_left_behind: list[Any] = []
_lock = threading.Lock()


def leave_behind(*things: Any) -> None:
    """Keep what a fork brought along, so that it is never freed here."""
    _left_behind.append(things)


class StartsAnew:
    """The part of an fsspec filesystem that makes an inherited instance work in a forked child.

    For a base class whose `loop` property reads `_loop` and `_pid`; the subclass says in `_forget_parent` what
    belongs to the parent's process, and puts its own in place.
    """

    _pid: int
    _loop: Any

    @property
    def loop(self) -> Any:
        """The event loop of this process; an instance inherited over fork gets a new one here."""
        self.start_anew()
        return self._loop

    def start_anew(self) -> None:
        """Forget the parent's loop and connections; a thread of the parent may hold any of their locks."""
        if self._pid == os.getpid():
            return
        with _lock:
            if self._pid != os.getpid():
                self._forget_parent()
                self._pid = os.getpid()

    def _forget_parent(self) -> None:
        raise NotImplementedError


class CarefulFile:
    """The part of an fsspec file that survives a fork, and ends with the first write that fails.

    It stands before the file's class among the bases. A file open for reading that a fork hands to a
    child goes on there at its position. One open for writing does not: parent and child would each
    upload a part of it. After a write that failed, fsspec would send what is buffered again when the
    file is closed, and make visible what is not whole; here closing raises the failure again.
    """

    path: str
    mode: str
    loc: int
    closed: bool
    cache: Any
    _pid: int
    _failure: BaseException | None = None

    def _is_inherited(self) -> bool:
        return self._pid != os.getpid()

    def _renew(self) -> None:
        """Make a file that is being read this process's own."""
        if self._is_inherited() and self.mode == "rb":
            self._pid = os.getpid()
            self._renew_cache()

    def _renew_cache(self) -> None:
        """Give the cache its own lock and thread; the parent's may be held, or do not run here."""
        if hasattr(self.cache, "_thread_executor"):
            self.cache.__setstate__(self.cache.__getstate__())

    def _refuse_if_inherited(self) -> None:
        if self._is_inherited() and self.mode != "rb":
            raise NotForkSafe(
                f"{self.path} was opened for writing before the process forked; close it before the fork, "
                "or open it in the worker"
            )

    def read(self, length: int | None = -1) -> bytes:
        """Return up to `length` bytes from the position on; all that follow if it is negative, or None."""
        if self._pid != os.getpid():  # not by a method: text is read 8 KiB at a time
            self._renew()
        size: int | None = getattr(self, "size", None)
        if size is not None and length is not None and length > 0:
            # The background cache of an older fsspec raises a ValueError for what lies far behind the end.
            length = min(length, max(0, size - self.loc))
        data: bytes = super().read(length)  # type: ignore[misc]  # the file's class comes after this one
        return data

    def write(self, data: Any) -> int:
        """Write bytes; raises NotForkSafe in a forked child that inherited the file."""
        self._refuse_if_inherited()
        self._refuse_if_failed()
        written: int = super().write(data)  # type: ignore[misc]  # the file's class comes after this one
        return written

    def flush(self, force: bool = False) -> None:
        """Send what fills a block; raises NotForkSafe in a forked child that inherited the file."""
        self._refuse_if_inherited()
        self._refuse_if_failed()
        try:
            super().flush(force)  # type: ignore[misc]  # the file's class comes after this one
        except BaseException as error:
            self._failure = error
            self._give_up_writing()
            raise

    def _refuse_if_failed(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _give_up_writing(self) -> None:
        """Take back what was sent of a file that will never be whole, where it would stay otherwise."""

    def close(self) -> None:
        """Finish the file; raises NotForkSafe in a forked child that inherited one open for writing."""
        self._end_inherited()
        super().close()  # type: ignore[misc]  # the file's class comes after this one

    def _end_inherited(self) -> None:
        if not self._is_inherited() or self.closed:
            return
        if self.mode == "rb":
            self._renew_cache()
            return
        # Once is enough: the collector closes too.
        self.closed = True
        self._refuse_if_inherited()

    def __del__(self) -> None:
        # The parent's upload is not the child's to finish, nor to complain about; a failure has been raised once.
        inherited = getattr(self, "_pid", None) != os.getpid() and getattr(self, "mode", "rb") != "rb"
        if inherited or self._failure is not None:
            self.closed = True
        super().__del__()  # type: ignore[misc]  # the file's class comes after this one


def _new_lock() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)
