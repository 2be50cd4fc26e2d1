"""The thread that serves the REST API. Nothing of HTTP is imported before the first connection.

A run that nobody looks at pays a socket and a thread that sleeps.
"""

from __future__ import annotations

import selectors
import socket
import threading

from flowrun.rest.doors import Door, close_doors
from flowrun.rest.served import ServedJobs


class RestServer:
    """Serves jobs until `close`.

    Args:
        jobs: that are served.
        doors: where it listens; they are closed with the server.
    """

    def __init__(self, jobs: ServedJobs, doors: tuple[Door, ...]) -> None:
        self.doors = doors
        self._jobs = jobs
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="flowrun-rest", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Finish what is being answered, and end. Idempotent; blocks a moment."""
        if self._closed:
            return
        self._closed = True
        self._waker.send(b"x")
        self._thread.join()
        close_doors(self.doors)
        self._wake.close()
        self._waker.close()

    def __enter__(self) -> RestServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            for door in self.doors:
                selector.register(door.listener, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            if self._wake in {key.fileobj for key, _ in selector.select()}:
                return
        from flowrun.rest.connections import serve_until

        serve_until(self._wake, self.doors, self._jobs)
