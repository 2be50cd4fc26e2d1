"""White space around JSON records costs a pass over the bytes, however much of it there is."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from flowrun.api.format import lines_chunk
from flowrun.connectors.formats.json_decoder import _trim


@pytest.mark.parametrize(
    ("records", "kept"),
    [
        ([b"{}", b" {} ", b"\t{}\r"], [(0, b"{}"), (1, b"{}"), (2, b"{}")]),
        ([b"{}\r", b"\r", b"", b" \t ", b"{}"], [(0, b"{}"), (4, b"{}")]),
        ([b'   {"a": " x "}   ', b" "], [(0, b'{"a": " x "}')]),
        ([b" ", b"\r", b"\t"], []),
        ([], []),
    ],
)
def test_records_lose_white_space_around_them_and_blank_ones_go(
    records: list[bytes], kept: list[tuple[int, bytes]]
) -> None:
    trimmed, places = _trim(lines_chunk(records))
    assert [(int(p), trimmed.record(i)) for i, p in enumerate(places)] == kept


def test_a_line_of_spaces_takes_nanoseconds_a_byte() -> None:
    chunk = lines_chunk([b"{}", b" " * 20_000_000, b"{}" + b" " * 5_000_000])
    before = time.process_time()
    trimmed, places = _trim(chunk)
    assert time.process_time() - before < 5  # it took four minutes
    assert (list(places), trimmed.record(1)) == ([0, 2], b"{}")
    assert isinstance(chunk.data, pa.Buffer)
