"""Jobs with users' process functions say what state they keep when the code of the functions is gone."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from flowrun.graph.job_graph import JobGraph
from flowrun.operators.process.factories import CoProcessFunctionFactory, ProcessFunctionFactory
from flowrun.runners.compile import compile_file

CODE = """
import flowrun
from flowrun.api.co_process_function import KeyedCoProcessFunction
from flowrun.api.process_function import KeyedProcessFunction, map_state, value_state

@flowrun.ptf(result="n BIGINT")
class Kept(KeyedProcessFunction):
    seen = value_state("BIGINT", ttl="1h")
    words = map_state("STRING", "INT")
    def process_element(self, row, context): ...
    def on_timer(self, timestamp, context): ...

class Both(KeyedCoProcessFunction):
    rate = value_state("DOUBLE")
    def process_element1(self, row, context): ...
    def process_element2(self, row, context): ...
"""
TABLES = {
    "Kept": {
        "seen": ["__key_group", "k", "value", "__written"],
        "words": ["__key_group", "k", "map_key", "value"],
        "timers": ["__key_group", "k", "__timestamp", "__domain"],
    },
    "Both": {"rate": ["__key_group", "k", "value"]},
}
YAML = """
name: kept
sources:
  a: {connector: datagen, schema: {k: STRING, n: BIGINT}, number-of-rows: 1}
  b: {connector: datagen, schema: {k: STRING, n: BIGINT}, number-of-rows: 1}
steps:
  kept: {from: a, key_by: [k], process: their_code:Kept}
  both: {from: kept, connect: b, key_by: [k], process: their_code:Both}
sinks:
  out: {from: both, connector: blackhole}
"""
SQL = """
CREATE FUNCTION kept AS 'their_code.Kept' LANGUAGE PYTHON;
CREATE TABLE a (k STRING, n BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
SELECT * FROM kept(input => TABLE a PARTITION BY k);
"""
PROGRAM = """
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.datastream import StreamExecutionEnvironment
from their_code import Both, Kept

schema = Schema.of(k=STRING, n=BIGINT)
env = StreamExecutionEnvironment()
a = env.from_collection([{"k": "x", "n": 1}], schema)
b = env.from_collection([{"k": "x", "n": 1}], schema)
kept = a.key_by("k").process(Kept, schema)
kept.key_by("k").connect(b.key_by("k")).process(Both, schema).print()
env.execute()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "their_code.py").write_text(CODE)
    yield tmp_path
    sys.modules.pop("their_code", None)


def described(job: JobGraph) -> Mapping[str, Mapping[str, pa.Schema]]:
    """The tables of each function, by its name."""
    factories = [o.factory for v in job.vertices for o in v.operators]
    functions = [f for f in factories if isinstance(f, ProcessFunctionFactory | CoProcessFunctionFactory)]
    return {f.function.reference.rpartition(":")[2]: f.state_schemas() for f in functions}


@pytest.mark.parametrize(
    ("file", "text", "functions"),
    [
        ("kept.yaml", YAML, ["Kept", "Both"]),
        ("kept.sql", SQL, ["Kept"]),
        ("kept.py", PROGRAM, ["Kept", "Both"]),
    ],
)
def test_state_is_described_without_the_code(folder: Path, file: str, text: str, functions: list[str]) -> None:
    (folder / file).write_text(text)
    sent = pickle.dumps(compile_file(folder / file, {}, {}).job_graph)
    (folder / "their_code.py").unlink()
    sys.modules.pop("their_code", None)
    tables = described(pickle.loads(sent))
    assert {name: {t: s.names for t, s in found.items()} for name, found in tables.items()} == {
        name: TABLES[name] for name in functions
    }
    assert "their_code" not in sys.modules
