"""What travels over a control connection: calls, answers and good-byes, each one frame.

A head of fixed layout comes first, so that who routes a call reads none of its arguments.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TypeAlias

from flowrun.core.record import record
from flowrun.errors import RpcError
from flowrun.runtime.rpc.frames import Piece

_KIND_AND_NUMBER = struct.Struct(">BQ")
_LENGTHS = struct.Struct(">BBB")
_LONGEST_NAME = 255
_LONGEST_REASON = 4096


class FrameKind(IntEnum):
    """The first byte of a frame."""

    ONE_WAY = 1
    CALL = 2
    RESULT = 3
    FAILURE = 4
    GOODBYE = 5


@record
class Call:
    """A call of a method.

    Attributes:
        number: of the call on its connection; the answer bears it. 0: nobody waits for an answer.
        endpoint: that is called.
        method: of its protocol.
        token: fencing token that the caller knows; empty for endpoints without one.
        arguments: as bytes.
    """

    number: int
    endpoint: str
    method: str
    token: str
    arguments: bytes | memoryview


@record
class Answer:
    """The answer to call `number`: the result, or the error if it `failed`, as bytes."""

    number: int
    failed: bool
    content: bytes | memoryview


@record
class Goodbye:
    """The other side closes the connection, and why."""

    reason: str


ControlFrame: TypeAlias = Call | Answer | Goodbye


def pieces_of_call(call: Call) -> tuple[Piece, ...]:
    """A call as the pieces of a frame.

    Raises:
        RpcError: a name or the token is longer than 255 bytes.
    """
    names = [name.encode() for name in (call.endpoint, call.method, call.token)]
    if max(map(len, names)) > _LONGEST_NAME:
        raise RpcError(f"the names of a call of {call.method} are too long: more than {_LONGEST_NAME} bytes")
    kind = FrameKind.CALL if call.number else FrameKind.ONE_WAY
    head = _KIND_AND_NUMBER.pack(kind, call.number) + _LENGTHS.pack(*map(len, names))
    return b"".join((head, *names)), call.arguments


def pieces_of_answer(answer: Answer) -> tuple[Piece, ...]:
    """An answer as the pieces of a frame."""
    kind = FrameKind.FAILURE if answer.failed else FrameKind.RESULT
    return _KIND_AND_NUMBER.pack(kind, answer.number), answer.content


def pieces_of_goodbye(goodbye: Goodbye) -> tuple[Piece, ...]:
    """A good-bye as the pieces of a frame; the end of a very long reason is left out."""
    reason = goodbye.reason.encode()[:_LONGEST_REASON]
    return (_KIND_AND_NUMBER.pack(FrameKind.GOODBYE, 0) + reason,)


def read_control_frame(frame: memoryview) -> ControlFrame:
    """What a frame says.

    Raises:
        RpcError: it is none of these.
    """
    if len(frame) < _KIND_AND_NUMBER.size:
        raise RpcError(f"a frame of {len(frame)} bytes is too short to say anything")
    kind, number = _KIND_AND_NUMBER.unpack_from(frame)
    content = frame[_KIND_AND_NUMBER.size :]
    if kind in (FrameKind.RESULT, FrameKind.FAILURE):
        return Answer(number, kind == FrameKind.FAILURE, content)
    if kind == FrameKind.GOODBYE:
        return Goodbye(bytes(content[:_LONGEST_REASON]).decode(errors="replace"))
    if kind not in (FrameKind.ONE_WAY, FrameKind.CALL) or (kind == FrameKind.ONE_WAY) != (number == 0):
        raise RpcError(f"a frame of kind {kind} with number {number} is unknown")
    return _call(number, content)


def _call(number: int, content: memoryview) -> Call:
    if len(content) < _LENGTHS.size:
        raise RpcError("a call was cut before its names")
    position, names = _LENGTHS.size, []
    for length in _LENGTHS.unpack_from(content):
        name = bytes(content[position : position + length])
        position += length
        if position > len(content):
            raise RpcError("a call was cut within its names")
        try:
            names.append(name.decode())
        except UnicodeDecodeError as error:
            raise RpcError("a name in a call is no text") from error
    endpoint, method, token = names
    return Call(number, endpoint, method, token, content[position:])
