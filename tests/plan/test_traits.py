"""What columns are to time, node by node: time attributes and window bounds last as long as they mean something."""

from __future__ import annotations

import pytest

from flowrun.core.semantics import TimeDomain
from flowrun.core.types import timestamp, timestamp_ltz
from flowrun.plan.expressions import Cast, ColumnRef
from flowrun.plan.nodes import PlanNode
from flowrun.plan.relational import AssignTime
from flowrun.plan.traits import Role, TraitIndex, Traits, WindowIdentity, window_end_of, window_time
from flowrun.plan.windows import TumblingWindow
from tests.plan.recognition.queries import planned

TUMBLE = "TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"


def top(query: str) -> PlanNode:
    return planned(query).sinks[0].input


def roles(query: str) -> dict[str, str]:
    """What the query's columns are: `rowtime*` is the event time that rows carry."""
    node = top(query)
    return described(node, TraitIndex()[node])


def described(node: PlanNode, traits: Traits) -> dict[str, str]:
    found = {}
    for name, trait in zip(node.schema.names, traits.columns, strict=True):
        if trait is None:
            continue
        word = trait.role.value if trait.role is not Role.TIME else "rowtime"
        if trait.role is Role.TIME and trait.domain is TimeDomain.PROCESSING:
            word = "proctime"
        found[name] = word + "*" * trait.current
    return found


def test_sources_have_the_time_of_their_watermark_and_processing_times() -> None:
    assert roles("SELECT * FROM clicks") == {"ts": "rowtime*", "p": "proctime"}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT ts AS a, ts AS b, PROCTIME() AS q FROM orders", {"a": "rowtime*", "b": "rowtime*", "q": "proctime"}),
        ("SELECT ts + INTERVAL '0' SECOND AS a, CAST(ts AS TIMESTAMP(3)) AS b FROM orders", {"b": "rowtime*"}),
        ("SELECT CAST(ts AS TIMESTAMP(6)) AS a, CAST(ts AS STRING) AS b, CURRENT_TIMESTAMP AS c FROM orders", {}),
        ("SELECT ts FROM orders UNION ALL SELECT ts FROM clicks", {"ts": "rowtime*"}),
        ("SELECT ts AS t FROM orders UNION ALL SELECT other FROM clicks", {}),
        ("SELECT ts, p FROM orders WHERE amount > 1", {"ts": "rowtime*", "p": "proctime"}),
        ("SELECT ts, COUNT(*) FROM orders GROUP BY ts", {}),
        ("SELECT * FROM (SELECT ts, ROW_NUMBER() OVER (ORDER BY amount) r FROM orders) WHERE r < 3", {}),
        ("SELECT * FROM (SELECT ts, ROW_NUMBER() OVER (ORDER BY ts) r FROM orders) WHERE r = 1", {"ts": "rowtime*"}),
        ("SELECT ts, SUM(amount) OVER (ORDER BY ts) s FROM orders", {"ts": "rowtime*"}),
        (
            "SELECT * FROM orders MATCH_RECOGNIZE (ORDER BY ts MEASURES MATCH_ROWTIME() AS m, FIRST(ts) AS f PATTERN (A B))",
            {"m": "rowtime*"},
        ),
        ("SELECT o.ts, c.ts AS t FROM orders o JOIN clicks c ON o.id = c.id", {}),
        (
            "SELECT o.ts, c.ts AS t FROM orders o JOIN clicks c ON o.id = c.id AND o.ts BETWEEN c.ts AND c.ts + INTERVAL '1' DAY",
            {"ts": "rowtime", "t": "rowtime"},
        ),
        (
            "SELECT o.ts, r.ts AS t FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency",
            {"ts": "rowtime*"},
        ),
        (
            "SELECT o.ts, o.p, s.v FROM orders o JOIN side FOR SYSTEM_TIME AS OF o.p AS s ON o.currency = s.k",
            {"ts": "rowtime*", "p": "proctime"},
        ),
        ("SELECT ts, id FROM orders ORDER BY ts", {"ts": "rowtime*"}),
    ],
)
def test_nodes_keep_time_attributes_or_lose_them(query: str, expected: dict[str, str]) -> None:
    assert roles(query) == expected


