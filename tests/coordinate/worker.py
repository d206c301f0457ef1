"""A process of a job, for the tests of real processes: threads that read one prefix of a FaultServer through `limit`.

    python worker.py URL RANK THREADS OPERATIONS [ACTION]

It says "ready" when it has imported all, begins when it is told a line, and says "done" and the number of operations
that ended well: so many, or fewer if it is told another line before. Each object's name begins with its rank, so that
the server's log tells whose a request was.
ACTION is done after the imports: "as-nobody" gives up the rights of root.
"""

from __future__ import annotations

import encodings.ascii  # these are loaded late, when they may not be readable any more
import encodings.idna  # noqa: F401
import http.client
import os
import sys
import threading
import time
from urllib.parse import urlsplit

import resilient_io as rio

NOBODY = 65534
OBJECTS = 250


class Reader:
    """One thread's connection, and what it has to read."""

    def __init__(self, url: str, rank: str) -> None:
        self._url, self._rank = url, rank
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)

    def read(self, number: int) -> None:
        """Read one object, again and again while it is refused."""
        key = f"train/{self._rank}-{number}"
        for _ in range(1000):
            with rio.limit(f"s3://bucket/{key}", endpoint=self._url) as permit:
                self._connection.request("GET", f"/bucket/{key}")
                answer = self._connection.getresponse()
                answer.read()
                if answer.status == 503:
                    permit.refused()
            if answer.status != 503:
                return
            time.sleep(0.01)
        raise RuntimeError("refused a thousand times")


def work(url: str, rank: str, threads: int, operations: int, stop: threading.Event) -> int:
    """Do the operations and return how many ended well."""
    numbers, done, lock = iter(range(operations)), [], threading.Lock()

    def toil() -> None:
        reader = Reader(url, rank)
        while True:
            with lock:
                number = next(numbers, None)
            if number is None or stop.is_set():
                return
            reader.read(number % OBJECTS)
            done.append(number)

    crew = [threading.Thread(target=toil) for _ in range(threads)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    return len(done)


def main(url: str, rank: str, threads: str, operations: str, action: str = "") -> None:
    if action == "as-nobody":
        rio.limit("s3://bucket/train/x", endpoint=url)  # whose modules it may not be able to read any more
        os.setuid(NOBODY)
    print("ready", flush=True)
    sys.stdin.readline()
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    print("done", work(url, rank, int(threads), int(operations), stop), flush=True)
    stop.wait()  # its row stays until it is told to go


if __name__ == "__main__":
    main(*sys.argv[1:])
