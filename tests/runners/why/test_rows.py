"""Rows that come in and do not come out, and joins that give nothing: each once as the true cause, once not."""

from __future__ import annotations

import time
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowrun.runners.compile import compile_file
from flowrun.runners.why.finding import Severity
from flowrun.runners.why.rules import findings
from flowrun.runners.why.text_findings import text_findings
from tests.runners.why.jobs import (
    AT_ONCE,
    ORDERS,
    PAYMENTS,
    Found,
    by_kind,
    found_at_end,
    found_in,
    job_graph,
    one,
    order,
    payment,
    read,
    running,
    settled,
    until,
)

pytestmark = pytest.mark.exhaustive

SINK = "CREATE TABLE s (id BIGINT, n BIGINT) WITH ('connector' = 'blackhole');\n"
PAID = "SELECT o.id, p.paid FROM orders o {kind} JOIN payments p ON o.user_id = p.payer {more};"
BY_USER = """
CREATE TABLE totals (u STRING, n BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO totals SELECT user_id, COUNT(*)
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY user_id, window_start, window_end;
"""


def at_end(
    folder: Path, text: str, *, payments: list[dict] | None = None, orders: list[dict], **settings: str
) -> Found:
    sources = {"orders": {"p0": [[o] for o in orders]}, "payments": {"q0": [payments or []]}}
    return found_at_end(job_graph(folder, text, sources, ends=True, **settings))


def test_a_filter_that_lets_nothing_pass(tmp_path: Path) -> None:
    text = ORDERS + SINK + "INSERT INTO s SELECT id, amount FROM orders WHERE amount > 5;"
    cause = one(at_end(tmp_path, text, orders=[order(1, 1), order(2, 2)]), "filter")
    assert cause.severity is Severity.BLOCKS
    assert cause.text == "(amount > 5) was not true for 2 rows of 2."
    assert (cause.figures["dropped"], cause.figures["records_in"]) == (2, 2)
    told = one(at_end(tmp_path, text, orders=[order(1, 1), order(2, 2, amount=9)]), "filter")
    assert told.severity is Severity.INFORMS
    assert told.title.endswith("leaves out 50 % of its rows")
    assert at_end(tmp_path, text, orders=[order(2, 2, amount=9)]) == {}


@pytest.mark.parametrize(("kind", "told"), [("BUY", True), ("buy", False)])
def test_a_condition_by_which_the_source_itself_leaves_out_all_rows(tmp_path: Path, kind: str, told: bool) -> None:
    (tmp_path / "out").mkdir()
    pq.write_table(pa.table({"id": [1, 2], "kind": ["buy", "buy"]}), tmp_path / "out" / "a.parquet")
    text = f"""
    CREATE TABLE events (id BIGINT, kind STRING) WITH ('connector' = 'filesystem', 'path' = '${{OUT}}', 'format' = 'parquet');
    CREATE TABLE s (id BIGINT) WITH ('connector' = 'blackhole');
    INSERT INTO s SELECT id FROM events WHERE kind = '{kind}';
    """
    found = found_at_end(job_graph(tmp_path, text, {}))
    if told:
        assert "cannot pass the conditions on kind behind it" in one(found, "empty_source").text
    else:
        assert found == {}


def test_late_rows_are_counted(tmp_path: Path) -> None:
    late = one(at_end(tmp_path, ORDERS + BY_USER, orders=[order(1, 10), order(2, 600), order(3, 20)]), "late_rows")
    assert late.severity is Severity.LOSES
    assert (late.figures["dropped"], late.figures["records_in"]) == (1, 3)
    assert "1 row of 3 (33 %)" in late.text
    assert "5.0 s late" in late.text
    assert "late_rows" not in at_end(tmp_path, ORDERS + BY_USER, orders=[order(1, 10), order(2, 600)])


def test_late_rows_are_a_share_of_all_that_came_to_be_aggregated_not_of_what_local_aggregates_made_of_them(
    tmp_path: Path,
) -> None:
    batches = [[order(i, i % 30) for i in range(600)], [order(40, 600)], [order(50 + i, i) for i in range(9)]]
    late = one(found_at_end(job_graph(tmp_path, ORDERS + BY_USER, {"orders": {"p0": batches}}, ends=True)), "late_rows")
    assert (late.figures["dropped"], late.figures["records_in"]) == (9, 610)
    assert "9 rows of 610 (1 %)" in late.text


