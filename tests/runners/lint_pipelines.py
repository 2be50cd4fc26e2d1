"""Pipelines in which rules of `flowrun lint` are true, and such in which they are not."""

from __future__ import annotations

CLICKS = """CREATE TABLE clicks (id BIGINT, user_id BIGINT, price DOUBLE, ts TIMESTAMP(3), pt AS PROCTIME(),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ('connector' = 'datagen');
CREATE TABLE users (user_id BIGINT, name STRING, changed TIMESTAMP(3), PRIMARY KEY (user_id) NOT ENFORCED,
  WATERMARK FOR changed AS changed) WITH ('connector' = 'datagen');
CREATE TABLE views (user_id BIGINT, page STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen');
CREATE TABLE few (user_id BIGINT, price DOUBLE) WITH ('connector' = 'datagen', 'number-of-rows' = '5');
"""
WINDOWS = (
    "SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE clicks, DESCRIPTOR({}), INTERVAL '1' MINUTE) "
    "GROUP BY window_start, window_end"
)
TTL = "SET 'table.exec.state.ttl' = '1 d';\n"

FOUND: dict[str, list[str]] = {
    "state-without-limit": [
        "SELECT user_id, COUNT(*) AS n FROM clicks GROUP BY user_id",
        "SELECT c.id, v.page FROM clicks c JOIN views v ON c.user_id = v.user_id",
        "SELECT DISTINCT user_id FROM clicks",
        "SELECT id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY ts) AS n FROM clicks) WHERE n = 1",
        "SELECT id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY price DESC) AS n FROM clicks) WHERE n <= 3",
        "SELECT id, SUM(price) OVER (PARTITION BY user_id ORDER BY ts) AS total FROM clicks",
        "SELECT * FROM clicks MATCH_RECOGNIZE (PARTITION BY user_id ORDER BY ts MEASURES A.id AS a PATTERN (A B) DEFINE B AS B.id > A.id)",
    ],
    "processing-time-in-results": [
        "SELECT id, CURRENT_TIMESTAMP AS at FROM clicks",
        "SELECT id, CAST(pt AS STRING) AS at FROM clicks",
        "SELECT user_id, MAX(UNIX_TIMESTAMP()) AS seen FROM few GROUP BY user_id",
        WINDOWS.format("pt"),
        "SELECT id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY pt) AS n FROM clicks) WHERE n = 1",
    ],
    "unused-column": [
        "SELECT id FROM (SELECT id, price * 2 AS twice FROM clicks)",
        "SELECT user_id, n FROM (SELECT user_id, COUNT(*) AS n, SUM(price) AS total FROM few GROUP BY user_id)",
    ],
    "multiplying-join": [
        "SELECT c.id, v.page FROM clicks c JOIN views v ON c.user_id = v.user_id",
        "SELECT c.id, v.page FROM clicks c LEFT JOIN views v ON c.price > 3",
        "SELECT c.id, v.page FROM clicks c CROSS JOIN views v",
    ],
    "empty-sink": ["SELECT id FROM clicks WHERE price > 3 AND FALSE"],
    "wrong-pattern": [
        "SELECT REGEXP_EXTRACT(page, '(a') AS a FROM views",
        "SELECT page FROM views WHERE NOT REGEXP(page, '*')",
        "SELECT REGEXP_EXTRACT(page, '(a)(b)', 3) AS a FROM views",
        "SELECT COUNT(*) FILTER (WHERE UPPER(REGEXP_REPLACE(page, 'a{', '')) = 'B') AS n FROM views",
        "SELECT v.user_id FROM views v JOIN few f ON v.user_id = f.user_id AND REGEXP_COUNT(v.page, '[') > f.price",
    ],
}
NOT_FOUND: dict[str, list[str]] = {
    "state-without-limit": [
        TTL + FOUND["state-without-limit"][0],
        TTL + FOUND["state-without-limit"][1],
        "SELECT user_id, COUNT(*) AS n FROM few GROUP BY user_id",
        "SELECT COUNT(*) AS n FROM clicks",
        WINDOWS.format("ts"),
        "SELECT c.id, v.page FROM clicks c JOIN views v ON c.user_id = v.user_id AND v.ts BETWEEN c.ts AND c.ts + INTERVAL '1' MINUTE",
        "SELECT /*+ STATE_TTL('c' = '1d', 'v' = '2d') */ c.id, v.page FROM clicks c JOIN views v ON c.user_id = v.user_id",
        FOUND["state-without-limit"][-1].replace(" DEFINE", " WITHIN INTERVAL '1' MINUTE DEFINE"),
    ],
    "processing-time-in-results": [
        "SELECT id, ts FROM clicks",
        "SELECT id FROM clicks WHERE ts > TIMESTAMP '2024-01-01 00:00:00'",
        "SELECT id, UNIX_TIMESTAMP('2024-01-01 00:00:00') AS at FROM clicks",
        WINDOWS.format("ts"),
    ],
    "unused-column": [
        "CREATE VIEW v AS SELECT id, CAST(price AS STRING) AS text, ROW(1, 2) AS r, ts AS t, 1 AS one FROM clicks; SELECT id, r FROM v",
        "CREATE VIEW v AS SELECT id, PROCTIME() AS at, user_id FROM clicks; SELECT id FROM v",
        "SELECT id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY ts) AS n FROM clicks) WHERE n = 1",
        "SELECT id, twice FROM (SELECT id, price * 2 AS twice FROM clicks)",
        "SELECT id FROM (SELECT id, price * 2 AS twice FROM clicks) WHERE twice > 3",
        "SELECT id FROM clicks",
    ],
    "multiplying-join": [
        "SELECT c.id, u.name FROM clicks c JOIN users u ON c.user_id = u.user_id",
        "SELECT c.id, g.n FROM clicks c JOIN (SELECT user_id, COUNT(*) AS n FROM views GROUP BY user_id) g ON c.user_id = g.user_id",
        "SELECT id FROM clicks WHERE user_id IN (SELECT user_id FROM views)",
        "SELECT c.id, u.name FROM clicks c JOIN users FOR SYSTEM_TIME AS OF c.ts AS u ON c.user_id = u.user_id",
        "SELECT c.id, m.top FROM clicks c CROSS JOIN (SELECT MAX(price) AS top FROM few) m",
        "SELECT c.id, v.page FROM clicks c JOIN views v ON c.user_id = v.user_id AND v.ts BETWEEN c.ts AND c.ts + INTERVAL '1' MINUTE",
    ],
    "empty-sink": ["SELECT id FROM clicks WHERE price > 3"],
    "wrong-pattern": [
        r"SELECT REGEXP_EXTRACT(page, '(a)\d', 1) AS a FROM views",
        "SELECT REGEXP_EXTRACT(page, page) AS a, REGEXP_EXTRACT(page, CAST(NULL AS STRING)) AS b, page LIKE '(' AS c FROM views",
    ],
}
