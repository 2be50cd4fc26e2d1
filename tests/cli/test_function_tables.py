"""`flowrun test`: tables that stand for Python functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Tell

pytestmark = pytest.mark.exhaustive  # each makes a pipeline of its own and runs it in several ways

HEAD = "pipeline: p.sql\ntests:\n"
HIDDEN = """
def double(x: int) -> int:
    raise RuntimeError("not in a test")
"""


SCORED = """
CREATE FUNCTION twice AS 'hidden.double' LANGUAGE PYTHON;
CREATE TABLE orders (id BIGINT, amount DECIMAL(10, 2)) WITH ('connector' = 'datagen');
CREATE TABLE result (id BIGINT, twice BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO result SELECT id, twice(id) FROM orders;
"""
CALLS = (
    HEAD
    + """
  - name: calls
    replace:
      functions:
        hidden:double:
          - {n: 1, result: 70}
          - {n: null, result: 0}
          - {n: 2}
    given: {orders: [{id: 1}, {id: 2}, {}]}
    expect: {result: [{id: 1, twice: 70}, {id: 2}, {twice: 0}]}
"""
)


def test_a_table_stands_for_a_function(tell: Tell, tmp_path: Path) -> None:
    """Its calls are all that there is: another one fails the test, with the place of the table."""
    (tmp_path / "hidden.py").write_text(HIDDEN)
    result = tell(CALLS, SCORED)
    assert result.code == 0, result.output
    assert "1 test passed" in result.output
    unknown = tell(CALLS.replace("{id: 2}, {}]", "{id: 3}, {}]"), SCORED)
    assert unknown.code == 1
    said = "the table that stands for function 'hidden:double' has no row for the call (n: 3)"
    assert f"p.test.yaml:8:11: error: {said}" in unknown.output
    as_text = CALLS.replace(
        """
          - {n: 1, result: 70}
          - {n: null, result: 0}
          - {n: 2}
""",
        """ |
          n, result
          1, 70
          ,  0
          2,
""",
    )
    assert tell(as_text, SCORED).code == 0
    expected = CALLS.replace("{id: 2}, {}]", "{id: 3}, {}]").replace(
        "expect: {result: [{id: 1, twice: 70}, {id: 2}, {twice: 0}]}", "error: has no row for the call"
    )
    assert tell(expected, SCORED).code == 0


MAPPED = """
sources:
  orders: {connector: filesystem, path: in/, format: json, schema: {id: BIGINT, amount: DOUBLE}}
steps:
  priced: {from: orders, map: {function: "hidden:fee", schema: {id: BIGINT, fee: DOUBLE}}}
sinks:
  out: {from: priced, connector: blackhole}
"""


def test_a_table_stands_for_a_function_of_map(tell: Tell, tmp_path: Path) -> None:
    (tmp_path / "hidden.py").write_text("def fee(rows):\n    raise RuntimeError('not in a test')\n")
    story = """
pipeline: p.yaml
tests:
  - name: fees
    replace:
      functions:
        hidden:fee:
          - {row: {amount: 5}, result: {id: 9, fee: 0.5}}
          - {row: {amount: 6}, result: {id: 8}}
          - {row: {amount: NaN}, result: {id: 7}}
    given: {orders: [{id: 1, amount: 6}, {id: 2, amount: 5}, {id: 3, amount: 5}, {id: 4, amount: NaN}]}
    expect: {out: [{id: 8, fee: null}, {id: 9, fee: 0.5}, {id: 9, fee: 0.5}, {id: 7}]}
"""
    result = tell(story, MAPPED, "p.yaml")
    assert result.code == 0, result.output
    unknown = tell(story.replace("{row: {amount: 6}", "{row: {amount: 7}"), MAPPED, "p.yaml")
    assert unknown.code == 1
    assert "has no row for the call (amount: 6.0)" in unknown.output


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[{a: 1, b: 2, result: 3}]", "has 2 columns beside 'result', but it is called with 1 argument"),
        ("[{a: 1, b: 2}]", "has 2 columns beside 'result'"),
        ("[{n: x, result: 3}]", "column 'n' of the table that stands for function 'hidden:double' is BIGINT"),
        ("[{n: 1, result: 3}, {n: 1, result: 4}]", "has two rows for the call (n: 1)"),
        ("nonsense", "'nonsense' is no function: it is written module:function"),
        ("{n: 1}", "rows are expected, got a mapping"),
    ],
)
def test_tables_of_calls_that_are_wrong(tell: Tell, tmp_path: Path, table: str, said: str) -> None:
    (tmp_path / "hidden.py").write_text(HIDDEN)
    story = f"""{HEAD}
  - name: calls
    replace: {{functions: {{"hidden:double": {table}}}}}
    given: {{orders: [{{id: 1}}]}}
    expect: {{result: []}}
"""
    result = tell(story, SCORED)
    assert result.code == 2, result.output
    assert said in result.output
    assert result.output.count("error:") == 1


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            "[{row: {amont: 5}, result: {fee: 1}}]",
            "the rows that function 'hidden:fee' is given have no column 'amont'",
        ),
        ("[{amount: 5, result: {fee: 1}}]", "the columns of its table are 'row' and 'result'"),
        ("[{row: {amount: 5}, result: {fees: 1}}]", "it has no field 'fees'"),
        ("[{row: {amount: 5}, result: {fee: x}}]", "cannot cast 'x' to DOUBLE"),
        ("[]", "the columns of its table are 'row' and 'result'"),
    ],
)
def test_tables_for_functions_of_map_that_are_wrong(tell: Tell, tmp_path: Path, table: str, said: str) -> None:
    (tmp_path / "hidden.py").write_text("def fee(rows):\n    return rows\n")
    story = f"""
pipeline: p.yaml
tests:
  - name: fees
    replace: {{functions: {{"hidden:fee": {table}}}}}
    given: {{orders: [{{id: 1, amount: 5}}]}}
    expect: {{out: []}}
"""
    result = tell(story, MAPPED, "p.yaml")
    assert result.code == 2, result.output
    assert said in result.output
    assert result.output.count("error:") == 1


AVERAGED = """
CREATE FUNCTION mean AS 'hidden.Mean' LANGUAGE PYTHON;
CREATE TABLE sales (k INT, v DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen');
CREATE TABLE grouped (k INT, m DOUBLE) WITH ('connector' = 'blackhole');
CREATE TABLE minutes (w TIMESTAMP(3), m DOUBLE) WITH ('connector' = 'blackhole');
CREATE TABLE running (v DOUBLE, m DOUBLE) WITH ('connector' = 'blackhole');
INSERT INTO grouped SELECT k, mean(v) FROM sales GROUP BY k;
INSERT INTO minutes
  SELECT window_start, mean(v) FROM TUMBLE(TABLE sales, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end;
INSERT INTO running SELECT v, mean(v) OVER (ORDER BY ts) FROM sales;
"""
MEAN = """
class Mean:
    def create_accumulator(self) -> list[float]:
        {create}

    def accumulate(self, values: list[float], value: float) -> None:
        values.append(value)

    def get_value(self, values: list[float]) -> float | None:
        return {value}
"""


AVERAGES = """
pipeline: p.sql
tests:
  - name: means
    replace: {functions: {"hidden:Mean": "fakes:Mean"}}
    given:
      sales:
        - {k: 1, v: 1, ts: 2024-03-01T10:00:00}
        - {k: 2, v: 5, ts: 2024-03-01T10:00:30}
        - {k: 1, v: 3, ts: 2024-03-01T10:01:00}
    expect:
      grouped: {key: [k], rows: [{k: 1, m: 200}, {k: 2, m: 100}]}
      minutes: [{w: 2024-03-01T10:00:00, m: 200}, {w: 2024-03-01T10:01:00, m: 100}]
      running: [{v: 1, m: 100}, {v: 5, m: 200}, {v: 3, m: 300}]
"""
VALUES = """[
          {value: [1], result: 100}, {value: [5], result: 100}, {value: [3], result: 100},
          {value: [3, 1], result: 200}, {value: [1, 5], result: 200}, {value: [5, 1, 3], result: 300}]"""


@pytest.fixture
def hidden_mean(tmp_path: Path) -> None:
    (tmp_path / "hidden.py").write_text(MEAN.format(create="raise RuntimeError('not in a test')", value="0.0"))


@pytest.mark.usefixtures("hidden_mean")
def test_another_aggregate_stands_for_one(tell: Tell, tmp_path: Path) -> None:
    (tmp_path / "fakes.py").write_text(MEAN.format(create="return []", value="100.0 * len(values)"))
    result = tell(AVERAGES, AVERAGED, "p.sql")
    assert result.code == 0, result.output


@pytest.mark.usefixtures("hidden_mean")
def test_a_table_stands_for_an_aggregate(tell: Tell) -> None:
    story = AVERAGES.replace('"fakes:Mean"', VALUES)
    result = tell(story, AVERAGED, "p.sql")
    assert result.code == 0, result.output
    unknown = tell(story.replace("value: [1, 5]", "value: [1, 6]"), AVERAGED, "p.sql")
    assert unknown.code == 1
    assert (
        "the table that stands for function 'hidden:Mean' has no row for the call (value: [1.0, 5.0])" in unknown.output
    )


@pytest.mark.usefixtures("hidden_mean")
@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[{a: [1], b: [2], result: 3}]", "has 2 columns beside 'result', but it is called with 1 argument"),
        ("[{a: 1, result: 3}]", "is ARRAY<DOUBLE>: a list is expected"),
        ("[{a: null, result: 3}]", "has a row with lists of different lengths: (a: NULL)"),
        ("[{a: [1, 2], result: 3}, {a: [2, 1], result: 4}]", "has two rows for the call (a: [2.0, 1.0])"),
    ],
)
def test_tables_for_aggregates_that_are_wrong(tell: Tell, table: str, said: str) -> None:
    result = tell(AVERAGES.replace('"fakes:Mean"', table), AVERAGED, "p.sql")
    assert result.code == 2, result.output
    assert said in result.output


WORDS = """
CREATE FUNCTION words AS 'hidden.words' LANGUAGE PYTHON;
CREATE TABLE texts (id BIGINT, content STRING) WITH ('connector' = 'datagen');
CREATE TABLE counted (id BIGINT, word STRING, n BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO counted SELECT id, word, n FROM texts LEFT JOIN LATERAL TABLE(words(content)) ON TRUE;
"""


HIDDEN_WORDS = """
from collections.abc import Iterator
from typing import NamedTuple

class Word(NamedTuple):
    word: str
    n: int

def words(content: str) -> Iterator[Word]:
    raise RuntimeError("not in a test")
"""


def test_a_table_stands_for_a_table_function(tell: Tell, tmp_path: Path) -> None:
    (tmp_path / "hidden.py").write_text(HIDDEN_WORDS)
    story = """
pipeline: p.sql
tests:
  - name: words
    replace:
      functions:
        hidden:words:
          - {content: a b, result: [{word: a, n: 1}, {word: b}]}
          - {content: null, result: null}
          - {content: "", result: []}
    given: {texts: [{id: 1, content: a b}, {id: 2, content: null}, {id: 3, content: ""}]}
    expect:
      counted: [{id: 1, word: a, n: 1}, {id: 1, word: b, n: null}, {id: 2, word: null}, {id: 3, word: null, n: null}]
"""
    result = tell(story, WORDS, "p.sql")
    assert result.code == 0, result.output
    unknown = tell(story.replace("- {content: null, result: null}", ""), WORDS, "p.sql")
    assert unknown.code == 1
    assert "the table that stands for function 'hidden:words' has no row for the call (content: NULL)" in unknown.output
    wrong = tell(story.replace("{word: b}", "{wort: b}"), WORDS, "p.sql")
    assert wrong.code == 2
    assert "it has no field 'wort'" in wrong.output


FEES = """
def fees(rows):
    raise RuntimeError("not in a test")
"""
SPREAD = """
sources:
  orders: {connector: filesystem, path: in/, format: json, schema: {id: BIGINT, amount: DOUBLE, ts: TIMESTAMP(3)}, watermark: {column: ts}}
steps:
  fees: {from: orders, flat_map: {function: "hidden:fees", schema: {fee: DOUBLE, ts: TIMESTAMP(3)}}}
  minutes: {from: fees, window: {type: tumbling, size: 1min}, aggregate: [SUM(fee) AS fees]}
sinks:
  out: {from: minutes, connector: blackhole}
"""


def test_a_table_stands_for_a_function_of_flat_map(tell: Tell, tmp_path: Path) -> None:
    """Its rows have the event time of the row that they come from."""
    (tmp_path / "hidden.py").write_text(FEES)
    story = """
pipeline: p.yaml
tests:
  - name: fees
    replace:
      functions:
        hidden:fees:
          - {row: {id: 1}, result: [{fee: 0.5}, {fee: 0.25}]}
          - {row: {id: 2}, result: {fee: 1}}
          - {row: {id: 3}, result: []}
          - {row: {id: 4}, result: null}
    given:
      orders:
        - {id: 1, ts: 2024-03-01T10:00:00}
        - {id: 3, ts: 2024-03-01T10:00:30}
        - {id: 2, ts: 2024-03-01T10:01:00}
        - {id: 4, ts: 2024-03-01T10:02:00}
        - {id: 1, ts: 2024-03-01T10:03:00}
    expect:
      out:
        - {window_start: 2024-03-01T10:00, fees: 0.75}
        - {window_start: 2024-03-01T10:01, fees: 1}
        - {window_start: 2024-03-01T10:03, fees: 0.75}
"""
    result = tell(story, SPREAD, "p.yaml")
    assert result.code == 0, result.output
    unknown = tell(story.replace("{row: {id: 3}, result: []}", "{row: {id: 5}, result: []}"), SPREAD, "p.yaml")
    assert unknown.code == 1
    said = "the table that stands for function 'hidden:fees' has no row for the call (id: 3)"
    assert f"p.test.yaml:8:11: error: {said}" in unknown.output


COUNTED = """
sources:
  clicks: {connector: kafka, topic: c, properties.bootstrap.servers: "nowhere:1", scan.startup.mode: earliest-offset, format: json,
    schema: {user: STRING, page: STRING}}
steps:
  counted:
    from: clicks
    key_by: [user]
    process:
      function: hidden:Counted
      with: {least: 3}
      schema: {user: STRING, n: BIGINT}
      side_outputs: {odd: {page: STRING}}
  aside: {from: odd}
sinks:
  out: {from: counted, connector: blackhole}
  odd_pages: {from: aside, connector: blackhole}
"""
COUNTING = """
from flowrun.api.process_function import KeyedProcessFunction, value_state

class Counted(KeyedProcessFunction):
    seen = value_state("BIGINT")

    def __init__(self, least):
        self.least = least

    def open(self, context):
        raise RuntimeError("not in a test")

    def process_element(self, row, context):
        pass
"""
CLICKS = """
    steps:
      - clicks: [{user: a, page: x}, {user: b, page: x}]
      - clicks: [{user: a, page: y}, {user: a, page: z}]
      - clicks: [{user: b, page: z}]
"""


def test_a_table_stands_for_a_process_function(tell: Tell, tmp_path: Path) -> None:
    """What it says of a row does not depend on others, and side outputs have columns of their own."""
    (tmp_path / "hidden.py").write_text(COUNTING)
    story = f"""
pipeline: p.yaml
tests:
  - name: clicks
    replace:
      functions:
        hidden:Counted:
          - {{row: {{page: x}}, result: [{{user: u, n: 1}}, {{user: u, n: 2}}], odd: {{page: first}}}}
          - {{row: {{page: y}}, result: [], odd: [{{page: y1}}, {{page: y2}}]}}
          - {{row: {{page: z}}, result: {{user: v}}}}
{CLICKS}
    expect:
      out: [{{user: u, n: 1}}, {{user: u, n: 2}}, {{user: u, n: 1}}, {{user: u, n: 2}}, {{user: v, n: null}}, {{user: v, n: null}}]
      odd_pages: [{{page: first}}, {{page: first}}, {{page: y1}}, {{page: y2}}]
"""
    result = tell(story, COUNTED, "p.yaml")
    assert result.code == 0, result.output


def test_a_table_may_go_by_all_rows_of_a_key_so_far(tell: Tell, tmp_path: Path) -> None:
    """They are kept as the function's state would be: the test also runs killed and restored, at another parallelism and row by row."""
    (tmp_path / "hidden.py").write_text(COUNTING)
    story = f"""
pipeline: p.yaml
tests:
  - name: clicks
    replace:
      functions:
        hidden:Counted:
          - {{rows: [{{page: x}}], result: []}}
          - {{rows: [{{page: x}}, {{page: y}}], result: {{user: a, n: 2}}}}
          - {{rows: [{{page: x}}, {{page: z}}], result: {{user: b, n: 2}}, odd: {{page: z}}}}
          - {{rows: [{{page: x}}, {{page: y}}, {{page: z}}], result: {{user: a, n: 3}}}}
{CLICKS}
    expect:
      out: [{{user: a, n: 2}}, {{user: a, n: 3}}, {{user: b, n: 2}}]
      odd_pages: [{{page: z}}]
"""
    result = tell(story, COUNTED, "p.yaml", "-v")
    assert result.code == 0, result.output
    assert "4 runs" in result.output
    unknown = tell(story.replace("[{page: x}, {page: z}]", "[{page: z}, {page: x}]"), COUNTED, "p.yaml")
    assert unknown.code == 1
    assert "has no row for the call (rows: [{page: x}, {page: z}])" in unknown.output


def test_another_class_with_another_state_stands_for_a_process_function(tell: Tell, tmp_path: Path) -> None:
    (tmp_path / "hidden.py").write_text(COUNTING)
    (tmp_path / "fakes.py").write_text(
        """
from flowrun.api.process_function import KeyedProcessFunction, list_state

class Listed(KeyedProcessFunction):
    pages = list_state("STRING")

    def __init__(self, least):
        self.least = least

    def process_element(self, row, context):
        self.pages.add(row["page"])
        if len(self.pages.get()) >= self.least:
            yield {"user": row["user"], "n": len(self.pages.get())}
"""
    )
    story = f"""
pipeline: p.yaml
tests:
  - name: clicks
    replace: {{functions: {{"hidden:Counted": "fakes:Listed"}}}}
{CLICKS}
    expect: {{out: [{{user: a, n: 3}}]}}
"""
    result = tell(story, COUNTED, "p.yaml")
    assert result.code == 0, result.output


WINDOWED = """
sources:
  prices: {connector: filesystem, path: in/, format: json, schema: {item: STRING, price: INT, ts: TIMESTAMP(3)}, watermark: {column: ts}}
steps:
  spread:
    from: prices
    key_by: [item]
    window: {type: sliding, size: 2min, slide: 1min}
    process: {function: "hidden:Spread", schema: {item: STRING, spread: INT}, side_outputs: {rising: {item: STRING}}}
  up: {from: rising}
sinks:
  out: {from: spread, connector: blackhole}
  rises: {from: up, connector: blackhole}
"""
SPREADING = """
from flowrun.api.window_function import ProcessWindowFunction

class Spread(ProcessWindowFunction):
    def process(self, key, context, rows):
        raise RuntimeError("not in a test")
"""


def test_a_table_stands_for_a_window_function(tell: Tell, tmp_path: Path) -> None:
    """It goes by the rows of the window, in any order, and by its bounds if it names them."""
    (tmp_path / "hidden.py").write_text(SPREADING)
    story = """
pipeline: p.yaml
tests:
  - name: prices
    replace:
      functions:
        hidden:Spread:
          - {rows: [{price: 7}, {price: 5}], result: {item: a, spread: 2}, rising: {item: a}}
          - {rows: {price: 5}, result: [{item: a, spread: 0}]}
          - {rows: {price: 7}, result: []}
          - {rows: {price: 9}}
    given:
      prices:
        - {item: a, price: 5, ts: 2024-03-01T10:00:10}
        - {item: b, price: 9, ts: 2024-03-01T10:00:10}
        - {item: a, price: 7, ts: 2024-03-01T10:01:10}
    expect:
      out: [{item: a, spread: 0}, {item: a, spread: 2}]
      rises: [{item: a}]
"""
    result = tell(story, WINDOWED, "p.yaml")
    assert result.code == 0, result.output
    bounded = story.replace(
        "- {rows: {price: 7}, result: []}",
        """- {rows: {price: 7}, window_start: 2024-03-01T10:01, result: {item: c, spread: 1}}
          - {rows: {price: 7}, window_start: 2024-03-01T10:02, result: {item: d, spread: 1}}""",
    )
    unbounded = tell(bounded, WINDOWED, "p.yaml")
    assert unbounded.code == 1
    assert "has no row for the call (rows: [{price: 5}], window_start: 2024-03-01 09:59:00)" in unbounded.output, (
        unbounded.output
    )


def test_a_window_is_told_by_its_bounds(tell: Tell, tmp_path: Path) -> None:
    (tmp_path / "hidden.py").write_text(SPREADING)
    story = """
pipeline: p.yaml
tests:
  - name: prices
    replace:
      functions:
        hidden:Spread:
          - {rows: [{item: a}], window_start: 2024-03-01T09:59, window_end: 2024-03-01T10:01, result: {spread: 1}}
          - {rows: [{item: a}], window_start: 2024-03-01T10:00, window_end: 2024-03-01T10:02, result: {spread: 2}}
    given: {prices: [{item: a, ts: 2024-03-01T10:00:10}]}
    expect: {out: [{spread: 1}, {spread: 2}]}
"""
    result = tell(story, WINDOWED, "p.yaml")
    assert result.code == 0, result.output


CONNECTED = """
settings: {parallelism: 2}
sources:
  orders: {connector: kafka, topic: o, properties.bootstrap.servers: "nowhere:1", scan.startup.mode: earliest-offset, format: json,
    schema: {id: BIGINT, user: STRING}}
  users: {connector: kafka, topic: u, properties.bootstrap.servers: "nowhere:1", scan.startup.mode: earliest-offset, format: json,
    schema: {name: STRING, city: STRING}}
steps:
  enriched:
    from: orders
    KEYS
    process: {function: "hidden:Function", schema: {id: BIGINT, city: STRING}}
sinks:
  out: {from: enriched, connector: blackhole}
"""
CONNECTIONS = {
    "KeyedCoProcessFunction": (
        "key_by: [user]\n    connect: {with: users, key_by: [name]}",
        "process_element1",
        "process_element2",
    ),
    "CoProcessFunction": ("connect: {with: users}", "process_element1", "process_element2"),
    "CoMapFunction": ("connect: {with: users}", "map1", "map2"),
    "KeyedBroadcastProcessFunction": (
        "key_by: [user]\n    broadcast: users",
        "process_element",
        "process_broadcast_element",
    ),
    "BroadcastProcessFunction": ("broadcast: users", "process_element", "process_broadcast_element"),
}


@pytest.mark.parametrize("base", CONNECTIONS)
def test_a_table_stands_for_a_function_of_two_streams(tell: Tell, tmp_path: Path, base: str) -> None:
    keys, first, second = CONNECTIONS[base]
    module = "broadcast_function" if "Broadcast" in base else "co_process_function"
    context = "" if base == "CoMapFunction" else ", context"
    (tmp_path / "hidden.py").write_text(
        f"""
from flowrun.api.{module} import {base}

class Function({base}):
    def {first}(self, row{context}):
        raise RuntimeError("not in a test")

    def {second}(self, row{context}):
        raise RuntimeError("not in a test")
"""
    )
    story = """
pipeline: p.yaml
tests:
  - name: cities
    replace:
      functions:
        hidden:Function:
          - {other: {name: ann, city: Rome}, result: []}
          - {row: {id: 1}, result: [{id: 1, city: Rome}, {id: 1, city: Oslo}]}
          - {row: {id: 2}, result: {id: 2}}
    steps:
      - users: [{name: ann, city: Rome}]
      - orders: [{id: 1, user: ann}, {id: 2, user: bob}]
    expect: {out: [{id: 1, city: Rome}, {id: 1, city: Oslo}, {id: 2, city: null}]}
"""
    result = tell(story, CONNECTED.replace("KEYS", keys), "p.yaml")
    assert result.code == 0, result.output
    unknown = tell(
        story.replace("- users: [{name: ann", "- users: [{name: bob"), CONNECTED.replace("KEYS", keys), "p.yaml"
    )
    assert unknown.code == 1
    assert "has no row for the call (row: NULL, other: {name: bob, city: Rome})" in unknown.output


ASKED = """
sources:
  orders: {connector: filesystem, path: in/, format: json, schema: {id: BIGINT}}
steps:
  asked:
    from: orders
    async:
      function: hidden:Ask
      schema: {id: BIGINT, city: STRING}
      with: {url: "http://nowhere"}
      retry: {attempts: 3, delay: 1s, on_result: "hidden:is_nothing"}
      side_outputs: {unknown: {id: BIGINT}}
  missing: {from: unknown}
sinks:
  out: {from: asked, connector: blackhole}
  gone: {from: missing, connector: blackhole}
"""
ASKING = """
from flowrun.api.async_function import AsyncFunction

class Ask(AsyncFunction):
    def __init__(self, url):
        self.url = url

    async def async_invoke(self, row, context):
        raise RuntimeError("not in a test")

def is_nothing(result):
    raise RuntimeError("not in a test")
"""


def test_a_table_stands_for_an_asynchronous_function(tell: Tell, tmp_path: Path) -> None:
    (tmp_path / "hidden.py").write_text(ASKING)
    story = """
pipeline: p.yaml
tests:
  - name: cities
    replace:
      functions:
        hidden:Ask:
          - {row: {id: 1}, result: {id: 1, city: Rome}}
          - {row: {id: 2}, result: null, unknown: {id: 2}}
    given: {orders: [{id: 1}, {id: 2}, {id: 1}]}
    expect: {out: [{id: 1, city: Rome}, {id: 1, city: Rome}], gone: [{id: 2}]}
"""
    result = tell(story, ASKED, "p.yaml")
    assert result.code == 0, result.output
    unknown = tell(story.replace("{id: 2}, {id: 1}]", "{id: 3}, {id: 1}]"), ASKED, "p.yaml")
    assert unknown.code == 1
    assert "the table that stands for function 'hidden:Ask' has no row for the call (id: 3)" in unknown.output


RANKED = """
CREATE FUNCTION large AS 'hidden.Large' LANGUAGE PYTHON;
CREATE TABLE sales (card STRING, amount INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen');
CREATE TABLE alerts (card STRING, largest INT, rowtime TIMESTAMP(3)) WITH ('connector' = 'blackhole');
INSERT INTO alerts SELECT card, largest, rowtime
  FROM large(input => TABLE sales PARTITION BY card, least => 5, on_time => DESCRIPTOR(ts), uid => 'large-sales');
"""
RANKING = """
import flowrun
from flowrun.api.process_function import KeyedProcessFunction

@flowrun.ptf(result="largest INT")
class Large(KeyedProcessFunction):
    def __init__(self, least: int = 0):
        self.least = least

    def process_element(self, row, context):
        raise RuntimeError("not in a test")
"""


def test_a_table_stands_for_a_process_table_function(tell: Tell, tmp_path: Path) -> None:
    """Its rows are those of the function: the query adds the key and the time."""
    (tmp_path / "hidden.py").write_text(RANKING)
    story = """
pipeline: p.sql
tests:
  - name: alerts
    replace:
      functions:
        hidden:Large:
          - {rows: [{amount: 7}], result: [{largest: 7}]}
          - {rows: [{amount: 7}, {amount: 6}], result: []}
    given:
      sales:
        - {card: a, amount: 7, ts: 2024-03-01T10:00}
        - {card: b, amount: 7, ts: 2024-03-01T10:01}
        - {card: a, amount: 6, ts: 2024-03-01T10:02}
    expect: {alerts: [{card: a, largest: 7, rowtime: 2024-03-01T10:00}, {card: b, largest: 7, rowtime: 2024-03-01T10:01}]}
"""
    result = tell(story, RANKED, "p.sql")
    assert result.code == 0, result.output


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[{result: {n: 1}}]", "the columns of its table are 'row' or 'rows' and 'result'"),
        ("[{row: {page: x}}]", "the columns of its table are 'row' or 'rows' and 'result'"),
        (
            "[{row: {page: x}, rows: [{page: x}], result: []}]",
            "the columns of its table are 'row' or 'rows' and 'result'",
        ),
        ("[]", "the columns of its table are 'row' or 'rows' and 'result'"),
        (
            "[{row: {page: x}, result: [], even: []}]",
            "the table that stands for function 'hidden:Counted' has no use for 'even'",
        ),
        ("[{row: {pages: x}, result: []}]", "the rows that function 'hidden:Counted' is given have no column 'pages'"),
        (
            "[{rows: [{pages: x}], result: []}]",
            "the rows that function 'hidden:Counted' is given have no column 'pages'",
        ),
        ("[{row: {page: x}, result: [{m: 1}]}]", "it has no field 'm'"),
        ("[{row: {page: x}, result: [{n: x}]}]", "cannot cast 'x' to BIGINT"),
        ("[{row: {page: x}, result: [], odd: [{pag: 1}]}]", "it has no field 'pag'"),
        ("[{row: x, result: []}]", "a mapping is expected"),
        ("[{rows: x, result: []}]", "a list is expected"),
        ("[{row: {page: x}, result: x}]", "a list is expected"),
        (
            "[{row: {page: x}, result: []}, {result: []}]",
            "p.test.yaml:5:76: error: a row of the table that stands for function 'hidden:Counted' must have 'row'",
        ),
        ("[{row: {page: x}, result: []}, {row: {page: x}, result: {n: 1}}]", "has two rows for the call (page: x)"),
        (
            "[{rows: {page: x}, result: []}, {rows: [{page: x}], result: {n: 1}}]",
            "has two rows for the call (rows: [{page: x}])",
        ),
    ],
)
def test_tables_for_process_functions_that_are_wrong(tell: Tell, tmp_path: Path, table: str, said: str) -> None:
    (tmp_path / "hidden.py").write_text(COUNTING)
    story = f"""
pipeline: p.yaml
tests:
  - name: clicks
    replace: {{functions: {{"hidden:Counted": {table}}}}}
    given: {{clicks: [{{user: a}}]}}
    expect: {{out: []}}
"""
    result = tell(story, COUNTED, "p.yaml")
    assert result.code == 2, result.output
    assert said in result.output
    assert result.output.count("error:") == 1


def test_no_table_stands_for_a_function_with_timers(tell: Tell, tmp_path: Path) -> None:
    (tmp_path / "hidden.py").write_text(COUNTING + "    def on_timer(self, timestamp, context):\n        pass\n")
    story = """
pipeline: p.yaml
tests:
  - name: numbers
    replace: {functions: {"hidden:Counted": [{row: {page: x}, result: []}]}}
    given: {clicks: [{user: a}]}
    expect: {out: []}
"""
    result = tell(story, COUNTED, "p.yaml")
    assert result.code == 2, result.output
    assert "function 'hidden:Counted' has timers, and a table cannot say what it sends when they fire" in result.output
    assert "hint: let another class stand for it: module:Class" in result.output


def test_a_side_output_that_is_called_like_a_column_of_the_table(tell: Tell, tmp_path: Path) -> None:
    (tmp_path / "hidden.py").write_text(COUNTING)
    story = """
pipeline: p.yaml
tests:
  - name: numbers
    replace: {functions: {"hidden:Counted": [{row: {page: x}, result: []}]}}
    given: {clicks: [{user: a}]}
    expect: {out: []}
"""
    result = tell(story, COUNTED.replace("{odd: ", "{rows: ").replace("from: odd", "from: rows"), "p.yaml")
    assert result.code == 2, result.output
    assert (
        "function 'hidden:Counted' has a side output 'rows', which is what a column of its table is called"
        in result.output
    )


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[{row: {id: 1}, other: {name: a}, result: []}]", "must have 'row' or 'other'"),
        (
            "[{rows: {id: 1}, result: []}]",
            "the columns of its table are 'row' or 'other' for the other stream and 'result'",
        ),
        ("[{row: {name: a}, result: []}]", "the rows that function 'hidden:Function' is given have no column 'name'"),
        ("[{other: {id: 1}, result: []}]", "the rows that function 'hidden:Function' is given have no column 'id'"),
    ],
)
def test_tables_for_functions_of_two_streams_that_are_wrong(tell: Tell, tmp_path: Path, table: str, said: str) -> None:
    (tmp_path / "hidden.py").write_text(
        """
from flowrun.api.co_process_function import CoFlatMapFunction

class Function(CoFlatMapFunction):
    def flat_map1(self, row): ...
    def flat_map2(self, row): ...
"""
    )
    story = f"""
pipeline: p.yaml
tests:
  - name: clicks
    replace: {{functions: {{"hidden:Function": {table}}}}}
    given: {{orders: [{{id: 1}}]}}
    expect: {{out: []}}
"""
    result = tell(story, CONNECTED.replace("KEYS", "connect: {with: users}"), "p.yaml")
    assert result.code == 2, result.output
    assert said in result.output
    assert result.output.count("error:") == 1


def test_a_count_window_has_no_bounds(tell: Tell, tmp_path: Path) -> None:
    (tmp_path / "hidden.py").write_text(SPREADING)
    story = """
pipeline: p.yaml
tests:
  - name: prices
    replace:
      functions:
        hidden:Spread: [{rows: [{price: 1}, {price: 2}], window_start: 2024-03-01, result: []}]
    given: {prices: [{item: a, price: 1, ts: 2024-03-01}, {item: a, price: 2, ts: 2024-03-01}]}
    expect: {out: []}
"""
    pipeline = WINDOWED.replace("{type: sliding, size: 2min, slide: 1min}", "{type: count, size: 2}")
    result = tell(story, pipeline, "p.yaml")
    assert result.code == 2, result.output
    assert "the table that stands for function 'hidden:Spread' has no use for 'window_start'" in result.output
    counted = tell(
        story.replace("window_start: 2024-03-01, result: []", "result: {spread: 1}").replace(
            "out: []", "out: [{spread: 1}]"
        ),
        pipeline,
        "p.yaml",
    )
    assert counted.code == 0, counted.output
