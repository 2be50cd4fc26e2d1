"""The handshake: two processes say who they are, and prove to each other that they know the shared secret.

Four messages of fixed sizes, and nothing else is read from who has not proved it. The one who connects speaks first:

1. introduction: protocol version, purpose, role, id, flowrun's version, 32 random bytes;
2. introduction of the one who listens, or a verdict, if the versions do not fit;
3. proof of the one who connects: an HMAC-SHA256 of both introductions under the secret;
4. verdict and proof of the one who listens: the same with another label, so that a proof cannot be sent back to who made it.

The secret itself never travels, and since proofs cover both random numbers and all that was said, none is good for a second time or for
another introduction. A secret guards against strangers who connect. Who can read or change what travels between two machines is
kept out by TLS only (`tls.py`), inside of which the handshake is the same.
"""

from __future__ import annotations

import hmac
import secrets
import struct
from enum import IntEnum

from flowrun import __version__
from flowrun.core.record import record
from flowrun.errors import ClusterError, RefusedError
from flowrun.runtime.rpc.byte_stream import ByteStream, NotTrustedError
from flowrun.runtime.rpc.secret import SharedSecret

PROTOCOL_VERSION = 1
"""Of everything that travels over connections; those of another version are refused."""

_MAGIC = b"flowrun\n"
_INTRODUCTION = struct.Struct(">8sHB32s128s32s32s")
"""Magic, protocol version, purpose or verdict, role, id, flowrun's version, random number."""
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_VERDICT = struct.Struct(f">B{_PROOF_BYTES}s")
_LONGEST = {"role": 32, "id": 128, "version": 32}
_BY_CLIENT, _BY_SERVER = b"flowrun: who connects", b"flowrun: who listens"


class Purpose(IntEnum):
    """What a connection is for."""

    CONTROL = 1
    DATA = 2


class Verdict(IntEnum):
    """What the one who listens answers."""

    WELCOME = 0
    OTHER_PROTOCOL = 1
    OTHER_VERSION = 2
    WRONG_SECRET = 3
    NOT_SERVED = 4
    OTHER_ROLE = 5


@record
class Introduction:
    """Who a process says it is.

    Attributes:
        role: such as `taskmanager`.
        id: of the process, unique in its cluster.
        version: of flowrun.
    """

    role: str
    id: str
    version: str = __version__

    def __post_init__(self) -> None:
        for name, longest in _LONGEST.items():
            value: str = getattr(self, name)
            if not value or len(value.encode()) > longest or not value.isprintable():
                raise ClusterError(f"{value!r} cannot be the {name} of a process: 1 to {longest} printable bytes")

    def __str__(self) -> str:
        return f"{self.role} {self.id}"


def introduce(
    stream: ByteStream, own: Introduction, purpose: Purpose, secret: SharedSecret, place: str
) -> Introduction:
    """Shake hands as the one who connected, within the stream's time limit; gives who listens. `place` is for errors: where that is.

    Raises:
        ClusterError: the other side is no flowrun, of another version, does not know the secret, serves no such purpose, or does not
            answer in time.
    """
    try:
        said = _packed(own, purpose)
        stream.write(said)
        answered = _read_introduction(stream, place)
        verdict, peer = _unpacked(answered, place)
        if verdict in (Verdict.OTHER_PROTOCOL, Verdict.OTHER_VERSION):
            raise _other_version(own, peer, place)
        proof = secret.sign(_BY_CLIENT, said, answered)
        stream.write(proof)
        result, answer = _VERDICT.unpack(_read(stream, _VERDICT.size, place))
        _check_verdict(result, peer, purpose, place)
        if not hmac.compare_digest(answer, secret.sign(_BY_SERVER, said, answered, proof)):
            raise RefusedError(
                f"{peer} at {place} did not prove that it knows the shared secret",
                hint="another process listens at that address",
            )
    except OSError as error:
        raise failed_handshake(place, error) from error
    return peer


