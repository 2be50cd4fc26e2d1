"""Links: connections whose two processes know who the other is and trust each other."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from flowrun.core.record import record
from flowrun.errors import ClusterError, RefusedError
from flowrun.runtime.rpc.address import Address, TcpAddress, notice_silence, open_connection, without_delay
from flowrun.runtime.rpc.byte_stream import ByteStream, SocketStream, shut_down
from flowrun.runtime.rpc.handshake import Introduction, Purpose, admit, failed_handshake, introduce
from flowrun.runtime.rpc.secret import NO_SECRET, SharedSecret

if TYPE_CHECKING:
    from flowrun.runtime.rpc.tls import TlsIdentity

CONNECT_MS = 10_000
"""How long connecting may take, and the handshake after it."""
DATA_BUFFER_BYTES = 4 << 20
CONTROL_SILENCE_MS = 15_000
"""How long the machine of the other side may leave what was sent to it without an answer of its kernel, on control connections and
where rows are read. Its processes need not run for that: no function of a user keeps a kernel from answering."""
DATA_SILENCE_MS = 60_000
"""Where rows are written: a reader whose interpreter is held lets its buffers fill, and then its kernel takes nothing either."""


@record
class Credentials:
    """What processes prove themselves by.

    Attributes:
        secret: that they share. Without one only processes of this user are let in: by a Unix socket in a folder of this user.
        tls: the certificate of this process, by which connections over TCP are encrypted; with one no secret is needed.
    """

    secret: SharedSecret = NO_SECRET
    tls: TlsIdentity | None = None

    def check_place(self, address: Address) -> None:
        """Pass if it is safe to listen at an address.

        Raises:
            ClusterError: others could connect, and nothing keeps them out.
        """
        if isinstance(address, TcpAddress) and not self.secret and self.tls is None:
            raise ClusterError(
                f"cannot listen at {address} without a shared secret: whoever connects could have this process run code",
                hint="give a shared secret or certificates (--tls), or listen at a Unix socket",
            )

    def secure(self, connected: socket.socket, *, listens: bool, timeout_ms: int) -> ByteStream:
        """The bytes of a new connection, which are encrypted if it leaves the machine and there is a certificate. Blocks.

        The stream has a time limit from now on.

        Raises:
            OSError: the other side does not prove itself.
        """
        raw = SocketStream(connected)
        raw.set_time_limit(timeout_ms)
        if self.tls is None or connected.family == socket.AF_UNIX:
            return raw
        from flowrun.runtime.rpc.tls import TlsStream  # most processes do without

        stream = TlsStream(raw, self.tls, listens=listens)
        stream.shake_hands()
        return stream


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
    address: Address,
    own: Introduction,
    purpose: Purpose,
    credentials: Credentials,
    timeout_ms: int = CONNECT_MS,
    roles: frozenset[str] | None = None,
) -> Link:
    """Connect to a process that listens, and shake hands. Blocks.

    Args:
        address: where it listens.
        own: who this process is.
        purpose: of the connection.
        credentials: of the cluster.
        timeout_ms: for connecting, and again for the handshake.
        roles: that the other side may have; None: any.

    Raises:
        ClusterError: nobody answers, or either side does not trust or understand the other.
    """
    connected = open_connection(address, timeout_ms)
    try:
        notice_silence(connected, CONTROL_SILENCE_MS)
        _enlarge_buffers(connected, purpose)
        try:
            stream = credentials.secure(connected, listens=False, timeout_ms=timeout_ms)
        except OSError as error:
            raise failed_handshake(str(address), error) from error
        peer = introduce(stream, own, purpose, credentials.secret, str(address))
        if roles is not None and peer.role not in roles:
            raise RefusedError(
                f"{peer} listens at {address}, and not a {' or '.join(sorted(roles))}",
                hint="check the address and its port",
            )
        stream.set_time_limit(None)
    except BaseException:
        shut_down(connected)
        connected.close()
        raise
    return Link(stream, peer, purpose, str(address))


def admit_link(
    accepted: socket.socket,
    came_from: str,
    own: Introduction,
    served: frozenset[Purpose],
    credentials: Credentials,
    timeout_ms: int,
    roles: frozenset[str] | None = None,
) -> Link:
    """Shake hands with who connected. Blocks; ending the socket from another thread ends it.

    Raises:
        ClusterError: it is to be dropped; the socket is closed.
    """
    try:
        without_delay(accepted)
        try:
            stream = credentials.secure(accepted, listens=True, timeout_ms=timeout_ms)
        except OSError as error:
            raise failed_handshake("the other side", error) from error
        peer, purpose = admit(stream, own, served, credentials.secret, roles)
        stream.set_time_limit(None)
        notice_silence(accepted, DATA_SILENCE_MS if purpose is Purpose.DATA else CONTROL_SILENCE_MS)
        _enlarge_buffers(accepted, purpose)
    except OSError as error:
        shut_down(accepted)
        accepted.close()
        raise ClusterError(f"the connection failed: {error}") from error
    except BaseException:
        shut_down(accepted)
        accepted.close()
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
