"""Links: connections whose two processes know who the other is and trust each other."""

from __future__ import annotations

import socket

from flowrun.core.record import record
from flowrun.errors import ClusterError
from flowrun.runtime.rpc.address import Address, TcpAddress, open_connection, without_delay
from flowrun.runtime.rpc.byte_stream import ByteStream, SocketStream
from flowrun.runtime.rpc.handshake import Introduction, Purpose, admit, introduce
from flowrun.runtime.rpc.secret import NO_SECRET, SharedSecret

CONNECT_MS = 10_000
"""How long connecting may take, and the handshake after it."""
DATA_BUFFER_BYTES = 4 << 20


@record
class Credentials:
    """What processes prove themselves by.

    Attributes:
        secret: that they share. Without one only processes of this user are let in: by a Unix socket in a folder of this user.
    """

    secret: SharedSecret = NO_SECRET

    def check_place(self, address: Address) -> None:
        """Pass if it is safe to listen at an address.

        Raises:
            ClusterError: others could connect, and nothing keeps them out.
        """
        if isinstance(address, TcpAddress) and not self.secret:
            raise ClusterError(
                f"cannot listen at {address} without a shared secret: whoever connects could have this process run code",
                hint="give a shared secret, or listen at a Unix socket",
            )


@record(eq=False)
class Link:
    """A connection after its handshake.

    Attributes:
        stream: its bytes; nothing was read or written beyond the handshake.
        peer: who is on the other side.
        purpose: what it is for.
        address: where the peer listens, if this side connected; else where the peer came from, as text for people.
    """

    stream: ByteStream
    peer: Introduction
    purpose: Purpose
    address: str

    def __str__(self) -> str:
        return f"{self.peer} ({self.address})"


def open_link(
    address: Address, own: Introduction, purpose: Purpose, credentials: Credentials, timeout_ms: int = CONNECT_MS
) -> Link:
    """Connect to a process that listens, and shake hands. Blocks.

    Raises:
        ClusterError: nobody answers, or either side does not trust or understand the other.
    """
    connected = open_connection(address, timeout_ms)
    stream = SocketStream(connected)
    try:
        _enlarge_buffers(connected, purpose)
        peer = introduce(stream, own, purpose, credentials.secret, str(address), timeout_ms)
    except BaseException:
        stream.close()
        raise
    return Link(stream, peer, purpose, str(address))


def admit_link(
    accepted: socket.socket,
    came_from: str,
    own: Introduction,
    served: frozenset[Purpose],
    credentials: Credentials,
    timeout_ms: int,
) -> Link:
    """Shake hands with who connected. Blocks; ending the socket from another thread ends it.

    Raises:
        ClusterError: it is to be dropped; the socket is closed.
    """
    stream = SocketStream(accepted)
    try:
        without_delay(accepted)
        peer, purpose = admit(stream, own, served, credentials.secret, timeout_ms)
        _enlarge_buffers(accepted, purpose)
    except OSError as error:
        stream.close()
        raise ClusterError(f"the connection failed: {error}") from error
    except BaseException:
        stream.close()
        raise
    return Link(stream, peer, purpose, came_from)


def _enlarge_buffers(connected: socket.socket, purpose: Purpose) -> None:
    """Have the kernel take more rows at a time: a fifth fewer switches between the two processes for batches of 5 MB."""
    if purpose is Purpose.DATA:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            connected.setsockopt(socket.SOL_SOCKET, option, DATA_BUFFER_BYTES)  # as far as the system allows


def link_of_pair(pair_end: socket.socket, peer: Introduction, purpose: Purpose = Purpose.CONTROL) -> Link:
    """One end of a socket pair, which only processes of one family hold: they need no handshake."""
    return Link(SocketStream(pair_end), peer, purpose, "a socket pair")
