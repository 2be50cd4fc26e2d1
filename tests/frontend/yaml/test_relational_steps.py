"""Steps that say in YAML what SQL has words for: each kind from JSON rows in to folded rows out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frontend.yaml.small_runs import results

HEAD = """
sources:
  orders:
    connector: filesystem
    path: ${DIR}/orders
    format: json
    schema: {id: BIGINT, user: STRING, amount: BIGINT, tags: ARRAY<STRING>, ts: TIMESTAMP(3)}
    watermark: {column: ts, delay: 5s}
    parallelism: 1
  users:
    connector: filesystem
    path: ${DIR}/users
    format: json
    schema: {name: STRING, city: STRING, since: TIMESTAMP(3)}
    primary_key: name
    watermark: {column: since}
    parallelism: 1
"""
SINK = """
sinks:
  out: {from: result, connector: filesystem, path: "${DIR}/out", format: debezium-json}
"""


def at(seconds: int) -> str:
    return f"2024-01-01 00:{seconds // 60:02d}:{seconds % 60:02d}"


def order(number: int, user: str | None, amount: int, second: int, *tags: str) -> dict[str, object]:
    return {"id": number, "user": user, "amount": amount, "tags": list(tags), "ts": at(second)}


ORDERS = [
    order(1, "ann", 10, 0, "a", "b"),
    order(2, "bob", 20, 20),
    order(3, "ann", 30, 70, "b"),
    order(4, "cid", 5, 80, "c"),
    order(5, "bob", 20, 130, "a"),
    order(6, None, 7, 140),
]
USERS = [
    {"name": "ann", "city": "Rome", "since": at(0)},
    {"name": "bob", "city": "Oslo", "since": at(10)},
    {"name": "ann", "city": "Bern", "since": at(60)},
    {"name": "dan", "city": "Bonn", "since": at(61)},
]

CASES: dict[str, tuple[str, str]] = {
    "sql over a source, before the step that it reads is defined": (
        """
  result: {sql: "SELECT user, revenue FROM per_minute WHERE revenue > 10"}
  per_minute: {from: orders, key_by: user, null_keys: drop, window: {type: tumbling, size: 1m}, aggregate: "SUM(amount) AS revenue"}
""",
        "ann 30 | bob 20 | bob 20",
    ),
    "sql over side outputs": (
        """
  parts: {from: orders, split: {small: amount < 10}}
  result: {sql: "SELECT 'small' AS what, id FROM small UNION ALL SELECT 'rest', id FROM parts WHERE id > 4"}
""",
        "rest 5 | small 4 | small 6",
    ),
    "sql with windows over the source's time": (
        """
  result:
    sql: |
      SELECT window_end, COUNT(*) AS n
      FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
      GROUP BY window_start, window_end
""",
        "2024-01-01 00:01:00 2 | 2024-01-01 00:02:00 2 | 2024-01-01 00:03:00 2",
    ),
    "aggregate without window": (
        '\n  result: {from: orders, key_by: user, aggregate: ["COUNT(*) AS n", "SUM(amount) AS total"]}',
        "- 1 7 | ann 2 40 | bob 2 40 | cid 1 5",
    ),
    "aggregate without window and without NULL keys, having": (
        """
  result: {from: orders, key_by: ["UPPER(user) AS who"], null_keys: drop, aggregate: ["COUNT(*) AS n"], having: n > 1}
""",
        "ANN 2 | BOB 2",
    ),
    "aggregate of everything": ('\n  result: {from: orders, aggregate: "SUM(amount) AS total"}', "92"),
    "aggregate by the bounds of windows": (
        """
  windowed: {from: orders, window: {type: tumbling, size: 1m}}
  result: {from: windowed, key_by: [window_start, window_end], aggregate: "COUNT(*) AS n"}
""",
        "2024-01-01 00:00:00 2024-01-01 00:01:00 2 | 2024-01-01 00:01:00 2024-01-01 00:02:00 2 "
        "| 2024-01-01 00:02:00 2024-01-01 00:03:00 2",
    ),
    "queries go on by the time of windows": (
        """
  minutes: {from: orders, window: {type: tumbling, size: 1m}, aggregate: ["SUM(amount) AS total", window_time]}
  result:
    sql: |
      SELECT window_end, SUM(total) AS total, COUNT(*) AS n
      FROM TABLE(TUMBLE(TABLE (SELECT total, window_time FROM minutes), DESCRIPTOR(window_time), INTERVAL '2' MINUTE))
      GROUP BY window_start, window_end
""",
        "2024-01-01 00:02:00 65 2 | 2024-01-01 00:04:00 27 1",
    ),
    "windows of windows": (
        """
  minutes: {from: orders, window: {type: tumbling, size: 1m}, aggregate: ["SUM(amount) AS total", window_time]}
  times: {from: minutes, select: [total, window_time], window: {type: tumbling, size: 2m}}
  result: {from: times, key_by: [window_start, window_end], aggregate: SUM(total) AS total}