BOUNDS = {"window_start": "window start", "window_end": "window end"}


def test_window_functions_add_bounds_and_keep_the_rows_times() -> None:
    assert roles(f"SELECT ts, window_start, window_end, window_time FROM {TUMBLE}") == {
        "ts": "rowtime*", **BOUNDS, "window_time": "window time",
    }  # fmt: skip


def test_rows_of_closed_windows_carry_their_window_time() -> None:
    keys = "window_start, window_end, window_time, id"
    grouped = f"SELECT {keys}, COUNT(*) n FROM {TUMBLE} GROUP BY {keys}"
    expected = {**BOUNDS, "window_time": "window time*"}
    assert roles(grouped) == expected
    numbered = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY n) r FROM ({grouped})"
    ranked = f"SELECT window_start, window_end, window_time FROM ({numbered}) WHERE r < 3"
    assert roles(ranked) == expected
    joined = f"SELECT a.* FROM ({grouped}) a JOIN ({grouped}) b ON a.window_start = b.window_start AND a.window_end = b.window_end"
    assert roles(joined) == expected
    session = "SELECT ts, window_start, window_end, window_time FROM TABLE(SESSION(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
    assert roles(session) == expected, "the rows' own times are behind the watermark by then"


def test_a_window_joins_rows_of_that_window_only_once() -> None:
    """Rows of a window that are put into others have those; the old bounds are ordinary timestamps, window_time a rowtime."""
    grouped = f"SELECT window_start AS s, window_end AS e, window_time AS t FROM {TUMBLE} GROUP BY window_start, window_end, window_time"
    query = f"WITH g AS ({grouped}) SELECT * FROM TABLE(TUMBLE(TABLE g, DESCRIPTOR(t), INTERVAL '1' HOUR))"
    assert roles(query) == {"t": "rowtime*", **BOUNDS, "window_time": "window time"}


def test_windows_of_equal_specification_are_one() -> None:
    def window(query: str) -> WindowIdentity | None:
        node = top(query)
        return TraitIndex()[node].window

    one = window(f"SELECT * FROM {TUMBLE}")
    assert one == WindowIdentity(TumblingWindow(60_000), TimeDomain.EVENT)
    assert one == window(f"SELECT * FROM {TUMBLE.replace('orders', 'clicks')}")
    assert one != window(f"SELECT * FROM {TUMBLE.replace('MINUTE', 'HOUR')}")
    assert one != window(f"SELECT * FROM {TUMBLE.replace('(ts)', '(p)')}")


def test_the_windows_of_windowed_rows_survive_aggregates_over_them() -> None:
    grouped = f"SELECT window_start, window_end, id, COUNT(*) n FROM {TUMBLE} GROUP BY window_start, window_end, id"
    again = f"SELECT window_start, window_end, MAX(n) AS m FROM ({grouped}) GROUP BY window_start, window_end"
    node = top(again)
    assert described(node, TraitIndex()[node]) == BOUNDS
    assert TraitIndex()[node].window == WindowIdentity(TumblingWindow(60_000), TimeDomain.EVENT)


def test_an_assigned_column_is_what_rows_carry() -> None:
    node = top("SELECT o.ts, c.ts AS t FROM orders o JOIN clicks c ON o.id = c.id AND o.ts = c.ts")
    assigned = AssignTime(node.schema, node.hints, node, 1)
    assert described(assigned, TraitIndex()[assigned]) == {"ts": "rowtime", "t": "rowtime*"}


def test_window_time_is_known_by_its_form() -> None:
    end = ColumnRef(timestamp(3), 4, "e")
    assert window_end_of(window_time(end, timestamp(3))) == end
    assert window_end_of(window_time(end, timestamp_ltz(3))) == end
    assert window_end_of(end) is None
    assert window_end_of(Cast(timestamp(6), end)) is None
