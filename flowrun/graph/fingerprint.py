"""The fingerprint of a job graph: equal in all processes that compiled the same pipeline, whatever their hash seeds and addresses are."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from enum import Enum

from flowrun.errors import RefusedError
from flowrun.graph.job_graph import JobGraph, JobSettings, JobVertex

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_RANDOM_ID = re.compile(rb"[0-9a-f]{32}")
"""By which pickles of classes know a class again in one process."""
_DIGITS = 16
_SETTINGS = "settings"
_LEFT_OUT = frozenset({"search_path", "written_at"})
"""Fields that say where a process has its copy of the user's modules, and where operators stand in the user's text."""


def fingerprint(job_graph: JobGraph) -> str:
    """One line that names each vertex, and the settings, with the digits of what they are: `ID=…,ID=…,settings=…`."""
    parts = [f"{v.vertex_id}={_digits(v)}" for v in job_graph.vertices]
    return ",".join([*parts, f"{_SETTINGS}={_digits(job_graph.settings)}"])


def check_fingerprint(job_graph: JobGraph, expected: str) -> None:
    """Pass if the graph has this fingerprint.

    Raises:
        RefusedError: it has another one; names what differs.
    """
    found = fingerprint(job_graph)
    if found == expected:
        return
    wanted = dict(part.split("=", 1) for part in expected.split(",") if "=" in part)
    names = [f"'{v.name}'" for v in job_graph.vertices if wanted.get(v.vertex_id) != _digits(v)]
    if wanted.pop(_SETTINGS, None) != _digits(job_graph.settings):
        names.append("the settings")
    missing = len(wanted.keys() - {v.vertex_id for v in job_graph.vertices})
    if missing:
        names.append(f"{missing} that {'is' if missing == 1 else 'are'} not there")
    raise RefusedError(
        f"job '{job_graph.name}' is compiled otherwise in this process than by the job manager: {', '.join(names)}",
        hint="give all processes the same files, functions, variables and versions",
    )


def _digits(part: JobVertex | JobSettings) -> str:
    digest = hashlib.sha256()
    for text in _texts(part, ()):
        digest.update(text.encode("utf-8", "surrogatepass"))
        digest.update(b"\n")
    return digest.hexdigest()[:_DIGITS]


def _texts(value: object, above: tuple[int, ...]) -> Iterator[str]:
    """What a value is, piece by piece, without what differs between processes."""
    if id(value) in above:
        yield "…"
        return
    inside = (*above, id(value))
    if isinstance(value, Enum):
        yield str(value)
    elif is_dataclass(value) and not isinstance(value, type):
        yield f"{type(value).__qualname__}("
        for field in (f for f in fields(value) if f.name not in _LEFT_OUT):
            yield field.name
            yield from _texts(getattr(value, field.name, None), inside)
        yield ")"
    elif isinstance(value, Mapping):
        yield "{"
        for key in sorted(value, key=repr):
            yield from _texts(key, inside)
            yield from _texts(value[key], inside)
        yield "}"
    elif isinstance(value, Set):
        yield from sorted("".join(_texts(item, inside)) for item in value)
    elif isinstance(value, list | tuple):
        yield "["
        for item in value:
            yield from _texts(item, inside)
        yield "]"
    elif isinstance(value, bytes):  # code that goes by value
        yield repr(_RANDOM_ID.sub(b"", value))
    elif callable(value) and hasattr(value, "__qualname__"):
        yield f"{getattr(value, '__module__', '')}.{value.__qualname__}"
    else:
        yield _ADDRESS.sub("", repr(value))