def test_null_keys_that_an_inner_join_cannot_match(tmp_path: Path) -> None:
    text = ORDERS + PAYMENTS + SINK + "INSERT INTO s " + PAID.format(kind="", more="")
    orders = [order(1, 1, None), order(2, 2), order(3, 3, None)]
    told = one(at_end(tmp_path, text, orders=orders, payments=[payment(1, 1)]), "null_keys")
    assert told.figures["dropped"] == 2
    assert "A NULL equals nothing" in told.text
    assert told.severity is Severity.LOSES
    assert at_end(tmp_path, text, orders=[order(2, 2)], payments=[payment(1, 1)]) == {}


def test_a_join_of_which_no_rows_match(tmp_path: Path) -> None:
    text = ORDERS + PAYMENTS + SINK + "INSERT INTO s " + PAID.format(kind="", more="")
    found = at_end(tmp_path, text, orders=[order(1, 1, "ann")], payments=[payment(1, 1, "ANN"), payment(2, 2, "Bob")])
    cause = one(found, "join_without_matches")
    assert cause.severity is Severity.BLOCKS
    assert (cause.figures["left_records"], cause.figures["right_records"]) == (1, 2)
    assert "joined by user_id = payer" in cause.text
    assert at_end(tmp_path, text, orders=[order(1, 1, "ann")], payments=[payment(1, 1, "ann")]) == {}


def test_keys_without_a_name_are_called_by_their_expressions(tmp_path: Path) -> None:
    joined = PAID.format(kind="", more="").replace("= p.payer", "|| '$1' = LOWER(p.payer)")
    text = ORDERS + PAYMENTS + SINK + "INSERT INTO s " + joined
    found = at_end(tmp_path, text, orders=[order(1, 1, "ann")], payments=[payment(1, 1, "ANN"), payment(2, 2, None)])
    assert "They are joined by (user_id || '$1') = LOWER(payer)." in one(found, "join_without_matches").text
    assert "1 row of 3 (33 %) have NULL in (user_id || '$1'), LOWER(payer)." in one(found, "null_keys").text


def test_a_join_with_an_empty_side(tmp_path: Path) -> None:
    text = ORDERS + PAYMENTS + SINK + "INSERT INTO s " + PAID.format(kind="", more="")
    cause = one(at_end(tmp_path, text, orders=[order(1, 1)], payments=[]), "join_side_empty")
    assert cause.title.startswith("the right side of join")
    assert "comes from source 'payments'" in cause.text
    outer = ORDERS + PAYMENTS + SINK + "INSERT INTO s " + PAID.format(kind="LEFT", more="")
    assert "join_side_empty" not in at_end(tmp_path, outer, orders=[order(1, 1)], payments=[])


@pytest.mark.parametrize(("bought", "blocks"), [(10, True), (400, False)])
def test_an_interval_that_holds_no_rows_of_both(tmp_path: Path, bought: int, blocks: bool) -> None:
    interval = "AND p.pts BETWEEN o.ts AND o.ts + INTERVAL '1' MINUTE"
    text = ORDERS + PAYMENTS + SINK + "INSERT INTO s " + PAID.format(kind="", more=interval)
    found = at_end(tmp_path, text, orders=[order(1, bought)], payments=[payment(1, 410)])
    if blocks:
        assert "does the interval or the window hold rows of both?" in str(one(found, "join_without_matches").remedy)
    else:
        assert found == {}


WINDOW_JOIN = (
    ORDERS
    + PAYMENTS
    + SINK
    + """
INSERT INTO s SELECT o.id, p.paid FROM
 (SELECT * FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE))) o JOIN
 (SELECT * FROM TABLE(TUMBLE(TABLE payments, DESCRIPTOR(pts), INTERVAL '1' MINUTE))) p
 ON o.user_id = p.payer AND o.window_start = p.window_start AND o.window_end = p.window_end;
"""
)


def test_most_rows_of_a_window_join_without_a_match_are_told_of(tmp_path: Path) -> None:
    orders = [order(1, 1, "ann"), order(2, 2, "bob"), order(3, 3, "cem")]
    told = one(at_end(tmp_path, WINDOW_JOIN, orders=orders, payments=[payment(1, 1)]), "join_unmatched_rows")
    assert told.severity is Severity.INFORMS
    assert (told.figures["side"], told.figures["unmatched"], told.figures["records_in"]) == ("left", 2, 3)
    assert at_end(tmp_path, WINDOW_JOIN, orders=orders[:1], payments=[payment(1, 1)]) == {}


