"""moto's S3 in a process of its own, for tests that want a fuller store than the built-in one.

moto answers about 300 requests a second and closes every connection: put a `FaultServer` before it.
"""

from __future__ import annotations

import json
import logging
import urllib.request

from .child import Child, wait_for_stdin_to_end


class MotoServer:
    """A running moto server on a free port of 127.0.0.1; RuntimeError where moto is not installed."""

    def __init__(self) -> None:
        self._child: Child | None = Child(__name__)
        self.url: str = self._child.said["url"]

    def __repr__(self) -> str:
        return f"<MotoServer {self.url}>"

    def reset(self) -> None:
        """Forget every bucket and object."""
        request = urllib.request.Request(f"{self.url}/moto-api/reset", method="POST")
        with urllib.request.urlopen(request, timeout=10) as answer:
            answer.read()

    def stop(self) -> None:
        """End the process."""
        child, self._child = self._child, None
        if child is not None:
            child.stop()


def main() -> None:
    """Serve until standard input ends."""
    from moto.server import ThreadedMotoServer  # an extra: only this process needs it

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # else a line for each request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    print(json.dumps({"url": f"http://{host}:{port}"}), flush=True)
    wait_for_stdin_to_end()
    server.stop()


if __name__ == "__main__":
    main()
