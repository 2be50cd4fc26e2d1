"""What users read when a query is wrong: where, what was expected and given, and what to write instead."""

from __future__ import annotations

import pytest

from flowrun.frontend.sql.spans import SeveralErrors
from tests.frontend.sql.queries.binding import bind, problems

CASES = [
    ("SELECT ids FROM sales", "1:8", "column 'ids' does not exist in sales", "did you mean 'id'?"),
    ("SELECT ID FROM sales", "1:8", "column 'ID' does not exist", "names are case-sensitive: did you mean 'id'?"),
    ("SELECT s.ids FROM sales s", "1:10", "s has no column 'ids'", "did you mean 'id'?"),
    ("SELECT t.id FROM sales s", "1:8", "'t' is neither a table nor a column", "known: s"),
    ("SELECT id FROM salse", "1:16", "table 'salse' does not exist", "did you mean 'sales'?"),
    ("SELECT id FROM other.sales", "1:16", "'other' does not exist", "write sales"),
    ("SELECT client.oss FROM visits", "1:15", "client has no field 'oss'", "os"),
    ("SELECT shop FROM sales s, shops t", "1:8", "ambiguous: s and t have it", "write s.shop or t.shop"),
    ("SELECT id FROM (SELECT id, id FROM sales)", "1:8", "ambiguous", "AS"),
    ("SELECT UPPR(shop) FROM sales", "1:8", "function 'UPPR' does not exist", "did you mean 'UPPER'"),
    ("SELECT id, COUNT(*) FROM sales GROUP BY shop", "1:8", "neither grouped nor aggregated", "add it to GROUP BY"),
    ("SELECT MAX(id) FROM sales HAVING shop > 'a'", "1:34", "column 'shop' is not aggregated", "MAX(shop)"),
    ("SELECT shop AS s FROM sales GROUP BY s", "1:38", "column 's' does not exist", "repeat its expression here"),
    ("SELECT shop AS x FROM sales WHERE x = 'a'", "1:35", "column 'x' does not exist", "repeat its expression here"),
    ("SELECT shop FROM sales GROUP BY 1", "1:8", "column 'shop' is neither grouped", "groups by the constant, not by a column's"),
    ("SELECT a.b.f(id) FROM sales", "1:8", "'a.b.f' is in a catalog or database that does not exist", "write f(…)"),
    ("SELECT default_database.ABS(id) FROM sales", "1:8", "function 'ABS' does not exist in default_catalog", "write ABS(…)"),
    ("SELECT * FROM TABLE(o.words(shop))", "1:21", "'o.words' is in a catalog or database that does not", "write words(…)"),
    ("SELECT id FROM sales WHERE COUNT(*) > 1", "1:28", "not possible in WHERE", "use HAVING"),
    ("SELECT JSON_ARRAYAGG(id) OVER (ORDER BY at) FROM sales", "1:8", "JSON_ARRAYAGG cannot have OVER", "ARRAY_AGG"),
    ("SELECT JSON_OBJECTAGG(KEY id VALUE id) FROM sales", "1:27", "must be a character string, BIGINT given", "CAST"),
    ("SELECT id FROM sales WHERE id OVERLAPS (at, at)", "1:31", "OVERLAPS compares two periods", None),
    ("SELECT SUM(MAX(id)) FROM sales", "1:12", "inside another aggregate", "subquery"),
    ("SELECT id FROM sales WHERE RANK() OVER (ORDER BY id) = 1", "1:28", "OVER is not possible in WHERE", "subquery"),
    ("SELECT RANK() FROM sales", "1:8", "RANK needs OVER", "OVER (PARTITION BY"),
    ("SELECT UPPER(shop) OVER (ORDER BY at) FROM sales", "1:8", "no aggregate or OVER function", None),
    ("SELECT RANK() OVER (PARTITION BY shop) FROM sales", "1:20", "RANK OVER needs ORDER BY", "ORDER BY"),
    ("SELECT SUM(id) OVER (ORDER BY at ROWS BETWEEN 1 FOLLOWING AND CURRENT ROW) FROM sales", "1:34", "ends before it begins", "BETWEEN"),
    ("SELECT SUM(id) OVER (ORDER BY at ROWS BETWEEN UNBOUNDED FOLLOWING AND CURRENT ROW) FROM sales", "1:47",
     "cannot begin behind the last row", "UNBOUNDED PRECEDING"),
    ("SELECT SUM(id) OVER (ORDER BY at ROWS BETWEEN 1 PRECEDING AND UNBOUNDED PRECEDING) FROM sales", "1:63",
     "cannot end before the first row", "UNBOUNDED FOLLOWING"),
    ("SELECT SUM(id) OVER (ORDER BY id, at RANGE 5 PRECEDING) FROM sales", "1:44", "RANGE counts units of one ORDER BY column", "ROWS"),
    ("SELECT SUM(id) OVER (ORDER BY id RANGE INTERVAL '1' DAY PRECEDING) FROM sales", "1:40", "RANGE over BIGINT needs a number", "10"),
    ("SELECT SUM(id) OVER (ORDER BY CAST(id AS DECIMAL(30, 2)) RANGE 5 PRECEDING) FROM sales", "1:64", "more than 18 digits", "DOUBLE"),
    ("SELECT STRING_AGG(shop, ',') FROM sales", "1:8", "function 'STRING_AGG' does not exist", "write LISTAGG(value, separator)"),
    ("SELECT STRING_AGG(shop, ',') OVER (ORDER BY at) FROM sales", "1:8", "'STRING_AGG' is no aggregate", "write LISTAGG(value"),
    ("SELECT DATE_TRUNC('hour', at) FROM sales", "1:8", "function 'DATE_TRUNC' does not exist", "write FLOOR(ts TO HOUR)"),
    ("SELECT at + INTERVAL '1 hour' FROM sales", "1:13", "the unit of an interval stands behind the quotes", "write INTERVAL '1' HOUR"),
    ("SELECT CAST(id AS int64) FROM sales", "1:19", "unknown type 'int64'", "write BIGINT"),
    ("SELECT NULL EXCEPT SELECT NULL", "1:1", "'EXPR$0' is NULL without a type", "CAST(NULL AS STRING)"),
    ("SELECT DISTINCT NULL AS x, id FROM sales", "1:1", "'x' is NULL without a type", "CAST(NULL AS STRING)"),
    ("SELECT SUMM(id) OVER (PARTITION BY shop) FROM sales", "1:8", "'SUMM' is no aggregate or OVER function", "did you mean 'SUM'"),
    ("SELECT SUM(id ORDER BY at) FROM sales", "1:8", "the result of SUM does not depend on an order", "leave ORDER BY out"),
    ("SELECT UPPER(shop ORDER BY id) FROM sales", "1:28", "ORDER BY stands only in aggregates, UPPER is none", "LISTAGG or ARRAY_AGG"),
    ("SELECT LISTAGG(DISTINCT shop) WITHIN GROUP (ORDER BY id) FROM sales", "1:54", "ordered only by the value itself", "ORDER BY shop"),
    ("SELECT APPROX_COUNT_DISTINCT(*) FROM sales", "1:8", "takes one value", "APPROX_COUNT_DISTINCT(value)"),
    ("SELECT SUM(id) OVER (ORDER BY at RANGE 5 PRECEDING) FROM sales", "1:40", "RANGE needs an interval", "INTERVAL '1' HOUR"),
    ("SELECT SUM(id) OVER v FROM sales WINDOW w AS (ORDER BY at)", "1:21", "window 'v' does not exist", "w"),
    ("SELECT * FROM TABLE(TUMBLE(TABLE sales, DESCRIPTOR(att), INTERVAL '1' HOUR))", "1:52", "column 'att'", "did you mean 'at'"),
    ("SELECT * FROM TABLE(TUMBLE(TABLE sales, at, INTERVAL '1' HOUR))", "1:41", "must be DESCRIPTOR(column)", "usage: TUMBLE("),
    ("SELECT * FROM TABLE(TUMBLE(TABLE sales, DESCRIPTOR(at), 5))", "1:57", "constant interval of days to seconds", "usage"),
    ("SELECT * FROM TABLE(HOP(TABLE sales, DESCRIPTOR(at), INTERVAL '1' HOUR))", "1:15", "HOP needs SIZE", "slide, then size"),
    ("SELECT * FROM TABLE(TUMBLE(TABLE sales, DESCRIPTOR(at), INTERVAL '0' HOUR))", "1:57", "longer than nothing", "usage"),
    ("SELECT * FROM TABLE(TUMBLE(SIZ => INTERVAL '1' HOUR, DATA => TABLE sales))", "1:28", "no parameter 'SIZ'", "SIZE"),
    ("SELECT * FROM TABLE(TUMBLE(TABLE sales PARTITION BY shop, DESCRIPTOR(at), INTERVAL '1' HOUR))", "1:53",
     "takes no PARTITION BY", "group by"),
    ("SELECT * FROM TABLE(WORDS(shop))", "1:21", "table function 'WORDS' does not exist", "TUMBLE"),
    ("SELECT TUMBLE_END(at, INTERVAL '1' HOUR) FROM sales GROUP BY TUMBLE(at, INTERVAL '1' DAY)", "1:8", "same TUMBLE(…)", None),
    ("SELECT TUMBLE(at, INTERVAL '1' HOUR) FROM sales", "1:8", "stands only in GROUP BY", "TUMBLE_START"),
    ("SELECT id FROM sales UNION SELECT shop FROM shops", "1:28", "BIGINT on the left and STRING on the right", "CAST"),
    ("SELECT id, shop FROM sales UNION SELECT shop FROM shops", "1:34", "2 on the left, 1 on the right", None),
    ("SELECT shop FROM sales MINUS SELECT shop FROM shops", "1:24", "MINUS is not part of Flink SQL", "write EXCEPT"),
    ("SELECT DISTINCT shop FROM sales ORDER BY id LIMIT 1", "1:42", "takes only output columns", "select list"),
    ("SELECT id FROM sales ORDER BY 2 LIMIT 1", "1:31", "only 1 output columns", None),
    ("SELECT s.id FROM sales s JOIN shops s ON TRUE", "1:31", "two tables in FROM are called 's'", "AS another_name"),
    ("SELECT s.id FROM sales s LEFT SEMI JOIN shops t ON TRUE", "1:31", "SEMI JOIN is not part of Flink SQL", "EXISTS"),
    ("SELECT s.id FROM sales s JOIN shops t", "1:38", "expected ON or USING", None),
    ("SELECT * FROM sales FOR SYSTEM_TIME AS OF at", "1:15", "only on the right of a join", "JOIN versions"),
    ("SELECT s.id FROM sales s FULL JOIN shops FOR SYSTEM_TIME AS OF s.at AS t ON TRUE", "1:18", "not possible in a FULL", "LEFT JOIN"),
    ("SELECT p FROM visits, UNNEST(visit) AS u(p)", "1:30", "UNNEST of BIGINT", "ARRAY, MAP"),
    ("SELECT p FROM visits, UNNEST(pages) AS u(p, q)", "1:42", "2 column names for 1 columns", None),
    ("SELECT id FROM sales WHERE id IN (SELECT shop FROM shops)", "1:28", "does not take BIGINT and STRING", "CAST"),
    ("SELECT id FROM sales WHERE id IN (SELECT visit, shop FROM visits)", "1:28", "1 value cannot be IN a query of 2 columns", None),
    ("SELECT (SELECT id, shop FROM sales)", "1:8", "must have one column, this has 2", None),
    ("SELECT id FROM sales s WHERE EXISTS (SELECT 1 FROM UNNEST(s.shop) AS u)", "1:59", "UNNEST of STRING is not possible", "ARRAY"),
    ("SELECT id FROM sales WHERE (id, pieces) > ALL (SELECT visit, 1 FROM visits)", "1:28", "> ALL compares one value", "rows with = ANY"),
    ("SELECT facts >= ANY (SELECT facts FROM visits) FROM visits", "1:8", "does not take MAP", None),
    ("SELECT id FROM sales WHERE (id, pieces) = (SELECT visit FROM visits)", "1:28", "a row of 2 values does not compare with one of 1",
     "as many values"),
    ("SELECT (SELECT COUNT(*) FROM visits v WHERE v.shop <> s.shop GROUP BY TUMBLE(v.at, INTERVAL '1' DAY)) FROM sales s", "1:8",
     "a window in this subquery reads rows that depend on the query around it", "make a view"),
    ("SELECT * FROM sales TABLESAMPLE SYSTEM (10)", "1:21", "TABLESAMPLE is not supported", "filter"),
    ("WITH RECURSIVE a AS (SELECT 1) SELECT * FROM a", "1:6", "WITH RECURSIVE", None),
    ("SELECT *", "1:8", "* needs a table", "FROM table"),
    ("SELECT id FROM sales WHERE price", "1:28", "must be BOOLEAN, this is DECIMAL(8, 2)", "compare it"),
    ("VALUES (1), ('a')", "1:14", "no common type: INT, CHAR(1)", "CAST"),
    ("VALUES (1, 2), (3)", "1:17", "this row of VALUES has 1 values, the first has 2", None),
    ("SELECT id, FROM sales", "1:12", "expected a column or expression, got 'FROM'", None),
    ("SELECT id FROM sales WHERE", "1:27", "expected an expression, got the end", None),
    ("SELECT id FROM (SELECT id FROM sales", "1:37", "expected ')'", None),
    ("SELECT \"id\" FROM sales", "1:8", "unexpected '\"'", None),
]  # fmt: skip


