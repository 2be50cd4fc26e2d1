"""The compiled reader of JSON, built from these very sources, and comparisons with the parsers behind it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from flowrun.api.format import DecodedRecords, RecordChunk
from flowrun.connectors.formats import json_compiled
from flowrun.connectors.formats.json_decoder import JsonDecoder
from flowrun.connectors.formats.native.build import build, compiler
from flowrun.core.schema import Schema
from tests.servers.needed import give_up

from .test_odd_json import shown

_installed = json_compiled.library


def built() -> Iterator[None]:
    """Use the library of these sources meanwhile, whatever was built when flowrun was installed."""
    if shutil.which(compiler()[0]) is None:
        give_up("there is no C compiler")
    found = _library()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_compiled, "library", lambda: found)
        yield


@cache
def _library() -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "json_columns.so"
        build(path, flags=("-Werror",))
        return _installed(path)


def outcome(decoded: DecodedRecords) -> tuple[object, ...]:
    """(the values of the columns, the index of each row's record, the bad records)."""
    decoded.columns.validate(full=True)
    rows = [shown(c) for c in decoded.columns.columns]
    return rows, decoded.records.tolist(), [(b.index, b.reason) for b in decoded.bad]


def same(chunk: RecordChunk, schema: Schema, **options: bool) -> None:
    """Check that records become the same with and without the compiled reader."""
    with_it, without = (JsonDecoder(schema, compiled=compiled, **options) for compiled in (True, False))
    assert outcome(with_it.decode(chunk)) == outcome(without.decode(chunk))
