"""A Redis in a process of its own, for tests and measurements of limits that a cluster shares.

`redis-server` must be on the PATH (Debian: `apt-get install redis-server`). It keeps nothing on disk.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn

from .child import Child, wait_for_stdin_to_end

_START_S: Final = 10.0
_PASSWORD: Final = "RIO_REDIS_PASSWORD"


class RedisMissing(RuntimeError):
    """There is no redis-server, or not one that can do what is asked for."""


class RedisServer:
    """A running redis-server on 127.0.0.1 that wants a password, and ends with its parent; a context manager.

    `port`: a free one for 0. `certificates`: a folder with `cert.pem` and `key.pem`, for TLS.
    """

    def __init__(self, password: str, *, port: int = 0, certificates: Path | None = None) -> None:
        if shutil.which("redis-server") is None:
            raise RedisMissing("redis-server is not on the PATH")
        arguments = [str(port), *([str(certificates)] if certificates else [])]
        try:
            self._child: Child | None = Child(__name__, arguments, environment={_PASSWORD: password})
        except RuntimeError as error:
            raise RedisMissing(f"redis-server does not start{' with TLS' if certificates else ''}") from error
        self.port: int = self._child.said["port"]
        self.pid: int = self._child.said["pid"]
        options = f"?ssl_ca_certs={certificates}/cert.pem" if certificates else ""
        self.url = f"redis{'s' if certificates else ''}://:{password}@127.0.0.1:{self.port}/0{options}"

    def __repr__(self) -> str:
        return f"<RedisServer 127.0.0.1:{self.port}>"

    def __enter__(self) -> RedisServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the process."""
        child, self._child = self._child, None
        if child is not None:
            child.stop()


def main() -> None:
    """Run redis-server until standard input ends: `PORT [CERTIFICATES]`, the password in the environment."""
    port = int(sys.argv[1]) or _free_port()
    config = _config(port, os.environ.pop(_PASSWORD), sys.argv[2] if len(sys.argv) > 2 else None)
    # Its settings go in by the pipe: a command line can be read by everybody.
    quiet = subprocess.DEVNULL
    server = subprocess.Popen(["redis-server", "-"], stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, text=True)
    signal.signal(signal.SIGTERM, lambda *_: _end(server))
    try:
        assert server.stdin is not None
        server.stdin.write(config)
        server.stdin.close()
        _wait_until_it_listens(server, port)
        print(json.dumps({"port": port, "pid": server.pid}), flush=True)
        wait_for_stdin_to_end()
    finally:
        _end(server)


def _end(server: subprocess.Popen[str]) -> NoReturn:
    """End both at once: a second signal must find nothing half done."""
    server.kill()
    server.wait()
    os._exit(0)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def _config(port: int, password: str, certificates: str | None) -> str:
    lines = ["bind 127.0.0.1", f'requirepass "{password}"', 'save ""', "appendonly no", "daemonize no"]
    if certificates is None:
        return "\n".join([*lines, f"port {port}", ""])
    lines += ["port 0", f"tls-port {port}", "tls-auth-clients no"]
    lines += [f"tls-cert-file {certificates}/cert.pem", f"tls-key-file {certificates}/key.pem"]
    return "\n".join([*lines, f"tls-ca-cert-file {certificates}/cert.pem", ""])


def _wait_until_it_listens(server: subprocess.Popen[str], port: int) -> None:
    until = time.monotonic() + _START_S
    while server.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            time.sleep(0.01)
        else:
            return
    raise RuntimeError("redis-server does not start")


if __name__ == "__main__":
    main()