@pytest.mark.parametrize(("query", "place", "message", "hint"), CASES, ids=[c[0] for c in CASES])
def test_an_error_says_where_what_and_what_to_do(query: str, place: str, message: str, hint: str | None) -> None:
    text = problems(query)
    assert f"script.sql:{place}: error: " in text
    assert message in text
    assert hint is None or hint in text.partition("hint:")[2]


def test_everything_wrong_shows_in_one_run() -> None:
    text = problems("SELECT a1, UPPR(shop) FROM sales WHERE b1 = 1 AND c1 > 2 GROUP BY d1 HAVING e1 > 1")
    assert [n for n in ("a1", "UPPR", "b1", "c1", "d1", "e1") if f"'{n}'" not in text] == []


def test_both_sides_of_joins_unions_and_with_are_looked_at() -> None:
    text = problems(
        "WITH a AS (SELECT x1 FROM sales), b AS (SELECT x2 FROM shops) "
        "SELECT * FROM a JOIN (SELECT x3 FROM sales) c ON TRUE UNION ALL SELECT x4 FROM sales"
    )
    assert [n for n in ("x1", "x2", "x3", "x4") if f"'{n}'" not in text] == []
    assert text.count("error:") == 4


def test_places_count_in_the_whole_script() -> None:
    with pytest.raises(SeveralErrors) as caught:
        bind("SELECT nope FROM sales", offset=100)
    assert [(e.offset, e.length) for e in caught.value.errors] == [(107, 4)]


def test_a_query_that_is_nested_too_deeply_is_an_error() -> None:
    assert "nested too deeply" in problems("SELECT " + "(" * 5000 + "1" + ")" * 5000)
