"""Subqueries mean what they mean in DuckDB: correlated ones everywhere, quantified comparisons, rows, ON of outer joins."""

from __future__ import annotations

import duckdb
import pytest

from tests.frontend.sql.queries.binding import data, plan
from tests.frontend.sql.queries.interpreter import Interpreter, comparable
from tests.frontend.sql.queries.test_queries_against_duckdb import connection  # noqa: F401 - a fixture

QUERIES = """
SELECT id, (SELECT COUNT(*) FROM sales i WHERE i.shop <> s.shop) AS n FROM sales s
SELECT id, (SELECT MAX(i.price) FROM sales i WHERE i.pieces < s.pieces) AS n FROM sales s
SELECT id, EXISTS (SELECT 1 FROM sales i WHERE i.shop <> s.shop AND i.pieces > s.pieces) FROM sales s
SELECT id FROM sales s WHERE NOT EXISTS (SELECT 1 FROM sales i WHERE i.id <> s.id AND i.pieces >= s.pieces) OR id < 3
SELECT city, (SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM sales s WHERE s.shop = t.shop GROUP BY item) x) FROM shops t
SELECT city, (SELECT SUM(n) FROM (SELECT COUNT(*) AS n FROM sales s WHERE s.shop = t.shop) x) FROM shops t
SELECT city, (SELECT COUNT(*) FROM (SELECT DISTINCT item FROM sales s WHERE s.shop = t.shop) x) FROM shops t
SELECT city FROM shops t WHERE EXISTS (SELECT 1 FROM sales s WHERE s.shop = t.shop AND EXISTS (SELECT 1 FROM visits v WHERE v.shop = t.shop AND v.visit > s.id))
SELECT city FROM shops t WHERE EXISTS (SELECT 1 FROM sales s WHERE EXISTS (SELECT 1 FROM visits v WHERE v.shop = t.shop AND v.visit = s.id))
SELECT city, (SELECT COUNT(*) FROM sales s WHERE s.price > (SELECT AVG(price) FROM sales i WHERE i.shop = t.shop)) FROM shops t
SELECT city FROM shops t WHERE t.opened IN (SELECT s.pieces + 2000 FROM sales s WHERE s.shop = t.shop UNION SELECT v.visit FROM visits v WHERE v.shop = t.shop)
SELECT city, (SELECT COUNT(*) FROM (SELECT id FROM sales s WHERE s.shop = t.shop UNION ALL SELECT visit FROM visits v WHERE v.shop <> t.shop) u) FROM shops t
SELECT city FROM shops t WHERE EXISTS (SELECT item FROM sales s WHERE s.shop = t.shop EXCEPT SELECT page FROM visits, UNNEST(pages) AS p(page))
SELECT city FROM shops t WHERE EXISTS (SELECT 1 FROM sales s JOIN visits v ON s.shop = v.shop AND s.shop = t.shop)
SELECT city FROM shops t WHERE EXISTS (SELECT 1 FROM sales s LEFT JOIN visits v ON s.id = v.visit AND v.shop = t.shop WHERE v.visit IS NULL AND s.shop = t.shop)
SELECT city, (SELECT COUNT(v.visit) FROM sales s LEFT JOIN visits v ON s.id = v.visit AND v.shop = t.shop) FROM shops t
SELECT city, (SELECT COUNT(*) FROM (SELECT * FROM sales s WHERE s.shop = t.shop) a FULL JOIN (SELECT * FROM visits v WHERE v.shop = t.shop) b ON a.id = b.visit) FROM shops t
SELECT city, (SELECT COUNT(*) FROM (SELECT * FROM sales s WHERE s.shop = t.shop) a RIGHT JOIN (SELECT * FROM visits v WHERE v.visit > 2) b ON a.id = b.visit) FROM shops t
SELECT city, (SELECT t.opened + COUNT(*) FROM sales s WHERE s.shop = t.shop) FROM shops t
SELECT city, (SELECT t.opened FROM sales s WHERE s.shop = t.shop AND s.id = 3) FROM shops t
SELECT city, (SELECT SUM(s.pieces + t.opened) FROM sales s WHERE s.shop = t.shop) FROM shops t
SELECT city, (SELECT COUNT(*) FROM sales s WHERE s.shop = t.shop HAVING COUNT(*) = 0) FROM shops t
SELECT city FROM shops t WHERE EXISTS (SELECT COUNT(*) FROM sales s WHERE s.shop = t.shop HAVING COUNT(*) = 0)
SELECT city FROM shops t WHERE NOT EXISTS (SELECT COUNT(*) FROM sales s WHERE s.shop = t.shop HAVING COUNT(*) > 8)
SELECT city FROM shops t WHERE 0 IN (SELECT COUNT(*) FROM sales s WHERE s.shop <> t.shop)
SELECT city, 9 NOT IN (SELECT COUNT(*) FROM sales s WHERE s.shop = t.shop HAVING COUNT(*) > 100) FROM shops t
SELECT v.visit FROM visits v WHERE EXISTS (SELECT 1 FROM UNNEST(v.pages) AS p(page) WHERE page <> 'x')
SELECT v.visit, (SELECT COUNT(*) FROM UNNEST(v.pages) AS p(page)) FROM visits v
SELECT id, (SELECT MAX(x) FROM (VALUES (s.pieces), (s.id)) AS t(x)) FROM sales s
SELECT id, (SELECT s.pieces + 1) FROM sales s
SELECT city, (SELECT id FROM sales s WHERE s.pieces + 2000 > t.opened ORDER BY id DESC LIMIT 1) FROM shops t
SELECT city, (SELECT COUNT(*) FROM (SELECT id FROM sales s WHERE s.pieces + 1990 > t.opened ORDER BY id LIMIT 3) x) FROM shops t
SELECT t.shop, x.id FROM shops t, LATERAL (SELECT id FROM sales s WHERE s.pieces + 1990 > t.opened ORDER BY id LIMIT 2) AS x
SELECT t.shop, x.n FROM shops t, LATERAL (SELECT COUNT(*) AS n FROM sales s WHERE s.shop <> t.shop) AS x
SELECT t.shop, x.n FROM shops t LEFT JOIN LATERAL (SELECT id AS n FROM sales s WHERE s.shop = t.shop UNION SELECT visit FROM visits v WHERE v.shop = t.shop) AS x ON x.n > 3
SELECT t.shop, x.item, x.n FROM shops t, LATERAL (SELECT item, COUNT(*) AS n FROM sales s WHERE s.shop > t.shop GROUP BY item) AS x
SELECT city, (SELECT MAX(rn) FROM (SELECT ROW_NUMBER() OVER (ORDER BY id) AS rn FROM sales s WHERE s.shop = t.shop) x) FROM shops t
SELECT city, (SELECT COUNT(DISTINCT s.item) FROM sales s WHERE s.shop <> t.shop) FROM shops t
SELECT city FROM shops t WHERE (SELECT COUNT(*) FROM sales s WHERE s.shop = t.shop AND s.pieces <> 2) > 3
SELECT city FROM shops t WHERE t.shop IN (SELECT s.shop FROM sales s WHERE s.pieces <> t.opened - 2000 GROUP BY s.shop HAVING COUNT(*) > 3)
SELECT id FROM sales s WHERE id NOT IN (SELECT v.visit FROM visits v WHERE v.shop <> s.shop)
SELECT id, pieces NOT IN (SELECT i.pieces FROM sales i WHERE i.shop <> s.shop AND i.id < 5) FROM sales s
SELECT a.n FROM (SELECT city AS n, (SELECT COUNT(*) FROM sales s WHERE s.shop <> shops.shop) AS c FROM shops) a WHERE a.c > 3
SELECT shop, COUNT(*) FROM sales s GROUP BY shop HAVING COUNT(*) > (SELECT COUNT(*) FROM visits v WHERE v.shop <> s.shop)
SELECT city, (SELECT COUNT(*) FROM sales s WHERE s.shop = t.shop AND s.pieces IN (SELECT i.pieces FROM sales i WHERE i.shop <> t.shop)) FROM shops t
SELECT city FROM shops t WHERE EXISTS (SELECT 1 FROM sales s WHERE s.shop = t.shop GROUP BY s.item HAVING COUNT(*) > t.opened - 2000)
SELECT city, (SELECT COUNT(*) FROM sales s WHERE s.shop = pieces.shop) FROM shops pieces
SELECT city FROM shops item WHERE EXISTS (SELECT 1 FROM sales s WHERE EXISTS (SELECT 1 FROM visits page WHERE page.shop = item.shop AND page.visit = s.id))
SELECT id FROM sales WHERE (shop, pieces) = ('north', 2)
SELECT id FROM sales WHERE (id, pieces) < (5, 2)
SELECT id FROM sales WHERE (id, pieces) IN ((1, 2), (3, 1))
SELECT id, pieces > ALL (SELECT opened - 2000 FROM shops) FROM sales
SELECT id, pieces > ALL (SELECT opened - 2000 FROM shops WHERE opened IS NOT NULL) FROM sales
SELECT id, pieces >= ALL (SELECT i.pieces FROM sales i WHERE i.shop = s.shop) FROM sales s
SELECT id, pieces >= SOME (SELECT i.pieces FROM sales i WHERE i.shop = s.shop AND i.pieces IS NOT NULL) FROM sales s
SELECT id, pieces < ANY (SELECT i.pieces FROM sales i WHERE i.shop <> s.shop) FROM sales s
SELECT id, pieces <= ALL (SELECT i.pieces FROM sales i WHERE i.id < s.id) FROM sales s
SELECT id, pieces = ALL (SELECT i.pieces FROM sales i WHERE i.shop = s.shop) FROM sales s
SELECT id, pieces <> ANY (SELECT i.pieces FROM sales i WHERE i.shop = s.shop) FROM sales s
SELECT id FROM sales s WHERE price >= ALL (SELECT i.price FROM sales i WHERE i.shop = s.shop AND i.price IS NOT NULL)
SELECT id FROM sales s WHERE NOT (price >= ALL (SELECT i.price FROM sales i WHERE i.shop = s.shop))
SELECT id, pieces > ALL (SELECT 1 WHERE FALSE), pieces > ANY (SELECT 1 WHERE FALSE) FROM sales s
SELECT id, (shop, pieces) IN (SELECT shop, opened - 2000 FROM shops) AS x FROM sales
SELECT id FROM sales s WHERE pieces > ALL (SELECT opened - 2000 FROM shops t WHERE t.shop = s.shop) OR id < 2
SELECT id FROM sales s WHERE id = ANY (SELECT visit FROM visits v WHERE v.shop <> s.shop)
SELECT id, pieces > ALL (SELECT COUNT(*) FROM shops t WHERE t.shop = s.shop) FROM sales s
SELECT id, item > ALL (SELECT city FROM shops WHERE city IS NOT NULL) FROM sales s
SELECT s.id, t.city FROM sales s LEFT JOIN shops t ON s.shop = t.shop AND t.opened IN (SELECT 2000 + pieces FROM sales)
SELECT s.id, t.city FROM sales s LEFT JOIN shops t ON s.shop = t.shop AND s.id IN (SELECT visit FROM visits)
SELECT s.id, t.city FROM sales s LEFT JOIN shops t ON EXISTS (SELECT 1 FROM visits v WHERE v.shop = s.shop AND v.visit > t.opened - 2000)
SELECT s.id, t.city FROM sales s RIGHT JOIN shops t ON EXISTS (SELECT 1 FROM visits v WHERE v.shop = s.shop AND v.visit = t.opened - 2000)
SELECT s.id, t.city FROM sales s RIGHT JOIN shops t ON s.shop = t.shop AND s.id NOT IN (SELECT visit FROM visits)
SELECT s.id, t.city FROM sales s RIGHT JOIN shops t ON s.shop = t.shop AND t.opened > ANY (SELECT visit + 1995 FROM visits)
SELECT s.id, t.city FROM sales s FULL JOIN shops t ON s.shop = t.shop AND s.id IN (SELECT visit FROM visits)
SELECT s.id, t.city FROM sales s FULL JOIN shops t ON s.shop = t.shop AND t.opened > (SELECT AVG(visit) + 1995 FROM visits)
SELECT s.id, t.city FROM sales s FULL JOIN shops t ON s.shop = t.shop AND EXISTS (SELECT 1 FROM visits v WHERE v.shop = s.shop AND v.visit = t.opened - 2000)
SELECT s.id, t.city FROM sales s JOIN shops t ON EXISTS (SELECT 1 FROM visits v WHERE v.shop = s.shop AND v.visit > t.opened - 2000)
SELECT s.id, t.city FROM sales s LEFT JOIN shops t ON EXISTS (SELECT 1 FROM visits WHERE visit > 5) AND s.shop = t.shop
SELECT a.city, (SELECT COUNT(t.city) FROM sales s LEFT JOIN shops t ON s.shop = t.shop AND t.opened IN (SELECT 2000 + pieces FROM sales i WHERE i.shop = a.shop)) FROM shops a
"""  # noqa: E501

