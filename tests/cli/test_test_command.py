"""`flowrun test`: stories of pipelines that are told right, told wrong, and not told at all."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Tell
from tests.end_to_end.conftest import Command

pytestmark = pytest.mark.exhaustive  # each makes a pipeline of its own and runs it in several ways


TOTALS = """
CREATE TABLE orders (id BIGINT, buyer STRING, amount DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'nowhere:9092', 'scan.startup.mode' = 'earliest-offset',
      'format' = 'json');
CREATE TABLE totals (buyer STRING, n BIGINT, amount DOUBLE, PRIMARY KEY (buyer) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'nowhere:9092',
      'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE minutes (buyer STRING, began TIMESTAMP(3), n BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO totals SELECT buyer, COUNT(*), SUM(amount) FROM orders GROUP BY buyer;
INSERT INTO minutes SELECT buyer, window_start, COUNT(*)
  FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY buyer, window_start, window_end;
"""
HEAD = "pipeline: p.sql\ntests:\n"


STORY = """
  - name: totals are kept up to date
    steps:
      - orders:
          - {id: 1, buyer: ann, amount: 5, ts: 2024-03-01T10:00:00}
          - {id: 2, buyer: bob, amount: 1.5, ts: 2024-03-01T10:00:01}
        expect:
          totals:
            - {buyer: ann, n: 1, amount: 5}
            - {buyer: bob, n: 1, amount: 1.5}
          minutes: []
      - orders: |
          id, buyer, amount, ts
          3,  ann,   ,       2024-03-01T10:00:30
        watermark: {orders: 2024-03-01T10:01:00}
        expect:
          minutes: [{buyer: ann, n: 2}, {buyer: bob, n: 1}]
      - orders: [{id: 4, buyer: bob, amount: 1, ts: 2024-03-01T10:00:02}]
        late: 1
    expect:
      totals: [{buyer: ann, n: 2, amount: 5}, {buyer: bob, n: 2, amount: 2.5000000000001}]
      minutes: {rows: [{n: 2}, {n: 1}], key: [n]}
"""


def test_a_story_that_holds_is_told_in_four_ways(tell: Tell) -> None:
    result = tell(HEAD + STORY, TOTALS, "p.sql", "-v")
    assert result.code == 0, result.output
    assert "passed  p.test.yaml:4  totals are kept up to date" in result.output
    assert "1 test passed in 1 file: 4 runs" in result.output


def test_rows_that_differ_are_shown_with_the_step_that_made_them(tell: Tell) -> None:
    result = tell(HEAD + STORY.replace("{buyer: bob, n: 2,", "{buyer: bob, n: 3,"), TOTALS)
    assert result.code == 1, result.output
    assert "FAILED  p.test.yaml:4  totals are kept up to date" in result.output
    shown = result.output.splitlines()
    at = shown.index("p.test.yaml:23:7: sink 'totals' has other rows than expected")
    assert shown[at + 1 : at + 4] == [
        "      buyer  n  amount",
        "    - bob    3  2.5000000000001",
        "    + bob    2  2.5",
    ]
    assert "made by p.sql:9" in result.output
    assert "1 failed, 0 passed" in result.output


def test_late_rows_that_nobody_expects_are_named(tell: Tell) -> None:
    result = tell(HEAD + STORY.replace("late: 1", "late: 2"), TOTALS)
    assert result.code == 1
    assert "2 rows dropped as late expected, but dropped: 1 by " in result.output


def test_late_rows_of_a_step_that_is_not_there(tell: Tell) -> None:
    result = tell(HEAD + "- {name: a, given: {orders: []}, late: {minute: 0}}", TOTALS)
    assert result.code == 1
    assert "3:40: no step 'minute' could drop late rows; did you mean " in result.output


def test_changes_are_compared_one_by_one(tell: Tell) -> None:
    story = """
  - name: changes
    variants: [as written]
    steps:
      - orders: [{id: 1, buyer: a, amount: 1}]
        expect: {totals: {as: changes, rows: [{+I: {buyer: a, n: 1, amount: 1}}]}}
      - orders: [{id: 2, buyer: a, amount: 2}]
        expect:
          totals: {as: changes, order: exact, rows: [{-U: {buyer: a, n: 1}}, {+U: {buyer: a, n: 2}}]}
"""
    assert tell(HEAD + story, TOTALS.replace("WATERMARK", "-- ").replace("MARK", "")).code == 2
    result = tell(
        HEAD
        + story.replace("amount: 1}]", "amount: 1, ts: 2024-03-01}]").replace(
            "amount: 2}]", "amount: 2, ts: 2024-03-01}]"
        ),
        TOTALS,
    )
    assert result.code == 0, result.output


CHANGES = """
sources:
  people:
    connector: filesystem
    path: in/
    format: debezium-json
    schema: {id: BIGINT, tags: "ARRAY<STRING>", home: "ROW<city STRING, zip INT>", seen: "TIMESTAMP_LTZ(3)"}
steps:
  cities: {from: people, filter: home.city IS NOT NULL, select: [id, home.city AS city, tags, home, seen]}
sinks:
  out: {from: cities, connector: print}
"""


def test_changes_come_in_and_nested_values_go_through(tell: Tell) -> None:
    story = """
pipeline: p.yaml
tests:
  - name: people
    given:
      people:
        - +I: {id: 1, tags: [a, null], home: {city: Rome, zip: 7}, seen: 2024-03-01T10:00:00Z}
        - +I: {id: 2, tags: [], home: {city: Oslo}}
        - -D: {id: 2, tags: [], home: {city: Oslo}}
        - {id: 3, home: {zip: 5}}
    expect:
      out: [{id: 1, city: Rome, tags: [a, null], home: {city: Rome, zip: 7}, seen: 2024-03-01T10:00:00Z}]
"""
    result = tell(story, CHANGES, "p.yaml")
    assert result.code == 0, result.output


CLOCK = """
sources:
  clicks: {connector: kafka, topic: c, properties.bootstrap.servers: "nowhere:1", scan.startup.mode: earliest-offset, format: json,
    schema: {user: STRING}}
steps:
  counts: {from: clicks, key_by: [user], window: {type: tumbling, size: 1m, time: processing}, aggregate: [COUNT(*) AS n]}
sinks:
  out: {from: counts, connector: blackhole}
"""


def test_processing_time_goes_by_only_when_the_test_says_so(tell: Tell) -> None:
    story = """
pipeline: p.yaml
tests:
  - name: a minute
    now: 2024-03-01T10:00:30
    steps:
      - clicks: [{user: a}, {user: a}]
        advance: 29s
        expect: {out: []}
      - advance: 1s
        expect: {out: [{user: a, window_start: 2024-03-01T10:00:00, n: 2}]}
      - rows: {clicks: [{user: b}]}
        advance: 1h
        expect: {out: [{user: b, n: 1}]}
"""
    result = tell(story, CLOCK, "p.yaml")
    assert result.code == 0, result.output


HIDDEN = """
from flowrun.api.process_function import ProcessFunction
import pyarrow as pa

class Numbered(ProcessFunction):
    def __init__(self):
        self.seen = 0
    def process_batch(self, batch, context):
        first = self.seen
        self.seen += batch.num_rows
        return batch.append_column("n", pa.array(range(first, self.seen), pa.int64()))

def double(x: int) -> int:
    return 2 * x

def triple(x: int) -> int:
    return 3 * x
"""
NUMBERED = """
sources:
  clicks: {connector: kafka, topic: c, properties.bootstrap.servers: "nowhere:1", scan.startup.mode: earliest-offset, format: json,
    schema: {user: STRING}}
steps:
  numbered: {from: clicks, process: {function: "hidden:Numbered", schema: {user: STRING, n: BIGINT}}}
sinks:
  out: {from: numbered, connector: blackhole}
"""


def test_state_that_no_checkpoint_holds_is_found(tell: Tell, tmp_path: Path) -> None:
    (tmp_path / "hidden.py").write_text(HIDDEN)
    story = """
pipeline: p.yaml
tests:
  - name: rows are numbered
    steps:
      - clicks: [{user: a}]
      - clicks: [{user: b}]
    expect: {out: [{user: a, n: 0}, {user: b, n: 1}]}
"""
    result = tell(story, NUMBERED, "p.yaml")
    assert result.code == 1, result.output
    assert "other rows at the end when the pipeline is killed and restored between all steps" in result.output
    assert "    - b     1" in result.output
    assert "    + b     0" in result.output


def test_functions_and_tables_that_are_asked_are_replaced(tell: Tell, tmp_path: Path) -> None:
    (tmp_path / "hidden.py").write_text(HIDDEN)
    pipeline = """
CREATE FUNCTION twice AS 'hidden.double' LANGUAGE PYTHON;
CREATE TABLE orders (id BIGINT, buyer STRING, at AS PROCTIME()) WITH ('connector' = 'datagen');
CREATE TABLE buyers (buyer STRING, city STRING) WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://nowhere/x', 'table-name' = 'b');
CREATE TABLE result (id BIGINT, twice BIGINT, city STRING) WITH ('connector' = 'blackhole');
INSERT INTO result SELECT o.id, twice(o.id), b.city FROM orders AS o
LEFT JOIN buyers FOR SYSTEM_TIME AS OF o.at AS b ON o.buyer = b.buyer;
"""
    story = (
        HEAD
        + """
  - name: cities
    replace:
      lookup: {buyers: [{buyer: ann, city: Rome}, {buyer: ann, city: Oslo}, {city: Bern}]}
      functions: {"hidden:double": "hidden:triple"}
    given: {orders: [{id: 1, buyer: ann}, {id: 2, buyer: bob}, {id: 3}]}
    expect: {result: [{id: 1, twice: 3, city: Rome}, {id: 1, twice: 3, city: Oslo}, {id: 2, twice: 6}, {id: 3, twice: 9}]}
"""
    )
    result = tell(story, pipeline)
    assert result.code == 0, result.output
    without = story.replace("lookup: {buyers: [{buyer: ann, city: Rome}, {buyer: ann, city: Oslo}, {city: Bern}]}", "")
    result = tell(without, pipeline)
    assert result.code == 2
    assert "the pipeline looks up rows in table 'buyers', which a test does not reach" in result.output


RISKY = """
settings: {dead_letters: {sink: letters}}
sources:
  texts: {connector: filesystem, path: in/, format: json, schema: {t: STRING}}
steps:
  numbers: {from: texts, on_error: MODE, select: [CAST(t AS INT) AS n]}
sinks:
  out: {from: numbers, connector: blackhole}
  letters: {connector: blackhole, schema: {place: STRING, kind: STRING, reason: STRING}}
"""


def test_errors_are_expected_by_a_part_of_their_text(tell: Tell) -> None:
    pipeline = (
        RISKY.replace("MODE", "fail")
        .replace("settings: {dead_letters: {sink: letters}}", "")
        .replace("  letters: {connector: blackhole, schema: {place: STRING, kind: STRING, reason: STRING}}\n", "")
    )
    story = """
pipeline: p.yaml
tests:
  - name: no number
    given: {texts: [{t: "7"}, {t: seven}]}
    error: cannot cast 'seven' to INT
"""
    result = tell(story, pipeline, "p.yaml")
    assert result.code == 0, result.output
    result = tell(story.replace("error: cannot", "error: can't"), pipeline, "p.yaml")
    assert result.code == 1
    assert "the job failed otherwise: expected was an error with 'can't cast 'seven' to INT'" in result.output
    result = tell(story.replace("error: cannot cast 'seven' to INT", "expect: {out: []}"), pipeline, "p.yaml")
    assert result.code == 1
    assert "the job failed: " in result.output


@pytest.mark.parametrize(
    ("tests", "told"),
    [
        ("", "p.test.yaml:1:1: error: the file has no tests"),
        ("pipeline: q.sql\ntests:\n- {name: a, given: {}, expect: {}}", "error: 'given' is empty"),
        (
            "pipeline: q.sql\ntests:\n- {name: a, given: {orders: []}, expect: {totals: []}}",
            "p.test.yaml:1:11: error: there is no pipeline 'q.sql'",
        ),
        (
            HEAD + "- {name: a, given: {order: []}, expect: {totals: []}}",
            "3:21: error: the pipeline reads no source 'order'",
        ),
        (
            HEAD + "- {name: a, given: {orders: []}, expect: {total: []}}",
            "3:43: error: the pipeline has no sink 'total'",
        ),
        (
            HEAD + "- {name: a, given: {orders: [{idd: 1}]}, expect: {totals: []}}",
            "3:36: error: source 'orders' has no column 'idd'",
        ),
        (
            HEAD + "- {name: a, given: {orders: [{id: one}]}, expect: {totals: []}}",
            "3:35: error: column 'id' of source 'orders' is BIGINT: cannot cast 'one' to BIGINT",
        ),
        (
            HEAD + "- {name: a, given: {orders: [{id: [1]}]}, expect: {totals: []}}",
            "column 'id' of source 'orders' is BIGINT: a list is no value of it",
        ),
        (
            HEAD + "- {name: a, given: {orders: [{-D: {id: 1}}]}, expect: {totals: []}}",
            "source 'orders' gives +I only, not -D",
        ),
        (
            HEAD + "- {name: a, given: {orders: []}, expect: {totals: [{+U: {n: 1}}]}}",
            "error: a kind of change is written, but the table that is left is compared",
        ),
        (
            HEAD + "- {name: a, given: {orders: 7}, expect: {totals: [7]}}",
            "a row is a mapping from columns to values, got '7'",
        ),
        (
            HEAD + "- {name: a, given: {orders: []}}\n- {name: a, given: {orders: []}, expect: {}}",
            "3:10: error: the test expects nothing",
        ),
        (
            HEAD + "- {name: a, expect: {totals: []}}",
            "the test says neither what is 'given' nor what 'steps' there are",
        ),
        (
            HEAD
            + "- {name: a, given: {orders: []}, expect: {totals: []}}\n- {name: a, given: {orders: []}, expect: {totals: []}}",
            "4:10: error: there are two tests 'a', the first in line 3",
        ),
        (HEAD + "- {name: a, steps: [{watermark: noon}], expect: {totals: []}}", "3:33: error: 'noon' is no time"),
        (
            HEAD + "- {name: a, steps: [{advance: soon}], expect: {totals: []}}",
            "'advance' expects a duration, got 'soon'",
        ),
        (
            HEAD + "- {name: a, steps: [{end: all}, {orders: []}], expect: {totals: []}}",
            "3:34: error: source 'orders' has ended before",
        ),
        (HEAD + "- {name: a, steps: [{end: all}], late: many}", "'late' expects a number of rows, got 'many'"),
        (HEAD + "- {nam: a, steps: [{end: all}], late: 1}", "3:4: error: a test has no key 'nam'"),
        (
            HEAD + '- {name: a, given: {orders: "id, buyer\\n1"}, late: 1}',
            "row 1 has 1 values, but the first line names 2 columns",
        ),
        (HEAD + "- {name: a, given: {orders: {file: no.csv}}, late: 1}", "cannot read the rows in 'no.csv'"),
        (
            HEAD + "- {name: a, given: {orders: []}, late: 1, replace: {lookup: {x: []}}}",
            "no table 'x' is looked up in",
        ),
        (
            HEAD + "- {name: a, given: {orders: []}, expect: {totals: {rows: [], key: [nn]}}}",
            "sink 'totals' has no column 'nn'",
        ),
        (
            HEAD + "- {name: a, given: {orders: []}, expect: {totals: {rows: [], tolerance: -1}}}",
            "3:73: error: 'tolerance' must be at least 0, got -1",
        ),
        (
            "pipeline: p.sql\nvariables: {DYA: 1}\ntests:\n- {name: a, given: {orders: []}, late: 0}",
            "p.test.yaml:1:11: error: the pipeline does not use the variable 'DYA'",
        ),
        ("pipeline: .\ntests:\n- {name: a, given: {orders: []}, late: 1}", "p.test.yaml:1:11: error: cannot read '.'"),
        (
            "pipeline: p.py\ntests:\n- {name: a, given: {orders: []}, late: 1}",
            "p.test.yaml:1:11: error: there is no pipeline 'p.py'",
        ),
    ],
)
def test_what_is_wrong_with_a_file_of_tests_is_said_at_its_place(tell: Tell, tests: str, told: str) -> None:
    result = tell(tests, TOTALS)
    assert result.code == 2, result.output
    assert told in result.output


def test_a_column_that_many_rows_have_and_the_source_has_not_is_told_once(tell: Tell) -> None:
    result = tell(
        HEAD + "  - {name: a, given: {orders: [{amont: 1, x: 2}, {amont: 2}, {amont: 3, x: 4}]}, expect: {totals: []}}",
        TOTALS,
    )
    assert result.code == 2
    assert result.output.count("has no column") == 2
    assert "p.test.yaml:3:40: error: source 'orders' has no column 'amont'" in result.output


def test_only_tests_of_a_name_run(tell: Tell) -> None:
    other = "  - {name: another, given: {orders: []}, expect: {totals: [], minutes: []}}\n"
    result = tell(HEAD + STORY + other, TOTALS, "p.sql", "-k", "ANOTHER", "-v")
    assert result.code == 0, result.output
    assert "1 test passed" in result.output
    result = tell(HEAD + STORY + other, TOTALS, "p.sql", "-k", "third")
    assert result.code == 2
    assert "no test's name contains 'third'" in result.output


def test_a_folder_without_tests_says_how_files_of_tests_are_called(flowrun: Command, tmp_path: Path) -> None:
    result = flowrun("test", str(tmp_path))
    assert result.code == 2
    assert "tests are in files NAME.test.yaml" in result.err
    (tmp_path / "p.yaml").write_text("")
    assert "is no file of tests" in flowrun("test", str(tmp_path / "p.yaml")).err


def test_a_misspelt_key_of_a_step_is_the_only_problem(tell: Tell) -> None:
    story = "pipeline: p.sql\ntests:\n  - name: one\n    steps: [{end: all, expct: {totals: []}}]\n"
    result = tell(story, TOTALS, "p.sql")
    assert result.code == 2
    assert "4:24: error: a step of a test has no key 'expct'" in result.output
    assert "did you mean 'expect'?" in result.output
    assert result.output.count("error:") == 1, result.output


def test_rows_that_are_written_can_be_read_again(tell: Tell) -> None:
    pipeline = """
sources: {t: {connector: datagen, schema: {id: BIGINT, x: DOUBLE}}}
steps: {s: {from: t, select: [id, x]}}
sinks: {o: {from: s, connector: blackhole}}
"""
    story = """pipeline: p.yaml
tests:
  - name: no finite numbers
    given: {t: [{id: 1, x: NaN}, {id: 2, x: Infinity}, {id: 3, x: -Infinity}, {id: 4, x: -0.0}]}
    expect: {o: []}
"""
    assert "updated" in tell(story, pipeline, "p.yaml", "--update").output
    rewritten = Path("p.test.yaml").read_text()
    assert "{id: 3, x: -Infinity}" in rewritten
    result = tell(rewritten, pipeline, "p.yaml")
    assert result.code == 0, result.output


WRONG = """pipeline: p.sql
# before
tests:
  - name: updated
    steps:
      - orders:
          - {id: 1, buyer: "it's me: ann", amount: 5, ts: 2024-03-01T10:00:00}
          - {id: 2, buyer: '7', amount: .5, ts: 2024-03-01T10:02:00}
        expect:
          totals: []  # beside
          minutes:
            - {buyer: x, n: 7}   # goes with its row
            # speaks of what follows
    expect:
      totals: {key: [buyer], rows: [{buyer: nobody, n: 1}], tolerance: 1e-3}
      minutes:
        rows:
        - {buyer: y, began: 2024-03-01T10:00:00, n: 1}

        # after
"""
RIGHT = """pipeline: p.sql
# before
tests:
  - name: updated
    steps:
      - orders:
          - {id: 1, buyer: "it's me: ann", amount: 5, ts: 2024-03-01T10:00:00}
          - {id: 2, buyer: '7', amount: .5, ts: 2024-03-01T10:02:00}
        expect:
          totals: [
              {buyer: 'it''s me: ann', n: 1, amount: 5.0},
              {buyer: '7', n: 1, amount: 0.5}
            ]  # beside
          minutes:
            - {buyer: 'it''s me: ann', n: 1}
            # speaks of what follows
    expect:
      totals: {key: [buyer], rows: [
          {buyer: 'it''s me: ann', n: 1},
          {buyer: '7', n: 1}
        ], tolerance: 1e-3}
      minutes:
        rows:
        - {buyer: 'it''s me: ann', began: 2024-03-01T10:00:00, n: 1}

        # after
"""


@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
def test_expected_rows_are_rewritten_in_their_place(tell: Tell, tmp_path: Path, line_break: str) -> None:
    result = tell(WRONG.replace("\n", line_break), TOTALS, "p.sql", "--update")
    assert result.code == 0, result.output
    assert "updated  p.test.yaml: rows in 4 places" in result.output
    rewritten = (tmp_path / "p.test.yaml").read_bytes().decode()
    assert rewritten.replace("\r\n", "\n") == RIGHT
    assert tell(rewritten, TOTALS, "p.sql", "--update").code == 0


def test_rows_in_files_and_rows_that_are_used_twice_are_not_rewritten(tell: Tell, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("buyer,n\nx,2\n")
    story = (
        HEAD
        + "  - {name: a, given: {orders: [{id: 1, buyer: x, ts: 2024-03-01}]}, expect: {totals: {file: rows.csv}}}\n"
    )
    result = tell(story, TOTALS, "p.sql", "--update")
    assert result.code == 2
    assert "the rows that are expected of sink 'totals' are in a file of their own" in result.output
    story = (
        HEAD
        + """
  - {name: a, given: {orders: [{id: 1, buyer: x, ts: 2024-03-01}]}, expect: {totals: &rows [{n: 7}]}}
  - {name: b, given: {orders: []}, expect: {totals: *rows}}
"""
    )
    result = tell(story, TOTALS, "p.sql", "--update")
    assert result.code == 2
    assert "rows that are used twice (an alias) are expected to be different ones" in result.output


SIZES = """
sources:
  orders: {connector: datagen, schema: {id: BIGINT, amount: INT}}
steps:
  sized:
    from: orders
    filter: id IS NOT NULL
    select:
      - id
      - CASE WHEN amount > 100 THEN 'large' WHEN amount > 10 THEN 'medium' ELSE 'small' END AS size
  split:
    from: sized
    split: {big: size = 'large'}
sinks:
  all: {from: split, connector: blackhole}
  big: {from: big, connector: blackhole}
"""


def test_what_no_test_reaches_is_marked(tell: Tell) -> None:
    story = """
pipeline: p.yaml
tests:
  - name: sizes
    given: {orders: [{id: 1, amount: 11}, {id: 2, amount: 1}, {id: 3, amount: 12}]}
    expect: {all: [{id: 1, size: medium}, {id: 2, size: small}, {id: 3}]}
"""
    story = story.replace("{id: 3}]}", "{id: 3, size: medium}]}")
    result = tell(story, SIZES, "p.yaml", "--coverage")
    assert result.code == 0, result.output
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert "p.yaml: 6 of 10 covered" in lines
    assert "3 orders 3 rows" in lines
    assert "! 5 IS NOT NULL(id) true 3 times, never anything else" in lines
    assert "! 5 (amount > 100) never taken" in lines
    assert "5 (amount > 10) taken 2 times" in lines
    assert "5 ELSE of (amount > 10) taken 1 time" in lines
    assert any(re.fullmatch(r"! 11 .*never true, else 3 times", line) for line in lines)
    assert "! 16 big no rows" in lines
    large = story.replace("{id: 2, amount: 1}", "{id: 2, amount: 200}").replace("size: small", "size: large")
    lines = [" ".join(line.split()) for line in tell(large, SIZES, "p.yaml", "--coverage").output.splitlines()]
    assert "5 (amount > 100) taken 1 time" in lines
    assert "5 (amount > 10) taken 2 times" in lines
    assert "! 5 ELSE of (amount > 10) never taken" in lines


def test_a_step_that_shares_its_operator_with_the_next_one_is_reached(tell: Tell) -> None:
    pipeline = """
sources:
  orders: {connector: datagen, schema: {id: BIGINT, amount: INT, ts: TIMESTAMP(3)}, watermark: {column: ts}}
steps:
  large: {from: orders, filter: amount > 10, select: [id, "amount * 2 AS twice", ts]}
  totals: {from: large, key_by: id, window: {type: tumbling, size: 1m}, aggregate: SUM(CASE WHEN twice > 40 THEN 1 ELSE 0 END) AS n}
sinks:
  totals: {from: totals, connector: blackhole}
"""
    story = """
pipeline: p.yaml
tests:
  - name: large ones
    given: {orders: [{id: 1, amount: 11, ts: 2024-03-01}, {id: 1, amount: 1, ts: 2024-03-01}, {id: 1, amount: 30, ts: 2024-03-01}]}
    expect: {totals: [{id: 1, n: 1}]}
"""
    result = tell(story, pipeline, "p.yaml", "--coverage")
    assert result.code == 0, result.output
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert "5 large 3 rows in, 2 out" in lines, lines


def test_the_tests_of_the_example_pipelines_pass(flowrun: Command) -> None:
    outcome = flowrun("test", Path(__file__).parents[2] / "pipelines")
    assert outcome.code == 0, outcome.out
    assert re.search(r"^\d+ tests passed in \d+ files: \d+ runs", outcome.out, re.MULTILINE), outcome.out


def test_a_new_project_has_a_test_that_passes(flowrun: Command, tmp_path: Path) -> None:
    assert flowrun("init", tmp_path / "project").code == 0
    outcome = flowrun("test", tmp_path / "project")
    assert outcome.code == 0, outcome.out
    assert "1 test passed" in outcome.out


def test_a_hundred_small_tests_take_a_few_seconds(tell: Tell) -> None:
    """They are to take 5 s on a machine that does nothing else; a quarter of them gets four times that, in processor time."""
    one = """
  - name: number {0}
    given: {{orders: [{{id: 1, buyer: a, amount: {0}, ts: 2024-03-01}}, {{id: 2, buyer: a, amount: 2, ts: 2024-03-01}}]}}
    expect: {{totals: [{{buyer: a, n: 2}}]}}
"""
    tell(HEAD + one.format(0), TOTALS)  # what is imported once
    began = time.process_time()
    result = tell(HEAD + "".join(map(one.format, range(25))), TOTALS)
    assert result.code == 0, result.output
    assert "25 tests passed in 1 file: 100 runs" in result.output
    assert time.process_time() - began < 5


def test_dead_letters_are_rows_of_their_sink(tell: Tell) -> None:
    story = """
pipeline: p.yaml
tests:
  - name: no number
    given: {texts: [{t: "7"}, {t: seven}]}
    expect:
      out: [{n: 7}]
      letters: [{place: step 'numbers', kind: expression}]
"""
    result = tell(story, RISKY.replace("MODE", "dead-letter"), "p.yaml")
    assert result.code == 0, result.output


ASKED = """
settings: {parallelism: 2}
sources:
  a: {connector: datagen, schema: {id: BIGINT, ts: TIMESTAMP(3)}, watermark: {column: ts}}
  b: {connector: datagen, schema: {id: BIGINT, name: STRING, ts: TIMESTAMP(3)}, watermark: {column: ts}}
steps:
  asked: {from: a, async: {function: "asking:Ask", schema: {id: BIGINT, ts: TIMESTAMP(3), twice: BIGINT}}}
  joined: {from: asked, join: {with: b, on: "asked.id = b.id"}, select: [asked.id, twice, name]}
sinks:
  out: {from: joined, connector: blackhole}
"""
ASKING = """
import asyncio
from flowrun.api.async_function import AsyncFunction

class Ask(AsyncFunction):
    async def async_invoke(self, row, context):
        await asyncio.sleep(0.001)
        return {**row, "twice": 2 * row["id"]}
"""


BATCH = """
SET 'execution.runtime-mode' = 'batch';
CREATE TABLE orders (buyer STRING, amount INT) WITH ('connector' = 'filesystem', 'path' = 'none', 'format' = 'json');
CREATE TABLE totals (buyer STRING, amount INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
INSERT INTO totals SELECT buyer, SUM(amount) AS amount FROM orders GROUP BY buyer;
"""


def test_paths_are_shown_without_detours(flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("pipelines", "tests"):
        (tmp_path / folder).mkdir()
    (tmp_path / "pipelines/p.sql").write_text("SELECT nothing FROM nowhere;")
    (tmp_path / "tests/p.test.yaml").write_text(
        "pipeline: ../pipelines/p.sql\ntests:\n- {name: a, given: {o: []}, late: 1}"
    )
    assert flowrun("test").err.startswith("pipelines/p.sql:1:21: error:")


def test_of_a_batch_the_last_table_is_compared(tell: Tell) -> None:
    """Its sink of files takes no updates, and gets none on Spark."""
    story = (
        HEAD
        + "- {name: sums, given: {orders: [{buyer: ann, amount: 1}, {buyer: ann, amount: 2}]}, expect: {totals: [{buyer: ann, amount: 3}]}}"
    )
    result = tell(story, BATCH)
    assert result.code == 0, result.output
    result = tell(story, BATCH.replace("GROUP BY buyer", "GROUP BY buyer ORDER BY buyer"))
    assert result.code == 2
    assert "a test runs a batch as a stream: ORDER BY begins with 'buyer', which is no time attribute" in result.output


def test_answers_from_outside_are_waited_for_and_sources_that_have_ended_stay_so(tell: Tell, tmp_path: Path) -> None:
    (tmp_path / "asking.py").write_text(ASKING)
    story = """
pipeline: p.yaml
tests:
  - name: one ends before the other
    steps:
      - a: [{id: 1, ts: 2024-03-01}, {id: 2, ts: 2024-03-01}]
      - end: a
      - b: [{id: 1, name: x, ts: 2024-03-01}]
        expect: {out: [{id: 1, twice: 2, name: x}]}
      - b: [{id: 2, name: y, ts: 2024-03-01}, {id: 3, name: y, ts: 2024-03-01}]
    expect: {out: [{id: 1, twice: 2, name: x}, {id: 2, twice: 4, name: y}]}
"""
    result = tell(story, ASKED, "p.yaml")
    assert result.code == 0, result.output


def test_secrets_stay_hidden_in_what_differs(tell: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "correct horse battery")
    pipeline = TOTALS.replace(
        "'topic' = 'orders'", "'topic' = 'orders', 'properties.client.id' = '${secret:env:SHOP_PASSWORD}'"
    )
    story = (
        HEAD
        + """
  - name: a
    given: {orders: [{id: 1, buyer: correct horse battery, ts: 2024-03-01}]}
    expect: {totals: []}
"""
    )
    result = tell(story, pipeline)
    assert result.code == 1, result.output
    assert "correct horse battery" not in result.output
    assert "+ " in result.output
