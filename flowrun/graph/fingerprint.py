"""The fingerprint of a job graph: equal in all processes that compiled the same pipeline, whatever their hash seeds and addresses are."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache

from flowrun.errors import RefusedError
from flowrun.graph.job_graph import JobGraph, JobSettings, JobVertex

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_RANDOM_ID = re.compile(rb"[0-9a-f]{32}")
"""By which pickles of classes know a class again in one process."""
_DIGITS = 16
_SETTINGS = "settings"
_LEFT_OUT = frozenset({"search_path", "written_at"})
"""Fields that say where a process has its copy of the user's modules, and where operators stand in the user's text."""
_PLAIN = frozenset({str, int, bool, float, type(None)})
"""Types whose values are what `repr` says, and have none inside."""


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
    texts: list[str] = []
    _add_texts(part, texts, set())
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass"))
        digest.update(b"\n")
    return digest.hexdigest()[:_DIGITS]


def _add_texts(value: object, texts: list[str], above: set[int]) -> None:
    """Add what a value is, piece by piece, without what differs between processes.

    Args:
        value: any value of a job graph.
        texts: where its pieces go.
        above: `id` of each value that this one is inside of.
    """
    kind: type = type(value)
    if kind in _PLAIN:  # before everything else: most values are
        texts.append(_without_address(repr(value)))
        return
    if id(value) in above:
        texts.append("…")
        return
    above.add(id(value))
    if isinstance(value, Enum):
        texts.append(str(value))
    elif (names := _field_names(kind)) is not None:
        texts.append(f"{kind.__qualname__}(")
        for name in names:
            texts.append(name)
            _add_texts(getattr(value, name, None), texts, above)
        texts.append(")")
    elif isinstance(value, Mapping):
        texts.append("{")
        for key in sorted(value, key=repr):
            _add_texts(key, texts, above)
            _add_texts(value[key], texts, above)
        texts.append("}")
    elif isinstance(value, Set):
        texts.extend(sorted(_joined(item, above) for item in value))
    elif isinstance(value, list | tuple):
        texts.append("[")
        for item in value:
            _add_texts(item, texts, above)
        texts.append("]")
    elif isinstance(value, bytes):  # code that goes by value
        texts.append(repr(_RANDOM_ID.sub(b"", value)))
    elif callable(value) and hasattr(value, "__qualname__"):
        texts.append(f"{getattr(value, '__module__', '')}.{value.__qualname__}")
    else:
        texts.append(_without_address(repr(value)))
    above.discard(id(value))


def _joined(value: object, above: set[int]) -> str:
    texts: list[str] = []
    _add_texts(value, texts, above)
    return "".join(texts)


def _without_address(text: str) -> str:
    return _ADDRESS.sub("", text) if " at 0x" in text else text


@cache
def _field_names(kind: type) -> tuple[str, ...] | None:
    """Of a dataclass, without those that differ between processes; None: it is none."""
    if not is_dataclass(kind):
        return None
    return tuple(field.name for field in fields(kind) if field.name not in _LEFT_OUT)
