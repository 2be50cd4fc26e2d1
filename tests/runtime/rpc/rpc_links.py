"""Servers, links and raw clients for tests of connections."""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flowrun.runtime.rpc.address import Address, TcpAddress, UnixAddress
from flowrun.runtime.rpc.handshake import Introduction, Purpose
from flowrun.runtime.rpc.link import Credentials, Link, open_link
from flowrun.runtime.rpc.secret import SharedSecret
from flowrun.runtime.rpc.server import DEFAULT_LIMITS, Server, ServerLimits

JOBMANAGER = Introduction("jobmanager", "jm-1")
TASKMANAGER = Introduction("taskmanager", "tm-1")
LOOPBACK = TcpAddress("127.0.0.1", 0)
CREDENTIALS = Credentials(SharedSecret(b"0123456789abcdef"))


class RunningServer:
    """A server that keeps the links that it gets."""

    def __init__(self, address: Address, credentials: Credentials, limits: ServerLimits) -> None:
        self.links: queue.Queue[Link] = queue.Queue()
        self.all_links: list[Link] = []
        served = {Purpose.CONTROL: self._keep, Purpose.DATA: self._keep}
        self.server = Server(address, JOBMANAGER, credentials, served, limits=limits)

    @property
    def address(self) -> Address:
        return self.server.address

    def _keep(self, link: Link) -> None:
        self.all_links.append(link)
        self.links.put(link)

    def pair(self, purpose: Purpose = Purpose.CONTROL, credentials: Credentials = CREDENTIALS) -> tuple[Link, Link]:
        """(the client's end, the server's end)."""
        client = open_link(self.address, TASKMANAGER, purpose, credentials)
        return client, self.links.get(timeout=10)

    def raw(self) -> socket.socket:
        """A client that has said nothing yet."""
        assert isinstance(self.address, TcpAddress)
        return socket.create_connection((self.address.host, self.address.port), timeout=10)


@contextmanager
def running_server(
    address: Address = LOOPBACK, credentials: Credentials = CREDENTIALS, limits: ServerLimits = DEFAULT_LIMITS
) -> Iterator[RunningServer]:
    running = RunningServer(address, credentials, limits)
    try:
        yield running
    finally:
        running.server.close()
        for link in running.all_links:
            link.stream.close()


def unix_address(folder: Path) -> UnixAddress:
    """In a new folder of this user."""
    return UnixAddress(str(folder / "sockets" / "jm"))
