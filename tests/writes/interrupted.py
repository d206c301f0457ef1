"""A program that forks one process for each line that it reads; each begins one upload, to be interrupted on its way.

Run by test_interrupted.py. A child ends as a program does, so that what is done at its end is done. It says "begins"
when the interrupt may come, and its parent "ended" when it is gone.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import Any

import resilient_io as rio

MIB = 2**20
DATA = bytes(12 * MIB)
OPTIONS: dict[str, Any] = eval(sys.argv[1])  # the test's own dict
LOCAL = sys.argv[2]


def put_twice(fs: Any) -> None:
    fs.put([LOCAL, LOCAL], ["b/new", "b/new2"], chunksize=5 * MIB)


def write(fs: Any) -> None:
    with fs.open("b/new", "wb", block_size=5 * MIB) as file:
        file.write(DATA[: 6 * MIB])
        file.write(DATA[: 6 * MIB])


def upload_by_client(_: Any) -> None:
    import boto3
    from boto3.s3.transfer import TransferConfig

    client = rio.harden(boto3.client("s3", endpoint_url=OPTIONS["endpoint_url"], region_name="us-east-1"))
    say("begins")
    config = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB)
    client.upload_file(LOCAL, "b", "new", Config=config)


CALLS: dict[str, Any] = {
    "put_file": lambda fs: fs.put_file(LOCAL, "b/new", chunksize=5 * MIB),
    "put": put_twice,
    "pipe_file": lambda fs: fs.pipe_file("b/new", DATA, chunksize=5 * MIB),
    "merge": lambda fs: fs.merge("b/new", ["b/big/0", "b/big/0"]),
    "open": write,
    "boto3": upload_by_client,
}


def say(what: str) -> None:
    os.write(1, f"{what} {os.getpid()}\n".encode())


def run(name: str) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.disable(logging.CRITICAL)
    fs = rio.filesystem("s3", **OPTIONS)
    fs.pipe_file("b/warm", b"1")
    if name != "boto3":
        say("begins")
    CALLS[name](fs)


def main() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            run(line.strip())
            return
        os.waitpid(pid, 0)
        say("ended")


main()
