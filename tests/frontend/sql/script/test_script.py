"""Scripts as pipelines: several statements, one job; all problems at once, none of them twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.plan.nodes import Calc, Plan, Scan, walk_plan
from flowrun.plan.relational import TemporalSort
from tests.frontend.sql.script.scripts import GENERATED, ORDERS, PRINTED, lines, load, plan_of, problems


def test_an_insert_is_a_sink() -> None:
    plan = plan_of(ORDERS + PRINTED + "INSERT INTO out SELECT id, buyer FROM orders")
    (sink,) = plan.sinks
    assert plan.name == "s"
    assert sink.hints.name == "out"
    assert sink.table.connector == "print"
    assert sink.schema.names == ("id", "buyer")


def test_inserts_share_scans_and_run_as_one_job() -> None:
    plan = plan_of(
        ORDERS + PRINTED + "CREATE VIEW v AS SELECT id, buyer FROM orders WHERE price > 1;\n"
        "EXECUTE STATEMENT SET BEGIN INSERT INTO out SELECT * FROM v; INSERT INTO out SELECT id, buyer FROM orders; END;\n"
        "SELECT id AS a, id AS b FROM orders;"
    )
    assert [s.hints.name for s in plan.sinks] == ["out", "out_2", "select"]
    assert len([n for n in walk_plan(plan) if isinstance(n, Scan)]) == 1
    places = [n.hints.place for n in walk_plan(plan)]
    assert len(set(places)) == len(places)


def test_a_view_keeps_its_order_only_by_time() -> None:
    views = "CREATE VIEW by_price AS SELECT id, buyer FROM orders ORDER BY price;\n"
    (sink,) = plan_of(ORDERS + PRINTED + views + "INSERT INTO out SELECT * FROM by_price").sinks
    assert not [n for n in walk_plan(Plan("p", (sink,))) if isinstance(n, TemporalSort)]
    assert "ORDER BY begins with 'price'" in problems(ORDERS + "SELECT id FROM orders ORDER BY price;")


def test_the_older_form_of_a_statement_set() -> None:
    plan = plan_of(
        ORDERS + PRINTED + "BEGIN STATEMENT SET; INSERT INTO out SELECT id, buyer FROM orders; END; -- done\n"
    )
    assert len(plan.sinks) == 1


def test_a_query_by_itself_prints() -> None:
    plan = plan_of(ORDERS + "SELECT id, price * 2 FROM orders")
    (sink,) = plan.sinks
    assert (sink.table.connector, sink.table.name) == ("print", "select")


def test_a_table_of_the_default_database_may_be_named_in_full() -> None:
    plan = plan_of(
        ORDERS + PRINTED + "USE CATALOG default_catalog; USE default_database;"
        "INSERT INTO default_catalog.default_database.out SELECT id, buyer FROM orders"
    )
    assert plan.sinks[0].table.name == "out"


def test_every_problem_is_reported_once_at_its_place() -> None:
    found = lines(
        "CREATE TABLE t (a BIGINT, b STRIN) WITH ('connector' = 'datagen');\n"
        "CREATE VIEW v AS SELECT a FROM t;\n"  # follows from the first
        "INSERT INTO nowhere SELECT a FROM t;\n"
        "SELEKT 1;\n" + ORDERS + "SELECT idd FROM orders; SELECT buyer FROM order_s;\n"
        "INSERT INTO out SELECT * FROM v;\n"
        "UPDATE orders SET id = 1;\n"
    )
    assert found == [
        "s.sql:1:29: error: unknown type 'STRIN' in type 'STRIN'",
        "s.sql:3:13: error: table 'nowhere' does not exist",
        "s.sql:4:1: error: expected a statement, got 'SELEKT'",
        "s.sql:6:8: error: column 'idd' does not exist in orders",
        "s.sql:6:43: error: table 'order_s' does not exist",
        "s.sql:7:13: error: table 'out' does not exist",
        "s.sql:8:1: error: UPDATE is not supported",
    ]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("CREATE CATALOG c", "expected WITH, got the end", ""),
        ("USE other", "database 'other' does not exist in catalog 'default_catalog'", "known: default_database"),
        ("CREATE TABEL t (a INT)", "expected TABLE, VIEW, FUNCTION or CATALOG, got 'TABEL'", "did you mean 'TABLE'"),
        ("INSERT INTO t SELCT 1", "expected SELECT or VALUES, got 'SELCT'", "did you mean SELECT?"),
        ("SHOW TABELS", "expected what to show", "did you mean 'TABLES'"),
        ("BEGIN STATEMENT SET; INSERT INTO t SELECT 1", "the statement set has no END", "END"),
        ("EXECUTE STATEMENT SET BEGIN SELECT 1; END", "only INSERT INTO", "END"),
        ("CREATE TABLE t (a INT PRIMARY KEY)", "a PRIMARY KEY must be NOT ENFORCED", "NOT ENFORCED"),
        ("DROP TABLE t", "table 't' does not exist", "IF EXISTS"),
        ("DESCRIBE t", "table 't' does not exist", ""),
        ("SELECT 'a", "missing closing '", ""),
        ("ADD JAR x", "expected a file, got 'x'", "'x'"),
        ("CREATE TABLE c.d.t (a INT)", "catalog 'c' does not exist", "default_catalog.default_database"),
        ("EXPLAIN CREATE VIEW v AS SELECT 1", "EXPLAIN is for queries and INSERT", ""),
    ],
)
def test_wrong_and_unsupported_statements(text: str, message: str, hint: str) -> None:
    shown = problems(text)
    assert message in shown
    assert hint in shown


def test_answers_of_describe_show_and_explain() -> None:
    loaded = load(ORDERS + "DESCRIBE orders; SHOW TABLES; SHOW CREATE TABLE orders; EXPLAIN SELECT id FROM orders;")
    described, tables, created, explained = loaded.outputs
    assert "| price | DECIMAL(10, 2) | TRUE |" in described
    assert "orders" in tables
    assert created.startswith("CREATE TABLE `orders` (\n  `id` BIGINT,")
    assert "Scan orders" in explained
    assert not loaded.plan.sinks


def test_show_create_keeps_comments() -> None:
    columns = "id BIGINT NOT NULL COMMENT 'the order''s', next AS id + 1 COMMENT 'and one', "
    columns += "at STRING METADATA FROM 'file.path' VIRTUAL COMMENT 'm'"
    options = "'connector' = 'filesystem', 'path' = 'x', 'format' = 'json'"
    table = f"CREATE TABLE noted ({columns}) COMMENT 'all of it' WITH ({options});"
    created, like = load(table + "CREATE TABLE c LIKE noted; SHOW CREATE TABLE noted; SHOW CREATE TABLE c;").outputs
    assert "`id` BIGINT NOT NULL COMMENT 'the order''s',\n  `next` AS id + 1 COMMENT 'and one',\n" in created
    assert "`at` STRING METADATA FROM 'file.path' VIRTUAL COMMENT 'm'\n)\nCOMMENT 'all of it'\nWITH (" in created
    assert like == created.replace("`noted`", "`c`")


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("SHOW TABLES LIKE 'or%'", ["orders"]),
        ("SHOW TABLES FROM default_database NOT LIKE 'or%'", ["out", "v"]),
        ("SHOW VIEWS IN default_catalog.default_database", ["v"]),
        ("SHOW FUNCTIONS ILIKE 'url_e_code'", ["URL_ENCODE"]),
        ("SHOW MODULES", ["core"]),
        ("SHOW DATABASES FROM default_catalog", ["default_database"]),
        ("SHOW COLUMNS FROM orders LIKE '%r%'", ["buyer", "price"]),
        ("SHOW COLUMNS IN v", ["id"]),
        ("SHOW JARS", []),
    ],
)
def test_show_lists_names(statement: str, names: list[str]) -> None:
    (shown,) = load(ORDERS + PRINTED + "CREATE VIEW v AS SELECT id FROM orders;" + statement).outputs
    assert [line.split()[1] for line in shown.splitlines()[3:-2]] == names


def test_explain_of_a_statement_set_shows_one_plan() -> None:
    loaded = load(
        ORDERS + PRINTED + "EXPLAIN STATEMENT SET BEGIN INSERT INTO out SELECT id, buyer FROM orders;"
        "INSERT INTO out SELECT id, buyer FROM orders WHERE id > 1; END;"
    )
    (explained,) = loaded.outputs
    assert explained.count("Sink out") == 2
    assert not loaded.plan.sinks


def test_a_dropped_name_can_be_given_again() -> None:
    text = ORDERS + "CREATE VIEW v AS SELECT id FROM orders; DROP VIEW v; CREATE VIEW v AS SELECT buyer FROM orders;"
    assert plan_of(text + "SELECT * FROM v").sinks[0].schema.names == ("buyer",)
    assert "exists already in line 1" in problems(ORDERS + ORDERS)
    assert plan_of(ORDERS + ORDERS.replace("TABLE", "TABLE IF NOT EXISTS") + "SELECT id FROM orders").sinks


def test_columns_of_views_can_be_named() -> None:
    plan = plan_of(ORDERS + "CREATE VIEW v (a, b) AS SELECT id, id FROM orders; SELECT a, b FROM v")
    assert plan.sinks[0].schema.names == ("a", "b")
    twice = problems(ORDERS + "CREATE VIEW v AS SELECT id, id FROM orders;")
    assert "column 'id' occurs more than once in view 'v'" in twice


def test_jars_are_not_needed() -> None:
    loaded = load(ORDERS + "ADD JAR 'file:///x.jar'; SELECT id FROM orders")
    assert [d.message for d in loaded.diagnostics] == ["jars are not used: this has no effect"]


def test_variables_stand_anywhere_and_errors_point_into_the_file() -> None:
    script = ORDERS + "SELECT ${COLUMN} FROM ${TABLE} LIMIT 3"
    assert plan_of(script, COLUMN="id, buyer", TABLE="orders").sinks
    assert lines(script, COLUMN="id, byer", TABLE="orders") == [
        "s.sql:2:8: error: column 'byer' does not exist in orders"
    ]
    assert lines(script, TABLE="orders") == ["s.sql:2:8: error: the variable 'COLUMN' is not set"]


def test_secrets_are_for_options_of_tables_and_never_shown(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hunter2\n")
    table = f"CREATE TABLE t (a INT) {GENERATED[:-1]}, 'nope' = '${{secret:file:key}}');"
    shown = problems(
        table + "SELECT a FROM t; SELECT '${secret:file:key}'; SET 'pipeline.name' = '${secret:file:key}'", tmp_path
    )
    assert "hunter2" not in shown
    assert "has no option 'nope'" in shown
    assert "a secret can only be the value of an option" in shown
    assert "a secret cannot be used in 'pipeline.name'" in shown


def test_overrides_of_options_and_settings() -> None:
    text = ORDERS + "SELECT id FROM orders"
    loaded = load(text, overrides={"tables.orders.number-of-rows": "5", "settings.parallelism": "2"})
    (scan,) = (n for n in walk_plan(loaded.plan) if isinstance(n, Scan))
    assert scan.table.options["number-of-rows"] == "5"
    assert loaded.plan.settings.parallelism == 2
    assert "there is no table 'ordrs'" in problems(text, overrides={"tables.ordrs.path": "x"})
    assert "did you mean 'settings'" in problems(text, overrides={"setting.parallelism": "2"})


def test_options_in_a_hint_make_a_scan_of_its_own() -> None:
    plan = plan_of(ORDERS + "SELECT id FROM orders; SELECT id FROM orders /*+ OPTIONS('number-of-rows' = '9') */")
    scans = [n for n in walk_plan(plan) if isinstance(n, Scan)]
    assert sorted(str(s.table.options["number-of-rows"]) for s in scans) == ["3", "9"]
    assert "has no option 'rows'" in problems(ORDERS + "SELECT id FROM orders /*+ OPTIONS('rows' = '9') */")


def test_create_table_as_a_query() -> None:
    plan = plan_of(ORDERS + "CREATE TABLE o WITH ('connector' = 'print') AS SELECT id, ROW(id, buyer) AS r FROM orders")
    assert str(plan.sinks[0].schema) == "id BIGINT, r ROW<EXPR$0 BIGINT, EXPR$1 STRING> NOT NULL"


def test_missing_columns_are_null_and_values_are_converted() -> None:
    plan = plan_of(
        "CREATE TABLE o (a BIGINT, b STRING, c DOUBLE) WITH ('connector' = 'print');"
        + ORDERS
        + "INSERT INTO o (c, a) SELECT price, CAST(id AS INT) FROM orders"
    )
    node = plan.sinks[0].input
    assert isinstance(node, Calc)
    assert str(plan.sinks[0].schema) == "a BIGINT, b STRING, c DOUBLE"
    assert "NULL" in [str(p) for p in node.projections]