@pytest.mark.parametrize(("first", "told"), [(1, True), (190, False)])
def test_rows_of_windows_that_are_not_over_are_not_called_unmatched(tmp_path: Path, first: int, told: bool) -> None:
    sources = {
        "orders": {"p0": [[order(1, first, "zoe"), order(2, 200)]]},
        "payments": {"q0": [[payment(1, 1), payment(2, 100)]]},
    }
    found = found_in(job_graph(tmp_path, WINDOW_JOIN, sources), {"orders": 2, "payments": 2})
    assert ("join_without_matches" in found) is told


def test_rows_that_fail_and_are_skipped(tmp_path: Path) -> None:
    text = ORDERS + SINK + "INSERT INTO s SELECT id, 10 / amount FROM orders;"
    bad = at_end(tmp_path, text, orders=[order(1, 1, amount=0), order(2, 2)], on_error="skip")
    told = one(bad, "bad_rows")
    assert told.severity is Severity.LOSES
    assert told.figures["skipped"] == 1
    assert at_end(tmp_path, text, orders=[order(2, 2)], on_error="skip") == {}


def test_a_job_that_fails_says_where_and_why(tmp_path: Path) -> None:
    text = ORDERS + SINK + "INSERT INTO s SELECT id, 10 / amount FROM orders;"
    cause = one(at_end(tmp_path, text, orders=[order(1, 1, amount=0)]), "failed")
    assert cause.severity is Severity.BLOCKS
    assert "division by zero" in cause.text


def test_rows_with_null_where_a_sink_takes_none(tmp_path: Path) -> None:
    text = (
        ORDERS
        + SINK.replace("n BIGINT", "n BIGINT NOT NULL")
        + ("SET 'table.exec.sink.not-null-enforcer' = 'DROP'; INSERT INTO s SELECT id, amount FROM orders;")
    )
    orders = [order(1, 1), {**order(2, 2), "amount": None}]
    told = one(at_end(tmp_path, text, orders=orders), "null_rows_dropped")
    assert (told.figures["dropped"], told.severity) == (1, Severity.LOSES)
    assert at_end(tmp_path, text, orders=orders[:1]) == {}


def test_changes_that_take_back_rows_which_nobody_knows(tmp_path: Path) -> None:
    text = """
    CREATE TABLE changes (u STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = '${OUT}', 'format' = 'debezium-json');
    CREATE TABLE totals (u STRING, n BIGINT, PRIMARY KEY (u) NOT ENFORCED) WITH ('connector' = 'blackhole');
    INSERT INTO totals SELECT u, SUM(n) FROM changes GROUP BY u;
    """
    added = {"before": None, "after": {"u": "ann", "n": 1}, "op": "c"}
    removed = {"before": {"u": "bob", "n": 1}, "after": None, "op": "d"}
    (tmp_path / "out").mkdir()
    changes = tmp_path / "out" / "changes.json"
    changes.write_bytes(b"\n".join(map(orjson.dumps, [added, removed])))
    told = one(found_at_end(job_graph(tmp_path, text, {})), "unknown_retractions")
    assert (told.figures["dropped"], told.severity) == (1, Severity.INFORMS)
    changes.write_bytes(b"\n".join(map(orjson.dumps, [added, {**removed, "before": {"u": "ann", "n": 1}}])))
    assert found_at_end(job_graph(tmp_path, text, {})) == {}


def test_a_source_whose_rows_break_their_order(tmp_path: Path) -> None:
    text = """name: disorder
sources:
  orders:
    connector: datagen
    schema: {id: BIGINT, user_id: STRING, amount: BIGINT, ts: TIMESTAMP(3)}
    watermark: {column: ts, type: monotonous, on_disorder: warn}
steps:
  totals:
    from: orders
    key_by: [user_id]
    window: {type: tumbling, size: 1m}
    aggregate: [COUNT(*) AS n]
sinks:
  out: {from: totals, connector: blackhole}
"""
    found = at_end(tmp_path, text, orders=[order(1, 600), order(2, 5)])
    assert one(found, "out_of_order").figures["records"] == 1
    assert one(found, "late_rows").figures["dropped"] == 1
    assert at_end(tmp_path, text, orders=[order(1, 5), order(2, 600)]) == {}


