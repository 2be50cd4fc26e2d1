"""`_metadata.json` as text: its first lines say the format and a checksum of all that follows.

The checksum is a SHA-256 over the format version and the rest of the text, so that a cut, a flipped bit and an edit are all noticed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from flowrun.errors import StateError
from flowrun.state.checkpoints import FORMAT_VERSION
from flowrun.state.storage.metadata_shape import check_shape
from flowrun.state.storage.names import METADATA_FILE, VIEWS_FILE
from flowrun.state.storage.signing import check_signature, signature, state_key
from flowrun.state.storage.state_path import StatePath

Document = dict[str, Any]
"""JSON as Python reads it; `flowrun.state.storage.metadata_json` knows what is in it."""

_HEAD = re.compile(rb'\{\n  "format_version": (\d+),\n  "checksum": "sha256:([0-9a-f]{64})",\n')
_SIGNATURE = re.compile(rb'  "signature": "hmac-sha256:([0-9a-f]{64})",\n')
_WIDTH = 120


def rendered(document: Mapping[str, Any]) -> bytes:
    """The text of a document: indented, lists of numbers on one line, with format version, checksum and, with a key, signature first."""
    body = _render(dict(document), "").removeprefix("{\n").encode()
    key = state_key()
    if key is not None:
        body = f'  "signature": "hmac-sha256:{signature(key, _signed(FORMAT_VERSION, body))}",\n'.encode() + body
    digest = _digest(FORMAT_VERSION, body)
    return f'{{\n  "format_version": {FORMAT_VERSION},\n  "checksum": "sha256:{digest}",\n'.encode() + body


def document_at(folder: StatePath) -> Document:
    """The document in a checkpoint's folder, checked.

    Raises:
        StateError: it is missing, no flowrun metadata, truncated, altered, of another shape, or of a format that this flowrun
            cannot read.
    """
    location = folder / METADATA_FILE
    content = location.read_bytes()
    if content is None:
        raise StateError(
            f"'{folder}' is no complete checkpoint: it has no {METADATA_FILE}",
            hint="name a savepoint, a chk-N folder with metadata, or the folder that checkpoints are in",
        )
    head = _HEAD.match(content)
    version = int(head[1]) if head is not None else _version_of(content)
    if version is None:
        raise StateError(f"'{location}' is truncated or altered, or no metadata of a flowrun checkpoint")
    if version > FORMAT_VERSION:
        raise StateError(
            f"'{location}' is written in format {version}, this flowrun reads up to {FORMAT_VERSION}",
            hint="upgrade flowrun",
        )
    if version < FORMAT_VERSION:
        raise StateError(
            f"'{location}' is written in format {version}, which no flowrun ever wrote; this one reads {FORMAT_VERSION}"
        )
    if head is None or _digest(version, content[head.end() :]) != head[2].decode():
        raise StateError(f"'{location}' is truncated or altered: its checksum is wrong")
    _check_signature(location, version, content[head.end() :])
    try:
        document: Document = json.loads(content)
        document.pop("signature", None)
        check_shape(document)
    except (ValueError, RecursionError) as error:
        raise StateError(f"'{location}' is no metadata of format {version}: {error}") from None
    return document


def _check_signature(location: StatePath, version: int, body: bytes) -> None:
    """Raise StateError if this process has a key, and the text behind the checksum is not signed by it."""
    key = state_key()
    if key is None:
        return
    found = _SIGNATURE.match(body)
    signed = _signed(version, body if found is None else body[found.end() :])
    check_signature(key, signed, None if found is None else found[1].decode(), f"'{location}'")


def _signed(version: int, body: bytes) -> bytes:
    return f"format_version={version}\n".encode() + body


def named_paths(document: Document, folder: str) -> frozenset[str]:
    """All paths that a checkpoint needs, its own metadata included. `folder` is its own, relative; empty for savepoints."""
    own = f"{folder}/" if folder else ""
    return frozenset({own + METADATA_FILE, own + VIEWS_FILE, *_paths(document)})


def _paths(node: Any) -> Iterator[str]:
    """Paths of all files in a document: whatever has a path and a checksum is a file."""
    if isinstance(node, dict):
        if isinstance(node.get("path"), str) and "checksum" in node:
            yield node["path"]
        for key, value in node.items():
            if key not in _FREE:
                yield from _paths(value)
    elif isinstance(node, list):
        for value in node:
            yield from _paths(value)


_FREE = frozenset({"job_graph", "pipeline", "enumerator", "hooks"})
"""Members that hold what users or connectors put there."""


def _version_of(content: bytes) -> int | None:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    version = document.get("format_version") if isinstance(document, dict) else None
    return version if isinstance(version, int) and not isinstance(version, bool) else None


def _digest(version: int, body: bytes) -> str:
    return hashlib.sha256(_signed(version, body)).hexdigest()


def _render(node: Any, indent: str) -> str:
    compact = json.dumps(node, ensure_ascii=False)
    inside = indent + "  "
    if isinstance(node, dict) and node and (indent == "" or len(compact) > _WIDTH - len(indent)):
        members = [f"{inside}{json.dumps(k, ensure_ascii=False)}: {_render(v, inside)}" for k, v in node.items()]
        return "{\n" + ",\n".join(members) + f"\n{indent}}}"
    if isinstance(node, list) and len(compact) > _WIDTH - len(indent) and any(isinstance(v, dict | list) for v in node):
        return "[\n" + ",\n".join(inside + _render(v, inside) for v in node) + f"\n{indent}]"
    return compact
