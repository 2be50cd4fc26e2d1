"""Where a process of a cluster can be reached: `tcp://HOST:PORT` or `unix://PATH`, and the sockets of such addresses."""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from contextlib import suppress
from typing import TypeAlias

from flowrun.core.record import record
from flowrun.errors import ClusterError

_LONGEST_UNIX_PATH = 107
"""Bytes; the kernel's structure has room for one more, which ends the text."""
_LARGEST_PORT = 65_535


@record
class TcpAddress:
    """A port of a host. Port 0 is any free port, for those who listen."""

    host: str
    port: int

    @property
    def is_of_this_machine(self) -> bool:
        """Whether only processes of the same machine reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:  # the name of a host
            return False

    def __str__(self) -> str:
        return f"tcp://[{self.host}]:{self.port}" if ":" in self.host else f"tcp://{self.host}:{self.port}"


@record
class UnixAddress:
    """A socket in the file system. It lies in a folder that only this user can enter."""

    path: str

    @property
    def is_of_this_machine(self) -> bool:
        """Always."""
        return True

    def __str__(self) -> str:
        return f"unix://{self.path}"


Address: TypeAlias = TcpAddress | UnixAddress


def parse_address(text: str, default_port: int | None = None) -> Address:
    """An address from its text; `tcp://` may be left out, and the port if there is a default.

    Raises:
        ClusterError: it is none.

    >>> parse_address("tcp://[::1]:6123"), parse_address("worker-1", 6123), parse_address("unix:///run/flowrun/jobs")
    (TcpAddress(host='::1', port=6123), TcpAddress(host='worker-1', port=6123), UnixAddress(path='/run/flowrun/jobs'))
    """
    if text.startswith("unix://"):
        path = text.removeprefix("unix://")
        if not path.startswith("/"):
            raise _no_address(text, "the path of a Unix socket must be absolute")
        return UnixAddress(path)
    rest = text.removeprefix("tcp://")
    if "://" in rest or "/" in rest or not rest:
        raise _no_address(text, "")
    if rest.startswith("["):
        host, closing, port = rest[1:].partition("]")
        if not closing or (port and not port.startswith(":")):
            raise _no_address(text, "an IPv6 host stands in brackets")
        port = port[1:]
    else:
        host, _, port = rest.partition(":")
    if not port and default_port is not None:
        return TcpAddress(host, default_port)
    if not host or not (port.isascii() and port.isdigit()) or int(port) > _LARGEST_PORT:
        raise _no_address(text, "the port is a number from 0 to 65535; an IPv6 host stands in brackets")
    return TcpAddress(host, int(port))


def _no_address(text: str, reason: str) -> ClusterError:
    message = f"'{text}' is no address" + (f": {reason}" if reason else "")
    return ClusterError(message, hint="write tcp://HOST:PORT, HOST:PORT or unix:///PATH")


def open_connection(address: Address, timeout_ms: int) -> socket.socket:
    """A blocking socket that is connected to `address`.

    Raises:
        ClusterError: nobody answers there within `timeout_ms`.
    """
    try:
        if isinstance(address, TcpAddress):
            connected = socket.create_connection((address.host, address.port), timeout_ms / 1000)
            without_delay(connected)
        else:
            _check_length(address)
            connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connected.settimeout(timeout_ms / 1000)
                connected.connect(address.path)
            except BaseException:
                connected.close()
                raise
    except OSError as error:
        reason = "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise ClusterError(
            f"cannot connect to {address}: {reason}", hint="check the address, and that the process there is running"
        ) from error
    connected.settimeout(None)
    return connected


def without_delay(connected: socket.socket) -> None:
    """Have small frames of a TCP connection leave at once."""
    if connected.family != socket.AF_UNIX:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def notice_silence(connected: socket.socket, silence_ms: int) -> None:
    """Have a TCP connection fail when the other machine, or the network to it, is gone without a word.

    While something waits to be acknowledged, the kernel gives up after `silence_ms`; while nothing does, it asks (keepalive) in the
    meantime. As far as the system can: Linux can both, others have keepalive only.
    """
    if connected.family == socket.AF_UNIX:
        return
    pause_s = max(silence_ms // 3000, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", pause_s),
        ("TCP_KEEPALIVE", pause_s),  # macOS calls the former so
        ("TCP_KEEPINTVL", pause_s),
        ("TCP_KEEPCNT", 2),
        ("TCP_USER_TIMEOUT", silence_ms),
    ):
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def listen(address: Address, backlog: int = 128) -> tuple[socket.socket, Address]:
    """A socket that listens at `address`, and the address with the port that was chosen.

    The folder of a Unix socket is made with mode 0700 if it is not there.

    Raises:
        ClusterError: the address is taken or not of this machine, or others can enter the folder of the Unix socket.
    """
    try:
        if isinstance(address, UnixAddress):
            return _listen_on_unix(address, backlog), address
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        listener = socket.create_server((address.host, address.port), family=family, backlog=backlog)
    except OSError as error:
        raise ClusterError(
            f"cannot listen at {address}: {error.strerror or error}",
            hint="choose another address, or port 0 for any free port",
        ) from error
    return listener, TcpAddress(address.host, listener.getsockname()[1])


def _listen_on_unix(address: UnixAddress, backlog: int) -> socket.socket:
    _check_length(address)
    folder = os.path.dirname(address.path)
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise ClusterError(
            f"cannot listen at {address}: other users may enter its folder",
            hint=f"choose a new folder, or `chmod 700 {folder}`",
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_if_abandoned(address)
        listener.bind(address.path)
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener


def _remove_if_abandoned(address: UnixAddress) -> None:
    """Delete the socket of a process that was killed: its file is there, and nobody listens."""
    with suppress(FileNotFoundError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        if stat.S_ISSOCK(os.lstat(address.path).st_mode):
            try:
                probe.connect(address.path)
            except ConnectionRefusedError:
                os.unlink(address.path)


def _check_length(address: UnixAddress) -> None:
    if len(os.fsencode(address.path)) > _LONGEST_UNIX_PATH:
        raise ClusterError(
            f"the path of {address} is too long for a Unix socket: more than {_LONGEST_UNIX_PATH} bytes",
            hint="choose a shorter path, such as one in /tmp",
        )
