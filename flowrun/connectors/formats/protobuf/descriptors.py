"""Finds the type of messages in a descriptor file, or in a module that protoc made; the module is read and not run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flowrun.api.client_library import ClientLibrary
from flowrun.errors import OptionError, did_you_mean

CLIENT = ClientLibrary("protobuf", ("google.protobuf",))
FILE_OPTION = "protobuf.descriptor-file"
NAME_OPTION = "protobuf.message-class-name"
_USER = "format 'protobuf'"
_HINT = "protoc --include_imports --descriptor_set_out=order.desc order.proto"
_WELL_KNOWN = "google/protobuf/"


def message_class(name: str, path: str) -> Any:
    """The class of messages of a type.

    Args:
        name: its full name, `shop.Order`. Flink's names of Java classes are understood, too: `com.shop.Orders$Order` is the only type
            `Order` of the file.
        path: a file that protoc wrote: a descriptor set, or a module `order_pb2.py` beside those that it imports.

    Raises:
        OptionError: the file cannot be read, or has no such type.
        SetupError: protobuf is not installed.
    """
    pool = CLIENT.module("google.protobuf.descriptor_pool", _USER).DescriptorPool()
    factory = CLIENT.module("google.protobuf.message_factory", _USER)
    files = _files(path)
    added: set[str] = set()
    try:
        for file in list(files.values()):
            _add(file, files, pool, added)
    except (TypeError, KeyError) as error:
        raise OptionError(FILE_OPTION, f"option '{FILE_OPTION}': {path}: {error}", hint=_HINT) from None
    types = [t for file in files.values() for t in _types(file.message_type, file.package)]
    wanted = name.replace("$", ".")
    found = [t for t in types if t == wanted] or [t for t in types if t.rpartition(".")[2] == wanted.rpartition(".")[2]]
    if len(found) != 1:
        what = "no message type" if not found else "several message types"
        raise OptionError(
            NAME_OPTION, f"option '{NAME_OPTION}': {path} has {what} '{name}'", hint=did_you_mean(name, found or types)
        )
    return factory.GetMessageClass(pool.FindMessageTypeByName(found[0]))


def _files(path: str) -> dict[str, Any]:
    """The descriptors of the file, and of those that it needs, by their names."""
    descriptors = CLIENT.module("google.protobuf.descriptor_pb2", _USER)
    message = CLIENT.module("google.protobuf.message", _USER)
    try:
        data = Path(path).read_bytes()
        if path.endswith(".py"):
            return _of_module(Path(path), data, descriptors)
        return {file.name: file for file in descriptors.FileDescriptorSet.FromString(data).file}
    except OSError as error:
        reason = error.strerror or error
        raise OptionError(FILE_OPTION, f"option '{FILE_OPTION}': {path} cannot be read: {reason}", hint=_HINT) from None
    except (message.DecodeError, SyntaxError, ValueError) as error:
        raise OptionError(
            FILE_OPTION, f"option '{FILE_OPTION}': {path} is no file that protoc wrote: {error}", hint=_HINT
        ) from None


def _of_module(path: Path, text: bytes, descriptors: Any) -> dict[str, Any]:
    first = descriptors.FileDescriptorProto.FromString(_serialized(path, text))
    root = path.parents[first.name.count("/")] if first.name.count("/") < len(path.parents) else path.parent
    files = {first.name: first}
    waiting = list(first.dependency)
    while waiting:
        name = waiting.pop()
        if name in files or name.startswith(_WELL_KNOWN):
            continue
        other = root / f"{name.removesuffix('.proto')}_pb2.py"
        files[name] = descriptors.FileDescriptorProto.FromString(_serialized(other, other.read_bytes()))
        waiting += files[name].dependency
    return files


def _serialized(path: Path, text: bytes) -> bytes:
    """The bytes that a generated module gives to `AddSerializedFile`."""
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "AddSerializedFile"
            and node.args
            and isinstance(node.args[0], ast.Constant)
            and isinstance(node.args[0].value, bytes)
        ):
            return node.args[0].value
    raise ValueError(f"{path.name} holds no descriptor")


def _add(file: Any, files: dict[str, Any], pool: Any, added: set[str]) -> None:
    """Add a file to the pool, behind those that it needs."""
    if file.name in added:
        return
    added.add(file.name)
    for name in file.dependency:
        if name in files:
            _add(files[name], files, pool, added)
        elif name.startswith(_WELL_KNOWN):
            module = CLIENT.module(name.removesuffix(".proto").replace("/", ".") + "_pb2", _USER)
            well_known = type(file).FromString(module.DESCRIPTOR.serialized_pb)
            _add(well_known, files, pool, added)
        else:
            raise KeyError(f"it needs {name}, which it does not hold")
    pool.Add(file)


def _types(messages: Any, prefix: str) -> Iterator[str]:
    for message in messages:
        name = f"{prefix}.{message.name}" if prefix else message.name
        yield name
        yield from _types(message.nested_type, name)
