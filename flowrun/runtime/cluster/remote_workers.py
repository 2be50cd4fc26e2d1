"""The workers of a job that come by themselves, over the network: task managers that were started for its job manager."""

from __future__ import annotations

import os
from collections.abc import Callable

from flowrun.runtime.cluster.resource_manager import take_on
from flowrun.runtime.cluster.worker_process import ROLE
from flowrun.runtime.rpc.address import Address
from flowrun.runtime.rpc.connection import RpcConnection
from flowrun.runtime.rpc.handshake import Introduction, Purpose
from flowrun.runtime.rpc.link import Credentials, Link
from flowrun.runtime.rpc.server import Server
from flowrun.runtime.slot_pool import Expect
from flowrun.runtime.timers import TimerThread


class RemoteWorkers:
    """Listens for task managers, from `start` to `close`. They come and go at any time; whoever started them replaces those that die.

    Args:
        address: where to listen.
        credentials: of the cluster.
        listening: is told the address, with the port that was chosen, as soon as task managers may come.
    """

    def __init__(self, address: Address, credentials: Credentials, listening: Callable[[Address], None]) -> None:
        self._address = address
        self._credentials = credentials
        self._listening = listening
        self._server: Server | None = None

    def start(self, accept: Callable[[RpcConnection], None], expect: Expect, timers: TimerThread) -> None:
        """Let task managers come.

        Args:
            accept: is given the control connection of each of them.
            expect: is told that nobody knows how many slots there will be.
            timers: of the process.

        Raises:
            ClusterError: the address is taken, or listening there would let strangers in.
        """

        def on_link(link: Link) -> None:
            take_on(link, accept, timers)

        own = Introduction("jobmanager", f"{os.getpid()}")
        expect(None, "")
        self._server = Server(
            self._address, own, self._credentials, {Purpose.CONTROL: on_link}, roles=frozenset({ROLE})
        )
        self._listening(self._server.address)

    @property
    def bring_slots(self) -> bool:
        """They are started with a number."""
        return True

    def provide(self, slots: int) -> None:
        """Nothing: task managers have the slots with which they were started."""

    def why_closed(self, name: str, reason: str) -> str:
        """As the connection says: nothing more is known of a process of another machine."""
        return reason

    def stop_accepting(self) -> None:
        """Let nobody come any more. Idempotent."""
        if self._server is not None:
            self._server.close()

    def close(self) -> None:
        """Let nobody come any more: whoever started them ends them. Idempotent."""
        self.stop_accepting()