""",
        "2024-01-01 00:00:00 2024-01-01 00:02:00 65 | 2024-01-01 00:02:00 2024-01-01 00:04:00 27",
    ),
    "sql over late rows and over what a split leaves": (
        """
  parts: {from: orders, split: {large: amount >= 20}}
  w: {from: large, window: {type: tumbling, size: 1m, late_output: late}, aggregate: COUNT(*) AS n}
  result:
    sql: |
      SELECT 'late' AS what, COUNT(*) AS n FROM late UNION ALL
      SELECT 'w', SUM(n) FROM w UNION ALL
      SELECT 'parts', COUNT(*) FROM parts
""",
        "parts 3 | w 3",
    ),
    "sessions of users": (
        """
  sessions: {from: orders, filter: user IS NOT NULL, key_by: user, window: {type: session, gap: 1m}}
  result: {from: sessions, key_by: [user, window_start, window_end], aggregate: COUNT(*) AS n}
""",
        "ann 2024-01-01 00:00:00 2024-01-01 00:01:00 1 | ann 2024-01-01 00:01:10 2024-01-01 00:02:10 1 "
        "| bob 2024-01-01 00:00:20 2024-01-01 00:01:20 1 | bob 2024-01-01 00:02:10 2024-01-01 00:03:10 1 "
        "| cid 2024-01-01 00:01:20 2024-01-01 00:02:20 1",
    ),
    "a cross join, and limits without an order": (
        """
  two: {from: users, limit: 2, order_by: since}
  result: {from: two, join: {with: users, as: u, on: "TRUE"}, select: [two.name, u.city], filter: u.city = 'Oslo'}
""",
        "ann Oslo | bob Oslo",
    ),
    "distinct": ("\n  result: {from: orders, select: user, distinct: true}", "- | ann | bob | cid"),
    "deduplicate, the last by event time": (
        "\n  result: {from: orders, key_by: user, deduplicate: {keep: last}}",
        "3 ann 30 ['b'] 2024-01-01 00:01:10 | 4 cid 5 ['c'] 2024-01-01 00:01:20 | 5 bob 20 ['a'] 2024-01-01 00:02:10 "
        "| 6 - 7 [] 2024-01-01 00:02:20",
    ),
    "deduplicate, the first by another column": (
        "\n  result: {from: orders, select: [user, amount], key_by: user, deduplicate: {keep: first, order_by: amount}}",
        "- 7 | ann 10 | bob 20 | cid 5",
    ),
    "top_n with ranks": (
        """
  result:
    from: orders
    select: [user, id, amount]
    top_n: {partition_by: user, order_by: [amount DESC, id], n: 1, rank: place}
""",
        "- 6 7 1 | ann 3 30 1 | bob 2 20 1 | cid 4 5 1",
    ),
    "top_n of an aggregate": (
        """
  result: {from: orders, key_by: user, aggregate: "SUM(amount) AS total", top_n: {order_by: [total DESC, user], n: 2}}
""",
        "ann 40 | bob 40",
    ),
    "top_n of windows": (
        """
  result:
    from: orders
    select: [id, amount, ts]
    window: {type: tumbling, size: 1m}
    top_n: {partition_by: [window_start, window_end], order_by: amount DESC, n: 1}
  """.rstrip(),
        "2 20 2024-01-01 00:00:20 2024-01-01 00:00:00 2024-01-01 00:01:00 2024-01-01 00:00:59.999 "
        "| 3 30 2024-01-01 00:01:10 2024-01-01 00:01:00 2024-01-01 00:02:00 2024-01-01 00:01:59.999 "
        "| 5 20 2024-01-01 00:02:10 2024-01-01 00:02:00 2024-01-01 00:03:00 2024-01-01 00:02:59.999",
    ),
    "limit": (
        '\n  result: {from: orders, select: [id, amount], order_by: ["amount DESC", id], limit: 2, offset: 1}',
        "2 20 | 5 20",
    ),
    "regular join": (
        """
  result:
    from: orders
    join: {with: users, on: orders.user = users.name, kind: regular}
    filter: amount > 10
    select: [orders.id, users.city]
""",
        "2 Oslo | 3 Bern | 3 Rome | 5 Oslo",
    ),
    "left join": (
        """
  result: {from: orders, join: {with: users, type: left, on: user = name AND city <> 'Rome'}, select: [id, city]}
""",
        "1 Bern | 2 Oslo | 3 Bern | 4 - | 5 Oslo | 6 -",
    ),
    "full join": (
        """
  result: {from: orders, join: {with: users, type: full, on: user = name}, select: [id, name]}