OSLO = "(SELECT opened - 2000 FROM shops WHERE city = 'Oslo')"
VISITS = "(SELECT {} FROM visits v WHERE v.shop = s.shop)"
ROWS = (
    (
        "SELECT id FROM sales WHERE (shop, pieces) <> ('north', 2)",
        "SELECT id FROM sales WHERE shop <> 'north' OR pieces <> 2",
    ),
    (
        "SELECT id FROM sales WHERE (shop, pieces) = (SELECT shop, opened - 2000 FROM shops WHERE city = 'Oslo')",
        f"SELECT id FROM sales WHERE shop = (SELECT shop FROM shops WHERE city = 'Oslo') AND pieces = {OSLO}",
    ),
    (
        "SELECT id FROM sales WHERE (shop, pieces) <> (SELECT shop, opened - 2000 FROM shops WHERE city = 'Oslo')",
        f"SELECT id FROM sales WHERE shop <> (SELECT shop FROM shops WHERE city = 'Oslo') OR pieces <> {OSLO}",
    ),
    (
        "SELECT id, (id, pieces) <= (SELECT opened - 2000, 3 FROM shops WHERE city = 'Oslo') FROM sales",
        f"SELECT id, id < {OSLO} OR (id = {OSLO} AND pieces <= 3) FROM sales",
    ),
    (
        "SELECT id, (SELECT opened - 2000, 3 FROM shops WHERE city = 'Oslo') < (id, pieces) FROM sales",
        f"SELECT id, {OSLO} < id OR ({OSLO} = id AND 3 < pieces) FROM sales",
    ),
    (
        "SELECT id, (id, pieces) >= (SELECT MAX(visit), COUNT(*) FROM visits v WHERE v.shop = s.shop) FROM sales s",
        f"SELECT id, id > {VISITS.format('MAX(visit)')} OR (id = {VISITS.format('MAX(visit)')} AND pieces >= "
        f"{VISITS.format('COUNT(*)')}) FROM sales s",
    ),
    (
        "SELECT id, (shop, pieces) NOT IN (SELECT i.shop, i.opened - 2000 FROM shops i WHERE i.city <> s.item) FROM sales s",
        "SELECT id, CASE WHEN EXISTS (SELECT 1 FROM shops i WHERE i.city <> s.item AND i.shop = s.shop AND i.opened - 2000 = s.pieces) "
        "THEN FALSE WHEN EXISTS (SELECT 1 FROM shops i WHERE i.city <> s.item AND (i.shop = s.shop) IS NOT FALSE "
        "AND (i.opened - 2000 = s.pieces) IS NOT FALSE) THEN NULL ELSE TRUE END FROM sales s",
    ),
)
"""What DuckDB does not know, and the same in words that it knows."""


