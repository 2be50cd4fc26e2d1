"""The methods of a protocol class as they travel: the types of their arguments and results, and whether somebody waits for an answer."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from flowrun.core.record import record
from flowrun.errors import InternalError
from flowrun.runtime.rpc.codec import decode, encode, prepare


@record(eq=False)
class Method:
    """One method of a protocol.

    Attributes:
        name: of the method.
        signature: without `self`.
        arguments: type of all arguments together: a tuple of their types.
        result: type of the result; of a method that returns nothing `NoneType`.
    """

    name: str
    signature: inspect.Signature
    arguments: Any
    result: Any

    @property
    def is_one_way(self) -> bool:
        """Whether nobody waits for an answer: the method returns nothing."""
        return self.result is types.NoneType

    def pack_arguments(self, args: Sequence[object], named: Mapping[str, object]) -> bytes:
        """The arguments of a call as bytes.

        Raises:
            TypeError: they do not fit the signature, as in a local call.
            RpcError: one is not of its type.
        """
        if named or len(args) != len(self.signature.parameters):
            bound = self.signature.bind(*args, **named)
            bound.apply_defaults()
            args = tuple(bound.arguments.values())
        return encode(tuple(args), self.arguments) if args else b""

    def unpack_arguments(self, data: memoryview) -> tuple[object, ...]:
        """The arguments from their bytes.

        Raises:
            RpcError: they are none for this method.
        """
        arguments: tuple[object, ...] = decode(data, self.arguments) if self.signature.parameters or len(data) else ()
        return arguments

    def pack_result(self, result: object) -> bytes:
        """The result of a call as bytes. Raises as `encode` does."""
        return encode(result, self.result)

    def unpack_result(self, data: memoryview) -> object:
        """The result from its bytes. Raises as `decode` does."""
        return decode(data, self.result)


@lru_cache(maxsize=256)
def methods_of(protocol: type) -> Mapping[str, Method]:
    """The public methods of a protocol class and of those that it extends, by name.

    Raises:
        InternalError: one has parameters without a type or of any number, or it is no method.
    """
    found: dict[str, Method] = {}
    for owner in reversed(protocol.__mro__):
        if owner in (object, typing.Protocol, typing.Generic):
            continue
        for name, member in vars(owner).items():
            if name.startswith("_"):
                continue
            if not inspect.isfunction(member):
                raise InternalError(f"{owner.__name__}.{name} is no method: other processes can only call methods")
            found[name] = _method(owner, name, member)
    return types.MappingProxyType(found)


def prepare_protocol(protocol: type) -> None:
    """Build the coders of all its arguments and results: each takes a while when it is first used."""
    for method in methods_of(protocol).values():
        prepare(method.arguments)
        prepare(method.result)


def _method(owner: type, name: str, function: types.FunctionType) -> Method:
    _, *parameters = inspect.signature(function).parameters.values()
    hints = typing.get_type_hints(function)
    for parameter in parameters:
        if parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD or parameter.name not in hints:
            raise InternalError(
                f"parameter {parameter.name} of {owner.__name__}.{name} cannot be sent to another process"
            )
    if "return" not in hints:
        raise InternalError(f"{owner.__name__}.{name} does not say what it returns")
    kinds = tuple(hints[parameter.name] for parameter in parameters)
    return Method(name, inspect.Signature(parameters), tuple[kinds], hints["return"])  # type: ignore[valid-type]
