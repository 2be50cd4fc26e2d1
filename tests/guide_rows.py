"""The rows that examples of the documentation give, recorded beside the tests.

`FLOWRUN_UPDATE_GOLDEN=1 pytest tests/test_sql_guide.py tests/test_guide_joins.py` records them anew; read the difference.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FIRST = 3
_CHANGE = re.compile(r"(?:(?P<sink>[\w.]+)> )?(?P<kind>[+-][IUD])\[(?P<row>.*)\]")


def printed_rows(lines: Iterable[str]) -> Counter[str]:
    """What printed changes add up to; lines that are no changes count as themselves."""
    rows: Counter[str] = Counter()
    for line in lines:
        change = _CHANGE.fullmatch(line.rstrip())
        if change is None:
            rows[line.rstrip()] += 1
        else:
            rows[change["row"]] += 1 if change["kind"] in ("+I", "+U") else -1
    return rows


def file_rows(folder: Path) -> Counter[str]:
    """What files of lines add up to: JSON records, changes in JSON, or text."""
    rows: Counter[str] = Counter()
    for file in sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith((".", "_"))):
        place = file.parent.relative_to(folder).as_posix()
        for line in file.read_text(encoding="utf-8").splitlines():
            record = json.loads(line) if line.startswith("{") else line
            if isinstance(record, dict) and {"op", "before", "after"} <= record.keys():
                for row, weight in ((record["before"], -1), (record["after"], 1)):
                    if row is not None:
                        rows[f"{place}: {json.dumps(row)}"] += weight
            else:
                rows[f"{place}: {line}"] += 1
    return rows


def summary(rows: Counter[str]) -> dict[str, Any]:
    """How many rows there are, the first of them in order, and a digest of all."""
    assert not [row for row, count in rows.items() if count < 0], "a row was taken back that was not there"
    listed = sorted(rows.elements())
    digest = hashlib.sha256("\n".join(listed).encode()).hexdigest()[:16]
    return {"rows": len(listed), "first": listed[:FIRST], "digest": digest}


def check_recorded(page: str, example: str, rows: Counter[str]) -> None:
    """Compare with what was recorded for an example of a page, or record it."""
    recorded = Path(__file__).parent / "goldens" / f"{page}.json"
    known: dict[str, Any] = json.loads(recorded.read_text(encoding="utf-8")) if recorded.exists() else {}
    found = summary(rows)
    assert found["rows"], "it gives something"
    if os.environ.get("FLOWRUN_UPDATE_GOLDEN") == "1":
        known[example] = found
        recorded.parent.mkdir(exist_ok=True)
        recorded.write_text(
            json.dumps(dict(sorted(known.items())), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    assert known.get(example) == found, sorted(rows.elements())[:50]
