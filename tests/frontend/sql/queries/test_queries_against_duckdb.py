"""Bound queries mean what they mean in DuckDB, whatever joins and aggregates they became."""

from __future__ import annotations

import duckdb
import pytest

from tests.frontend.sql.queries.binding import data, plan
from tests.frontend.sql.queries.interpreter import Interpreter, comparable

QUERIES = """
SELECT id, price * pieces AS total FROM sales WHERE pieces > 1 AND shop <> 'north'
SELECT *, price + 1 AS more FROM sales s WHERE s.item IS NULL
SELECT shop, COUNT(*), SUM(price), MIN(item), COUNT(DISTINCT item) FROM sales GROUP BY shop
SELECT UPPER(shop) AS u, COUNT(*) + 1, SUM(pieces) * 2 FROM sales GROUP BY UPPER(shop) HAVING COUNT(*) > 5 AND UPPER(shop) <> 'EAST'
SELECT COUNT(*) FILTER (WHERE pieces = 1), MAX(price) FROM sales
SELECT shop || '!', MAX(price) - MIN(price) FROM sales GROUP BY shop, item
SELECT DISTINCT shop, item FROM sales WHERE pieces IS NOT NULL
SELECT s.id, t.city FROM sales s JOIN shops t ON s.shop = t.shop AND t.opened > 1995
SELECT s.id, t.city FROM sales s LEFT JOIN shops t ON s.shop = t.shop
SELECT s.id, t.city FROM sales s RIGHT JOIN shops t ON s.shop = t.shop AND s.pieces = 1
SELECT s.id, t.city, t.shop FROM sales s FULL JOIN shops t ON s.shop = t.shop AND s.id < 10
SELECT s.id, t.city FROM sales s, shops t WHERE s.shop = t.shop AND s.id > t.opened - 2000
SELECT a.id, b.id, c.city FROM sales a, sales b, shops c WHERE a.item = b.item AND a.id < b.id AND b.shop = c.shop AND a.pieces = 2
SELECT shop, id, city, s.shop, t.shop FROM sales s JOIN shops t USING (shop)
SELECT shop, id, city, s.shop, t.shop FROM sales s FULL JOIN shops t USING (shop)
SELECT shop, id, city FROM sales RIGHT JOIN shops USING (shop)
SELECT * FROM (SELECT shop, id FROM sales) NATURAL LEFT JOIN shops
SELECT COUNT(*) FROM sales CROSS JOIN shops
SELECT id FROM sales WHERE shop IN (SELECT shop FROM shops)
SELECT id FROM sales WHERE shop NOT IN (SELECT shop FROM shops)
SELECT id FROM sales WHERE shop NOT IN (SELECT shop FROM shops WHERE shop IS NOT NULL)
SELECT id FROM sales WHERE shop NOT IN (SELECT shop FROM shops WHERE shop = 'atlantis')
SELECT id FROM sales WHERE id NOT IN (SELECT visit FROM visits)
SELECT id FROM sales WHERE NOT (shop IN (SELECT shop FROM shops WHERE opened > 1995))
SELECT id, shop IN (SELECT shop FROM shops) AS here FROM sales
SELECT id, shop NOT IN (SELECT shop FROM shops WHERE opened > 3000) AS here FROM sales
SELECT id, shop IN (SELECT shop FROM shops WHERE shop IS NOT NULL) AS here FROM sales
SELECT id, pieces IN (SELECT opened - 2000 FROM shops t WHERE t.shop = s.shop) AS here FROM sales s
SELECT id FROM sales WHERE shop IN (SELECT shop FROM shops) OR pieces = 3
SELECT id FROM sales WHERE shop NOT IN (SELECT shop FROM shops) OR pieces = 3
SELECT id FROM sales WHERE NOT (shop IN (SELECT shop FROM shops) AND pieces = 3)
SELECT id FROM sales s WHERE EXISTS (SELECT 1 FROM shops t WHERE t.shop = s.shop)
SELECT id FROM sales s WHERE EXISTS (SELECT * FROM shops t WHERE t.shop = s.shop AND t.opened - 2000 <= s.pieces)
SELECT id FROM sales s WHERE NOT EXISTS (SELECT * FROM shops t WHERE t.shop = s.shop AND t.opened - 2000 <= s.pieces)
SELECT id FROM sales s WHERE NOT EXISTS (SELECT 1 FROM shops t WHERE t.shop = s.shop) AND pieces > 0
SELECT id FROM sales s WHERE EXISTS (SELECT 1 FROM shops t WHERE t.shop = s.shop) OR id < 3
SELECT id, NOT EXISTS (SELECT 1 FROM shops t WHERE t.shop = s.shop AND city = 'Oslo') FROM sales s
SELECT id FROM sales WHERE EXISTS (SELECT 1 FROM shops WHERE opened > 2000)
SELECT id FROM sales WHERE NOT EXISTS (SELECT 1 FROM shops WHERE opened > 3000)
SELECT id FROM sales s WHERE EXISTS (SELECT shop FROM shops t WHERE t.shop = s.shop GROUP BY shop HAVING COUNT(*) > 1)
SELECT id FROM sales s WHERE EXISTS (SELECT 1 FROM visits v WHERE v.shop = s.shop AND v.visit IN (SELECT opened FROM shops))
SELECT id FROM sales WHERE price > (SELECT AVG(price) FROM sales)
SELECT id FROM sales s WHERE price = (SELECT MAX(price) FROM sales i WHERE i.shop = s.shop)
SELECT city, (SELECT COUNT(*) FROM sales s WHERE s.shop = t.shop) AS n FROM shops t
SELECT city, (SELECT COUNT(*) + 10 FROM sales s WHERE s.shop = t.shop AND s.pieces > 1) + 1 AS n FROM shops t
SELECT city, (SELECT SUM(pieces) FROM sales s WHERE s.shop = t.shop) AS n FROM shops t
SELECT city, (SELECT COUNT(*) FROM sales WHERE id > 0) AS n FROM shops t
SELECT city, (SELECT MAX(pieces) FROM sales s WHERE s.shop = t.shop HAVING COUNT(*) > 8) AS n FROM shops t
SELECT v.visit, (SELECT price FROM sales s WHERE s.id = v.visit) FROM visits v
SELECT (SELECT city FROM shops WHERE opened = 7), id FROM sales
SELECT city, (SELECT id FROM sales s WHERE s.shop = t.shop ORDER BY id DESC LIMIT 1) FROM shops t
SELECT shop FROM sales GROUP BY shop HAVING COUNT(*) >= (SELECT COUNT(*) FROM shops) AND shop IN (SELECT shop FROM shops)
SELECT shop, SUM(CASE WHEN item IN (SELECT 'tea') THEN 1 ELSE 0 END) FROM sales GROUP BY shop
SELECT id FROM sales WHERE (shop, pieces) IN (SELECT shop, opened - 2000 FROM shops)
SELECT id FROM sales WHERE (shop, pieces) NOT IN (SELECT shop, opened - 2000 FROM shops)
SELECT id FROM sales WHERE pieces = ANY (SELECT opened - 2000 FROM shops)
SELECT id FROM sales WHERE pieces <> ALL (SELECT opened - 2000 FROM shops WHERE opened IS NOT NULL)
SELECT s.id FROM sales s JOIN shops t ON s.shop = t.shop AND s.id IN (SELECT visit FROM visits)
SELECT CASE WHEN EXISTS (SELECT 1 FROM visits v WHERE v.visit = s.id) THEN 'seen' ELSE 'new' END AS x, id FROM sales s
SELECT shop FROM sales UNION SELECT shop FROM shops
SELECT shop, pieces FROM sales UNION ALL SELECT shop, opened FROM shops
SELECT shop FROM sales INTERSECT SELECT shop FROM shops
SELECT shop FROM sales EXCEPT SELECT shop FROM shops
SELECT shop FROM shops EXCEPT SELECT shop FROM sales UNION ALL SELECT 'x'
SELECT shop FROM sales UNION SELECT city FROM shops INTERSECT SELECT shop FROM visits
SELECT shop, item, COUNT(*), SUM(pieces) FROM sales GROUP BY GROUPING SETS ((shop, item), (shop), ())
SELECT shop, item, COUNT(*), GROUPING(shop), GROUPING_ID(shop, item) FROM sales GROUP BY CUBE(shop, item)
SELECT shop, item, pieces, COUNT(*) FROM sales GROUP BY pieces, ROLLUP(shop, item)
SELECT shop, item, COUNT(*) FROM sales GROUP BY ROLLUP((shop, item), pieces)
SELECT id, ROW_NUMBER() OVER (PARTITION BY shop ORDER BY id) AS rn FROM sales
SELECT * FROM (SELECT id, shop, ROW_NUMBER() OVER (PARTITION BY shop ORDER BY price DESC NULLS LAST, id) AS rn FROM sales) t WHERE rn <= 2
SELECT id, SUM(pieces) OVER (PARTITION BY shop ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM sales
SELECT id, COUNT(*) OVER (PARTITION BY shop ORDER BY pieces NULLS FIRST) FROM sales
SELECT id, LAG(id) OVER w, LEAD(id, 2, 0) OVER w, RANK() OVER (PARTITION BY shop ORDER BY pieces NULLS FIRST) FROM sales WINDOW w AS (PARTITION BY shop ORDER BY id)
SELECT shop, SUM(SUM(pieces)) OVER (ORDER BY shop NULLS FIRST) FROM sales GROUP BY shop
SELECT shop, id FROM sales QUALIFY ROW_NUMBER() OVER (PARTITION BY shop ORDER BY id) = 1
SELECT id, price FROM sales ORDER BY price DESC NULLS LAST, id LIMIT 5 OFFSET 2
SELECT shop, SUM(pieces) AS total FROM sales GROUP BY shop ORDER BY total DESC NULLS LAST, shop NULLS FIRST LIMIT 2
SELECT item FROM sales ORDER BY id DESC LIMIT 4
SELECT shop FROM sales UNION SELECT city FROM shops ORDER BY 1 NULLS FIRST LIMIT 3
WITH a AS (SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop), b AS (SELECT MAX(n) AS n FROM a) SELECT a.shop FROM a JOIN b ON a.n = b.n
WITH a (x) AS (SELECT 1), b AS (WITH a AS (SELECT 2 AS y) SELECT y FROM a) SELECT x, y FROM a, b
SELECT x, y FROM (VALUES (1, 'a'), (2, NULL), (3, 'c')) AS t(x, y) WHERE x > 1
SELECT 1 + 1, 'x'
SELECT visit, page FROM visits CROSS JOIN UNNEST(pages) AS t(page)
SELECT t.shop, x.item FROM shops t, LATERAL (SELECT item, price FROM sales s WHERE s.shop = t.shop ORDER BY price DESC NULLS LAST, id LIMIT 2) AS x
SELECT t.city, x.n, x.m FROM shops t, LATERAL (SELECT COUNT(*) AS n, MAX(pieces) + t.opened AS m FROM sales s WHERE s.shop = t.shop AND s.pieces > 1) AS x
SELECT t.city, x.n FROM shops t CROSS JOIN LATERAL (SELECT COUNT(*) AS n FROM sales s WHERE s.shop = t.shop HAVING COUNT(*) > 8) AS x
SELECT t.city, n, m FROM shops t LEFT JOIN LATERAL (SELECT COUNT(*), MIN(id) FROM sales s WHERE s.shop = t.shop) AS x (n, m) ON t.opened > 1995 AND n > 0
SELECT t.city, x.id FROM shops t LEFT JOIN LATERAL (SELECT id FROM sales s WHERE s.shop = t.shop AND s.pieces > t.opened - 2000) AS x ON TRUE
SELECT client.os, client.release.major + 1 AS m FROM visits
SELECT COUNT(*) FROM (SELECT id, id FROM sales) t
SELECT id FROM sales s WHERE price > (SELECT AVG(price) FROM sales i WHERE i.shop = s.shop AND i.pieces < 2) OR price IS NULL
SELECT a.n FROM (SELECT COUNT(*) AS n FROM sales GROUP BY shop) a WHERE a.n > 1
SELECT MAX(n), shop FROM (SELECT shop, item, COUNT(*) AS n FROM sales GROUP BY shop, item) GROUP BY shop
"""  # noqa: E501


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    for name, table in data().items():
        database.register(f"{name}_rows", table)
        database.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_rows")
    return database


@pytest.mark.parametrize("query", [q for q in QUERIES.splitlines() if q])
def test_a_query_gives_the_rows_that_duckdb_gives(query: str, connection: duckdb.DuckDBPyConnection) -> None:
    got = Interpreter(data()).rows(plan(query))
    expected = connection.execute(query).fetchall()
    assert comparable(got) == comparable(expected)


def test_one_count_for_all_rows_is_unknown_over_no_rows() -> None:
    """As in a Flink stream; a 0 would also stand there before the first row has come, and be divided by."""
    query = "SELECT city, 100 / (SELECT COUNT(*) FROM sales WHERE id > 1000) AS share FROM shops"
    assert {share for _, share in Interpreter(data()).rows(plan(query))} == {None}
