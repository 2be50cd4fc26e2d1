"""Mutual TLS: both ends of a connection prove who they are by certificates of one authority, and nobody reads or changes what travels.

TLS 1.3 only. The authority is the cluster's own: whoever has a certificate of it belongs to the cluster, whatever name is in it, as in
Apache Flink's internal connections. A folder holds `ca.pem`, `cert.pem` and `key.pem`.

Python's `ssl` computes in memory here, and bytes go through the same blocking socket as those of plain connections: so a thread may read
while another one writes, as OpenSSL by itself does not allow, and reading takes many records from the kernel at a time.
"""

from __future__ import annotations

import os
import ssl
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, cast

from flowrun.core.record import record
from flowrun.errors import ClusterError
from flowrun.runtime.rpc.byte_stream import NotTrustedError, SocketStream, without_first

_RECORD_BYTES = 16 << 10
"""The most that TLS encrypts at a time."""
_READ_BYTES = 256 << 10
_WRITE_BYTES = 256 << 10
"""So much is encrypted before it is given to the kernel."""
_NOTHING = memoryview(b"")

CERTIFICATE, KEY, AUTHORITY = "cert.pem", "key.pem", "ca.pem"


@record(eq=False)
class TlsIdentity:
    """The certificate of a process, and the authority whose certificates it trusts.

    Attributes:
        listening: for connections that come.
        connecting: for those that it makes.
    """

    listening: ssl.SSLContext
    connecting: ssl.SSLContext


def read_identity(folder: Path) -> TlsIdentity:
    """The identity in a folder.

    Raises:
        ClusterError: a file is not there or is not what it must be, or other users may read the key.
    """
    _check_files(folder, (CERTIFICATE, KEY, AUTHORITY))
    with _usable(folder, "certificate, key and authority"):
        return TlsIdentity(
            _context(ssl.PROTOCOL_TLS_SERVER, folder),
            _context(ssl.PROTOCOL_TLS_CLIENT, folder),
        )


def context_for_browsers(folder: Path) -> ssl.SSLContext:
    """How a server shows the certificate in a folder to clients that have none, and prove themselves otherwise. `ca.pem` is not needed.

    Raises:
        ClusterError: as for `read_identity`.
    """
    _check_files(folder, (CERTIFICATE, KEY))
    with _usable(folder, "certificate and key"):
        return _plain_context(ssl.PROTOCOL_TLS_SERVER, folder)


def _check_files(folder: Path, names: tuple[str, ...]) -> None:
    for name in names:
        try:
            mode = os.stat(folder / name).st_mode
        except OSError as error:
            raise ClusterError(
                f"cannot read {folder / name}: {error.strerror or error}",
                hint=f"the folder of --tls has {', '.join(names[:-1])} and {names[-1]}",
            ) from error
        if name == KEY and stat.S_IMODE(mode) & 0o077:
            raise ClusterError(f"other users may read the key {folder / name}", hint=f"`chmod 600 {folder / name}`")