""",
        "- dan | 1 ann | 1 ann | 2 bob | 3 ann | 3 ann | 4 - | 5 bob | 6 -",
    ),
    "semi join": (
        "\n  result: {from: orders, join: {with: users, type: semi, on: user = name}, select: id}",
        "1 | 2 | 3 | 5",
    ),
    "anti join": (
        "\n  result: {from: orders, join: {with: users, type: anti, on: user = name}, filter: id < 6, select: id}",
        "4",
    ),
    "a step joined with itself": (
        """
  result:
    from: orders
    join: {with: orders, as: others, on: orders.user = others.user AND orders.id < others.id}
    select: [orders.id, others.id AS other]
""",
        "1 3 | 2 5",
    ),
    "interval join": (
        """
  result:
    from: orders
    join:
      with: users
      kind: interval
      on: user = name AND since BETWEEN ts - INTERVAL '1' MINUTE AND ts
    select: [id, city]
""",
        "1 Rome | 2 Oslo | 3 Bern",
    ),
    "window join": (
        """
  a: {from: orders, window: {type: tumbling, size: 1m}}
  b: {from: users, window: {type: tumbling, size: 1m}}
  result:
    from: a
    join: {with: b, kind: window, on: user = name AND a.window_start = b.window_start AND a.window_end = b.window_end}
    select: [id, city]
""",
        "1 Rome | 2 Oslo | 3 Bern",
    ),
    "temporal join": (
        """
  result: {from: orders, join: {with: users, type: left, on: user = name, as_of: orders.ts, kind: temporal}, select: [id, city]}
""",
        "1 Rome | 2 Oslo | 3 Bern | 4 - | 5 Oslo | 6 -",
    ),
    "window over an interval join": (
        """
  joined: {from: orders, join: {with: users, on: user = name AND since BETWEEN ts - INTERVAL '1' MINUTE AND ts}}
  result: {from: joined, key_by: user, window: {type: tumbling, size: 1m}, aggregate: "COUNT(*) AS n"}
""",
        "ann 2024-01-01 00:00:00 2024-01-01 00:01:00 1 | ann 2024-01-01 00:01:00 2024-01-01 00:02:00 1 "
        "| bob 2024-01-01 00:00:00 2024-01-01 00:01:00 1",
    ),
    "unnest": (
        "\n  result: {from: orders, unnest: {column: tags, as: tag}, filter: tag <> 'c', select: [id, tag]}",
        "1 a | 1 b | 3 b | 5 a",
    ),
    "unnest with positions and rows without elements": (
        "\n  result: {from: orders, unnest: {column: tags, as: tag, ordinality: pos, outer: true}, select: [id, tag, pos]}",
        "1 a 1 | 1 b 2 | 2 - - | 3 b 1 | 4 c 1 | 5 a 1 | 6 - -",
    ),
    "over": (
        """
  result:
    from: orders
    select: [id, user, amount, ts]
    over: ["SUM(amount) OVER (PARTITION BY user ORDER BY ts) AS total", "COUNT(*) OVER (PARTITION BY user ORDER BY ts) AS n"]
  """.rstrip(),
        "1 ann 10 2024-01-01 00:00:00 10 1 | 2 bob 20 2024-01-01 00:00:20 20 1 | 3 ann 30 2024-01-01 00:01:10 40 2 "
        "| 4 cid 5 2024-01-01 00:01:20 5 1 | 5 bob 20 2024-01-01 00:02:10 40 2 | 6 - 7 2024-01-01 00:02:20 7 1",
    ),
    "match_recognize": (
        """
  result:
    from: orders
    match_recognize: |
      PARTITION BY user
      ORDER BY ts
      MEASURES A.id AS first_id, B.id AS second_id
      PATTERN (A B)
      DEFINE B AS B.amount > A.amount
""",
        "ann 1 3",
    ),
    "intersect": (
        """
  names: {from: users, select: name AS user}
  buyers: {from: orders, select: user}
  result: {intersect: [buyers, names]}
""",
        "ann | bob",
    ),
    "except": (
        """
  names: {from: users, select: name AS user}
  buyers: {from: orders, select: user}
  result: {except: [names, buyers]}
""",
        "dan",
    ),
    "sql and further parts in one step": (
        """
  result: {sql: "SELECT user, amount FROM orders", filter: amount >= 10, key_by: user, aggregate: "MAX(amount) AS most"}
""",
        "ann 30 | bob 20",
    ),
}


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_a_step_gives_these_rows(tmp_path: Path, case: str, parallelism: int) -> None:
    steps, expected = CASES[case]
    document = HEAD + "steps:" + steps + SINK
    assert " | ".join(results(tmp_path, document, parallelism, orders=ORDERS, users=USERS)) == expected