def admit(
    stream: ByteStream,
    own: Introduction,
    served: frozenset[Purpose],
    secret: SharedSecret,
    roles: frozenset[str] | None = None,
) -> tuple[Introduction, Purpose]:
    """Shake hands as the one who listens, within the stream's time limit; gives who connected, and what for.

    Args:
        stream: of the connection.
        own: who this process is.
        served: what connections are for.
        secret: that both sides must know.
        roles: of those who may connect; None: all.

    Raises:
        ClusterError: the other side is to be dropped; it was told why if it is a flowrun.
    """
    try:
        said = _read_introduction(stream, "the other side")
        purpose, peer = _unpacked(said, "the other side")
        protocol: int = _INTRODUCTION.unpack(said)[1]
        if protocol != PROTOCOL_VERSION or peer.version != own.version:
            verdict = Verdict.OTHER_PROTOCOL if protocol != PROTOCOL_VERSION else Verdict.OTHER_VERSION
            stream.write(_packed(own, verdict))
            raise _other_version(own, peer, "the other side")
        answered = _packed(own, Verdict.WELCOME)
        stream.write(answered)
        proof = _read(stream, _PROOF_BYTES, "the other side")
        if not hmac.compare_digest(proof, secret.sign(_BY_CLIENT, said, answered)):
            _refuse(stream, Verdict.WRONG_SECRET)
            raise ClusterError(f"{peer} does not know the shared secret")
        if purpose not in served:
            _refuse(stream, Verdict.NOT_SERVED)
            raise ClusterError(f"{peer} asks for a connection of kind {purpose}, which is not served here")
        if roles is not None and peer.role not in roles:
            _refuse(stream, Verdict.OTHER_ROLE)
            raise ClusterError(f"{peer} is not waited for here, but {' or '.join(sorted(roles))}")
        stream.write(_VERDICT.pack(Verdict.WELCOME, secret.sign(_BY_SERVER, said, answered, proof)))
    except OSError as error:
        raise failed_handshake("the other side", error) from error
    return peer, Purpose(purpose)


def _packed(own: Introduction, purpose_or_verdict: int) -> bytes:
    texts = (own.role.encode(), own.id.encode(), own.version.encode())
    return _INTRODUCTION.pack(_MAGIC, PROTOCOL_VERSION, purpose_or_verdict, *texts, secrets.token_bytes(_NONCE_BYTES))


def _unpacked(data: bytes, place: str) -> tuple[int, Introduction]:
    """(purpose or verdict, who says so); of any protocol version, whose introductions begin alike."""
    magic, _, number, *texts, _ = _INTRODUCTION.unpack(data)
    if magic != _MAGIC:
        raise _no_flowrun(place)
    try:
        return number, Introduction(*(text.rstrip(b"\0").decode() for text in texts))
    except (UnicodeDecodeError, ClusterError) as error:
        raise _no_flowrun(place) from error


def _read_introduction(stream: ByteStream, place: str) -> bytes:
    """Not a byte more than its beginning of who speaks another protocol."""
    magic = _read(stream, len(_MAGIC), place)
    if magic != _MAGIC:
        raise _no_flowrun(place)
    return magic + _read(stream, _INTRODUCTION.size - len(_MAGIC), place)


def _read(stream: ByteStream, size: int, place: str) -> bytes:
    data = bytearray(size)
    with memoryview(data) as view:
        came = stream.read_into(view)
    if came < size:
        raise _unanswered(place, f"it closed the connection after {came} of {size} bytes")
    return bytes(data)


def _refuse(stream: ByteStream, verdict: Verdict) -> None:
    stream.write(_VERDICT.pack(verdict, bytes(_PROOF_BYTES)))


def _check_verdict(result: int, peer: Introduction, purpose: Purpose, place: str) -> None:
    if result == Verdict.WELCOME:
        return
    if result == Verdict.WRONG_SECRET:
        raise RefusedError(
            f"{peer} at {place} refused the connection: it has another shared secret",
            hint="give both processes the same secret",
        )
    if result == Verdict.NOT_SERVED:
        raise RefusedError(
            f"{peer} at {place} serves no {purpose.name.lower()} connections", hint="check the address and its port"
        )
    if result == Verdict.OTHER_ROLE:
        raise RefusedError(
            f"{peer} at {place} waits for other processes than this one", hint="check the address and its port"
        )
    raise _no_flowrun(place)


def _other_version(own: Introduction, peer: Introduction, place: str) -> RefusedError:
    if peer.version != own.version:
        message = f"{peer} ({place}) runs flowrun {peer.version}, and this process {own.version}"
    else:
        message = f"{peer} ({place}) speaks another version of the protocol than this process, which speaks {PROTOCOL_VERSION}"
    return RefusedError(message, hint="install the same version of flowrun on both sides")


def _no_flowrun(place: str) -> RefusedError:
    return RefusedError(
        f"{place} does not speak flowrun's protocol", hint="check the address, and whether one side uses TLS"
    )


def failed_handshake(place: str, error: OSError) -> ClusterError:
    """The error of a handshake that failed for want of bytes, time or trust."""
    if isinstance(error, NotTrustedError):
        return RefusedError(
            f"the handshake with {place} failed: {error}",
            hint="all processes of a cluster use TLS with certificates of one authority, or none does (--tls)",
        )
    if isinstance(error, TimeoutError):
        return _unanswered(place, "no answer in time", "; a process that hangs there does not answer either: end it")
    return _unanswered(place, error.strerror or str(error))


def _unanswered(place: str, reason: str, more: str = "") -> ClusterError:
    return ClusterError(
        f"the handshake with {place} failed: {reason}", hint=f"check the address, and whether one side uses TLS{more}"
    )
