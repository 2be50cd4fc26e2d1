"""Where the REST API listens, and what whoever comes there must show."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from flowrun.core.record import record
from flowrun.errors import ClusterError
from flowrun.runners.registry import LOOPBACK, new_token
from flowrun.runtime.rpc.address import Address, TcpAddress

if TYPE_CHECKING:
    import ssl

BACKLOG = 1_024
"""Connections that the kernel keeps until they are accepted: of a flood it would drop those that come after, the owner's among them."""
_SMALLEST_PORT_OF_USERS = 1024


@record(eq=False)
class Door:
    """A socket that listens.

    Attributes:
        listener: does not block.
        host: as the user has named it.
        token: that each request must carry, but for those of files of the page and of health.
        tls: of the connections; None: they are not encrypted.
        token_file: from which the token is; None: it is a new one.
    """

    listener: socket.socket
    host: str
    token: str
    tls: ssl.SSLContext | None = None
    token_file: Path | None = None

    port: int = field(init=False)
    """That was chosen."""
    hosts: frozenset[str] | None = field(init=False)
    """What may stand in a request's header `Host`; None: anything, as a certificate tells where a client is.

    On loopback no name but its own counts: a page of elsewhere whose name has come to mean this machine (DNS rebinding) gets nothing.
    """

    def __post_init__(self) -> None:
        """Ask the socket once: requests are many."""
        object.__setattr__(self, "port", self.listener.getsockname()[1])
        names = (LOOPBACK, "localhost", self._host)
        hosts = None if self.tls is not None else frozenset(f"{name}:{self.port}" for name in names)
        object.__setattr__(self, "hosts", hosts)

    @property
    def url(self) -> str:
        """Where a browser goes, without the token: `http://127.0.0.1:8081/`."""
        return f"{'http' if self.tls is None else 'https'}://{self._host}:{self.port}/"

    @property
    def _host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


@record
class DoorOptions:
    """Where the user wants the REST API to listen.

    Attributes:
        address: a host and a port; port 0 is any free one.
        token_file: holds the token; it is made if it is not there. None: the token is a new one.
        tls: folder of `cert.pem` and `key.pem`.
        token: without a file of one: it stays as long as these options do, so that versions of a pipeline have the same.
    """

    address: Address
    token_file: Path | None = None
    tls: Path | None = None
    token: str = field(default_factory=new_token, repr=False)

    def check(self) -> TcpAddress:
        """The address, where strangers cannot come in.

        Raises:
            ClusterError: it is no port of a host, or others could read the token or do without it.
        """
        if not isinstance(self.address, TcpAddress):
            raise ClusterError(
                f"the REST API cannot listen at {self.address}", hint="name HOST:PORT: browsers know no other places"
            )
        needed = (("--token-file FILE", self.token_file), ("--tls FOLDER", self.tls))
        missing = [option for option, value in needed if value is None]
        if missing and not self.address.is_of_this_machine:
            raise ClusterError(
                f"the REST API cannot listen at {self.address}, which other machines reach, without {' and '.join(missing)}",
                hint="whoever knows the token can stop jobs, and without TLS it can be read on its way; "
                f"{LOOPBACK}:{self.address.port} needs neither",
            )
        return self.address


def loopback_door(token: str) -> Door:
    """A door for processes of this machine, at any free port.

    Raises:
        ClusterError: there is no loopback interface.
    """
    return Door(_listening(TcpAddress(LOOPBACK, 0)), LOOPBACK, token)


def open_door(options: DoorOptions) -> Door:
    """The door that the user asks for.

    Raises:
        ClusterError: it would let strangers in, a file cannot be used, or the address is taken.
    """
    address = options.check()
    token = options.token if options.token_file is None else read_or_create_token(options.token_file)
    context = None
    if options.tls is not None:
        from flowrun.runtime.rpc.tls import context_for_browsers  # most processes do without

        context = context_for_browsers(options.tls.expanduser())
    return Door(_listening(address), address.host, token, context, options.token_file)


def read_or_create_token(path: Path) -> str:
    """The token in a file, which is made, for this user only, if it is not there.

    Raises:
        ClusterError: it cannot be read or made, other users can read it, or it is no token.
    """
    from flowrun.runtime.rpc.secret import TOKEN, read_or_create_secret

    path = path.expanduser()
    text = read_or_create_secret(path, TOKEN).value.decode()
    if not (text.isascii() and text.isprintable() and " " not in text):
        raise ClusterError(
            f"the text in {path} cannot be a token: it goes into a header of HTTP",
            hint="letters and digits; `openssl rand -hex 32` makes one",
        )
    return text


def _listening(address: TcpAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        listener = socket.create_server((address.host, address.port), family=family, backlog=BACKLOG)
    except OSError as error:
        hint = "name another port; 0 is any free one"
        if isinstance(error, PermissionError) and address.port < _SMALLEST_PORT_OF_USERS:
            hint = f"ports below {_SMALLEST_PORT_OF_USERS} are for the superuser"
        raise ClusterError(f"cannot listen at {address}: {os.strerror(error.errno or 0)}", hint=hint) from error
    listener.setblocking(False)
    return listener


def close_doors(doors: tuple[Door, ...]) -> None:
    """Listen no more. Idempotent."""
    for door in doors:
        with suppress(OSError):
            door.listener.close()