@contextmanager
def _usable(folder: Path, what: str) -> Iterator[None]:
    """A context in which files are loaded. Raises ClusterError: they are not what they must be."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = _words(error) if isinstance(error, ssl.SSLError) else error
        raise ClusterError(
            f"the {what} in {folder} cannot be used: {reason}",
            hint="PEM files; the key belongs to the certificate, and has no password",
        ) from error


def _plain_context(protocol: int, folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(folder / CERTIFICATE, folder / KEY, password=_no_password)
    return context


def _context(protocol: int, folder: Path) -> ssl.SSLContext:
    context = _plain_context(protocol, folder)
    context.check_hostname = False  # the authority is the cluster's own
    context.verify_mode = ssl.CERT_REQUIRED
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # connections are few and long
    context.load_verify_locations(folder / AUTHORITY)
    return context


def _no_password() -> NoReturn:
    raise ValueError("the key has a password")


class TlsStream:
    """A `ByteStream` that is encrypted. `shake_hands` comes first.

    Args:
        raw: the connection; nothing was read or written.
        identity: of this process.
        listens: whether the other side has connected.
    """

    def __init__(self, raw: SocketStream, identity: TlsIdentity, *, listens: bool) -> None:
        self._raw = raw
        self._lock = threading.Lock()
        """Of what follows; but for handshakes never held while the other side is waited for."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = identity.listening if listens else identity.connecting
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=listens)
        self._unsent: memoryview = _NOTHING
        """Encrypted, and not yet taken by the kernel."""
        self._buffer = memoryview(bytearray(_READ_BYTES))

    def shake_hands(self) -> None:
        """Prove to each other who both are, within the time limit.

        Raises:
            NotTrustedError: the other side has no certificate of the authority, or does not speak TLS.
            OSError: the connection failed, or the time limit was reached.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._raw.write(self._outgoing.read())
                if not self._receive():
                    raise ConnectionError("it closed the connection during the TLS handshake") from None
            except ssl.SSLError as error:
                alert = self._outgoing.read()
                if alert:
                    self._raw.write(alert)  # so that the other side can say why
                raise _failed(error) from error
            else:
                break
        self._raw.write(self._outgoing.read())

    @property
    def is_unix_socket(self) -> bool:
        """As `ByteStream.is_unix_socket`: what is encrypted stays so."""
        return False

    def read_into(self, view: memoryview) -> int:
        """As `ByteStream.read_into`."""
        filled = 0
        while True:
            with self._lock:
                filled += self._decrypt(view[filled:])
                if self._outgoing.pending:  # an answer of TLS itself
                    self._send()
            if filled == len(view) or not self._receive():
                return filled

    def write(self, data: bytes) -> None:
        """As `ByteStream.write`."""
        left: Sequence[memoryview] = [memoryview(data)]
        with self._lock:
            while left:
                left = self._encrypt(left)
                self._raw.write(self._outgoing.read())

    def write_nowait(self, pieces: Sequence[memoryview]) -> Sequence[memoryview]:
        """As `ByteStream.write_nowait`; an empty piece is left if what is encrypted has not all gone out."""
        left = list(pieces)
        with self._lock:
            self._send()
            while left and not self._unsent:
                left = self._encrypt(left)
                self._send()
            return left or ([_NOTHING] if self._unsent else [])

    def wait_writable(self, timeout_ms: int) -> bool:
        """As `ByteStream.wait_writable`."""
        return self._raw.wait_writable(timeout_ms)

    def set_time_limit(self, timeout_ms: int | None) -> None:
        """As `ByteStream.set_time_limit`."""
        self._raw.set_time_limit(timeout_ms)

    def shutdown_writing(self) -> None:
        """As `ByteStream.shutdown_writing`."""
        self._raw.shutdown_writing()

    def shutdown(self) -> None:
        """As `ByteStream.shutdown`."""
        self._raw.shutdown()

    def close(self) -> None:
        """As `ByteStream.close`."""
        self._raw.close()

    def _receive(self) -> int:
        """Wait for more encrypted bytes; gives their number, 0 at the end."""
        came = self._raw.read_some(self._buffer)
        if came:
            with self._lock:
                self._incoming.write(self._buffer[:came])
        return came

    def _decrypt(self, view: memoryview) -> int:
        """Fill the buffer as far as bytes are there."""
        filled = 0
        try:
            while filled < len(view):
                came = cast(int, self._tls.read(len(view) - filled, view[filled:]))  # into the buffer
                if not came:
                    break
                filled += came
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise _failed(error) from error
        return filled

    def _encrypt(self, pieces: Sequence[memoryview]) -> list[memoryview]:
        """Encrypt a part of the pieces; gives what is left."""
        left = list(pieces)
        try:
            while left and self._outgoing.pending < _WRITE_BYTES:
                if not left[0].nbytes:
                    del left[0]
                    continue
                left = without_first(left, self._tls.write(_first_record(left)))
        except ssl.SSLError as error:
            raise _failed(error) from error
        return left

    def _send(self) -> None:
        """Give the kernel what is encrypted, as far as it takes it."""
        if not self._unsent:
            self._unsent = memoryview(self._outgoing.read())
        if self._unsent:
            left = self._raw.write_nowait([self._unsent])
            self._unsent = left[0] if left else _NOTHING


def _first_record(pieces: Sequence[memoryview]) -> memoryview:
    """What is encrypted together: short pieces in one record."""
    if len(pieces) == 1 or pieces[0].nbytes >= _RECORD_BYTES:
        return pieces[0][:_RECORD_BYTES]
    joined = bytearray()
    for piece in pieces:
        joined += piece[: _RECORD_BYTES - len(joined)]
        if len(joined) == _RECORD_BYTES:
            break
    return memoryview(joined)


def _words(error: ssl.SSLError) -> str:
    """The reason that OpenSSL gives."""
    return (error.reason or str(error)).replace("_", " ").lower()


def _failed(error: ssl.SSLError) -> OSError:
    """What went wrong, in words."""
    reason = _words(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return NotTrustedError(f"its certificate is not trusted here: {error.verify_message}")
    if "alert" in reason:
        return NotTrustedError(f"it does not trust this process: {reason.partition('alert ')[2] or reason}")
    if reason in ("wrong version number", "http request", "peer did not return a certificate", "unexpected message"):
        return NotTrustedError(f"it has no certificate or speaks no TLS: {reason}")
    return ConnectionError(f"TLS failed: {reason}")
