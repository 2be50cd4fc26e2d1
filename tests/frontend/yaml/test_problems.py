"""Every mistake a user can make in a document, with the very text that flowrun answers: `problems.txt` holds both.

A case is a document, then `---`, then all problems as they are shown. A document without sources or sinks gets the usual ones, below
it, so that places stay as they are. After a change of wording: `FLOWRUN_UPDATE_GOLDEN=1 pytest tests/frontend/yaml/test_problems.py`,
and read the difference.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from flowrun.errors import PipelineError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.pipeline import load_text
from flowrun.frontend.source_text import SourceText

FILE = Path(__file__).parent / "problems.txt"
UPDATE = os.environ.get("FLOWRUN_UPDATE_GOLDEN") == "1"
SOURCES = """
sources:
  orders:
    connector: datagen
    schema: {id: BIGINT, user: STRING, amount: "DECIMAL(10,2)", ts: TIMESTAMP(3)}
    watermark: {column: ts, delay: 5s}
"""
PROCESSES = """
from flowrun.api.broadcast_function import KeyedBroadcastProcessFunction, broadcast_state
from flowrun.api.co_process_function import KeyedCoProcessFunction
from flowrun.api.process_function import KeyedProcessFunction, ProcessFunction, value_state

class Limit(KeyedProcessFunction):
    seen = value_state("BIGINT")

    def __init__(self, limit):
        self.limit = limit

    def process_element(self, row, context):
        yield row

class Both(KeyedCoProcessFunction):
    def process_element1(self, row, context):
        yield row

    def process_element2(self, row, context):
        yield row

class Ruled(KeyedBroadcastProcessFunction):
    limits = broadcast_state("BIGINT", "STRING")

    def process_element(self, row, context):
        yield row

    def process_broadcast_element(self, row, context):
        self.limits.put(row["id"], row["user"])

class Pairs(Ruled):
    pairs = broadcast_state("BIGINT", "STRING")

class Half(KeyedCoProcessFunction):
    def process_element1(self, row, context):
        yield row

class Plain(ProcessFunction):
    def process_batch(self, batch, context):
        return batch

class Unfinished(KeyedProcessFunction):
    def process_rows(self, row, context):
        return row
"""
SINKS = """
sinks:
  out: {from: %s, connector: blackhole}
"""
ENVIRONMENT = {"TOKEN": "hunter2", "LIMIT": "1000000"}


def read_cases() -> dict[str, tuple[str, str]]:
    cases: dict[str, tuple[str, str]] = {}
    for block in re.split(r"^=== ", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        name, _, rest = block.partition("\n")
        document, _, expected = rest.partition("\n---\n")
        cases[name] = (document, expected.rstrip("\n"))
    return cases


CASES = read_cases()


def complete(document: str) -> str:
    if not re.search(r"^[a-z#]", document) or document.startswith("#"):
        return document
    text = document
    if not re.search(r"^sources:", document, re.MULTILINE):
        text += SOURCES
    if not re.search(r"^sinks:", document, re.MULTILINE):
        steps = re.search(r"^  s:", document, re.MULTILINE)
        first = re.search(r"^  ([a-z]+):", document.partition("sources:")[2], re.MULTILINE)
        text += SINKS % ("s" if steps else first[1] if first else "orders")
    return text


def problems_of(document: str, folder: Path) -> str:
    (folder / "fns.py").write_text(
        "LIMIT = 5\n\ndef clean(batch):\n    return batch\n\ndef pair(a, b):\n    return a\n"
    )
    (folder / "processes.py").write_text(PROCESSES)
    (folder / "broken.py").write_text("raise ValueError('no luck')\n")
    source = SourceText("p.yaml", complete(document))
    diagnostics = Diagnostics(source)
    try:
        found = load_text(source, folder, {}, {}, ENVIRONMENT, diagnostics).diagnostics
    except PipelineError as error:
        found = error.diagnostics
    return "\n".join(d.render() for d in found).replace(str(folder), "FOLDER")


@pytest.mark.parametrize("name", CASES)
def test_problems_are_answered_as_recorded(name: str, tmp_path: Path) -> None:
    document, expected = CASES[name]
    actual = problems_of(document, tmp_path)
    assert "hunter2" not in actual
    if UPDATE:
        CASES[name] = (document, actual)
        blocks = (f"=== {n}\n{d}\n---\n{e}\n" for n, (d, e) in CASES.items())
        FILE.write_text("\n".join(blocks), encoding="utf-8")
        return
    assert actual == expected