@pytest.mark.parametrize("query", [q for q in QUERIES.splitlines() if q])
def test_a_subquery_gives_what_duckdb_gives(query: str, connection: duckdb.DuckDBPyConnection) -> None:  # noqa: F811
    assert comparable(Interpreter(data()).rows(plan(query))) == comparable(connection.execute(query).fetchall())


@pytest.mark.parametrize(("query", "same"), ROWS)
def test_rows_are_compared_value_by_value(
    query: str,
    same: str,
    connection: duckdb.DuckDBPyConnection,  # noqa: F811
) -> None:
    assert comparable(Interpreter(data()).rows(plan(query))) == comparable(connection.execute(same).fetchall())


def test_a_group_of_nothing_that_offset_skips_gives_no_value() -> None:
    query = "SELECT (SELECT COUNT(*) FROM shops t WHERE t.shop = s.shop LIMIT 1 OFFSET 1) FROM sales s"
    assert {value for (value,) in Interpreter(data()).rows(plan(query))} == {None}


def test_several_rows_for_one_value_are_an_error_of_the_run() -> None:
    with pytest.raises(AssertionError, match="several rows for one value"):
        Interpreter(data()).rows(plan("SELECT (SELECT i.id FROM sales i WHERE i.id <> s.id) FROM sales s"))
