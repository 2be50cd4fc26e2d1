"""Hybrid tables over files, and what is written to them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from flowrun.connectors.hybrid.source import HybridSource
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, timestamp
from flowrun.plan.expressions import ColumnRef
from flowrun.plan.nodes import TableReference
from flowrun.plan.tables import create_source

SCHEMA = Schema.of(id=BIGINT, ts=timestamp(3))
BEGIN_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z, from which seconds are counted."""
TIME = ColumnRef(SCHEMA.types[1], 1, "ts")


def stamp(second: int) -> str:
    """A time as JSON and SQL have it: so many seconds after the first of January."""
    minute, second = divmod(second, 60)
    hour, minute = divmod(minute, 60)
    return f"2026-01-01 {hour:02}:{minute:02}:{second:02}"


def write_rows(path: Path, seconds: Iterable[int]) -> None:
    """A JSON file with a row for each of these seconds, which is also its id."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"id": s, "ts": stamp(s)}) + "\n" for s in seconds))


def files(name: str, path: Path, **options: str) -> dict[str, str]:
    """The options of a source of JSON files."""
    return {
        f"{name}.{k}": v for k, v in {"connector": "filesystem", "path": str(path), "format": "json", **options}.items()
    }


def reference(names: str, *options: Mapping[str, str], timed: bool = True, **more: str) -> TableReference:
    """The table of these sources."""
    given: dict[str, Any] = {"source-identifiers": names, **{k.replace("_", "-"): v for k, v in more.items()}}
    for one in options:
        given |= one
    return TableReference("rows_in", "hybrid", given, event_time=TIME if timed else None)


def source(table: TableReference, schema: Schema = SCHEMA) -> HybridSource:
    """Its source, which reads the columns of `schema`."""
    made = create_source(table, schema, SCHEMA)
    assert isinstance(made, HybridSource)
    return made