def test_state_whose_time_to_live_is_over(tmp_path: Path) -> None:
    text = (
        ORDERS + PAYMENTS + SINK + "SET 'table.exec.state.ttl' = '1 ms'; INSERT INTO s " + PAID.format(kind="", more="")
    )
    sources = {"orders": {"p0": [[order(1, 1), order(2, 2)], [order(3, 3)]]}, "payments": {"q0": [[]]}}
    batches = [1]
    graph = job_graph(tmp_path, text, sources, batches=batches)
    join = next(o.name for v in graph.vertices for o in v.operators if "Join" in type(o.factory).__name__)
    with running(graph) as job:
        before = until(job, read({join: 2}))
        assert "expired" not in by_kind(findings(before, AT_ONCE))
        time.sleep(0.01)
        batches[0] = 2
        until(job, read({join: 3}))
        told = one(by_kind(findings(settled(job), AT_ONCE)), "expired")
    assert (told.figures["expired"], told.figures["ttl_ms"]) == (2, 1)
    assert "later rows do not find them" in told.text


KEPT = """
CREATE TABLE kept (u STRING, a BIGINT, n BIGINT, PRIMARY KEY (u) NOT ENFORCED)
WITH ('connector' = 'filesystem', 'path' = '{folder}/{name}', 'format' = 'json');
"""


def test_rows_that_meet_in_one_key_of_a_sink(tmp_path: Path) -> None:
    orders = [order(1, 1), order(2, 2, amount=5), order(3, 3, "bob")]
    text = ORDERS + KEPT.format(folder=tmp_path, name="kept")
    text += "INSERT INTO kept SELECT user_id, amount, COUNT(*) FROM orders GROUP BY user_id, amount;"
    told = one(at_end(tmp_path, text, orders=orders), "conflicting_keys")
    assert told.severity is Severity.INFORMS
    assert (told.figures["key"], told.figures["row_key"], told.figures["records_in"]) == ("u", "u, a", 3)
    assert "Its key is u, and the rows that reach it differ by u, a." in told.text
    assert told.remedy is not None
    assert "ON CONFLICT DO" in told.remedy
    file = tmp_path / "of_text.sql"
    file.write_text(text)
    (of_text,) = text_findings(compile_file(file, {}, {}))
    assert (of_text.kind, of_text.figures["row_key"], of_text.figures["records_in"]) == (
        "conflicting_keys",
        "u, a",
        None,
    )
    unknown = ORDERS + KEPT.format(folder=tmp_path, name="unknown")
    unknown += "INSERT INTO kept SELECT user_id, 1, COUNT(*) FROM orders GROUP BY user_id, amount;"
    assert (
        "are not known to differ by anything" in one(at_end(tmp_path, unknown, orders=orders), "conflicting_keys").text
    )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT user_id, 1, COUNT(*) FROM orders GROUP BY user_id",
        "SELECT user_id, amount, COUNT(*) FROM orders GROUP BY user_id, amount ON CONFLICT DO DEDUPLICATE",
        "SELECT user_id, amount, id FROM orders ON CONFLICT DO NOTHING",
    ],
)
def test_rows_that_have_a_key_each_or_of_which_the_query_chooses_do_not_meet(tmp_path: Path, query: str) -> None:
    text = ORDERS + KEPT.format(folder=tmp_path, name="kept") + f"INSERT INTO kept {query};"
    assert at_end(tmp_path, text, orders=[order(1, 1), order(2, 2, amount=5)]) == {}


def test_results_of_windows_that_fire_again_are_superseded(tmp_path: Path) -> None:
    def found(lateness: str) -> Found:
        text = f"""name: again
sources:
  orders:
    connector: datagen
    schema: {{id: BIGINT, user_id: STRING, amount: BIGINT, ts: TIMESTAMP(3)}}
    watermark: {{column: ts, type: bounded, delay: 5s}}
steps:
  totals:
    from: orders
    key_by: [user_id]
    window: {{type: tumbling, size: 1m, allowed_lateness: {lateness}}}
    aggregate: [COUNT(*) AS n]
sinks:
  out: {{from: totals, connector: filesystem, path: "{tmp_path}/out-{lateness}", format: json}}
"""
        return at_end(tmp_path, text, orders=[order(1, 10)])

    told = one(found("1h"), "superseded_rows")
    assert told.severity is Severity.INFORMS
    assert "fires a window again for each row that is late by up to 1h (allowed_lateness)" in told.text
    assert "deduplicate" in str(told.remedy)
    assert found("0s") == {}
